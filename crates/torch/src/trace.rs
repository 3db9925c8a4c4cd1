//! The events of one device, 24 bytes each.
//!
//! Fields that hardly ever need their full width are stored narrow, with the exceptions in a side table:
//! a size of 4 GiB or more, a time more than an hour from its neighbours. What repeats from event to event
//! (stream, pool, annotations of the thread) is one number into a table of contexts.

use rustc_hash::FxHashMap;

use crate::intern::{StackId, StrId};

/// What an event says happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Memory handed to the program; `size` is what it requested.
    Alloc,
    /// The program gave it back; other streams may still use it.
    FreeRequested,
    /// It really returned to the pool.
    FreeCompleted,
    /// Both at once, in old files.
    Free,
    /// cudaMalloc.
    SegmentAlloc,
    /// cudaFree.
    SegmentFree,
    /// Pages mapped into an expandable segment.
    SegmentMap,
    /// Pages unmapped.
    SegmentUnmap,
    /// A snapshot was taken; `size` is what was active.
    Snapshot,
    /// Out of memory; `size` is the rounded request.
    Oom,
    /// Anything else; the text is in the event's `action_name`.
    Other,
}

/// The part of an event that seldom changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Context {
    /// Raw stream pointer, 0 for the default stream.
    pub stream: u64,
    /// Memory pool, where the file says it.
    pub pool: Option<(u32, u32)>,
    /// `compile_context`; the empty string when there is none.
    pub compile_context: StrId,
    /// `user_metadata`; the empty string when there is none.
    pub user_metadata: StrId,
    /// Keys we do not know, as one JSON object; the empty string when there are none.
    pub extra: StrId,
}

/// One event, unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub action: Action,
    /// Where; 0 for an out-of-memory event.
    pub addr: u64,
    /// How much.
    pub size: u64,
    /// Microseconds since the epoch, where the file says it.
    pub time_us: Option<i64>,
    /// Who asked for it.
    pub stack: StackId,
    /// What the driver said was free, in an out-of-memory event.
    pub device_free: Option<u64>,
    /// Index into the snapshot's contexts.
    pub context: u32,
    /// Index into the snapshot's action names.
    pub action_name: u8,
}

#[derive(Debug, Clone, Copy)]
struct Packed {
    addr: u64,
    size: u32,
    time: u32,
    stack: u32,
    /// Context in the low 24 bits, action name above.
    rest: u32,
}

const WIDE: u32 = u32::MAX;
const NO_TIME: u32 = u32::MAX - 1;
const BASE_EVERY: usize = 4096;
/// How many distinct contexts fit.
pub(crate) const MAX_CONTEXTS: usize = 1 << 24;

/// A growing list of events that can be read at any place.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventStore {
    packed: Vec<Packed>,
    /// The time in the middle of each run of `BASE_EVERY` events.
    bases: Vec<i64>,
    wide_sizes: FxHashMap<u32, u64>,
    wide_times: FxHashMap<u32, i64>,
}

impl EventStore {
    pub(crate) fn len(&self) -> usize {
        self.packed.len()
    }

    /// `event.action` is not stored: it follows from `event.action_name`. An out-of-memory event's
    /// `device_free` travels in `addr`.
    pub(crate) fn push(&mut self, event: &Event) {
        let index = self.packed.len();
        if index.is_multiple_of(BASE_EVERY) {
            self.bases.push(event.time_us.unwrap_or(0));
        }
        let base = self.bases.last().copied().unwrap_or(0);
        // Half the range below the base: events of several threads are not quite in order.
        let time = match event.time_us {
            None => NO_TIME,
            Some(time) => {
                match time.checked_sub(base).and_then(|d| u32::try_from(d.checked_add(1 << 31)?).ok()) {
                    Some(offset) if offset < NO_TIME => offset,
                    _ => {
                        self.wide_times.insert(index as u32, time);
                        WIDE
                    }
                }
            }
        };
        let size = match u32::try_from(event.size) {
            Ok(size) if size != WIDE => size,
            _ => {
                self.wide_sizes.insert(index as u32, event.size);
                WIDE
            }
        };
        let rest = event.context | (u32::from(event.action_name) << 24);
        let addr = event.device_free.unwrap_or(event.addr);
        self.packed.push(Packed { addr, size, time, stack: event.stack.0, rest });
    }

    pub(crate) fn get(&self, index: usize, actions: &[Action]) -> Option<Event> {
        let packed = self.packed.get(index)?;
        let base = self.bases.get(index / BASE_EVERY).copied().unwrap_or(0);
        let time_us = match packed.time {
            NO_TIME => None,
            WIDE => self.wide_times.get(&(index as u32)).copied(),
            offset => Some(base.wrapping_add(i64::from(offset) - (1 << 31))),
        };
        let size = match packed.size {
            WIDE => self.wide_sizes.get(&(index as u32)).copied().unwrap_or(0),
            size => u64::from(size),
        };
        let action_name = (packed.rest >> 24) as u8;
        let action = actions.get(usize::from(action_name)).copied().unwrap_or(Action::Other);
        let oom = action == Action::Oom;
        Some(Event {
            action,
            addr: if oom { 0 } else { packed.addr },
            size,
            time_us,
            stack: StackId(packed.stack),
            device_free: oom.then_some(packed.addr),
            context: packed.rest & 0xff_ffff,
            action_name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_and_wide_events_come_back_as_they_went_in() {
        let mut store = EventStore::default();
        let actions = [Action::Alloc, Action::Oom];
        let base = 1_794_704_816_225_456;
        let mut expected = Vec::new();
        for index in 0..10_000u64 {
            let event = Event {
                action: Action::Alloc,
                addr: 0x7f00_0000_0000 + index * 512,
                size: if index % 97 == 0 { (1 << 33) + index } else { index },
                time_us: match index % 5 {
                    0 => None,
                    1 => Some(base - index as i64),
                    2 => Some(i64::MIN + index as i64),
                    3 => Some(i64::MAX - index as i64),
                    _ => Some(base + index as i64 * 1_000_000),
                },
                stack: StackId(index as u32),
                device_free: None,
                context: (index as u32 * 31) & 0xff_ffff,
                action_name: 0,
            };
            store.push(&event);
            expected.push(event);
        }
        let oom = Event {
            action: Action::Oom,
            addr: 0,
            device_free: Some(u64::from(u32::MAX)),
            size: u64::from(u32::MAX),
            action_name: 1,
            ..expected[0]
        };
        store.push(&oom);
        expected.push(oom);
        for (index, event) in expected.iter().enumerate() {
            assert_eq!(store.get(index, &actions).as_ref(), Some(event), "event {index}");
        }
        assert_eq!(store.get(expected.len(), &actions), None);
    }
}
