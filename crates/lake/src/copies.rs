//! Copies of a run among the recordings at some paths: a shipped copy beside its original, a backup.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::end_rows::{DeathRow, FindingRow, HolderRow, ProcessRow};
use crate::row::{ProcessFacts, SampleRow};
use crate::rows::{Problem, Receiver, Recording, RunFacts, Stop};

/// A recording that is not read because another one of the same run is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunCopy {
    /// Where it is.
    pub path: PathBuf,
    /// The one that is read.
    pub of: PathBuf,
}

/// Each run once, in the same order: a copy of it, wherever it is, has the same first session. Of several the most complete one is kept.
#[must_use]
pub fn without_copies(runs: &[Recording]) -> (Vec<&Recording>, Vec<RunCopy>) {
    let mut by_key: BTreeMap<&str, Vec<&Recording>> = BTreeMap::new();
    for recording in runs {
        by_key.entry(&recording.facts.key).or_default().push(recording);
    }
    let (mut once, mut copies) = (Vec::new(), Vec::new());
    for recording in runs {
        let Some(same) = by_key.remove(&*recording.facts.key) else { continue };
        let kept = most_complete(&same).unwrap_or(recording);
        once.push(kept);
        for copy in same.iter().filter(|copy| !std::ptr::eq(**copy, kept)) {
            copies.push(RunCopy { path: copy.facts.path.clone(), of: kept.facts.path.clone() });
        }
    }
    (once, copies)
}

/// One that has ended, and rather the run itself than a copy that was shipped; then the one with the most samples, which takes reading them.
fn most_complete<'a>(same: &[&'a Recording]) -> Option<&'a Recording> {
    let rank = |one: &Recording| (one.facts.is_over, !one.facts.is_copy);
    let best = same.iter().map(|one| rank(one)).max()?;
    let mut best = same.iter().copied().filter(|one| rank(one) == best);
    let first = best.next()?;
    let others: Vec<&Recording> = best.collect();
    if others.is_empty() {
        return Some(first);
    }
    let mut kept = (samples(first), first);
    for (count, other) in others.into_iter().map(|other| (samples(other), other)) {
        if count > kept.0 {
            kept = (count, other);
        }
    }
    Some(kept.1)
}

/// The samples of a recording that can be read.
fn samples(recording: &Recording) -> u64 {
    let mut counting = Counting::default();
    // This receiver never ends the reading.
    let _ = recording.read(&mut counting);
    counting.samples
}

#[derive(Default)]
struct Counting {
    samples: u64,
}

impl Receiver for Counting {
    fn wants_process(&mut self, _: &ProcessFacts) -> bool {
        false
    }

    fn wants_judgement(&mut self, _: &RunFacts) -> bool {
        false
    }

    fn sample(&mut self, _: SampleRow) -> Result<(), Stop> {
        self.samples += 1;
        Ok(())
    }

    fn process(&mut self, _: ProcessRow) -> Result<(), Stop> {
        Ok(())
    }

    fn death(&mut self, _: DeathRow) -> Result<(), Stop> {
        Ok(())
    }

    fn finding(&mut self, _: FindingRow) -> Result<(), Stop> {
        Ok(())
    }

    fn holder(&mut self, _: HolderRow) -> Result<(), Stop> {
        Ok(())
    }

    fn problem(&mut self, _: Problem) -> Result<(), Stop> {
        Ok(())
    }
}
