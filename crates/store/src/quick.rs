//! The quick way from the raw fields of a well-behaved record to an event: no tree, no allocation, no second look at
//! metadata that repeats.
//!
//! Accepts only what it is sure of; for everything else it gives up, and the strict path reads the record again and says
//! what is wrong. It must never accept a record the strict path would refuse, nor understand one differently; a property
//! test holds the two together.

use std::sync::Arc;

use stormlog_model::{Counter, Counters, Event, FIELDS, Field, Head, Identity, Interner, Metadata, Schema};

use crate::json::parse_object;

/// The fields of a record as found, before they are judged.
#[derive(Default)]
pub(crate) struct RawFields<'a> {
    seen: u32,
    numbers: [Option<i128>; 23],
    texts: [Option<&'a str>; 23],
    metadata: Option<&'a [u8]>,
}

impl<'a> RawFields<'a> {
    pub(crate) fn has(&self, field: Field) -> bool {
        self.seen & (1 << field as u32) != 0
    }

    pub(crate) fn null(&mut self, field: Field) {
        self.seen |= 1 << field as u32;
    }

    pub(crate) fn number(&mut self, field: Field, value: i128) {
        self.null(field);
        self.numbers[field as usize] = Some(value);
    }

    pub(crate) fn text(&mut self, field: Field, value: &'a str) {
        self.null(field);
        self.texts[field as usize] = Some(value);
    }

    /// The text of the metadata object, from brace to brace.
    pub(crate) fn metadata(&mut self, text: &'a [u8]) {
        self.null(Field::Metadata);
        self.metadata = Some(text);
    }
}

/// Judges raw fields, remembering what the last records had in common.
#[derive(Debug, Default)]
pub(crate) struct Quick {
    last_head: Option<Arc<Head>>,
    last_metadata: Option<KnownMetadata>,
}

/// Metadata text seen before, already parsed and judged.
#[derive(Debug)]
struct KnownMetadata {
    text: Vec<u8>,
    metadata: Arc<Metadata>,
    /// Inferred capabilities hold for these counters and this collector only.
    known_bits: u8,
    collector: String,
}

impl Quick {
    /// The length of the metadata object at the start of `bytes`, if it is the one of the last record.
    pub(crate) fn same_metadata(&self, bytes: &[u8]) -> Option<usize> {
        self.last_metadata
            .as_ref()
            .filter(|known| bytes.starts_with(&known.text))
            .map(|known| known.text.len())
    }

    /// The event of these fields; `None` to let the strict path decide.
    pub(crate) fn event(
        &mut self,
        found: &RawFields<'_>,
        default_session: &str,
        interner: &mut Interner,
    ) -> Option<Event> {
        let schema = Schema::from_number(i64::try_from(found.numbers[Field::SchemaVersion as usize]?).ok()?)?;
        let complete = FIELDS.iter().all(|(field, _)| {
            if found.has(*field) { field.is_known_in(schema) } else { !field.is_required_in(schema) }
        });
        if !complete {
            return None;
        }
        let counters = counters(found, schema)?;
        let head = self.head(found, schema, default_session, interner)?;
        let metadata = self.metadata(found.metadata?, &head.collector, &counters, interner)?;
        let context = match found.texts[Field::Context as usize] {
            Some(text) => Some(interner.text(text)),
            None if found.numbers[Field::Context as usize].is_none() => None,
            None => return None,
        };
        let timestamp_ns = u64::try_from(found.numbers[Field::TimestampNs as usize]?).ok()?;
        Some(Event { timestamp_ns, counters, context, head, metadata })
    }

