//! The samples of one answer, by family. Must never hold one series twice: a scrape with a duplicate is refused whole.

use rustc_hash::FxHashSet;

use crate::families::{self, Family};
use crate::labels::Labels;
use crate::text::{self, Format};

/// The most characters of an exemplar's labels, by OpenMetrics.
const MOST_EXEMPLAR: usize = 128;

/// A number as it is written: whole ones are exact.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// Bytes and counts.
    Whole(u64),
    /// Seconds and rates.
    Real(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Value::Whole(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Value::Real(value)
    }
}

/// What a counter's last increase was about.
#[derive(Debug, Clone, PartialEq)]
pub struct Exemplar {
    /// Such as the id of a bundle.
    pub labels: Labels,
    /// The increase.
    pub value: f64,
    /// Seconds since 1970.
    pub timestamp: Option<f64>,
}

#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) labels: Labels,
    pub(crate) value: Value,
    pub(crate) exemplar: Option<Exemplar>,
}

/// Samples, by family.
#[derive(Debug, Default)]
pub struct Exposition {
    samples: Vec<Vec<Sample>>,
    seen: FxHashSet<(usize, Labels)>,
}

impl Exposition {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Exposition { samples: families::ALL.iter().map(|_| Vec::new()).collect(), seen: FxHashSet::default() }
    }

    /// Adds a sample; false where its series is there already, its family is not served, or a label is not its family's.
    pub fn add(&mut self, family: &Family, labels: Labels, value: impl Into<Value>) -> bool {
        self.add_with(family, labels, value.into(), None)
    }

    /// The same with an exemplar, which OpenMetrics shows.
    pub fn add_with(
        &mut self,
        family: &Family,
        labels: Labels,
        value: Value,
        exemplar: Option<Exemplar>,
    ) -> bool {
        let is_known = labels.iter().all(|(name, _)| family.labels.contains(&name));
        debug_assert!(is_known, "{}: a label that is not in the table of families", family.name);
        let Some(at) = families::ALL.iter().position(|known| known.name == family.name) else { return false };
        if !is_known || !self.seen.insert((at, labels.clone())) {
            return false;
        }
        let exemplar = exemplar.filter(|exemplar| exemplar.labels.characters() <= MOST_EXEMPLAR);
        self.samples[at].push(Sample { labels, value, exemplar });
        true
    }

    /// Number of series.
    #[must_use]
    pub fn len(&self) -> usize {
        self.samples.iter().map(Vec::len).sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Families and their samples, in the order in which they are served.
    pub(crate) fn families(&self) -> impl Iterator<Item = (&'static Family, &[Sample])> {
        families::ALL.into_iter().zip(self.samples.iter().map(Vec::as_slice))
    }

    /// The whole as text.
    #[must_use]
    pub fn render(&self, format: Format) -> String {
        let mut out = String::with_capacity(64 * self.len() + 8192);
        for (family, samples) in self.families() {
            if !samples.is_empty() {
                text::write_family(&mut out, family, samples, format);
            }
        }
        text::write_end(&mut out, format);
        out
    }
}
