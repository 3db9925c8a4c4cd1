//! Turns dictionaries and lists into the snapshot's tables the moment they are complete.
//!
//! A dictionary is recognised by its keys, whatever wrote it and wherever it is; what is not recognised is
//! kept as a small tree, within limits.

use rustc_hash::FxHashMap;

use super::keys::{self, Key};
use super::value::Val;
use crate::error::SnapshotError;
use crate::intern::{StrId, Tables};
use crate::snapshot::{Annotation, Block, Segment};
use crate::trace::{Action, Context, EventStore};

pub(super) type Result<T> = std::result::Result<T, SnapshotError>;

/// Values that belong to no known structure: settings, notes, keys of the future.
const MAX_LOOSE: usize = 4 << 20;
const SHORT_TEXT: usize = 64;
/// Text and stacks, all together.
const MAX_TABLE_BYTES: usize = 1 << 30;

/// The contents of a list that is not a stack.
#[derive(Debug)]
pub(super) enum Items {
    /// Events that are neighbours in the store.
    Events(u32, u32),
    Mixed(Vec<Val>),
}

pub(super) struct Builder {
    pub(super) tables: Tables,
    pub(super) events: EventStore,
    pub(super) blocks: Vec<Block>,
    pub(super) segments: Vec<Segment>,
    pub(super) annotations: Vec<Annotation>,
    pub(super) contexts: Vec<Context>,
    pub(super) context_ids: FxHashMap<Context, u32>,
    pub(super) last_context: (Option<Context>, u32),
    pub(super) actions: Vec<Action>,
    pub(super) action_names: Vec<StrId>,
    pub(super) lists: Vec<Items>,
    pub(super) dicts: Vec<Vec<Val>>,
    loose: usize,
    /// Values of the current dictionary by known key; `present` says which are from this one.
    pub(super) slots: [Val; keys::COUNT],
    pub(super) present: u64,
    pub(super) unknown: Vec<(Val, Val)>,
    /// The current stack.
    pub(super) frames: Vec<u32>,
    /// The last short string and its number.
    last_text: (Vec<u8>, u32),
}

impl Builder {
    pub(super) fn new() -> Self {
        let mut tables = Tables::new();
        for name in keys::NAMES {
            tables.add_text(name);
        }
        Builder {
            tables,
            events: EventStore::default(),
            blocks: Vec::new(),
            segments: Vec::new(),
            annotations: Vec::new(),
            contexts: Vec::new(),
            context_ids: FxHashMap::default(),
            last_context: (None, 0),
            actions: Vec::new(),
            action_names: Vec::new(),
            lists: Vec::new(),
            dicts: Vec::new(),
            loose: 0,
            slots: [Val::None; keys::COUNT],
            present: 0,
            unknown: Vec::new(),
            frames: Vec::new(),
            last_text: (Vec::new(), 0),
        }
    }

    #[inline]
    pub(super) fn string(&mut self, bytes: &[u8]) -> Result<Val> {
        // Picklers write some strings again with every event, one and the same each time.
        if self.last_text.0 == bytes {
            return Ok(Val::Str(self.last_text.1));
        }
        self.new_string(bytes)
    }

    fn new_string(&mut self, bytes: &[u8]) -> Result<Val> {
        if self.tables.weight() > MAX_TABLE_BYTES {
            return Err(SnapshotError::TooMany {
                what: "bytes of text and stacks",
                limit: MAX_TABLE_BYTES as u64,
            });
        }
        // Python writes lone surrogates as three bytes; they are no UTF-8, and only names can hold them.
        let id = self.tables.add_text(&String::from_utf8_lossy(bytes)).0;
        if bytes.len() <= SHORT_TEXT {
            self.last_text.0.clear();
            self.last_text.0.extend_from_slice(bytes);
            self.last_text.1 = id;
        }
        Ok(Val::Str(id))
    }

    pub(super) fn tuple(&mut self, items: &[Val]) -> Result<Val> {
        if let &[Val::Int(a), Val::Int(b)] = items
            && let (Ok(a), Ok(b)) = (u32::try_from(a), u32::try_from(b))
        {
            return Ok(Val::Pair(a, b));
        }
        self.keep_list(items).map(Val::Tuple)
    }

    fn keep_list(&mut self, items: &[Val]) -> Result<u32> {
        self.count_loose(items.len() + 1)?;
        self.lists.push(Items::Mixed(items.to_vec()));
        Ok(self.lists.len() as u32 - 1)
    }

    fn count_loose(&mut self, more: usize) -> Result<()> {
        self.loose += more;
        if self.loose > MAX_LOOSE {
            return Err(SnapshotError::TooMany {
                what: "values outside traces and segments",
                limit: MAX_LOOSE as u64,
            });
        }
        Ok(())
    }

