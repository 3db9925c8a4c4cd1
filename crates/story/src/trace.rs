//! Everything that was recorded over time, as the formats of traces take it: counters from samples and captures, phases, alerts and deaths on one axis.
//!
//! Values in, values out. Must never judge, and never invent a counter that was not read.

use stormlog_analyze::rules::heap::Capture;
use stormlog_analyze::timeline::{Timeline as Stream, timelines};
use stormlog_catalog::recording::Loaded;
use stormlog_export::{Counter, Instant, Slice, Timeline, TimelineProcess};
use stormlog_model::memory::Memory;

use crate::lanes::memory_name;

const PHASES: &str = "phases";
const STEPS: &str = "steps";
/// A process whose program is not known.
const UNNAMED: &str = "the program";

/// What was read of some paths, over time.
#[must_use]
pub fn trace(loaded: &Loaded) -> Timeline {
    let mut trace = Timeline::default();
    for stream in timelines(&loaded.recording) {
        add_stream(&mut trace, &stream);
    }
    for capture in &loaded.captures {
        add_capture(&mut trace, capture);
    }
    for death in loaded.untold_deaths() {
        let (Some(at_ns), Some(pid)) = (death.at_ns, death.process) else { continue };
        let name = death.cause.replace('_', " ");
        let text = death.verdict.unwrap_or_default();
        process(&mut trace, pid_of(pid), None).instants.push(Instant { at_ns, name, text });
    }
    for process in &mut trace.processes {
        process.slices.sort();
        process.slices.dedup();
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
    let slice = |track, name: &str, from_ns, to_ns| Slice { track, from_ns, to_ns, name: name.to_owned() };
    let steps = stream.steps.as_ref();
    let is_step = |name: &str| steps.is_some_and(|(step, _)| step == name);
    let phases = stream.phases.iter().filter(|(name, ..)| !is_step(name));
    process.slices.extend(phases.map(|(name, from, to)| slice(PHASES, name, *from, *to)));
    if let Some((name, runs)) = steps {
        process.slices.extend(runs.iter().map(|(from, to)| slice(STEPS, name, *from, *to)));
    }
    process.instants.extend(stream.moments.iter().map(|moment| Instant {
        at_ns: moment.at_ns,
        name: moment.name.to_owned(),
        text: moment.text.clone(),
    }));
}

fn add_capture(trace: &mut Timeline, capture: &Capture) {
    let name = match capture.memory {
        Memory::Host => "host heap".to_owned(),
        device => format!("{device} allocations"),
    };
    let at = |time_us: u64| capture.started_at_ns.saturating_add(time_us.saturating_mul(1000));
    let points: Vec<(u64, u64)> = capture.live.iter().map(|(time, bytes)| (at(*time), *bytes)).collect();
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

    use stormlog_catalog::recording::{Reader, load};

    use super::*;
    use crate::captures::CaptureReader;

    #[test]
    fn run_with_a_heap_has_samples_and_the_heap_on_one_axis() {
        let run =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/recordings/leak_after_imports");
        let captures = CaptureReader::default();
        let of_path = |path: &Path| captures.at(path);
        let loaded = load(&[run], &mut Reader { captures: &of_path, goes_on: &mut || true }).unwrap();
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
