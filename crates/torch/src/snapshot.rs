//! One snapshot, as compact tables: what the allocator held when it was dumped, and what had happened before.

use std::ops::Range;

use serde_json::{Map, Value};

use crate::intern::{StackId, StrId, Tables};
use crate::trace::{Action, Context, Event, EventStore};

/// A memory pool: `(0, 0)` is the default one, `(n, 0)` a graph capture's, `(0, n)` the user's.
pub type PoolId = (u32, u32);

/// What a block was doing when the snapshot was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// In the program's hands.
    Allocated,
    /// Given back, but another stream may still use it.
    PendingFree,
    /// Free, in the cache.
    Inactive,
    /// A word we do not know.
    Unknown,
}

/// One stretch of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Where it starts.
    pub address: u64,
    /// Its real size.
    pub size: u64,
    /// What the program asked for; stale, and meaningless, when inactive.
    pub requested: u64,
    /// What it was doing.
    pub state: BlockState,
    /// Who allocated it, if recorded.
    pub stack: StackId,
    /// Keys we do not know, as one JSON object.
    pub extra: StrId,
}

/// A stretch of device memory the allocator holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Device ordinal.
    pub device: u32,
    /// Where it starts.
    pub address: u64,
    /// Bytes mapped.
    pub total_size: u64,
    /// Raw stream pointer.
    pub stream: u64,
    /// Whether it serves small requests (up to 1 MiB).
    pub small: bool,
    /// The pool it belongs to.
    pub pool: PoolId,
    /// A mapped stretch of an expandable segment, not a cudaMalloc of its own.
    pub expandable: bool,
    /// Who made the allocator get it.
    pub stack: StackId,
    /// Its blocks, as a range of the snapshot's blocks.
    pub blocks: Range<u32>,
    /// Keys we do not know, as one JSON object.
    pub extra: StrId,
}

/// A named span the program marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Annotation {
    /// Its name.
    pub name: StrId,
    /// Start or end.
    pub start: bool,
    /// Device ordinal.
    pub device: u32,
    /// Microseconds since the epoch.
    pub time_us: i64,
}

/// A snapshot.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Strings, frames and stacks.
    pub tables: Tables,
    /// What the allocator held at the end.
    pub segments: Vec<Segment>,
    /// The blocks of all segments.
    pub blocks: Vec<Block>,
    /// Spans the program marked, in file order.
    pub annotations: Vec<Annotation>,
    /// `allocator_settings` as the file has it; empty when it has none.
    pub settings: Map<String, Value>,
    /// Top-level keys we do not know.
    pub extra: Map<String, Value>,
    /// Segments of the pinned-host allocator, where recorded.
    pub host_segments: Vec<Segment>,
    pub(crate) events: EventStore,
    pub(crate) devices: Vec<Range<u32>>,
    pub(crate) host_traces: Vec<Range<u32>>,
    pub(crate) contexts: Vec<Context>,
    pub(crate) actions: Vec<Action>,
    pub(crate) action_names: Vec<StrId>,
    /// Bytes of the decompressed file.
    pub(crate) bytes: u64,
}

impl Snapshot {
    /// How many devices have a trace, also an empty one, or a segment.
    pub fn device_count(&self) -> usize {
        let by_segment = self.segments.iter().map(|s| s.device as usize + 1).max().unwrap_or(0);
        self.devices.len().max(by_segment)
    }

    /// How many events a device's trace has.
    pub fn event_count(&self, device: usize) -> usize {
        self.devices.get(device).map_or(0, |range| range.len())
    }

    /// Whether a device's trace has requests: the bundle of a failed request has that one alone where no history was recorded.
    pub fn has_requests(&self, device: usize) -> bool {
        self.trace(device).any(|event| event.action != Action::Oom)
    }

    /// Why a device cannot be replayed.
    pub fn replay_problem(&self, device: usize) -> Option<String> {
        (!self.has_requests(device)).then(|| {
            format!(
                "no events of device {device} to replay; record with `stormlog run --torch-history segments`, or in the program with torch.cuda.memory._record_memory_history()"
            )
        })
    }

    /// An event of a device's trace, the oldest being 0.
    pub fn event(&self, device: usize, index: usize) -> Option<Event> {
        let range = self.devices.get(device)?;
        (index < range.len()).then(|| self.events.get(range.start as usize + index, &self.actions))?
    }

    /// The events of a device, oldest first.
    pub fn trace(&self, device: usize) -> impl ExactSizeIterator<Item = Event> + Clone + '_ {
        let range = self.devices.get(device).cloned().unwrap_or(0..0);
        range.map(|index| self.event_or_default(index))
    }

    /// The events of the pinned-host allocator, where recorded.
    pub fn host_trace(&self, index: usize) -> impl ExactSizeIterator<Item = Event> + Clone + '_ {
        let range = self.host_traces.get(index).cloned().unwrap_or(0..0);
        range.map(|index| self.event_or_default(index))
    }

    fn event_or_default(&self, index: u32) -> Event {
        self.events.get(index as usize, &self.actions).unwrap_or(Event {
            action: Action::Other,
            addr: 0,
            size: 0,
            time_us: None,
            stack: StackId::EMPTY,
            device_free: None,
            context: 0,
            action_name: 0,
        })
    }

    /// The slow-changing part of an event.
    pub fn context(&self, event: &Event) -> Context {
        self.contexts.get(event.context as usize).copied().unwrap_or(Context {
            stream: 0,
            pool: None,
            compile_context: StrId(0),
            user_metadata: StrId(0),
            extra: StrId(0),
        })
    }

    /// The event's action as the file spells it.
    pub fn action_text(&self, event: &Event) -> &str {
        self.action_names.get(usize::from(event.action_name)).map_or("", |&name| self.tables.text(name))
    }

    /// The blocks of a segment, by address.
    pub fn blocks_of(&self, segment: &Segment) -> &[Block] {
        self.blocks.get(segment.blocks.start as usize..segment.blocks.end as usize).unwrap_or(&[])
    }

    /// The same snapshot as if a shorter ring had overwritten a device's oldest events.
    pub fn without_oldest(&self, device: usize, events: usize) -> Snapshot {
        let mut shorter = self.clone();
        if let Some(range) = shorter.devices.get_mut(device) {
            range.start =
                range.end.min(range.start.saturating_add(u32::try_from(events).unwrap_or(u32::MAX)));
        }
        shorter
    }

    /// Bytes of the decompressed file it came from.
    pub fn file_bytes(&self) -> u64 {
        self.bytes
    }
}
