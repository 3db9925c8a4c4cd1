//! One event as the payload of one record.
//!
//! Little-endian: version u8 · known counters u8 · flags u8 · zero u8 · context length u32 · timestamp u64 · the known
//! counters, 8 bytes each · head · metadata · context. Head and metadata are either the 8-byte id of a definition or, when
//! flagged inline, a u32 length and their text. The head's text is a JSON object; the metadata's is `0` or `1` (were the
//! capabilities inferred?) and a JSON object.
//!
//! Encoding must not allocate in the steady state; decoding must not trust a byte.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde_json::Value;
use stormlog_model::{
    Counter, Counters, Defaults, Event, Head, Interner, Metadata, Problem, Record, Schema, event_from_record,
    to_record,
};
use stormlog_ring::{DefId, Definition, Definitions};

use crate::json::write;

/// The record kind of telemetry events.
pub(crate) const KIND_EVENT: u8 = 1;

const VERSION: u8 = 1;
const HEAD_INLINE: u8 = 1;
const METADATA_INLINE: u8 = 2;
const HAS_CONTEXT: u8 = 4;

/// How many heads and metadata objects a writer remembers; more alternate only in recordings of many devices.
const REMEMBERED: usize = 16;

/// Turns events into payloads, remembering what was defined.
#[derive(Default)]
pub(crate) struct Encoder {
    payload: Vec<u8>,
    heads: RecentDefinitions<Head>,
    metadata: RecentDefinitions<Metadata>,
}

/// A few shared values with their definitions, the oldest replaced first.
struct RecentDefinitions<T> {
    entries: Vec<(Arc<T>, Definition)>,
    next: usize,
    /// Seen once: worth defining only if it comes again.
    once: Option<Arc<T>>,
}

impl<T> Default for RecentDefinitions<T> {
    fn default() -> Self {
        RecentDefinitions { entries: Vec::new(), next: 0, once: None }
    }
}

impl<T: PartialEq> RecentDefinitions<T> {
    fn find(&self, value: &Arc<T>) -> Option<usize> {
        let same = |entry: &(Arc<T>, Definition)| Arc::ptr_eq(&entry.0, value);
        self.entries
            .iter()
            .position(same)
            .or_else(|| self.entries.iter().position(|entry| *entry.0 == **value))
    }

    /// The entry of a value that repeats; `None` for one seen for the first time.
    fn recall(&mut self, value: &Arc<T>, text: impl Fn(&T) -> Vec<u8>) -> Option<usize> {
        if let Some(index) = self.find(value) {
            if !Arc::ptr_eq(&self.entries[index].0, value) {
                self.entries[index].0 = Arc::clone(value);
            }
            return Some(index);
        }
        if !self.once.as_ref().is_some_and(|once| **once == **value) {
            self.once = Some(Arc::clone(value));
            return None;
        }
        let entry = (Arc::clone(value), Definition::new(&text(value)));
        let index = self.next;
        self.next = (self.next + 1) % REMEMBERED;
        if index < self.entries.len() {
            self.entries[index] = entry;
        } else {
            self.entries.push(entry);
        }
        Some(index)
    }
}

impl Encoder {
    /// The payload of `event` and the definitions it refers to. With `inline` it refers to none.
    pub(crate) fn encode(&mut self, event: &Event, inline: bool) -> (&[u8], [Option<&Definition>; 2]) {
        let head = if inline { None } else { self.heads.recall(&event.head, head_text) };
        let metadata = if inline { None } else { self.metadata.recall(&event.metadata, metadata_text) };
        let context = event.context.as_deref().unwrap_or("");
        let mut flags = 0;
        for (set, flag) in [
            (head.is_none(), HEAD_INLINE),
            (metadata.is_none(), METADATA_INLINE),
            (event.context.is_some(), HAS_CONTEXT),
        ] {
            flags |= if set { flag } else { 0 };
        }
        let payload = &mut self.payload;
        payload.clear();
        payload.extend_from_slice(&[VERSION, event.counters.known_bits(), flags, 0]);
        payload.extend_from_slice(&(context.len() as u32).to_le_bytes());
        payload.extend_from_slice(&event.timestamp_ns.to_le_bytes());
        for counter in Counter::ALL {
            if let Some(bits) = event.counters.raw(counter) {
                payload.extend_from_slice(&bits.to_le_bytes());
            }
        }
        let head = head.map(|index| &self.heads.entries[index].1);
        let metadata = metadata.map(|index| &self.metadata.entries[index].1);
        put(payload, head, || head_text(&event.head));
        put(payload, metadata, || metadata_text(&event.metadata));
        payload.extend_from_slice(context.as_bytes());
        (&self.payload, [head, metadata])
    }
}

