//! Traces of PyTorch's profiler (`profile_memory=True`): each block of the CPU and of GPUs as it came and went, with the operators and, recorded
//! with `with_stack=True`, the lines of Python it came from.

use rustc_hash::FxHashMap;
use stormlog_model::memory::{Device, Memory, Source};
use stormlog_model::stacks::FrameKind;

use crate::error::{ImportError, Position};
use crate::input::File;
use crate::kineto_json::{Change, Names, Slice, Trace};
use crate::sink::{About, Node, ROOT, Sink, Site, Step};

const MOST_FRAMES: usize = 1024;

pub(crate) fn read(file: &File<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
    let mut trace = crate::kineto_json::read(file.open()?).map_err(|error| match error.classify() {
        serde_json::error::Category::Io => file.io(std::io::Error::from(error)),
        serde_json::error::Category::Eof => file.damaged("its JSON ends early", Position::End),
        _ => file.damaged("its JSON is not a trace", Position::Line(error.line() as u64)),
    })?;
    trace.kept.check(file)?;
    if trace.changes.is_empty() {
        return Err(file.nothing("without memory events: record with `torch.profiler.profile(profile_memory=True, with_stack=True)`"));
    }
    trace.changes.sort_by(|one, other| one.time.total_cmp(&other.time));
    let start = trace.changes.first().map_or(0.0, |change| change.time);
    sink.about(About { pid: trace.pid, started_ns: nanoseconds(trace.base_ns, start), command: Vec::new() });
    let Trace { names, slices, changes, .. } = trace;
    let has_python = slices.values().flatten().any(|slice| slice.is_python);
    let mut threads: FxHashMap<u64, Thread> =
        slices.into_iter().map(|(thread, slices)| (thread, Thread::of(slices))).collect();
    for change in &changes {
        sink.at((change.time - start) as u64);
        take(change, threads.get_mut(&change.thread), &names, sink);
    }
    sink.note(
        "A PyTorch profiler trace has the blocks of PyTorch's allocators only, from when the profiler began."
            .to_owned(),
    );
    if !has_python {
        sink.note("Python lines are unknown: record with `with_stack=True`.".to_owned());
    }
    Ok(())
}

fn nanoseconds(base: u64, microseconds: f64) -> u64 {
    base.saturating_add((microseconds.max(0.0) * 1000.0) as u64)
}

fn take(change: &Change, thread: Option<&mut Thread>, names: &Names, sink: &mut dyn Sink) {
    let memory = memory_of(change);
    if let (Some(allocated), Some(reserved)) = (change.allocated, change.reserved) {
        sink.allocator(memory, allocated, reserved);
    }
    let size = change.bytes.unsigned_abs();
    if change.bytes < 0 {
        return sink.free(memory, change.thread, change.address, size);
    }
    let node = thread.map_or(ROOT, |thread| thread.node(change.time, names, sink));
    sink.allocate(Site { memory, node, thread: change.thread, thread_name: None }, change.address, size);
}

fn memory_of(change: &Change) -> Memory {
    match (u8::try_from(change.device_type), u8::try_from(change.device)) {
        (Ok(kind), Ok(index)) if kind > 0 => {
            Memory::Device(Device { kind, index, source: Source::Allocator })
        }
        _ => Memory::Host,
    }
}

/// The stretches of a thread in the order in which they begin, and those that are open.
struct Thread {
    slices: Vec<Slice>,
    next: usize,
    open: Vec<usize>,
}

impl Thread {
    fn of(mut slices: Vec<Slice>) -> Self {
        // Of those that begin together the longest is outside.
        slices.sort_by(|one, other| one.start.total_cmp(&other.start).then(other.end.total_cmp(&one.end)));
        Thread { slices, next: 0, open: Vec::new() }
    }

    /// The stack at a time, which never goes back.
    fn node(&mut self, time: f64, names: &Names, sink: &mut dyn Sink) -> Node {
        while let Some(slice) = self.slices.get(self.next).filter(|slice| slice.start <= time) {
            let start = slice.start;
            self.close(start);
            if self.open.len() < MOST_FRAMES {
                self.open.push(self.next);
            }
            self.next += 1;
        }
        self.close(time);
        let mut node = ROOT;
        for (place, at) in self.open.iter().enumerate() {
            let slice = &self.slices[*at];
            // The line that is being run is known by what it calls.
            let called_from = self.open[place + 1..].iter().map(|inner| self.slices[*inner].called_from);
            let line = called_from.into_iter().find(|text| *text > 0).map_or("", |text| names.text(text));
            node = sink.node(node, step(names.text(slice.name), line, slice.is_python));
        }
        node
    }

    /// A `with record_function(…)` outlives the call that began it: an outer stretch may end before an inner one.
    fn close(&mut self, time: f64) {
        let slices = &self.slices;
        self.open.retain(|at| slices[*at].end >= time);
    }
}

/// `train.py(3): keep` with the line it runs (`train.py:9`), `<built-in method empty of type object at 0x7f54920bc100>`, `aten::empty`.
fn step<'a>(name: &'a str, line: &str, is_python: bool) -> Step<'a> {
    let native = Step::Code { kind: FrameKind::Native, function: without_address(name), file: "", line: 0 };
    let Some((place, function)) = name.split_once("): ").filter(|_| is_python) else { return native };
    let Some((file, first)) = place.rsplit_once('(') else { return native };
    let running = line.rsplit_once(':').filter(|(other, _)| *other == file).map(|(_, line)| line);
    let line = running.unwrap_or(first).parse().unwrap_or(0);
    Step::Code { kind: FrameKind::Python, function, file, line }
}

/// The same function of two objects is one.
fn without_address(name: &str) -> &str {
    name.split_once(" object at 0x").map_or(name, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_events_are_places() {
        let python = Step::Code { kind: FrameKind::Python, function: "keep", file: "train.py", line: 9 };
        assert_eq!(step("train.py(3): keep", "train.py:9", true), python);
        let other = Step::Code { kind: FrameKind::Python, function: "keep", file: "train.py", line: 3 };
        assert_eq!(step("train.py(3): keep", "torch/x.py:9", true), other);
        let built_in = "<built-in method empty of type object at 0x7f54920bc100>";
        let native = |function| Step::Code { kind: FrameKind::Native, function, file: "", line: 0 };
        assert_eq!(step(built_in, "", true), native("<built-in method empty of type"));
        assert_eq!(step("aten::empty", "", false), native("aten::empty"));
    }
}
