//! The rules there are: one line each. A rule is a type that implements [`Rule`]; adding one takes its file and a line here.
//!
//! The order is that of the findings before they are sorted. Must never hold a threshold or a sentence: those are the rules'.

use std::fmt::Debug;

use stormlog_model::{DerivedFields, Event, Finding};

use super::gap::GapFinding;
use super::{collector, fragmentation, gap, growth, limit, oom, pressure, retries};
use crate::phases::PhaseIndex;
use crate::recording::Stream;

/// Judges one stream: a device or the host, as one process saw it.
pub trait Rule: Debug + Send + Sync {
    /// Takes one event of the stream, in the order of time. A rule that judges by what the stream keeps anyway does not need it.
    fn observe(&mut self, _observed: &Observed<'_>) {}

    /// What is found when all events were taken. Healthy input gives nothing above `info`.
    fn findings(&self, context: &RuleContext<'_>) -> Vec<Finding>;
}

/// One event and what follows from its counters.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    /// The event.
    pub event: &'a Event,
    /// Computed once for all rules.
    pub derived: &'a DerivedFields,
}

/// What a rule may look at in the end.
#[derive(Debug, Clone, Copy)]
pub struct RuleContext<'a> {
    /// The stream: its samples, its highest values, the facts that several rules need.
    pub stream: &'a Stream,
    /// The phases of its rank.
    pub phases: &'a PhaseIndex,
    /// Its hidden gaps, as 0.4.3 counts them.
    pub gaps: &'a [GapFinding],
}

/// Makes the state of a rule for one stream.
pub type MakeRule = fn() -> Box<dyn Rule>;

/// The rules of an analysis.
#[derive(Debug, Clone)]
pub struct Rules(Vec<MakeRule>);

impl Default for Rules {
    fn default() -> Self {
        Rules(STANDARD.to_vec())
    }
}

impl Rules {
    /// No rules: for a reader that draws and does not judge.
    #[must_use]
    pub fn none() -> Self {
        Rules(Vec::new())
    }

    /// These and one more.
    #[must_use]
    pub fn with(mut self, make: MakeRule) -> Self {
        self.0.push(make);
        self
    }

    pub(crate) fn make(&self) -> Vec<Box<dyn Rule>> {
        self.0.iter().map(|make| make()).collect()
    }
}

fn make<R: Rule + Default + 'static>() -> Box<dyn Rule> {
    Box::new(R::default())
}

const STANDARD: [MakeRule; 8] = [
    make::<growth::MemoryGrowth>,
    make::<oom::OutOfMemory>,
    make::<fragmentation::Fragmentation>,
    make::<retries::AllocatorRetries>,
    make::<limit::NearLimit>,
    make::<pressure::MemoryPressure>,
    make::<collector::CollectorDegraded>,
    make::<gap::HiddenMemory>,
];
