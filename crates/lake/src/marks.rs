//! What a lake holds already, as its files state it: each file lists in its footer the sessions and runs whose rows it has, and up to when. A file and its
//! marks become visible together, so that a publisher that was killed is continued without a journal and without a row twice.

use std::collections::hash_map::Entry;
use std::hash::BuildHasher;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::layout::PartFile;

/// The key of the marks in the metadata of a file.
pub(crate) const KEY: &str = "stormlog.marks";

/// What a file has of a session, a process or a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// Of what: the id of a session, or `run:` and the key of a run.
    pub(crate) of: String,
    /// How often the clock of the session had been set back before these rows.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) setbacks: u32,
    /// Rows up to this moment are published, in the partition of the file; nanoseconds since 1970.
    pub(crate) to_ns: i64,
    /// Rows in the file.
    pub(crate) rows: u64,
    /// Of a session that has ended: the last moment on each day that it has rows on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) last: Vec<(i32, i64)>,
    /// The same after each time that its clock was set back: that number, day, moment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) last_after: Vec<(u32, i32, i64)>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// The last moments of a session that has ended: number of setbacks, day, moment.
pub(crate) type Ends = Vec<(u32, i32, i64)>;

impl Mark {
    /// States how far the session goes.
    pub(crate) fn end(&mut self, ends: &[(u32, i32, i64)]) {
        let (first, after): (Ends, Ends) = ends.iter().partition(|(setbacks, ..)| *setbacks == 0);
        self.last = first.into_iter().map(|(_, day, last_ns)| (day, last_ns)).collect();
        self.last_after = after;
    }

    fn ends(&self) -> Ends {
        let first = self.last.iter().map(|(day, last_ns)| (0, *day, *last_ns));
        first.chain(self.last_after.iter().copied()).collect()
    }
}

/// The marks of all files of a job in one table.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// By day and session; each with the number of setbacks.
    to_ns: FxHashMap<(i32, String), Vec<(u32, i64)>>,
    last: FxHashMap<String, Ends>,
    known: FxHashSet<String>,
    /// Files that were taken in, by a hash of their name: a name is given once.
    files: FxHashSet<u64>,
    /// The batch of runs for which files were looked for last.
    pub(crate) batch: u64,
}

impl Marks {
    /// Takes in the marks of a file of that day.
    pub(crate) fn add(&mut self, day: i32, text: &str) {
        let marks: Vec<Mark> = serde_json::from_str(text).unwrap_or_default();
        for mark in marks {
            let published = self.to_ns.entry((day, mark.of.clone())).or_default();
            match published.iter_mut().find(|(setbacks, _)| *setbacks == mark.setbacks) {
                Some((_, to_ns)) => *to_ns = mark.to_ns.max(*to_ns),
                None => published.push((mark.setbacks, mark.to_ns)),
            }
            let ends = mark.ends();
            if !ends.is_empty() {
                self.last.insert(mark.of.clone(), ends);
            }
            self.known.insert(mark.of);
        }
    }

    /// Whether a file was not seen before.
    pub(crate) fn is_new(&mut self, file: &PartFile) -> bool {
        self.files.insert(rustc_hash::FxBuildHasher.hash_one((file.partition.day, file.name())))
    }

    /// Whether anything of it is published.
    pub(crate) fn has(&self, of: &str) -> bool {
        self.known.contains(of)
    }

    /// Whether the rows of it that belong to a day are published: the files of several days become visible one by one.
    pub(crate) fn has_on(&self, day: i32, of: &str) -> bool {
        self.to_ns.contains_key(&(day, of.to_owned()))
    }

    /// Up to when a session is published on a day, of what was recorded after its clock had been set back that often. Thinning puts a recording in order, so
    /// that fewer setbacks are seen in it later: what was published after more of them counts.
    pub(crate) fn to_ns(&self, day: i32, of: &str, setbacks: u32) -> i64 {
        // Without a key that owns its text there is no lookup by parts; this is asked once a session and day.
        let published = self.to_ns.get(&(day, of.to_owned())).map(Vec::as_slice).unwrap_or_default();
        let counting = published.iter().filter(|(number, _)| *number >= setbacks);
        counting.map(|(_, to_ns)| *to_ns).max().unwrap_or(i64::MIN)
    }

    /// Whether an ended session is published whole. Days before `first_day` have expired.
    pub(crate) fn is_whole(&self, of: &str, first_day: i32) -> bool {
        let is_there = |(setbacks, day, last_ns): &(u32, i32, i64)| {
            *day < first_day || self.to_ns(*day, of, *setbacks) >= *last_ns
        };
        self.last.get(of).is_some_and(|ends| ends.iter().all(is_there))
    }
}

/// Marks of several files, as one file that replaces them has them.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    all: FxHashMap<(String, u32), Mark>,
}

impl Merged {
    /// Takes in the marks of a file.
    pub(crate) fn add(&mut self, text: &str) {
        for mark in serde_json::from_str::<Vec<Mark>>(text).unwrap_or_default() {
            match self.all.entry((mark.of.clone(), mark.setbacks)) {
                Entry::Occupied(known) => {
                    let known = known.into_mut();
                    known.to_ns = known.to_ns.max(mark.to_ns);
                    known.rows += mark.rows;
                    if !mark.ends().is_empty() {
                        (known.last, known.last_after) = (mark.last, mark.last_after);
                    }
                }
                Entry::Vacant(empty) => drop(empty.insert(mark)),
            }
        }
    }

    /// The marks of the new file.
    pub(crate) fn marks(self) -> impl Iterator<Item = Mark> {
        self.all.into_values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_is_whole_when_each_of_its_days_is_published_to_its_last_moment() {
        let mut marks = Marks::default();
        marks.add(1, r#"[{"of": "s", "to_ns": 10, "rows": 1, "last": [[1, 10], [2, 20]]}]"#);
        assert!(!marks.is_whole("s", i32::MIN), "the file of the second day is missing");
        marks.add(2, r#"[{"of": "s", "to_ns": 20, "rows": 1}]"#);
        assert!(marks.is_whole("s", i32::MIN) && !marks.is_whole("t", i32::MIN));
        marks.add(3, "damaged");
        assert_eq!((marks.to_ns(1, "s", 0), marks.to_ns(3, "s", 0)), (10, i64::MIN));
    }

    #[test]
    fn events_after_a_clock_setback_get_their_own_mark() {
        let mut marks = Marks::default();
        marks.add(1, r#"[{"of": "s", "to_ns": 90, "rows": 1}]"#);
        assert_eq!((marks.to_ns(1, "s", 0), marks.to_ns(1, "s", 1)), (90, i64::MIN));
        let ends = r#"[{"of": "s", "setbacks": 1, "to_ns": 50, "rows": 1, "last": [[1, 90]], "last_after": [[1, 1, 60]]}]"#;
        marks.add(1, ends);
        assert_eq!((marks.to_ns(1, "s", 0), marks.to_ns(1, "s", 1)), (90, 50));
        assert!(!marks.is_whole("s", i32::MIN), "ten more are to come");
        marks.add(1, r#"[{"of": "s", "setbacks": 1, "to_ns": 60, "rows": 1}]"#);
        assert!(marks.is_whole("s", i32::MIN));
        let mut both = Merged::default();
        both.add(r#"[{"of": "s", "to_ns": 90, "rows": 1}]"#);
        both.add(ends);
        let mut both: Vec<(u32, i64)> = both.marks().map(|mark| (mark.setbacks, mark.to_ns)).collect();
        both.sort_unstable();
        assert_eq!(both, [(0, 90), (1, 50)]);
    }
}
