//! Records from before the schemas: tracker dictionaries, TensorFlow samples, OOM bundle events.
//!
//! The rules of 0.4.3, with its two losses fixed: an unknown counter stays unknown (it refused `null`), and the
//! names an OOM bundle uses (`device_used`, `active_memory`, …) are understood, so a bundle reloads whole.

use serde_json::Value;

use crate::identity::{IDENTITY_KEYS, IdentityInputs};
use crate::normalize::{infer_capabilities, session_id_of, understand_metadata};
use crate::record::{get, integer, non_empty, optional_string, signed};
use crate::{
    Counter, Counters, Defaults, Event, Head, Identity, Interner, Problem, Record, resolve_identity,
};

const MIB: f64 = 1024.0 * 1024.0;

pub(crate) fn from_legacy(
    record: &Record,
    defaults: &Defaults<'_>,
    interner: &mut Interner,
) -> Result<Event, Problem> {
    let mut metadata = metadata_of(record)?;
    let timestamp = timestamp_ns(record)?;
    let device_id = device_id(record)?;
    let counters = counters(record, &metadata)?;
    let event_type = record.get("event_type").or_else(|| record.get("type"));
    let event_type = event_type.map_or(Ok("sample"), |value| non_empty(value, "event_type"))?;
    let interval = record
        .get("sampling_interval_ms")
        .map_or(Ok(defaults.sampling_interval_ms.into()), |value| integer(value, "sampling_interval_ms"))?;
    let pid = record.get("pid").or_else(|| metadata.get("pid"));
    let pid = pid.map_or(Ok(-1), |value| signed(value, "pid"))?;
    let host = record.get("host").or_else(|| metadata.get("host"));
    let host = host.map_or(Ok("unknown"), |value| non_empty(value, "host"))?.to_owned();
    let collector = collector(record, &metadata, device_id, defaults);
    let identity = identity_of(record, &metadata)?;
    metadata.retain(|key, _| !IDENTITY_KEYS.contains(&key.as_str()));
    let session_id = session_id_of(record, Some(&metadata), defaults);
    metadata.shift_remove("session_id");
    let context = record.get("context").or_else(|| record.get("message")).unwrap_or(&Value::Null);
    let context = optional_string(context, "context")?.map(|text| interner.text(text));

    let inferred = infer_capabilities(&mut metadata, &collector, |counter| counters.is_known(counter));
    let head = Head {
        session_id,
        event_type: event_type.to_owned(),
        collector,
        sampling_interval_ms: u64::try_from(interval)
            .map_err(|_| Problem::of("sampling_interval_ms", "must be >= 0"))?,
        pid,
        host,
        identity,
        device_id,
    };
    check_ranges(timestamp, &head, &counters)?;
    Ok(Event {
        timestamp_ns: timestamp as u64,
        counters,
        context,
        metadata: interner.metadata(understand_metadata(metadata, inferred, &counters)?),
        head: interner.head(head),
    })
}

/// The metadata object with `metadata_*` columns folded in.
fn metadata_of(record: &Record) -> Result<Record, Problem> {
    let mut metadata = match get(record, "metadata") {
        Value::Null => Record::new(),
        Value::Object(metadata) => metadata.clone(),
        _ => return Err(Problem::of("metadata", "must be an object when provided")),
    };
    for (key, value) in record {
        if let Some(name) = key.strip_prefix("metadata_") {
            metadata.insert(name.into(), value.clone());
        }
    }
    Ok(metadata)
}

fn timestamp_ns(record: &Record) -> Result<i64, Problem> {
    if let Some(value) = record.get("timestamp_ns") {
        return signed(value, "timestamp_ns");
    }
    match record.get("timestamp") {
        Some(Value::Number(seconds)) => Ok((seconds.as_f64().unwrap_or(0.0) * 1e9) as i64),
        _ => Err(Problem::at("timestamp", "Legacy record is missing a valid timestamp")),
    }
}

