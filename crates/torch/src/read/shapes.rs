//! The dictionaries of a snapshot, by shape: event, frame, block, segment, annotation.

use serde_json::{Map, Value};

use super::build::{Builder, Items, Result};
use super::finish::{MAX_DEPTH, MAX_WRITTEN};
use super::keys::Key;
use super::value::Val;
use crate::error::SnapshotError;
use crate::intern::{Frame, StackId, StrId};
use crate::snapshot::{Annotation, Block, BlockState, PoolId, Segment};
use crate::trace::{Action, Context, Event, MAX_CONTEXTS};

/// Where a block of an old file has no address yet.
const NO_ADDRESS: u64 = u64::MAX;
/// More than any machine has.
pub(super) const MAX_DEVICES: u32 = 256;

impl Builder {
    /// A value of the current dictionary; each can be taken once, what is left over is unknown.
    #[inline]
    pub(super) fn take(&mut self, key: Key) -> Option<Val> {
        let there = self.present & key.bit() != 0;
        self.present &= !key.bit();
        if there { self.slots.get(key as usize).copied() } else { None }
    }

    pub(super) fn wrong(&self, key: Key, expected: &'static str, value: Val) -> SnapshotError {
        let found = match value {
            Val::Int(value) => value.to_string(),
            Val::Str(id) => format!("{:?}", self.tables.text(StrId(id)).chars().take(80).collect::<String>()),
            other => other.kind().to_owned(),
        };
        SnapshotError::Field { field: key.text(), expected, found }
    }

    #[inline]
    fn unsigned(&mut self, key: Key) -> Result<Option<u64>> {
        match self.take(key) {
            Some(Val::Int(value)) if value >= 0 => Ok(Some(value as u64)),
            Some(Val::Unsigned(value)) => Ok(Some(value)),
            None | Some(Val::None) => Ok(None),
            Some(other) => Err(self.wrong(key, "a number that is not negative", other)),
        }
    }

    /// A device's ordinal; every one costs work later, so there cannot be many.
    fn device(&mut self) -> Result<u32> {
        let value = self.unsigned(Key::Device)?.unwrap_or(0);
        match u32::try_from(value) {
            Ok(device) if device < MAX_DEVICES => Ok(device),
            _ => Err(SnapshotError::TooMany { what: "devices", limit: u64::from(MAX_DEVICES) }),
        }
    }

    /// Streams are pointers; a negative one is a large one.
    #[inline]
    fn stream(&mut self) -> Result<u64> {
        match self.take(Key::Stream) {
            Some(Val::Int(value)) => Ok(value as u64),
            Some(Val::Unsigned(value)) => Ok(value),
            None | Some(Val::None) => Ok(0),
            Some(other) => Err(self.wrong(Key::Stream, "a number", other)),
        }
    }

    #[inline]
    fn time(&mut self) -> Result<Option<i64>> {
        match self.take(Key::TimeUs) {
            Some(Val::Int(value)) => Ok(Some(value)),
            None | Some(Val::None) => Ok(None),
            Some(other) => Err(self.wrong(Key::TimeUs, "a number of microseconds", other)),
        }
    }

    fn pool(&mut self, key: Key) -> Result<Option<PoolId>> {
        match self.take(key) {
            None | Some(Val::None) => Ok(None),
            Some(Val::Pair(a, b)) => Ok(Some((a, b))),
            // JSON has no tuples.
            Some(Val::List(id) | Val::Tuple(id)) => match self.lists.get(id as usize) {
                Some(Items::Mixed(items)) => match items.as_slice() {
                    &[Val::Int(a), Val::Int(b)] => Ok(u32::try_from(a).ok().zip(u32::try_from(b).ok())),
                    _ => Err(self.wrong(key, "two numbers", Val::List(id))),
                },
                _ => Err(self.wrong(key, "two numbers", Val::List(id))),
            },
            Some(other) => Err(self.wrong(key, "two numbers", other)),
        }
    }

    #[inline]
    fn text(&mut self, key: Key) -> Result<StrId> {
        match self.take(key) {
            Some(Val::Str(id)) => Ok(StrId(id)),
            None | Some(Val::None) => Ok(StrId(0)),
            // Newer versions let the user's note be a dictionary.
            Some(other) => {
                let json = self.json(other)?.to_string();
                Ok(self.tables.add_text(&json))
            }
        }
    }

