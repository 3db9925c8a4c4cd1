//! Everything that was recorded over time, as the formats of traces take it: counters from samples and captures, phases, alerts and deaths on one axis.
//!
//! Values in, values out. Must never judge, and never invent a counter that was not read.

use std::collections::HashMap;

use stormlog_analyze::rules::heap::Capture;
use stormlog_analyze::timeline::{ThreadPhases, Timeline as Stream, phases, timelines};
use stormlog_catalog::recording::Loaded;
use stormlog_export::{Counter, Instant, Slice, Timeline, TimelineProcess};
use stormlog_model::memory::Memory;

use crate::lanes::memory_name;

const PHASES: &str = "phases";
/// A process whose program is not known.
const UNNAMED: &str = "the program";

/// What was read of some paths, over time.
#[must_use]
pub fn trace(loaded: &Loaded) -> Timeline {
    let mut trace = Timeline::default();
    for stream in timelines(&loaded.recording) {
        add_stream(&mut trace, &stream);
    }
    add_phases(&mut trace, &phases(&loaded.recording));
    for capture in &loaded.captures {
        add_capture(&mut trace, capture);
    }
    for death in loaded.unreported_deaths() {
        let (Some(at_ns), Some(pid)) = (death.at_ns, death.process) else { continue };
        let name = death.cause.replace('_', " ");
        let text = death.verdict.unwrap_or_default();
        process(&mut trace, pid_of(pid), None).instants.push(Instant { at_ns, name, text });
    }
    for process in &mut trace.processes {
        process.instants.sort();
        process.instants.dedup();
    }
    trace
}

fn pid_of(pid: i64) -> u32 {
    u32::try_from(pid).unwrap_or(0)
}

fn process<'a>(trace: &'a mut Timeline, pid: u32, program: Option<&str>) -> &'a mut TimelineProcess {
    let known = trace.processes.iter().position(|process| process.pid == pid);
    let at = known.unwrap_or_else(|| {
        let name = UNNAMED.to_owned();
        trace.processes.push(TimelineProcess { pid, name, ..TimelineProcess::default() });
        trace.processes.len() - 1
    });
    let process = &mut trace.processes[at];
    if let Some(program) = program.filter(|_| process.name == UNNAMED) {
        program.clone_into(&mut process.name);
    }
    process
}

fn add_stream(trace: &mut Timeline, stream: &Stream) {
    let process = process(trace, pid_of(stream.pid), stream.program.as_deref());
    let memory = memory_name(stream.device_id);
    for line in &stream.lines {
        add_counter(process, format!("{memory} {}", line.name), line.points.clone());
    }
    if !stream.limit_used.is_empty() {
        add_counter(process, format!("{memory} in use by all processes"), stream.limit_used.clone());
    }
    process.instants.extend(stream.moments.iter().map(|moment| Instant {
        at_ns: moment.at_ns,
        name: moment.name.to_owned(),
        text: moment.text.clone(),
    }));
}

/// One track a thread: phases of one thread nest, those of two may overlap, which neither format can draw on one track.
fn add_phases(trace: &mut Timeline, threads: &[ThreadPhases]) {
    let mut counts: HashMap<i64, usize> = HashMap::new();
    for (pid, _) in threads.iter().flat_map(|thread| &thread.processes) {
        *counts.entry(*pid).or_default() += 1;
    }
    // Threads may share a name.
    let mut named: HashMap<(i64, String), u32> = HashMap::new();
    for thread in threads {
        for (pid, program) in &thread.processes {
            let is_only = counts.get(pid) == Some(&1);
            let name = if is_only { PHASES.to_owned() } else { format!("{PHASES}: {}", thread.thread_name) };
            let number = named.entry((*pid, name.clone())).or_default();
            *number += 1;
            let track = if *number == 1 { name } else { format!("{name} ({number})") };
            let process = process(trace, pid_of(*pid), program.as_deref());
            process.slices.extend(thread.spans.iter().map(|span| Slice {
                track: track.clone(),
                from_ns: span.from_ns,
                to_ns: span.to_ns,
                name: span.label.clone(),
            }));
        }
    }
}

fn add_capture(trace: &mut Timeline, capture: &Capture) {
    let name = match capture.memory {
        Memory::Host => "host heap".to_owned(),
        device => format!("{device} allocations"),
    };
    let at = |time_us: u64| capture.started_at_ns.saturating_add(time_us.saturating_mul(1000));
    let points: Vec<(u64, u64)> = capture.live.iter().map(|(time, bytes)| (at(*time), *bytes)).collect();
    // A profile of one moment that does not record when that was has no place on the axis.
    if capture.started_at_ns == 0 && points.iter().all(|(at, _)| *at == 0) {
        return;
    }
    add_counter(process(trace, capture.pid, None), name, points);
}