fn put(payload: &mut Vec<u8>, definition: Option<&Definition>, text: impl Fn() -> Vec<u8>) {
    match definition {
        Some(definition) => payload.extend_from_slice(&definition.id().0.to_le_bytes()),
        None => {
            let text = text();
            payload.extend_from_slice(&(text.len() as u32).to_le_bytes());
            payload.extend_from_slice(&text);
        }
    }
}

fn head_text(head: &Head) -> Vec<u8> {
    let event = Event {
        timestamp_ns: 0,
        counters: Counters::UNKNOWN,
        context: None,
        head: Arc::new(head.clone()),
        metadata: Arc::new(Metadata { map: Record::new(), capabilities: Default::default(), inferred: true }),
    };
    // Schema 4 can express every event; the record of one always serialises.
    let mut record = to_record(&event, Schema::V4).unwrap_or_default();
    record.retain(|key, value| !value.is_null() && key != "metadata" && key != "timestamp_ns");
    write::dumps(&record).into_bytes()
}

fn metadata_text(metadata: &Metadata) -> Vec<u8> {
    // Inferred capabilities are inferred again on reading.
    let map = metadata.to_map(if metadata.inferred { Schema::V3 } else { Schema::V4 });
    format!("{}{}", u8::from(metadata.inferred), write::dumps(&map)).into_bytes()
}

/// Turns payloads into events, remembering what was read.
#[derive(Default)]
pub(crate) struct Decoder {
    interner: Interner,
    heads: FxHashMap<DefId, Arc<Head>>,
    metadata: FxHashMap<DefId, Arc<Metadata>>,
    /// Metadata whose capabilities were inferred: of a collector, from the counters that are known.
    inferred: FxHashMap<(DefId, u8), (Arc<Head>, Arc<Metadata>)>,
    /// Of the last event whose metadata was read.
    last: Option<Arc<Metadata>>,
}

impl Decoder {
    /// The event of a payload, or what is wrong with it.
    pub(crate) fn decode(&mut self, payload: &[u8], definitions: &Definitions) -> Result<Event, Problem> {
        self.decode_sparsely(payload, definitions, &mut |_| true)
    }

    /// The same; where `wants_metadata` says no, the metadata is that of an earlier event. Most of what an event costs is its metadata, which is JSON.
    pub(crate) fn decode_sparsely(
        &mut self,
        payload: &[u8],
        definitions: &Definitions,
        wants_metadata: &mut dyn FnMut(&Head) -> bool,
    ) -> Result<Event, Problem> {
        let mut bytes = Bytes { rest: payload };
        let [version, known, flags, _] = bytes.array()?;
        if version != VERSION {
            return Err(Problem::whole(format!(
                "a record of version {version}; this release reads {VERSION}"
            )));
        }
        let context_length = u32::from_le_bytes(bytes.array()?) as usize;
        let timestamp_ns = u64::from_le_bytes(bytes.array()?);
        let mut counters = Counters::UNKNOWN;
        for counter in Counter::ALL {
            if known & (1 << counter as u8) != 0 {
                counters.set_raw(counter, Some(u64::from_le_bytes(bytes.array()?)));
            }
        }
        let head = bytes.text(flags & HEAD_INLINE != 0, definitions)?;
        let metadata = bytes.text(flags & METADATA_INLINE != 0, definitions)?;
        let context = bytes.take(context_length)?;
        let context = match flags & HAS_CONTEXT {
            0 => None,
            _ => Some(self.interner.text(std::str::from_utf8(context).map_err(|_| damaged("context"))?)),
        };
        let head = self.head(&head)?;
        let metadata = match &self.last {
            Some(last) if !wants_metadata(&head) => Arc::clone(last),
            _ => self.metadata(&metadata, &head, &counters)?,
        };
        self.last = Some(Arc::clone(&metadata));
        check_totals(&counters)?;
        Ok(Event { timestamp_ns, counters, context, head, metadata })
    }

