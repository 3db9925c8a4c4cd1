//! Deaths by run: each run's count only rises, and what is known of a run stays when the run is removed, so that the sum never falls.
//!
//! A count that is read again is not added again. Bounded: the runs that died longest ago are kept as a sum.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use stormlog_catalog::run::deaths::{DeathCount, Deaths};

/// Runs whose deaths are kept one by one.
const MOST_RUNS: usize = 20_000;

/// All deaths that were ever seen.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Ledger {
    /// Of runs that are kept as a sum.
    pub(crate) base: Deaths,
    /// Of the others.
    pub(crate) runs: BTreeMap<PathBuf, Deaths>,
}

impl Ledger {
    /// Takes in a count of a run's deaths; true where it knew less.
    pub(crate) fn raise(&mut self, run: &Path, deaths: &Deaths) -> bool {
        if deaths.is_empty() {
            return false;
        }
        let kept = self.runs.entry(run.to_owned()).or_default();
        let before = kept.clone();
        for (cause, count) in deaths {
            kept.entry(*cause).or_default().raise(count);
        }
        let is_changed = *kept != before;
        if self.runs.len() > MOST_RUNS {
            self.fold_oldest();
        }
        is_changed
    }

    /// The sum over all runs.
    pub(crate) fn total(&self) -> Deaths {
        let mut total = self.base.clone();
        for (cause, count) in self.runs.values().flatten() {
            add(total.entry(*cause).or_default(), count);
        }
        total
    }

    fn fold_oldest(&mut self) {
        let last = |deaths: &Deaths| deaths.values().map(|count| count.last_at_ns).max();
        let oldest = self.runs.iter().min_by_key(|(_, deaths)| last(deaths)).map(|(run, _)| run.clone());
        let Some(deaths) = oldest.and_then(|run| self.runs.remove(&run)) else { return };
        for (cause, count) in &deaths {
            add(self.base.entry(*cause).or_default(), count);
        }
    }
}

fn add(sum: &mut DeathCount, count: &DeathCount) {
    sum.count = sum.count.saturating_add(count.count);
    if count.last_at_ns >= sum.last_at_ns {
        (sum.last_at_ns, sum.bundle) = (count.last_at_ns, count.bundle.clone());
    }
}

#[cfg(test)]
mod tests {
    use stormlog_postmortem::Cause;

    use super::*;

    fn deaths(count: u64, last_at_ns: i64) -> Deaths {
        Deaths::from([(Cause::SigKill, DeathCount { count, last_at_ns, bundle: None })])
    }

    #[test]
    fn sum_never_falls_and_a_count_read_again_is_not_added() {
        let mut ledger = Ledger::default();
        assert!(ledger.raise(Path::new("a"), &deaths(2, 5)));
        assert!(!ledger.raise(Path::new("a"), &deaths(2, 5)));
        assert!(!ledger.raise(Path::new("a"), &deaths(1, 4)), "some directories were dropped meanwhile");
        assert!(ledger.raise(Path::new("b"), &deaths(1, 9)));
        let total = ledger.total();
        assert_eq!(total[&Cause::SigKill], DeathCount { count: 3, last_at_ns: 9, bundle: None });
    }

    #[test]
    fn oldest_runs_are_kept_as_a_sum() {
        let mut ledger = Ledger::default();
        for number in 0..MOST_RUNS + 5 {
            ledger.raise(Path::new(&format!("r{number}")), &deaths(1, number as i64));
        }
        assert_eq!(ledger.runs.len(), MOST_RUNS);
        assert_eq!(ledger.total()[&Cause::SigKill].count, MOST_RUNS as u64 + 5);
    }
}