    fn stack_value(&self, value: Option<Val>) -> Result<StackId> {
        match value {
            Some(Val::Stack { id, .. }) => Ok(StackId(id)),
            None | Some(Val::None | Val::FreshList(_)) => Ok(StackId::EMPTY),
            Some(other) => Err(self.wrong(Key::Frames, "a list of frames", other)),
        }
    }

    /// The unused keys, as JSON text.
    #[inline]
    fn extra(&mut self) -> Result<StrId> {
        if self.present == 0 && self.unknown.is_empty() {
            return Ok(StrId(0));
        }
        let mut left = std::mem::take(&mut self.unknown);
        for (id, &value) in self.slots.iter().enumerate() {
            if self.present & (1 << id) != 0 {
                left.push((Val::Str(id as u32), value));
            }
        }
        let mut budget = MAX_WRITTEN;
        let mut map = Map::new();
        for (key, value) in left {
            map.insert(self.key_text(key), self.write(value, MAX_DEPTH, &mut budget)?);
        }
        let text = Value::Object(map).to_string();
        Ok(self.tables.add_text(&text))
    }

    pub(super) fn event(&mut self) -> Result<Val> {
        let name = self.text(Key::Action)?;
        let action_name = match self.action_names.iter().position(|&known| known == name) {
            Some(index) => index as u8,
            None => {
                let index = u8::try_from(self.action_names.len())
                    .map_err(|_| SnapshotError::TooMany { what: "kinds of events", limit: 256 })?;
                self.action_names.push(name);
                self.actions.push(action(self.tables.text(name)));
                index
            }
        };
        let frames = self.take(Key::Frames);
        let event = Event {
            action: Action::Other,
            addr: self.unsigned(Key::Addr)?.unwrap_or(0),
            size: self.unsigned(Key::Size)?.unwrap_or(0),
            time_us: self.time()?,
            stack: self.stack_value(frames)?,
            device_free: self.unsigned(Key::DeviceFree)?,
            context: self.context()?,
            action_name,
        };
        let index = self.events.len() as u32;
        if index == u32::MAX {
            return Err(SnapshotError::TooMany { what: "events", limit: u64::from(u32::MAX) });
        }
        self.events.push(&event);
        Ok(Val::Events(index, index + 1))
    }

    fn context(&mut self) -> Result<u32> {
        let context = Context {
            stream: self.stream()?,
            pool: self.pool(Key::PoolId)?,
            compile_context: self.text(Key::CompileContext)?,
            user_metadata: self.text(Key::UserMetadata)?,
            extra: self.extra()?,
        };
        if self.last_context.0 == Some(context) {
            return Ok(self.last_context.1);
        }
        let next = self.contexts.len() as u32;
        let id = *self.context_ids.entry(context).or_insert(next);
        if id == next {
            if self.contexts.len() == MAX_CONTEXTS {
                return Err(SnapshotError::TooMany {
                    what: "different notes on events",
                    limit: MAX_CONTEXTS as u64,
                });
            }
            self.contexts.push(context);
        }
        self.last_context = (Some(context), id);
        Ok(id)
    }

    pub(super) fn frame(&mut self) -> Result<Val> {
        let frame = Frame {
            name: self.text(Key::Name)?,
            filename: self.text(Key::Filename)?,
            line: match self.take(Key::Line) {
                Some(Val::Int(line)) => u32::try_from(line).unwrap_or(0),
                _ => 0,
            },
            extra: self.extra()?,
        };
        Ok(Val::Frame(self.tables.add_frame(frame).0))
    }

    pub(super) fn block(&mut self) -> Result<Val> {
        let state = self.text(Key::State)?;
        let state = match self.tables.text(state) {
            "active_allocated" => BlockState::Allocated,
            "active_pending_free" | "active_awaiting_free" => BlockState::PendingFree,
            "inactive" => BlockState::Inactive,
            _ => BlockState::Unknown,
        };
        let frames = self.take(Key::Frames);
        let size = self.unsigned(Key::Size)?.unwrap_or(0);
        let mut block = Block {
            address: self.unsigned(Key::Address)?.unwrap_or(NO_ADDRESS),
            size,
            requested: self.unsigned(Key::RequestedSize)?.unwrap_or(size),
            state,
            stack: self.stack_value(frames)?,
            extra: StrId(0),
        };
        let history = self.take(Key::History);
        block.extra = self.extra()?;
        if let Some(Val::List(id)) = history {
            self.newest_of_history(id, &mut block)?;
        }
        self.blocks.push(block);
        Ok(Val::Block(self.blocks.len() as u32 - 1))
    }

