//! Memory that is taken again and again and does not come back.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::text;
use crate::intern::StackId;
use crate::recording::Recording;
use crate::trace::Action;

/// The trace is looked at in this many equal parts.
const PARTS: usize = 8;

/// A place whose blocks pile up.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Growth {
    /// Bytes asked for there and still held at the end.
    pub bytes: u64,
    /// Blocks still held.
    pub count: u64,
    /// Blocks ever taken there.
    pub of: u64,
    /// The frame to look at.
    pub site: Option<String>,
    /// The whole stack, innermost first.
    pub frames: Vec<String>,
    /// None of them was ever given back: a leak, unless the program means it.
    pub never_freed: bool,
}

#[derive(Default)]
struct Site {
    taken: u64,
    kept: u64,
    bytes: u64,
    parts: u32,
}

/// Places that keep blocks from all over the recording, largest first.
pub(crate) fn find(recording: &Recording<'_>) -> Vec<Growth> {
    let snapshot = recording.snapshot;
    let total = snapshot.event_count(recording.device).max(1);
    let mut live: FxHashMap<u64, (usize, u64, StackId)> = FxHashMap::default();
    let mut sites: FxHashMap<StackId, Site> = FxHashMap::default();
    for (index, event) in snapshot.trace(recording.device).enumerate() {
        match event.action {
            Action::Alloc => {
                live.insert(event.addr, (index, event.size, event.stack));
                sites.entry(event.stack).or_default().taken += 1;
            }
            Action::FreeCompleted | Action::Free | Action::FreeRequested => {
                live.remove(&event.addr);
            }
            _ => {}
        }
    }
    for (index, size, stack) in live.into_values() {
        let site = sites.entry(stack).or_default();
        site.kept += 1;
        site.bytes = site.bytes.saturating_add(size);
        site.parts |= 1 << (index * PARTS / total);
    }
    let late = 0b11 << (PARTS - 2);
    let mut found: Vec<Growth> = sites
        .into_iter()
        .filter(|(_, site)| {
            site.kept >= 4 && site.parts.count_ones() >= PARTS as u32 / 2 && site.parts & late != 0
        })
        .map(|(stack, site)| Growth {
            bytes: site.bytes,
            count: site.kept,
            of: site.taken,
            site: text::responsible_frame(&snapshot.tables, stack),
            frames: snapshot.tables.stack(stack).map(|frame| text::frame(&snapshot.tables, frame)).collect(),
            never_freed: site.kept == site.taken,
        })
        .collect();
    found.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.frames.cmp(&b.frames)));
    found
}
