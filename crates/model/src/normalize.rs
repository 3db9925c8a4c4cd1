//! From a record of any schema to the one [`Event`] kept in memory.

use serde_json::Value;

use crate::capability::{self, Capabilities};
use crate::check::schema_of;
use crate::identity::IdentityInputs;
use crate::legacy;
use crate::record::{get, signed};
use crate::{
    Counter, Counters, Event, Head, Interner, Metadata, Problem, Record, legacy_session_id, resolve_identity,
    validate_record, value_str,
};

/// What a record that does not say is taken to mean.
#[derive(Debug, Clone, Copy)]
pub struct Defaults<'a> {
    /// Whether records without a `schema_version` are accepted.
    pub permissive_legacy: bool,
    /// The collector of a legacy record that names none.
    pub collector: &'a str,
    /// The sampling interval of a legacy record that names none.
    pub sampling_interval_ms: u64,
    /// The session of a record that names none; else one is derived from the record itself.
    pub session_id: Option<&'a str>,
}

impl Default for Defaults<'_> {
    fn default() -> Self {
        Defaults {
            permissive_legacy: true,
            collector: "legacy.unknown",
            sampling_interval_ms: 0,
            session_id: None,
        }
    }
}

/// Reads a record of schema 2, 3 or 4, or a legacy one.
pub fn event_from_record(
    record: &Record,
    defaults: &Defaults<'_>,
    interner: &mut Interner,
) -> Result<Event, Problem> {
    if record.contains_key("schema_version") {
        return from_schema(record, defaults, interner);
    }
    if !defaults.permissive_legacy {
        return Err(Problem::whole("Legacy record conversion is disabled"));
    }
    legacy::from_legacy(record, defaults, interner)
}

fn from_schema(record: &Record, defaults: &Defaults<'_>, interner: &mut Interner) -> Result<Event, Problem> {
    let schema = schema_of(record)?;
    let mut complete = record.clone();
    let mut inferred = false;
    if let Some(metadata) = complete.get_mut("metadata") {
        let Value::Object(metadata) = metadata else {
            return Err(Problem::of("metadata", "must be an object"));
        };
        inferred = infer_capabilities(metadata, &value_str(collector_of(record)), |counter| {
            !get(record, counter.field().name()).is_null()
        });
    }
    let identity = resolve_identity(&IdentityInputs::of_record(record))?;
    let session_id = session_id_of(record, record.get("metadata").and_then(Value::as_object), defaults);
    if schema.has_session() {
        complete.insert("session_id".into(), session_id.as_str().into());
    }
    validate_record(&complete)?;

    let mut counters = Counters::UNKNOWN;
    for counter in Counter::ALL {
        let value = get(record, counter.field().name());
        counters.set_raw(counter, value.as_u64().or_else(|| value.as_i64().map(|negative| negative as u64)));
    }
    let metadata = match complete.remove("metadata") {
        Some(Value::Object(metadata)) => metadata,
        _ => Record::new(),
    };
    let head = Head {
        session_id,
        event_type: text(record, "event_type"),
        collector: text(record, "collector"),
        sampling_interval_ms: get(record, "sampling_interval_ms").as_u64().unwrap_or(0),
        pid: signed(get(record, "pid"), "pid")?,
        host: text(record, "host"),
        identity,
        device_id: signed(get(record, "device_id"), "device_id")?,
    };
    Ok(Event {
        timestamp_ns: get(record, "timestamp_ns").as_u64().unwrap_or(0),
        counters,
        context: get(record, "context").as_str().map(|text| interner.text(text)),
        metadata: interner.metadata(understand_metadata(metadata, inferred, &counters)?),
        head: interner.head(head),
    })
}

fn text(record: &Record, key: &str) -> String {
    get(record, key).as_str().unwrap_or_default().to_owned()
}

fn collector_of(record: &Record) -> &Value {
    static UNKNOWN: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| "legacy.unknown".into());
    record.get("collector").unwrap_or(&UNKNOWN)
}