    /// A list with its first contents. `slot` is only handed through, for lists that become stacks.
    pub(super) fn list(&mut self, items: &[Val], slot: u32) -> Result<Val> {
        match items {
            [Val::Frame(_), ..] => {
                self.frames.clear();
                self.stack_of(items, slot)
            }
            &[Val::Events(start, end)] => {
                self.count_loose(1)?;
                self.lists.push(Items::Events(start, end));
                Ok(Val::List(self.lists.len() as u32 - 1))
            }
            _ => self.keep_list(items).map(Val::List),
        }
    }

    /// A stack of more frames than a pickler writes at once.
    pub(super) fn more_frames(&mut self, id: u32, items: &[Val], slot: u32) -> Result<Val> {
        self.frames.clear();
        self.frames.extend_from_slice(self.tables.raw_stack(id));
        self.stack_of(items, slot)
    }

    fn stack_of(&mut self, items: &[Val], slot: u32) -> Result<Val> {
        for item in items {
            match item {
                Val::Frame(id) => self.frames.push(*id),
                other => return Err(self.wrong(Key::Frames, "frames only", *other)),
            }
        }
        Ok(Val::Stack { id: self.stack_here()?, slot })
    }

    /// The stack of the current frames.
    pub(super) fn stack_here(&mut self) -> Result<u32> {
        if self.tables.weight() > MAX_TABLE_BYTES {
            return Err(SnapshotError::TooMany {
                what: "bytes of text and stacks",
                limit: MAX_TABLE_BYTES as u64,
            });
        }
        Ok(self.tables.add_stack(&self.frames).0)
    }

    pub(super) fn more_items(&mut self, id: u32, items: &[Val]) -> Result<()> {
        let id = id as usize;
        if let (Some(Items::Events(_, end)), &[Val::Events(from, to)]) = (self.lists.get_mut(id), items)
            && *end == from
        {
            *end = to;
            return Ok(());
        }
        self.count_loose(items.len())?;
        match self.lists.get_mut(id) {
            Some(Items::Mixed(list)) => list.extend_from_slice(items),
            Some(list) => {
                if let Items::Events(start, end) = *list {
                    let mut mixed = vec![Val::Events(start, end)];
                    mixed.extend_from_slice(items);
                    *list = Items::Mixed(mixed);
                }
            }
            None => {}
        }
        Ok(())
    }

    pub(super) fn more_pairs(&mut self, id: u32, pairs: &[Val]) -> Result<()> {
        self.count_loose(pairs.len())?;
        if let Some(dict) = self.dicts.get_mut(id as usize) {
            dict.extend_from_slice(pairs);
        }
        Ok(())
    }

    /// A dictionary with its first contents: keys and values in turn.
    pub(super) fn dict(&mut self, pairs: &[Val]) -> Result<Val> {
        self.gather(pairs);
        if let Some(value) = self.shape()? {
            return Ok(value);
        }
        self.count_loose(pairs.len() + 1)?;
        self.dicts.push(pairs.to_vec());
        Ok(Val::Dict(self.dicts.len() as u32 - 1))
    }

    /// The current dictionary, if it is one we know.
    #[inline]
    pub(super) fn shape(&mut self) -> Result<Option<Val>> {
        let has = |keys: u64| self.present & keys == keys;
        let value = if has(Key::Action.bit())
            && self.present & (Key::Size.bit() | Key::Addr.bit() | Key::TimeUs.bit() | Key::Stream.bit()) != 0
        {
            self.event()
        } else if has(Key::Name.bit() | Key::Filename.bit() | Key::Line.bit()) {
            self.frame()
        } else if has(Key::State.bit() | Key::Size.bit()) {
            self.block()
        } else if has(Key::Blocks.bit() | Key::TotalSize.bit()) {
            self.segment()
        } else if has(Key::Stage.bit() | Key::Name.bit()) {
            self.annotation()
        } else {
            return Ok(None);
        };
        value.map(Some)
    }

    /// A dictionary begins: none of its values are there yet.
    #[inline]
    pub(super) fn start_dict(&mut self) {
        self.present = 0;
        self.unknown.clear();
    }

    /// A value of the current dictionary, by the number of a known key.
    #[inline]
    pub(super) fn put(&mut self, key: u32, value: Val) {
        if let Some(slot) = self.slots.get_mut(key as usize) {
            *slot = value;
            self.present |= 1 << key;
        }
    }

    #[inline]
    pub(super) fn gather(&mut self, pairs: &[Val]) {
        self.start_dict();
        for pair in pairs.chunks_exact(2) {
            let &[key, value] = pair else { continue };
            match key {
                Val::Str(id) if id < keys::COUNT as u32 && id > 0 => self.put(id, value),
                _ => self.unknown.push((key, value)),
            }
        }
    }
}