    fn head(&mut self, text: &Text<'_>) -> Result<Arc<Head>, Problem> {
        if let Some(head) = text.id.and_then(|id| self.heads.get(&id)) {
            return Ok(Arc::clone(head));
        }
        let Ok(Value::Object(mut record)) = serde_json::from_slice(text.bytes) else {
            return Err(damaged("head"));
        };
        record.insert("timestamp_ns".into(), 0.into());
        record.insert("metadata".into(), Value::Object(Record::new()));
        record.entry("context").or_insert(Value::Null);
        for counter in Counter::ALL {
            record.insert(counter.field().name().into(), Value::Null);
        }
        let head = event_from_record(&record, &Defaults::default(), &mut self.interner)?.head;
        self.heads.extend(text.id.map(|id| (id, Arc::clone(&head))));
        Ok(head)
    }

    fn metadata(
        &mut self,
        text: &Text<'_>,
        head: &Arc<Head>,
        counters: &Counters,
    ) -> Result<Arc<Metadata>, Problem> {
        let key = text.id.map(|id| (id, counters.known_bits()));
        if let Some((known, metadata)) = key.and_then(|key| self.inferred.get(&key))
            && (Arc::ptr_eq(known, head) || known.collector == head.collector)
        {
            return Ok(Arc::clone(metadata));
        }
        if let Some(metadata) = text.id.and_then(|id| self.metadata.get(&id))
            && metadata.permits(counters)
        {
            return Ok(Arc::clone(metadata));
        }
        let object = text.bytes.get(1..).map(serde_json::from_slice);
        let Some(Ok(Value::Object(map))) = object else { return Err(damaged("metadata")) };
        let metadata = self.interner.metadata(Metadata::read(map, &head.collector, counters)?);
        match metadata.inferred {
            true => self.inferred.extend(key.map(|key| (key, (Arc::clone(head), Arc::clone(&metadata))))),
            false => self.metadata.extend(text.id.map(|id| (id, Arc::clone(&metadata)))),
        }
        Ok(metadata)
    }
}

fn check_totals(counters: &Counters) -> Result<(), Problem> {
    let total = counters.get(Counter::Total);
    let exceeds = |counter| total.zip(counters.get(counter)).is_some_and(|(total, value)| value > total);
    if exceeds(Counter::Used) || exceeds(Counter::Free) {
        return Err(Problem::whole("a counter exceeds device_total_bytes"));
    }
    Ok(())
}

fn damaged(what: &str) -> Problem {
    Problem::whole(format!("the record's {what} is damaged"))
}

struct Text<'a> {
    id: Option<DefId>,
    bytes: &'a [u8],
}

struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        let (array, rest) = self.rest.split_first_chunk().ok_or_else(|| damaged("length"))?;
        self.rest = rest;
        Ok(*array)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Problem> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(|| damaged("length"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn text<'d>(&mut self, inline: bool, definitions: &'d Definitions) -> Result<Text<'d>, Problem>
    where
        'a: 'd,
    {
        if inline {
            let length = u32::from_le_bytes(self.array()?) as usize;
            return Ok(Text { id: None, bytes: self.take(length)? });
        }
        let id = DefId(u64::from_le_bytes(self.array()?));
        let bytes = definitions.get(id).ok_or_else(|| damaged("definition"))?;
        Ok(Text { id: Some(id), bytes })
    }
}