    /// Files of 2.0 and older: the first entry of `history` is the latest owner.
    fn newest_of_history(&mut self, list: u32, block: &mut Block) -> Result<()> {
        let Some(Items::Mixed(items)) = self.lists.get(list as usize) else { return Ok(()) };
        let Some(&Val::Dict(id)) = items.first() else { return Ok(()) };
        let pairs = self.dicts.get(id as usize).cloned().unwrap_or_default();
        self.gather(&pairs);
        let frames = self.take(Key::Frames);
        block.stack = self.stack_value(frames)?;
        block.requested = self.unsigned(Key::RealSize)?.unwrap_or(block.requested);
        Ok(())
    }

    pub(super) fn segment(&mut self) -> Result<Val> {
        let frames = self.take(Key::Frames);
        let blocks = self.take(Key::Blocks);
        // Sums of the blocks, which we count ourselves.
        for key in [Key::AllocatedSize, Key::ActiveSize, Key::RequestedSize] {
            self.take(key);
        }
        let kind = self.text(Key::SegmentType)?;
        let mut segment = Segment {
            device: self.device()?,
            address: self.unsigned(Key::Address)?.unwrap_or(0),
            total_size: self.unsigned(Key::TotalSize)?.unwrap_or(0),
            stream: self.stream()?,
            small: self.tables.text(kind) == "small",
            pool: self.pool(Key::SegmentPoolId)?.unwrap_or((0, 0)),
            expandable: matches!(self.take(Key::IsExpandable), Some(Val::Bool(true))),
            stack: self.stack_value(frames)?,
            blocks: 0..0,
            extra: self.extra()?,
        };
        segment.blocks = self.block_range(blocks)?;
        let mut address = segment.address;
        for index in segment.blocks.clone() {
            if let Some(block) = self.blocks.get_mut(index as usize) {
                if block.address == NO_ADDRESS {
                    block.address = address;
                }
                address = block.address.saturating_add(block.size);
            }
        }
        self.segments.push(segment);
        Ok(Val::Segment(self.segments.len() as u32 - 1))
    }

    fn block_range(&self, value: Option<Val>) -> Result<std::ops::Range<u32>> {
        let items = match value {
            None | Some(Val::FreshList(_)) => return Ok(0..0),
            Some(Val::List(id)) => match self.lists.get(id as usize) {
                Some(Items::Mixed(items)) => items,
                _ => return Err(self.wrong(Key::Blocks, "a list of blocks", Val::List(id))),
            },
            Some(other) => return Err(self.wrong(Key::Blocks, "a list of blocks", other)),
        };
        let mut range = None;
        for &item in items {
            match (item, &mut range) {
                (Val::Block(index), None) => range = Some(index..index + 1),
                (Val::Block(index), Some(range)) if range.end == index => range.end += 1,
                (other, _) => return Err(self.wrong(Key::Blocks, "blocks only, each once", other)),
            }
        }
        Ok(range.unwrap_or(0..0))
    }

    pub(super) fn annotation(&mut self) -> Result<Val> {
        let stage = self.text(Key::Stage)?;
        let annotation = Annotation {
            name: self.text(Key::Name)?,
            start: self.tables.text(stage).eq_ignore_ascii_case("start"),
            device: self.device()?,
            time_us: self.time()?.unwrap_or(0),
        };
        self.annotations.push(annotation);
        Ok(Val::Annotation)
    }
}

fn action(text: &str) -> Action {
    match text {
        "alloc" => Action::Alloc,
        "free_requested" => Action::FreeRequested,
        "free_completed" => Action::FreeCompleted,
        "free" => Action::Free,
        "segment_alloc" => Action::SegmentAlloc,
        "segment_free" => Action::SegmentFree,
        "segment_map" => Action::SegmentMap,
        "segment_unmap" => Action::SegmentUnmap,
        "snapshot" => Action::Snapshot,
        "oom" => Action::Oom,
        _ => Action::Other,
    }
}
