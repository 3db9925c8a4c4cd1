//! What the resident memory of a process is made of, over time: anonymous memory, and shared memory. What files back is neither; the kernel
//! takes it back when it needs room. Known only of recordings that report file-backed memory. Must never judge.

use std::sync::Arc;

use stormlog_model::page_facts::{FILE_BACKED, PSS, PSS_FILE, SHARED_MEMORY};
use stormlog_model::{Counter, Event, Metadata};

use crate::series::Envelope;

/// The first reading of a share also counts for this time before it.
const FIRST_READING_NS: u64 = 10_000_000_000;

/// The parts of a process's resident memory.
#[derive(Debug, Default, Clone)]
pub struct ResidentParts {
    seen: Option<Arc<Metadata>>,
    file_backed: Option<u64>,
    shared_now: u64,
    /// When file-backed and shared memory were reported, and their bytes.
    changes: Vec<(u64, u64, u64)>,
    pss: Option<u64>,
    /// When its share was read, and the bytes of anonymous and shared memory beyond it, which others count.
    counted_elsewhere: Vec<(u64, u64)>,
    /// What no file backs.
    pub anonymous: Envelope,
    /// Shared memory.
    pub shared: Envelope,
}

impl ResidentParts {
    pub(crate) fn observe(&mut self, event: &Event) {
        if event.head.device_id >= 0 {
            return;
        }
        if self.seen.as_ref().is_none_or(|seen| !Arc::ptr_eq(seen, &event.metadata)) {
            let reported = |key: &str| event.metadata.map.get(key).and_then(serde_json::Value::as_u64);
            self.file_backed = reported(FILE_BACKED).or(self.file_backed);
            self.shared_now = reported(SHARED_MEMORY).unwrap_or(self.shared_now);
            self.seen = Some(Arc::clone(&event.metadata));
            let last = self.changes.last().map(|(_, file_backed, shared)| (*file_backed, *shared));
            if let Some(file_backed) =
                self.file_backed.filter(|bytes| last != Some((*bytes, self.shared_now)))
            {
                self.changes.push((event.timestamp_ns, file_backed, self.shared_now));
            }
        }
        let used = event.counter(Counter::Used).filter(|used| *used > 0);
        if let Some((used, file_backed)) = used.zip(self.file_backed) {
            self.observe_share(event, used.saturating_sub(file_backed).saturating_add(self.shared_now));
            self.anonymous.observe(event.timestamp_ns, used.saturating_sub(file_backed));
            self.shared.observe(event.timestamp_ns, self.shared_now.min(used));
        }
    }

    /// Takes in how much of `own`, its anonymous and shared memory, is its share.
    fn observe_share(&mut self, event: &Event, own: u64) {
        let number = |key: &str| event.metadata.map.get(key).and_then(serde_json::Value::as_u64);
        let Some((pss, of_files)) = number(PSS).zip(number(PSS_FILE)) else { return };
        if self.pss != Some(pss) {
            self.pss = Some(pss);
            let share = pss.saturating_sub(of_files);
            self.counted_elsewhere.push((event.timestamp_ns, own.saturating_sub(share)));
        }
    }

    /// Bytes of its anonymous and shared memory that other processes count, by the last reading before a moment; shortly before the first reading, by that:
    /// a forked process shares most from its first moment on. `None` where it was not read.
    pub(crate) fn counted_elsewhere(&self, at_ns: u64) -> Option<u64> {
        let after = self.counted_elsewhere.partition_point(|(since, _)| *since <= at_ns);
        let (since, bytes) = self.counted_elsewhere.get(after.saturating_sub(1))?;
        (since.saturating_sub(at_ns) <= FIRST_READING_NS).then_some(*bytes)
    }

    /// File-backed and shared bytes at a moment; `None` where they are not known.
    pub(crate) fn at(&self, at_ns: u64) -> Option<(u64, u64)> {
        let place = self.changes.partition_point(|(since, ..)| *since <= at_ns).checked_sub(1)?;
        self.changes.get(place).map(|(_, file_backed, shared)| (*file_backed, *shared))
    }

    /// Whether the parts are known for nearly all of `samples` samples.
    pub(crate) fn covers(&self, samples: u64) -> bool {
        self.anonymous.count() > 0 && self.anonymous.count() >= samples - samples / 8
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{finish, metadata, sample};

    const MI: u64 = 1 << 20;

    #[test]
    fn files_are_left_out_and_shared_memory_is_apart() {
        let event = |at: u64, used: u64, file: u64, shared: u64| {
            let pairs =
                [("file_backed_bytes", (file * MI).into()), ("shared_memory_bytes", (shared * MI).into())];
            metadata(sample(at, used * MI), &pairs)
        };
        let recording = finish((0..20).map(|i| event(i, 50 + 3 * i, 20 + 2 * i, i)));
        let parts = &recording.sessions[0].ranks[0].streams[0].facts.resident;
        assert_eq!(parts.anonymous.ends(), Some((30 * MI, 49 * MI)));
        assert_eq!(parts.shared.ends(), Some((0, 19 * MI)));
        assert!(parts.covers(20));
        let older = finish((0..20).map(|i| sample(i, 50 * MI)));
        assert!(!older.sessions[0].ranks[0].streams[0].facts.resident.covers(20));
    }
}
