//! One event as `events.json` spells it: 0.4.3's keys in its order, two levels deep, without a tree.
//!
//! What repeats (identity, type, metadata) is serialised once and copied. Must never keep more than a handful of spellings, and none
//! that is large.

use std::io::{self, Write};
use std::sync::Arc;

use serde::ser::{Serialize, SerializeMap, Serializer};
use stormlog_model::{Counter, Event, Head, Metadata, digits};
use stormlog_store::json::write::{write_compact, write_indented};

/// Event kinds and metadata alternate; a recorder seldom has more of them at a time.
const KEPT: usize = 8;
/// Larger metadata is rare enough to be spelt each time.
const MAX_KEPT_BYTES: usize = 64 << 10;
/// The key of capabilities, which are left out where they were only inferred.
const CAPABILITIES: &str = "memory_capabilities";

/// Spells events.
#[derive(Debug)]
pub(super) struct EventText {
    backend: String,
    heads: Kept<Head, HeadText>,
    metadata: Kept<Metadata, Vec<u8>>,
}

/// The pieces of an event that its head decides, in the order they appear.
#[derive(Debug, Default)]
struct HeadText {
    names: Vec<u8>,
    device: Vec<u8>,
    identity: Vec<u8>,
    backend: Vec<u8>,
}

impl EventText {
    /// `backend` is that of events whose collector does not give one away.
    pub(super) fn new(backend: &str) -> Self {
        EventText { backend: backend.to_owned(), heads: Kept::default(), metadata: Kept::default() }
    }

    /// Appends one event as an item of an indented array.
    pub(super) fn append(&mut self, out: &mut Vec<u8>, event: &Event) -> io::Result<()> {
        let backend = &self.backend;
        let head = self.heads.get(&event.head, |head| (HeadText::spell(head, backend), true));
        out.extend_from_slice(b"{\n    \"timestamp\": ");
        seconds(out, event.timestamp_ns)?;
        out.extend_from_slice(&head.names);
        counter(out, b",\n    \"memory_allocated\": ", event, Counter::Allocated);
        counter(out, b",\n    \"memory_reserved\": ", event, Counter::Reserved);
        out.extend_from_slice(b",\n    \"memory_change\": ");
        match event.counters.change() {
            Some(change) => {
                if change < 0 {
                    out.push(b'-');
                }
                decimal(out, change.unsigned_abs());
            }
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(&head.device);
        match &event.context {
            Some(context) => write_compact(&mut *out, &&**context)?,
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(&head.identity);
        let spelt = self.metadata.get(&event.metadata, |metadata| {
            let text = spell_metadata(metadata);
            let keep = text.len() <= MAX_KEPT_BYTES;
            (text, keep)
        });
        out.extend_from_slice(spelt);
        counter(out, b",\n    \"active_memory\": ", event, Counter::Active);
        counter(out, b",\n    \"inactive_memory\": ", event, Counter::Inactive);
        counter(out, b",\n    \"device_used\": ", event, Counter::Used);
        counter(out, b",\n    \"device_free\": ", event, Counter::Free);
        counter(out, b",\n    \"device_total\": ", event, Counter::Total);
        out.extend_from_slice(&head.backend);
        out.extend_from_slice(b"\n  }");
        Ok(())
    }
}

impl HeadText {
    fn spell(head: &Head, fallback: &str) -> Self {
        let mut text = HeadText::default();
        // Writing to memory cannot fail.
        let _ = text.fill(head, fallback);
        text
    }

    fn fill(&mut self, head: &Head, fallback: &str) -> io::Result<()> {
        pair(&mut self.names, "event_type", &head.event_type)?;
        pair(&mut self.names, "session_id", &head.session_id)?;
        pair(&mut self.device, "device_id", &head.device_id)?;
        self.device.extend_from_slice(b",\n    \"context\": ");
        pair(&mut self.identity, "job_id", &head.identity.job_id)?;
        pair(&mut self.identity, "rank", &head.identity.rank)?;
        pair(&mut self.identity, "local_rank", &head.identity.local_rank)?;
        pair(&mut self.identity, "world_size", &head.identity.world_size)?;
        self.identity.extend_from_slice(b",\n    \"metadata\": ");
        pair(&mut self.backend, "backend", &backend_of(&head.collector).unwrap_or(fallback))
    }
}

fn pair(out: &mut Vec<u8>, key: &str, value: &impl Serialize) -> io::Result<()> {
    write!(out, ",\n    \"{key}\": ")?;
    write_compact(out, value)
}

/// The backend a collector's name gives away.
fn backend_of(collector: &str) -> Option<&'static str> {
    ["cuda", "rocm", "mps", "cpu", "tensorflow", "jax"]
        .into_iter()
        .find(|backend| collector.contains(backend))
}

fn counter(out: &mut Vec<u8>, key: &[u8], event: &Event, counter: Counter) {
    out.extend_from_slice(key);
    match event.counters.get(counter) {
        Some(value) => decimal(out, value),
        None => out.extend_from_slice(b"null"),
    }
}

fn decimal(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(digits::decimal(value, &mut [0; 20]));
}

/// Seconds as Python's `repr` spells them; in the range of any clock Rust's shortest form is the same.
fn seconds(out: &mut Vec<u8>, timestamp_ns: u64) -> io::Result<()> {
    let seconds = timestamp_ns as f64 / 1e9;
    if seconds == 0.0 || seconds >= 1e-4 {
        write!(out, "{seconds:?}")
    } else {
        out.write_all(stormlog_model::float_repr(seconds).as_bytes())
    }
}

fn spell_metadata(metadata: &Metadata) -> Vec<u8> {
    let mut out = Vec::new();
    // Writing to memory cannot fail.
    let _ = write_indented(&mut out, &Stated(metadata), 2);
    out
}

/// Metadata as it was stated: inferred capabilities are ours, not the recorder's.
struct Stated<'a>(&'a Metadata);

impl Serialize for Stated<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in &self.0.map {
            if !(self.0.inferred && key == CAPABILITIES) {
                map.serialize_entry(key, value)?;
            }
        }
        map.end()
    }
}

/// The spellings of the last few shared values, by identity. Holding the `Arc` keeps an address from being used again.
#[derive(Debug)]
struct Kept<T, S> {
    entries: Vec<(Arc<T>, S)>,
    next: usize,
    passing: Option<S>,
}

impl<T, S> Default for Kept<T, S> {
    fn default() -> Self {
        Kept { entries: Vec::with_capacity(KEPT), next: 0, passing: None }
    }
}

impl<T, S: Default> Kept<T, S> {
    /// The spelling of `value`; `spell` also says whether it is worth keeping.
    fn get(&mut self, value: &Arc<T>, spell: impl FnOnce(&T) -> (S, bool)) -> &S {
        self.passing = None;
        if let Some(at) = self.entries.iter().position(|(kept, _)| Arc::ptr_eq(kept, value)) {
            return &self.entries[at].1;
        }
        let (spelt, keep) = spell(value);
        if !keep {
            return self.passing.insert(spelt);
        }
        let at = if self.entries.len() < KEPT {
            self.entries.push((Arc::clone(value), spelt));
            self.entries.len() - 1
        } else {
            let at = self.next % KEPT;
            self.next = at + 1;
            self.entries[at] = (Arc::clone(value), spelt);
            at
        };
        &self.entries[at].1
    }
}
