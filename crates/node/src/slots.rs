//! Numbers for living runs of the same job and rank: without one their samples would be the same series. The first has none; a run keeps its number as
//! long as it lives, whatever becomes of the others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Who has which number, by job and rank.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Slots {
    taken: BTreeMap<(String, i64), BTreeMap<u64, PathBuf>>,
}

impl Slots {
    /// The number of a run: the one it has, else the lowest that is free.
    pub(crate) fn of(&mut self, job: &str, rank: i64, run: &Path) -> u64 {
        let taken = self.taken.entry((job.to_owned(), rank)).or_default();
        if let Some((slot, _)) = taken.iter().find(|(_, holder)| holder.as_path() == run) {
            return *slot;
        }
        let free = (0..).find(|slot| !taken.contains_key(slot)).unwrap_or(u64::MAX);
        taken.insert(free, run.to_owned());
        free
    }

    /// Gives up the numbers of runs that do not live any more.
    pub(crate) fn keep(&mut self, lives: impl Fn(&Path) -> bool) {
        for taken in self.taken.values_mut() {
            taken.retain(|_, run| lives(run));
        }
        self.taken.retain(|_, taken| !taken.is_empty());
    }

    /// All of them: job, rank, number, run.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, i64, u64, &Path)> {
        self.taken.iter().flat_map(|((job, rank), taken)| {
            taken.iter().map(|(slot, run)| (job.as_str(), *rank, *slot, run.as_path()))
        })
    }

    /// A number that was given before this process started.
    pub(crate) fn restore(&mut self, job: String, rank: i64, slot: u64, run: PathBuf) {
        self.taken.entry((job, rank)).or_default().entry(slot).or_insert(run);
    }
}

/// The label of a number; the first has none.
#[must_use]
pub fn slot_label(slot: u64) -> String {
    if slot == 0 { String::new() } else { slot.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_keeps_its_number_while_it_lives() {
        let mut slots = Slots::default();
        let [a, b, c] = ["a", "b", "c"].map(Path::new);
        assert_eq!([slots.of("j", 0, a), slots.of("j", 0, b), slots.of("j", 1, b)], [0, 1, 0]);
        slots.keep(|run| run != a);
        assert_eq!([slots.of("j", 0, b), slots.of("j", 0, c), slots.of("j", 0, b)], [1, 0, 1]);
        let mut again = Slots::default();
        for (job, rank, slot, run) in slots.iter() {
            again.restore(job.to_owned(), rank, slot, run.to_owned());
        }
        assert_eq!(again, slots);
    }
}
