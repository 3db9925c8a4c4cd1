//! How much of a process's memory is shared with others and how much is its own, over time, as the kernel sums it up (`smaps_rollup`). Known only of
//! recordings that report it. Must never judge: `copy_on_write` does.

use std::sync::Arc;

use serde_json::Value;
use stormlog_model::page_facts::{
    ANONYMOUS, FORK_ANONYMOUS, FORKED, MINOR_FAULTS, PRIVATE_DIRTY, SHARED_DIRTY, USS,
};
use stormlog_model::{Event, Metadata};

/// Readings kept; from there on every second one is dropped.
const MOST: usize = 2048;

/// One reading of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageReading {
    /// When.
    pub(crate) at_ns: u64,
    /// Bytes that no other process shares.
    pub(crate) uss: Option<u64>,
    /// Bytes that no other process shares and that were written.
    pub(crate) private_dirty: u64,
    /// Bytes that others share and that were written before they were.
    pub(crate) shared_dirty: u64,
    /// Bytes that no file backs, shared or not.
    pub(crate) anonymous: u64,
    /// Page faults served from memory, since the process began.
    pub(crate) minor_faults: Option<u64>,
}

/// The readings of a process, and what it was forked from.
#[derive(Debug, Default, Clone)]
pub struct SharedPages {
    seen: Option<Arc<Metadata>>,
    readings: Vec<PageReading>,
    /// Bytes that it shared with its parent at the fork.
    fork_anonymous: Option<u64>,
    /// Its parent, where it is a fork that has not executed a program.
    pub(crate) forked_from: Option<i64>,
    /// Whether its program is a Python program, by its names.
    pub(crate) is_python: bool,
}

impl SharedPages {
    pub(crate) fn observe(&mut self, event: &Event) {
        if event.head.device_id >= 0
            || self.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &event.metadata))
        {
            return;
        }
        self.seen = Some(Arc::clone(&event.metadata));
        let map = &event.metadata.map;
        let number = |key: &str| map.get(key).and_then(Value::as_u64);
        let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
        self.is_python |= text("comm").starts_with("python")
            || text("comm").starts_with("pt_data_worker")
            || text("program").ends_with(".py");
        if let Some(is_fork) = map.get(FORKED).and_then(Value::as_bool) {
            self.forked_from = map.get("ppid").and_then(Value::as_i64).filter(|_| is_fork);
        }
        self.fork_anonymous = self.fork_anonymous.or_else(|| number(FORK_ANONYMOUS));
        let Some(private_dirty) = number(PRIVATE_DIRTY) else { return };
        let Some((shared_dirty, anonymous)) = number(SHARED_DIRTY).zip(number(ANONYMOUS)) else { return };
        let (uss, minor_faults) = (number(USS), number(MINOR_FAULTS));
        let at_ns = event.timestamp_ns;
        let reading = PageReading { at_ns, uss, private_dirty, shared_dirty, anonymous, minor_faults };
        let is_known = |last: &PageReading| PageReading { at_ns, ..*last } == reading;
        if self.readings.last().is_some_and(is_known) {
            return;
        }
        if self.readings.len() >= MOST {
            let mut number = 0;
            self.readings.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
        self.readings.push(reading);
    }

    /// The readings, in the order of time.
    pub(crate) fn readings(&self) -> &[PageReading] {
        &self.readings
    }

    /// What it had at the fork, as far as that was recorded: everything was shared and nothing had faulted. On a busy machine the first reading comes when
    /// much of it is copied already.
    pub(crate) fn at_fork(&self) -> Option<PageReading> {
        let shared = self.fork_anonymous.filter(|_| self.forked_from.is_some())?;
        Some(PageReading {
            at_ns: self.readings.first()?.at_ns,
            uss: Some(0),
            private_dirty: 0,
            shared_dirty: shared,
            anonymous: shared,
            minor_faults: Some(0),
        })
    }

    /// What the last reading before a moment has, or the first after it.
    pub(crate) fn at(&self, at_ns: u64) -> Option<&PageReading> {
        let after = self.readings.partition_point(|reading| reading.at_ns <= at_ns);
        self.readings.get(after.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{finish, metadata, sample};

    #[test]
    fn readings_are_kept_where_they_changed_and_bounded() {
        let event = |at: u64, private: u64| {
            let pairs = [
                ("private_dirty_bytes", private.into()),
                ("shared_dirty_bytes", 7.into()),
                ("anonymous_bytes", 9.into()),
                ("ppid", 3.into()),
                ("is_fork", true.into()),
            ];
            metadata(sample(at, 100), &pairs)
        };
        let recording = finish((0..10_000).map(|at| event(at, at / 2)));
        let pages = &recording.sessions[0].ranks[0].streams[0].facts.pages;
        assert!((1024..=2048).contains(&pages.readings().len()), "{}", pages.readings().len());
        assert_eq!(pages.readings().first().map(|reading| reading.at_ns), Some(0), "the first one stays");
        assert_eq!((pages.forked_from, pages.is_python), (Some(3), false));
        let older = finish((0..10).map(|at| sample(at, 100)));
        assert!(older.sessions[0].ranks[0].streams[0].facts.pages.readings().is_empty(), "unknown");
    }
}
