//! Whether what a program took is its start: it grew while it mapped its libraries, and hardly when it did not. Asked by
//! [`super::growth`]; known only of recordings that tell file-backed memory. Must never excuse growth that has no library beside it.

use std::sync::Arc;

use stormlog_model::page_facts::FILE_BACKED;
use stormlog_model::{Event, Metadata};

use crate::Sample;

/// What is taken so soon after a library was mapped is taken by it.
const BELONGS_NS: u64 = 500_000_000;
/// A library takes more than this. The file of a heap capture, which the program maps too, rises by a few pages at a time.
const LEAST_RISE: u64 = 256 << 10;
/// Growth without a library beside it: imports measured have up to 0.08 of it, leaks that follow an import from 0.43.
const QUIET_SHARE: f64 = 0.25;
/// Rises remembered: a start has a few hundred; a program that maps files all day is not starting.
const MOST_RISES: usize = 4096;

/// When file-backed memory rose.
#[derive(Debug, Default, Clone)]
pub struct LibraryRises {
    seen: Option<Arc<Metadata>>,
    most: u64,
    rises_ns: Vec<u64>,
}

impl LibraryRises {
    pub(crate) fn observe(&mut self, event: &Event) {
        if self.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &event.metadata)) {
            return;
        }
        self.seen = Some(Arc::clone(&event.metadata));
        let reported = event.metadata.map.get(FILE_BACKED).and_then(serde_json::Value::as_u64);
        if let Some(bytes) = reported.filter(|bytes| *bytes >= self.most.saturating_add(LEAST_RISE)) {
            self.most = bytes;
            if self.rises_ns.len() < MOST_RISES {
                self.rises_ns.push(event.timestamp_ns);
            }
        }
    }

    /// From when on no library was mapped any more; `None` when none was.
    pub(crate) fn over_ns(&self) -> Option<u64> {
        self.rises_ns.last().map(|last| last.saturating_add(BELONGS_NS))
    }

    /// Whether the growth of these samples from a moment on is that of a start.
    pub(crate) fn explains(&self, samples: &[Sample], from_ns: u64) -> bool {
        let mut rises = self.rises_ns.iter().copied().peekable();
        let mut last_rise = None;
        let mut before: Option<u64> = None;
        let (mut quiet, mut whole) = (0.0, 0.0);
        // What is given back after the peak, at the latest by the program's end, is not growth.
        let used = samples.iter().zip(0..).filter_map(|(sample, index)| Some((sample.used()?, index)));
        let peak: usize = used.max().map_or(0, |(_, index)| index);
        for sample in samples.iter().take(peak + 1) {
            while let Some(rise) = rises.next_if(|rise| *rise <= sample.at_ns) {
                last_rise = Some(rise);
            }
            let Some(used) = sample.used() else { continue };
            let is_asked = sample.at_ns >= from_ns;
            let grown = before.filter(|_| is_asked).map_or(0.0, |before| used as f64 - before as f64);
            whole += grown;
            if last_rise.is_none_or(|rise| sample.at_ns.saturating_sub(rise) > BELONGS_NS) {
                quiet += grown;
            }
            before = Some(used);
        }
        last_rise.is_some() && quiet < QUIET_SHARE * whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{finish, metadata, sample};

    const TICK: u64 = 100_000_000;
    const MI: u64 = 1 << 20;

    /// Ten samples a second; `(resident, file-backed)` in mebibytes.
    fn is_start(seen: impl IntoIterator<Item = (u64, Option<u64>)>) -> bool {
        let tell = |(index, (rss, file)): (usize, (u64, Option<u64>))| {
            let event = sample(index as u64 * TICK, rss * MI);
            match file {
                Some(file) => metadata(event, &[(FILE_BACKED, (file * MI).into())]),
                None => event,
            }
        };
        let recording = finish(seen.into_iter().enumerate().map(tell));
        let stream = &recording.sessions[0].ranks[0].streams[0];
        stream.facts.start.explains(&stream.samples, 0)
    }

    #[test]
    fn growth_beside_libraries_is_a_start() {
        assert!(is_start((0..40).map(|i| (10 + 3 * i, Some(5 + i)))));
        assert!(!is_start((0..40).map(|i| (10 + 3 * i, Some(5)))), "the first look is none");
        let pages = finish((0..40).map(|i| {
            let event = sample(i * TICK, (10 + 3 * i) * MI);
            metadata(event, &[(FILE_BACKED, (5 * MI + (i << 12)).into())])
        }));
        let stream = &pages.sessions[0].ranks[0].streams[0];
        assert!(!stream.facts.start.explains(&stream.samples, 0), "pages of a capture are not a library");
        assert!(!is_start((0..40).map(|i| (10 + 3 * i, None))), "an older recording does not tell");
    }

    #[test]
    fn leak_around_imports_is_not_called_start_up() {
        let after = (0..90)
            .map(|i| if i < 40 { (10 + 12 * i, Some(5 + 6 * i)) } else { (480 + 8 * (i - 40), Some(239)) });
        assert!(!is_start(after));
        assert!(!is_start((0..60).map(|i| (10 + 6 * i, Some(if i < 57 { 5 } else { 9 })))));
        let given_back_at_the_end = (0..48).map(|i| (if i < 47 { 10 + 2 * i } else { 0 }, Some(5)));
        assert!(!is_start(given_back_at_the_end));
    }

    #[test]
    fn a_recording_of_nothing_but_rises_stays_small() {
        let recording =
            finish((0..10_000).map(|i| metadata(sample(i, 1), &[(FILE_BACKED, (i * LEAST_RISE).into())])));
        assert_eq!(recording.sessions[0].ranks[0].streams[0].facts.start.rises_ns.len(), MOST_RISES);
    }
}
