//! Names, order and membership of the telemetry fields in schemas 2, 3 and 4.

/// The schema versions a record may carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Schema {
    /// No session id; core counters required.
    V2 = 2,
    /// Session id; core counters required.
    V3 = 3,
    /// Session id; counters may be null; capabilities say which ever can be known.
    V4 = 4,
}

/// The schema written unless another is requested.
pub const SCHEMA_LATEST: Schema = Schema::V4;

impl Schema {
    /// The schema of that number, if there is one.
    pub fn from_number(number: i64) -> Option<Self> {
        match number {
            2 => Some(Schema::V2),
            3 => Some(Schema::V3),
            4 => Some(Schema::V4),
            _ => None,
        }
    }

    /// The number as written in `schema_version`.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Whether records of this schema carry a session id.
    pub fn has_session(self) -> bool {
        self >= Schema::V3
    }
}

/// A field of a telemetry record, in serialised order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "each variant is the field of that name in FIELDS")]
pub enum Field {
    SchemaVersion,
    SessionId,
    TimestampNs,
    EventType,
    Collector,
    SamplingIntervalMs,
    Pid,
    Host,
    JobId,
    Rank,
    LocalRank,
    WorldSize,
    DeviceId,
    AllocatorAllocated,
    AllocatorReserved,
    AllocatorActive,
    AllocatorInactive,
    AllocatorChange,
    DeviceUsed,
    DeviceFree,
    DeviceTotal,
    Context,
    Metadata,
}

/// Every field with its name, in the order it is written. Schema 2 has no `session_id`.
pub const FIELDS: [(Field, &str); 23] = [
    (Field::SchemaVersion, "schema_version"),
    (Field::SessionId, "session_id"),
    (Field::TimestampNs, "timestamp_ns"),
    (Field::EventType, "event_type"),
    (Field::Collector, "collector"),
    (Field::SamplingIntervalMs, "sampling_interval_ms"),
    (Field::Pid, "pid"),
    (Field::Host, "host"),
    (Field::JobId, "job_id"),
    (Field::Rank, "rank"),
    (Field::LocalRank, "local_rank"),
    (Field::WorldSize, "world_size"),
    (Field::DeviceId, "device_id"),
    (Field::AllocatorAllocated, "allocator_allocated_bytes"),
    (Field::AllocatorReserved, "allocator_reserved_bytes"),
    (Field::AllocatorActive, "allocator_active_bytes"),
    (Field::AllocatorInactive, "allocator_inactive_bytes"),
    (Field::AllocatorChange, "allocator_change_bytes"),
    (Field::DeviceUsed, "device_used_bytes"),
    (Field::DeviceFree, "device_free_bytes"),
    (Field::DeviceTotal, "device_total_bytes"),
    (Field::Context, "context"),
    (Field::Metadata, "metadata"),
];

impl Field {
    /// The key of this field in a record.
    pub fn name(self) -> &'static str {
        FIELDS[self as usize].1
    }

    /// The field of that key.
    pub fn of_name(name: &str) -> Option<Self> {
        FIELDS.iter().find(|(_, known)| *known == name).map(|(field, _)| *field)
    }

    /// Whether records of `schema` may carry the field at all.
    pub fn is_known_in(self, schema: Schema) -> bool {
        self != Field::SessionId || schema.has_session()
    }

    /// Whether a record of `schema` without the field is incomplete.
    pub fn is_required_in(self, schema: Schema) -> bool {
        let optional = matches!(self, Field::JobId | Field::Rank | Field::LocalRank | Field::WorldSize);
        self.is_known_in(schema) && !optional
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_enum_order() {
        for (index, (field, name)) in FIELDS.iter().enumerate() {
            assert_eq!(*field as usize, index, "{name}");
            assert_eq!(Field::of_name(name), Some(*field));
        }
    }
}