fn device_id(record: &Record) -> Result<i64, Problem> {
    if let Some(value) = record.get("device_id") {
        return signed(value, "device_id");
    }
    if let Some(device) = get(record, "device").as_str() {
        let lower = device.to_lowercase();
        if lower.contains("cpu") {
            return Ok(-1);
        }
        if let Some((_, number)) = device.rsplit_once(':')
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
            && let Ok(number) = number.parse()
        {
            return Ok(number);
        }
        if lower.starts_with("/gpu") {
            return Ok(0);
        }
    }
    Ok(if record.contains_key("memory_mb") { 0 } else { -1 })
}

fn counters(record: &Record, metadata: &Record) -> Result<Counters, Problem> {
    let mut counters = Counters::UNKNOWN;
    let allocated = match first(record, &["allocator_allocated_bytes", "memory_allocated"])? {
        Some(found) => found,
        None => match (record.get("memory_mb"), record.get("device_used_bytes")) {
            (Some(Value::Number(mib)), _) => Some((mib.as_f64().unwrap_or(0.0) * MIB) as i128),
            (_, Some(used)) => Some(integer(used, "device_used_bytes")?),
            _ => Some(0),
        },
    };
    let reserved = first(record, &["allocator_reserved_bytes", "memory_reserved"])?.unwrap_or(allocated);
    // A change is of what is allocated: unknown where that is.
    let change = first(record, &["allocator_change_bytes", "memory_change"])?.unwrap_or(allocated.map(|_| 0));
    let used = first(record, &["device_used_bytes", "device_used"])?.unwrap_or(allocated);
    let total = match first(record, &["device_total_bytes", "total_memory", "device_total", "total_bytes"])? {
        Some(found) => found,
        None => first(metadata, &["total_memory", "device_total", "total_bytes"])?.flatten(),
    };
    let free = match first(record, &["device_free_bytes", "device_free"])? {
        Some(found) => found,
        None => total.zip(used).map(|(total, used)| (total - used).max(0)),
    };
    let active = first(record, &["allocator_active_bytes", "active_memory"])?.flatten();
    let inactive = first(record, &["allocator_inactive_bytes", "inactive_memory"])?.flatten();
    for (counter, value) in [
        (Counter::Allocated, allocated),
        (Counter::Reserved, reserved),
        (Counter::Active, active),
        (Counter::Inactive, inactive),
        (Counter::Used, used),
        (Counter::Free, free),
        (Counter::Total, total),
    ] {
        let name = counter.field().name();
        let core = if counter.is_core() { "must be >= 0" } else { "must be >= 0 when provided" };
        let value = value.map(u64::try_from).transpose().map_err(|_| Problem::of(name, core))?;
        counters.set(counter, value);
    }
    let change = change.map(i64::try_from).transpose();
    counters.set_change(
        change.map_err(|_| Problem::of("allocator_change_bytes", "must be at most 9223372036854775807"))?,
    );
    Ok(counters)
}

/// The first of `keys` the record has: its number, or unknown when it is null.
fn first(record: &Record, keys: &[&str]) -> Result<Option<Option<i128>>, Problem> {
    let Some((key, value)) = keys.iter().find_map(|key| record.get_key_value(*key)) else { return Ok(None) };
    if value.is_null() { Ok(Some(None)) } else { integer(value, key).map(|number| Some(Some(number))) }
}

fn collector(record: &Record, metadata: &Record, device_id: i64, defaults: &Defaults<'_>) -> String {
    if let Some(name) = get(record, "collector").as_str().filter(|name| !name.trim().is_empty()) {
        return name.to_owned();
    }
    let backend = record.get("backend").unwrap_or_else(|| get(metadata, "backend"));
    if let Some(backend) = backend.as_str().map(|backend| backend.trim().to_lowercase())
        && ["mps", "rocm", "cuda", "cpu"].contains(&backend.as_str())
    {
        return format!("stormlog.{backend}_tracker");
    }
    if record.contains_key("memory_mb") {
        return "stormlog.tensorflow.memory_tracker".into();
    }
    if record.contains_key("memory_allocated") {
        return if device_id == -1 { "stormlog.cpu_tracker" } else { "stormlog.cuda_tracker" }.into();
    }
    defaults.collector.to_owned()
}

