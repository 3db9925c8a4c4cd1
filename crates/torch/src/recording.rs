//! One device of a snapshot, ready to be followed: what was held before its first event, rebuilt from all that came after.

use crate::model::Totals;
use crate::rewind::{SegmentPool, Start, rewind};
use crate::settings::AllocatorSettings;
use crate::snapshot::Snapshot;
use crate::trace::Action;
use crate::track::Tracker;

/// Distance between mapped stretches from which on they are taken for different reservations.
const RESERVATION_GAP: u64 = 8 << 30;
/// How often the start state is refined from later evidence.
const MAX_PASSES: usize = 8;

/// One device of a snapshot, ready to be followed.
#[derive(Debug, Clone)]
pub struct Recording<'a> {
    /// The snapshot.
    pub snapshot: &'a Snapshot,
    /// The device.
    pub device: usize,
    /// The settings in effect while it was recorded.
    pub settings: AllocatorSettings,
    pub(crate) start: Start,
    /// Base, length and home of each expandable segment.
    pub(crate) reservations: Vec<(u64, u64, SegmentPool)>,
    anomalies: u64,
}

impl<'a> Recording<'a> {
    /// Rebuilds what was held before the first event of a device.
    pub fn new(snapshot: &'a Snapshot, device: usize) -> Self {
        let settings = AllocatorSettings::recorded(&snapshot.settings);
        let start = rewind(snapshot, device, &settings);
        let mut recording =
            Recording { snapshot, device, settings, start, reservations: Vec::new(), anomalies: 0 };
        recording.reservations = recording.find_reservations();
        // Each pass may show that a block of the start was larger than its request; the next one knows.
        for _ in 0..MAX_PASSES {
            let mut tracker = recording.tracker();
            for (index, event) in recording.snapshot.trace(recording.device).enumerate() {
                tracker.apply(index as u32, &event);
            }
            let (slack, anomalies) = (std::mem::take(&mut tracker.slack), tracker.anomalies());
            recording.anomalies = anomalies;
            if slack.is_empty() {
                break;
            }
            for (block, more) in slack {
                if let Some(block) = recording.start.blocks.get_mut(block as usize) {
                    block.size += more;
                }
            }
        }
        recording
    }

    /// Every device of a snapshot that has events or memory.
    pub fn all(snapshot: &'a Snapshot) -> Vec<Self> {
        let used = |device: &usize| {
            snapshot.event_count(*device) > 0
                || snapshot.segments.iter().any(|segment| segment.device as usize == *device)
        };
        (0..snapshot.device_count()).filter(used).map(|device| Recording::new(snapshot, device)).collect()
    }

    /// A tracker before the first event.
    pub fn tracker(&self) -> Tracker<'_> {
        Tracker::new(self)
    }

    /// The totals after each event.
    pub fn totals(&self) -> impl Iterator<Item = Totals> + '_ {
        let mut tracker = self.tracker();
        self.snapshot.trace(self.device).enumerate().map(move |(index, event)| {
            tracker.apply(index as u32, &event);
            tracker.totals()
        })
    }

    /// The state after the first `events` events.
    pub fn state_after(&self, events: usize) -> Tracker<'_> {
        let mut tracker = self.tracker();
        for (index, event) in self.snapshot.trace(self.device).take(events).enumerate() {
            tracker.apply(index as u32, &event);
        }
        tracker
    }

    /// Events that contradict each other or the allocator's rules.
    pub fn anomalies(&self) -> u64 {
        self.anomalies
    }

    /// Bytes that were live before the first event: not zero when recording started mid-run or lost its beginning.
    pub fn live_at_start(&self) -> u64 {
        self.start.blocks.iter().map(|block| block.size).sum()
    }

    /// Whether the ring lost its oldest events; `None` when the file cannot tell.
    pub fn overflowed(&self) -> Option<bool> {
        let said = self.snapshot.settings.get("trace_alloc_overflowed");
        let said = said.and_then(|value| value.as_bool().or_else(|| value.get(self.device)?.as_bool()));
        if said.is_some() {
            return said;
        }
        // A block that was there before the first event, yet has a stack, was allocated while recording was on.
        if self
            .start
            .blocks
            .iter()
            .any(|block| block.certain && self.snapshot.tables.stack(block.stack).len() > 0)
            && self.snapshot.event_count(self.device) > 0
        {
            return Some(true);
        }
        self.start.blocks.iter().all(|block| block.certain).then_some(false)
    }

    fn find_reservations(&self) -> Vec<(u64, u64, SegmentPool)> {
        let mut mapped: Vec<(u64, u64, SegmentPool)> = Vec::new();
        for segment in self.start.segments.iter().filter(|segment| segment.expandable) {
            mapped.push((segment.addr, segment.size, segment.home));
        }
        for (index, event) in self.snapshot.trace(self.device).enumerate() {
            if event.action == Action::SegmentMap
                && let Some(&home) = self.start.homes.get(&(index as u32))
            {
                mapped.push((event.addr, event.size, home));
            }
        }
        mapped.sort_unstable_by_key(|range| range.0);
        let mut reservations: Vec<(u64, u64, SegmentPool)> = Vec::new();
        for (addr, size, home) in mapped {
            match reservations.last_mut() {
                Some((base, length, known))
                    if known.stream == home.stream && addr < *base + *length + RESERVATION_GAP =>
                {
                    *length = (*length).max(addr + size - *base);
                }
                _ => reservations.push((addr, size, home)),
            }
        }
        // Each reaches far beyond what was used of it, but not into the next.
        for index in 0..reservations.len() {
            let room = reservations.get(index + 1).map_or(1 << 40, |next| next.0 - reservations[index].0);
            reservations[index].1 = room.min(1 << 40);
        }
        reservations
    }
}
