//! The heap of a past moment. A capture is read whole for it, once; one that grows is read again when a later moment is requested.

use std::path::{Path, PathBuf};

use stormlog_heap_report::{History, ViewError};

use crate::read::process::{MOST_LINES, without_stack};
use crate::state::reading::{Heap, Line, Thread};

/// What was read of one capture.
#[derive(Default)]
pub(super) struct PastHeapReader {
    read: Option<(PathBuf, History)>,
}

impl PastHeapReader {
    /// Puts the figures of a moment into a look; where they cannot be had, the reason. `recorded_us` is how far the capture goes now.
    pub(super) fn fill(
        &mut self,
        shown: &mut Heap,
        path: &Path,
        (start_ns, at_ns): (u64, u64),
        recorded_us: u64,
        has_stacks: bool,
    ) {
        let time_us = at_ns.saturating_sub(start_ns) / 1000;
        if let Err(error) = self.try_fill(shown, path, (start_ns, time_us), recorded_us, has_stacks) {
            self.read = None;
            shown.past_trouble = Some(error.to_string());
        }
    }

    fn try_fill(
        &mut self,
        shown: &mut Heap,
        path: &Path,
        (start_ns, time_us): (u64, u64),
        recorded_us: u64,
        has_stacks: bool,
    ) -> Result<(), ViewError> {
        let is_enough = |(known, history): &(PathBuf, History)| {
            known == path && time_us.min(recorded_us) <= history.until_us()
        };
        let read = match self.read.take().filter(is_enough) {
            Some(read) => self.read.insert(read),
            None => self.read.insert((path.to_owned(), History::read(path)?)),
        };
        let past = read.1.at(shown.memory, time_us, shown.thread)?;
        let entries = past.lines();
        let rest = without_stack(&entries, past.whole);
        shown.lines = entries.into_iter().take(MOST_LINES).map(Line::from).chain(rest).collect();
        (shown.bytes, shown.count) = (past.whole.bytes, past.whole.count);
        shown.moment_ns = Some(start_ns.saturating_add(past.time_us.saturating_mul(1000)));
        let thread = |(id, name, weight): &(u64, Option<String>, stormlog_model::stacks::Weight)| Thread {
            id: *id,
            name: name.clone(),
            bytes: weight.bytes,
            count: weight.count,
        };
        shown.threads = past.threads.iter().filter(|(_, _, weight)| weight.count > 0).map(thread).collect();
        shown.threads.sort_by_key(|thread| (std::cmp::Reverse(thread.bytes), thread.id));
        // Reserved bytes are known of now only.
        shown.reserved = None;
        shown.stacks = has_stacks.then_some(past.held);
        Ok(())
    }
}