fn identity_of(record: &Record, metadata: &Record) -> Result<Identity, Problem> {
    let inputs = IdentityInputs { metadata: Some(metadata), ..IdentityInputs::of_record(record) };
    resolve_identity(&inputs)
}

/// The range rules of the schemas, which a legacy record must satisfy as well.
fn check_ranges(timestamp: i64, head: &Head, counters: &Counters) -> Result<(), Problem> {
    if head.session_id.trim().is_empty() {
        return Err(Problem::of("session_id", "must be a non-empty string"));
    }
    if timestamp < 0 {
        return Err(Problem::of("timestamp_ns", "must be >= 0"));
    }
    if head.collector.trim().is_empty() {
        return Err(Problem::of("collector", "must be a non-empty string"));
    }
    if head.pid < -1 {
        return Err(Problem::of("pid", "must be >= -1"));
    }
    if let Some(total) = counters.get(Counter::Total) {
        for counter in [Counter::Used, Counter::Free] {
            if counters.get(counter).is_some_and(|value| value > total) {
                return Err(Problem::of(counter.field().name(), "cannot exceed device_total_bytes"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: Value) -> Result<Event, Problem> {
        let record = value.as_object().cloned().unwrap();
        from_legacy(&record, &Defaults::default(), &mut Interner::default())
    }

    #[test]
    fn a_tensorflow_sample() {
        let event =
            read(json!({"timestamp": 1.5, "type": "sample", "memory_mb": 2.5, "device": "/GPU:1"})).unwrap();
        assert_eq!(event.timestamp_ns, 1_500_000_000);
        assert_eq!(event.head.device_id, 1);
        assert_eq!(event.head.collector, "stormlog.tensorflow.memory_tracker");
        assert_eq!(event.counter(Counter::Allocated), Some(2_621_440));
        assert_eq!(event.counter(Counter::Used), Some(2_621_440));
    }

    #[test]
    fn an_oom_bundle_event_keeps_all_it_held() {
        let event = read(json!({
            "timestamp": 2.0, "event_type": "sample", "session_id": "s", "memory_allocated": 100,
            "memory_reserved": 200, "memory_change": -4, "device_id": 0, "active_memory": 90,
            "inactive_memory": 10, "device_used": 700, "device_free": 300, "device_total": 1000,
            "backend": "cuda", "metadata": null
        }))
        .unwrap();
        let known: Vec<Option<u64>> = Counter::ALL.into_iter().map(|c| event.counters.raw(c)).collect();
        let change = Some(-4i64 as u64);
        assert_eq!(
            known,
            [Some(100), Some(200), Some(90), Some(10), change, Some(700), Some(300), Some(1000)]
        );
    }

    #[test]
    fn unknown_stays_unknown() {
        let event = read(json!({"timestamp": 2.0, "memory_allocated": null, "memory_reserved": null,
            "memory_change": null, "device_used": null, "device_id": 0}))
        .unwrap();
        assert_eq!(event.counters, Counters::UNKNOWN);
    }

    #[test]
    fn identity_is_taken_out_of_metadata() {
        let event =
            read(json!({"timestamp": 1, "metadata": {"rank": 1, "world_size": 2, "session_id": "x", "k": 1},
            "metadata_extra": true}))
            .unwrap();
        assert_eq!((event.head.identity.rank, event.head.identity.world_size), (1, 2));
        assert_eq!(event.head.session_id, "x");
        let keys: Vec<&str> = event.metadata.map.keys().map(String::as_str).collect();
        assert_eq!(keys, ["k", "extra", "memory_capabilities"]);
    }

    #[test]
    fn a_timestamp_is_needed() {
        let message = read(json!({"memory_mb": 1})).unwrap_err().message;
        assert_eq!(message, "Legacy record is missing a valid timestamp");
    }
}