/// The session a record names, or the default, or one derived from time, host and pid.
pub(crate) fn session_id_of(record: &Record, metadata: Option<&Record>, defaults: &Defaults<'_>) -> String {
    let in_metadata = || metadata.map_or(&Value::Null, |metadata| get(metadata, "session_id"));
    let named = match get(record, "session_id") {
        Value::Null => in_metadata(),
        value => value,
    };
    if let Some(name) = named.as_str().filter(|name| !name.trim().is_empty()) {
        return name.to_owned();
    }
    if let Some(default) = defaults.session_id {
        return default.to_owned();
    }
    let part = |keys: &[&str], otherwise: &str| {
        keys.iter().find_map(|key| record.get(*key)).map_or_else(|| Some(otherwise.into()), non_null_str)
    };
    let parts =
        [part(&["timestamp_ns", "timestamp"], "unknown"), part(&["host"], "unknown"), part(&["pid"], "-1")];
    legacy_session_id(parts.iter().flatten().map(String::as_str))
}

fn non_null_str(value: &Value) -> Option<String> {
    (!value.is_null()).then(|| value_str(value))
}

/// Adds the capabilities a record does not state, judged by the counters it has. True when it had to.
pub(crate) fn infer_capabilities(
    metadata: &mut Record,
    collector: &str,
    known: impl Fn(Counter) -> bool,
) -> bool {
    if metadata.contains_key(capability::KEY) {
        return false;
    }
    let backend = match metadata.get("backend").and_then(Value::as_str) {
        Some(backend) if !backend.trim().is_empty() => backend.to_owned(),
        _ => capability::backend_of_collector(collector).to_owned(),
    };
    let source = metadata.get("sampling_source").map_or_else(|| "legacy".to_owned(), value_str);
    let object = Capabilities::infer(known).to_object(&backend, collector, &source);
    metadata.insert(capability::KEY.into(), Value::Object(object));
    true
}

/// Reads the capabilities out of complete metadata, whatever schema the record had.
pub(crate) fn understand_metadata(
    map: Record,
    inferred: bool,
    counters: &Counters,
) -> Result<Metadata, Problem> {
    let mut problems = Vec::new();
    let capabilities = Capabilities::read(&map, &mut problems).unwrap_or_default();
    if problems.is_empty() {
        problems = capabilities.contradictions(counters);
    }
    match problems.into_iter().next() {
        Some(problem) => Err(problem),
        None => Ok(Metadata { map, capabilities, inferred }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(value: Value) -> Record {
        value.as_object().cloned().unwrap()
    }

    fn v3() -> Record {
        record(json!({
            "schema_version": 3, "session_id": "s", "timestamp_ns": 5, "event_type": "sample",
            "collector": "stormlog.cuda_tracker", "sampling_interval_ms": 100, "pid": 7, "host": "h",
            "device_id": 0, "allocator_allocated_bytes": 10, "allocator_reserved_bytes": 20,
            "allocator_active_bytes": null, "allocator_inactive_bytes": null,
            "allocator_change_bytes": -3, "device_used_bytes": 30, "device_free_bytes": null,
            "device_total_bytes": null, "context": null, "metadata": {"a": 1}
        }))
    }

    fn read(record: &Record) -> Result<Event, Problem> {
        event_from_record(record, &Defaults::default(), &mut Interner::default())
    }

    #[test]
    fn capabilities_are_inferred_and_marked() {
        let event = read(&v3()).unwrap();
        assert!(event.metadata.inferred);
        assert_eq!(event.metadata.map["memory_capabilities"]["backend"], "cuda");
        assert_eq!(event.metadata.map["memory_capabilities"]["supports_device_free"], false);
        assert_eq!(event.counters.change(), Some(-3));
        assert_eq!(event.counter(Counter::Free), None);
    }

    #[test]
    fn a_missing_session_is_made_up_but_other_gaps_are_not() {
        let mut made_up = v3();
        made_up.remove("session_id");
        assert!(read(&made_up).unwrap().head.session_id.starts_with("legacy-"));
        let mut broken = v3();
        broken.remove("host");
        assert_eq!(read(&broken).unwrap_err().message, "Missing required telemetry fields: host");
    }

    #[test]
    fn stated_capabilities_bind_older_schemas_too() {
        let mut contradicting = v3();
        let stated = Capabilities::default().to_object("cuda", "c", "s");
        contradicting.insert("metadata".into(), json!({"memory_capabilities": stated}));
        let message = read(&contradicting).unwrap_err().message;
        assert!(message.starts_with("allocator_allocated_bytes must be null when"), "{message}");
    }
}
