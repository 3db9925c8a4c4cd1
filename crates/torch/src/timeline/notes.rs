//! The spans a program marked, paired.

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::intern::StrId;
use crate::snapshot::Snapshot;

/// One marked span; times are microseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) start_us: i64,
    pub(crate) end_us: i64,
}

/// The longest spans of a device, in the order of their start. One that never ended, or never began, is left out.
pub(crate) fn spans(snapshot: &Snapshot, device: usize, most: usize) -> Vec<Span> {
    let mut paired = pairs(snapshot, device);
    paired.sort_unstable_by_key(|&(_, start, end)| std::cmp::Reverse(end.saturating_sub(start)));
    paired.truncate(most);
    paired.sort_unstable_by_key(|&(_, start, end)| (start, std::cmp::Reverse(end)));
    let span =
        |(name, start_us, end_us)| Span { name: snapshot.tables.text(name).to_owned(), start_us, end_us };
    paired.into_iter().map(span).collect()
}

fn pairs(snapshot: &Snapshot, device: usize) -> Vec<(StrId, i64, i64)> {
    let mut open: FxHashMap<StrId, Vec<i64>> = FxHashMap::default();
    let mut paired = Vec::new();
    for note in snapshot.annotations.iter().filter(|note| note.device as usize == device) {
        if note.start {
            open.entry(note.name).or_default().push(note.time_us);
        } else if let Some(start) = open.get_mut(&note.name).and_then(Vec::pop)
            && start <= note.time_us
        {
            paired.push((note.name, start, note.time_us));
        }
    }
    paired
}