/// A process that was sampled from outside and from inside has each counter once: the longer one stays.
fn add_counter(process: &mut TimelineProcess, name: String, points: Vec<(u64, u64)>) {
    match process.counters.iter_mut().find(|known| known.name == name) {
        Some(known) if known.points.len() >= points.len() => {}
        Some(known) => known.points = points,
        None => process.counters.push(Counter { name, points }),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use serde_json::json;
    use stormlog_analyze::Recording;
    use stormlog_catalog::recording::{Reader, load};

    use stormlog_model::{Counter as Reads, Counters, Event, Head, Identity, Metadata, Record};

    use super::*;
    use crate::captures::CaptureReader;

    /// A phase boundary of thread 1 or 2; also a sample.
    fn boundary(
        at_ns: u64,
        action: &str,
        path: &[&str],
        thread: i64,
        attributes: serde_json::Value,
    ) -> Event {
        let mut counters = Counters::UNKNOWN;
        counters.set(Reads::Used, Some(1 << 20));
        let mut map = Record::new();
        let scope = json!({
            "action": action, "name": path[path.len() - 1], "path": path, "scope_id": format!("s:{}:{thread}", path.join("/")),
            "thread_id": thread, "thread_name": "worker", "sequence": path.len(), "attributes": attributes,
        });
        map.insert("phase_scope".to_owned(), scope);
        let head = Head {
            session_id: "s".into(),
            event_type: format!("phase_{action}"),
            collector: "stormlog.test_tracker".into(),
            sampling_interval_ms: 100,
            pid: 7,
            host: "h".into(),
            identity: Identity::default(),
            device_id: -1,
        };
        let metadata = Metadata::read(map, "stormlog.test_tracker", &counters).unwrap();
        Event {
            timestamp_ns: at_ns,
            counters,
            context: None,
            head: Arc::new(head),
            metadata: Arc::new(metadata),
        }
    }

    #[test]
    fn nested_phases_are_all_in_a_trace_on_one_track_a_thread() {
        let path = ["train", "epoch", "step", "forward"];
        let mut recording = Recording::default();
        for (depth, at) in (1..=4).zip([10, 10, 20, 30]) {
            let attributes = json!({"epoch": 0, "step": 3});
            recording.observe(&boundary(at, "enter", &path[..depth], 1, attributes));
        }
        recording.observe(&boundary(35, "enter", &["load"], 2, json!(null)));
        for (depth, at) in [4, 3, 2, 1].into_iter().zip([60, 70, 80, 90]) {
            recording.observe(&boundary(at, "exit", &path[..depth], 1, json!(null)));
        }
        recording.observe(&boundary(95, "exit", &["load"], 2, json!(null)));
        let mut loaded = Loaded::default();
        loaded.recording = recording;
        let trace = trace(&loaded);
        let slices: Vec<_> = trace.processes[0]
            .slices
            .iter()
            .map(|one| (one.track.as_str(), one.name.as_str(), one.from_ns, one.to_ns))
            .collect();
        assert_eq!(
            slices,
            [
                ("phases: worker", "train (epoch 0, step 3)", 10, 90),
                ("phases: worker", "epoch 0 (step 3)", 10, 80),
                ("phases: worker", "step 3", 20, 70),
                ("phases: worker", "forward", 30, 60),
                ("phases: worker (2)", "load", 35, 95),
            ]
        );
    }

    #[test]
    fn run_with_a_heap_has_samples_and_the_heap_on_one_axis() {
        let run =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/recordings/leak_after_imports");
        let captures = CaptureReader::default();
        let of_path = |path: &Path| captures.at(path);
        let loaded = load(&[run], &mut Reader { captures: &of_path, keep_reading: &mut || true }).unwrap();
        let trace = trace(&loaded);
        let [process] = trace.processes.as_slice() else { panic!("{:#?}", trace.processes) };
        let counter = |name: &str| process.counters.iter().find(|counter| counter.name == name).unwrap();
        let (sampled, heap) = (counter("host RSS"), counter("host heap"));
        let span = |counter: &Counter| (counter.points[0].0, counter.points[counter.points.len() - 1].0);
        let ((from, to), (first, last)) = (span(sampled), span(heap));
        assert!(
            first < to && last > from,
            "the heap ({first} to {last}) is within the samples ({from} to {to})"
        );
        assert!(process.counters.iter().all(|counter| counter.points.is_sorted_by_key(|(at, _)| at)));
    }
}
