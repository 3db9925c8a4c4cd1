//! Chrome's trace JSON, for `chrome://tracing`, Perfetto and Speedscope. Times are microseconds since 1970, with three digits.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::timeline::{Timeline, TimelineProcess};

/// The trace.
pub(crate) fn chrome(timeline: &Timeline) -> Vec<u8> {
    let events: Vec<Value> = timeline.processes.iter().flat_map(events).collect();
    let trace = json!({ "traceEvents": events, "displayTimeUnit": "ms" });
    serde_json::to_vec(&trace).unwrap_or_default()
}

/// Tracks of a process get numbers of threads: a viewer shows one row for each.
fn events(process: &TimelineProcess) -> Vec<Value> {
    let pid = process.pid;
    let named = |tid: usize, what: &str, name: &str| json!({ "ph": "M", "name": what, "pid": pid, "tid": tid, "args": { "name": name } });
    let mut events = vec![named(0, "process_name", &process.name)];
    for counter in &process.counters {
        let one = |(at, bytes): &(u64, u64)| json!({ "ph": "C", "name": counter.name, "pid": pid, "tid": 0, "ts": us(*at), "args": { "bytes": bytes } });
        events.extend(counter.points.iter().map(one));
    }
    let mut tracks: HashMap<&str, usize> = HashMap::new();
    for slice in &process.slices {
        let next = tracks.len() + 1;
        let tid = *tracks.entry(&slice.track).or_insert(next);
        if tid == next {
            events.push(named(tid, "thread_name", &slice.track));
        }
        let dur = us(slice.to_ns.saturating_sub(slice.from_ns));
        events.push(json!({ "ph": "X", "name": slice.name, "pid": pid, "tid": tid, "ts": us(slice.from_ns), "dur": dur }));
    }
    let instant = |one: &crate::timeline::Instant| json!({ "ph": "i", "s": "p", "name": one.name, "pid": pid, "tid": 0, "ts": us(one.at_ns), "args": { "text": one.text } });
    events.extend(process.instants.iter().map(instant));
    events
}

/// Exact to the nanosecond up to 2^53 ns; of moments since 1970 to a quarter of a microsecond, which is what the format can hold.
fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_the_fields_of_their_kind() {
        let trace: Value = serde_json::from_slice(&chrome(&crate::testing::timeline())).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let of = |kind: &str| events.iter().filter(|event| event["ph"] == kind).collect::<Vec<_>>();
        assert_eq!([of("M").len(), of("C").len(), of("X").len(), of("i").len()], [3, 2, 3, 1]);
        assert_eq!(of("C")[1]["args"]["bytes"], 9);
        assert_eq!((&of("X")[1]["ts"], &of("X")[1]["dur"]), (&json!(2.0), &json!(1.0)));
        assert_eq!(of("i")[0]["args"]["text"], "memory is short");
    }
}