    fn head(
        &mut self,
        found: &RawFields<'_>,
        schema: Schema,
        default_session: &str,
        interner: &mut Interner,
    ) -> Option<Arc<Head>> {
        let text = |field: Field| found.texts[field as usize];
        let filled = |field: Field| text(field).filter(|text| !text.trim().is_empty());
        let number = |field: Field| found.numbers[field as usize];
        let identity_number = |field: Field, otherwise: u64| {
            if found.has(field) { u64::try_from(number(field)?).ok() } else { Some(otherwise) }
        };
        let session_id = if schema.has_session() { filled(Field::SessionId)? } else { default_session };
        let (event_type, collector) = (filled(Field::EventType)?, filled(Field::Collector)?);
        let host = filled(Field::Host)?;
        let sampling_interval_ms = u64::try_from(number(Field::SamplingIntervalMs)?).ok()?;
        let pid = i64::try_from(number(Field::Pid)?).ok().filter(|pid| *pid >= -1)?;
        let device_id = i64::try_from(number(Field::DeviceId)?).ok()?;
        let job_id = text(Field::JobId);
        if number(Field::JobId).is_some() || job_id.is_some_and(|job| job.trim().is_empty()) {
            return None;
        }
        let rank = identity_number(Field::Rank, 0)?;
        let local_rank = identity_number(Field::LocalRank, rank)?;
        let world_size = identity_number(Field::WorldSize, 1)?;
        if rank >= world_size || local_rank >= world_size {
            return None;
        }
        if let Some(last) = &self.last_head
            && last.session_id == session_id
            && last.event_type == event_type
            && last.collector == collector
            && last.host == host
            && last.sampling_interval_ms == sampling_interval_ms
            && last.pid == pid
            && last.device_id == device_id
            && last.identity.job_id.as_deref() == job_id
            && (last.identity.rank, last.identity.local_rank, last.identity.world_size)
                == (rank, local_rank, world_size)
        {
            return Some(Arc::clone(last));
        }
        let head = interner.head(Head {
            session_id: session_id.to_owned(),
            event_type: event_type.to_owned(),
            collector: collector.to_owned(),
            sampling_interval_ms,
            pid,
            host: host.to_owned(),
            identity: Identity { job_id: job_id.map(str::to_owned), rank, local_rank, world_size },
            device_id,
        });
        self.last_head = Some(Arc::clone(&head));
        Some(head)
    }

    fn metadata(
        &mut self,
        text: &[u8],
        collector: &str,
        counters: &Counters,
        interner: &mut Interner,
    ) -> Option<Arc<Metadata>> {
        if let Some(known) = self.last_metadata.as_ref().filter(|known| known.text == text) {
            let still_holds = if known.metadata.inferred {
                known.known_bits == counters.known_bits() && known.collector == collector
            } else {
                known.metadata.permits(counters)
            };
            if still_holds {
                return Some(Arc::clone(&known.metadata));
            }
        }
        let map = parse_object(text)?;
        let metadata = interner.metadata(Metadata::read(map, collector, counters).ok()?);
        self.last_metadata = Some(KnownMetadata {
            text: text.to_vec(),
            metadata: Arc::clone(&metadata),
            known_bits: counters.known_bits(),
            collector: collector.to_owned(),
        });
        Some(metadata)
    }
}

fn counters(found: &RawFields<'_>, schema: Schema) -> Option<Counters> {
    let mut counters = Counters::UNKNOWN;
    for counter in Counter::ALL {
        let index = counter.field() as usize;
        if found.texts[index].is_some() {
            return None;
        }
        match (found.numbers[index], counter) {
            (None, _) if schema != Schema::V4 && counter.is_core() => return None,
            (None, _) => {}
            (Some(number), Counter::Change) => counters.set_change(Some(i64::try_from(number).ok()?)),
            (Some(number), _) => counters.set(counter, Some(u64::try_from(number).ok()?)),
        }
    }
    if let Some(total) = counters.get(Counter::Total) {
        let exceeds = |counter| counters.get(counter).is_some_and(|value| value > total);
        if exceeds(Counter::Used) || exceeds(Counter::Free) {
            return None;
        }
    }
    Some(counters)
}
