//! The fields of an [`Event`] as a given schema presents them: the one place that knows what is written where.

use serde_json::Value;

use crate::{Counter, Event, FIELDS, Field, Metadata, Problem, Record, Schema};

/// The value of one field.
#[derive(Debug, Clone, Copy)]
pub enum FieldValue<'a> {
    /// Unknown or absent.
    Null,
    /// A number that is never negative.
    Unsigned(u64),
    /// A number that may be negative.
    Signed(i64),
    /// A text.
    Text(&'a str),
    /// The metadata object; see [`Metadata::to_map`].
    Metadata(&'a Metadata),
}

impl Event {
    /// The value of a field.
    pub fn field(&self, field: Field, schema: Schema) -> FieldValue<'_> {
        let head = &self.head;
        let counter =
            |counter: Counter| self.counters.get(counter).map_or(FieldValue::Null, FieldValue::Unsigned);
        match field {
            Field::SchemaVersion => FieldValue::Unsigned(schema.number().into()),
            Field::SessionId => FieldValue::Text(&head.session_id),
            Field::TimestampNs => FieldValue::Unsigned(self.timestamp_ns),
            Field::EventType => FieldValue::Text(&head.event_type),
            Field::Collector => FieldValue::Text(&head.collector),
            Field::SamplingIntervalMs => FieldValue::Unsigned(head.sampling_interval_ms),
            Field::Pid => FieldValue::Signed(head.pid),
            Field::Host => FieldValue::Text(&head.host),
            Field::JobId => optional(head.identity.job_id.as_deref()),
            Field::Rank => FieldValue::Unsigned(head.identity.rank),
            Field::LocalRank => FieldValue::Unsigned(head.identity.local_rank),
            Field::WorldSize => FieldValue::Unsigned(head.identity.world_size),
            Field::DeviceId => FieldValue::Signed(head.device_id),
            Field::AllocatorAllocated => counter(Counter::Allocated),
            Field::AllocatorReserved => counter(Counter::Reserved),
            Field::AllocatorActive => counter(Counter::Active),
            Field::AllocatorInactive => counter(Counter::Inactive),
            Field::AllocatorChange => self.counters.change().map_or(FieldValue::Null, FieldValue::Signed),
            Field::DeviceUsed => counter(Counter::Used),
            Field::DeviceFree => counter(Counter::Free),
            Field::DeviceTotal => counter(Counter::Total),
            Field::Context => optional(self.context.as_deref()),
            Field::Metadata => FieldValue::Metadata(&self.metadata),
        }
    }

    /// Whether `schema` can say what this event says. Schemas 2 and 3 cannot say "unknown" for a core counter: such
    /// an event is a problem there, never a 0.
    pub fn expressible_in(&self, schema: Schema) -> Result<(), Problem> {
        match self.inexpressible_in(schema).next() {
            Some(counter) => Err(Problem::of(
                counter.field().name(),
                &format!("is unknown, which schema {} cannot express; write schema 4", schema.number()),
            )),
            None => Ok(()),
        }
    }

    /// The unknown counters on which `schema` insists.
    fn inexpressible_in(&self, schema: Schema) -> impl Iterator<Item = Counter> {
        let insists = move |counter: &Counter| schema != Schema::V4 && counter.is_core();
        Counter::ALL.into_iter().filter(insists).filter(|counter| !self.counters.is_known(*counter))
    }

    /// Makes 0 of the unknown counters on which `schema` insists, names them in the metadata, and returns them. The one place where
    /// unknown becomes a number: only for a user who asked for it, and who is shown the counts.
    pub fn zero_unknown(&mut self, schema: Schema) -> Vec<Counter> {
        let unknown: Vec<Counter> = self.inexpressible_in(schema).collect();
        if unknown.is_empty() {
            return unknown;
        }
        for counter in &unknown {
            self.counters.set_raw(*counter, Some(0));
        }
        let mut metadata = (*self.metadata).clone();
        let names = unknown.iter().map(|counter| Value::from(counter.field().name())).collect();
        metadata.map.insert("unknown_as_zero".into(), Value::Array(names));
        // Stated capabilities would contradict the zeros.
        metadata.inferred = true;
        self.metadata = metadata.into();
        unknown
    }
}

fn optional(text: Option<&str>) -> FieldValue<'_> {
    text.map_or(FieldValue::Null, FieldValue::Text)
}

/// The record of `event` in `schema`, keys in order.
pub fn to_record(event: &Event, schema: Schema) -> Result<Record, Problem> {
    event.expressible_in(schema)?;
    let fields = FIELDS.iter().filter(|(field, _)| field.is_known_in(schema));
    Ok(fields.map(|(field, name)| ((*name).to_owned(), value(event.field(*field, schema), schema))).collect())
}

fn value(field: FieldValue<'_>, schema: Schema) -> Value {
    match field {
        FieldValue::Null => Value::Null,
        FieldValue::Unsigned(number) => number.into(),
        FieldValue::Signed(number) => number.into(),
        FieldValue::Text(text) => text.into(),
        FieldValue::Metadata(metadata) => Value::Object(metadata.to_map(schema)),
    }
}
