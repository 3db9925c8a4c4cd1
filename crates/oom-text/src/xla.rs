//! XLA's messages of a failed allocation, as JAX raises them: the request, what the compiled program was planned to need, and its largest buffers
//! with their HLO operation and line. On GPUs the BFC allocator's dump precedes the message; on TPUs the compiler itself refuses.
//!
//! Both lists of buffers are read: `Buffer 1:` with a block of `Key: value` lines (GPU, CPU), and `1. Size: 32.00G` (TPU). Where the compiler tries
//! algorithms on the device itself, its message names the operation, and the error of the allocator is inside it.

use crate::bfc::MAX_HOLDERS;
use crate::failure::{Failure, Framework, Holder};
use crate::failure_list::FailureList;
use crate::line::{Line, after, between, name, number, size};

/// Follows the lists below a message.
#[derive(Default)]
pub(crate) struct Reader {
    section: ParserSection,
    /// A buffer whose lines are being read.
    buffer: Option<Holder>,
    /// What the autotuner says it tried, until its error follows.
    tuned: Option<Tuned>,
}

/// An operation whose algorithms were tried.
#[derive(Default)]
struct Tuned {
    operation: Option<String>,
    /// Lines since it was announced.
    age: u32,
}

/// What begins a message of the autotuner; the operation is on the same line or the next one.
const TUNING: [&str; 2] = ["Failed to determine best cudnn convolution algorithm", "Autotuning failed for "];
/// Its error follows within this number of lines.
const TUNING_LINES: u32 = 8;

#[derive(Default, PartialEq, Clone, Copy)]
enum ParserSection {
    #[default]
    Outside,
    /// Below a message: what the program needs, and the state of a TPU's memory.
    Figures,
    Buffers,
}

impl Reader {
    /// Whether the line belongs to a message.
    pub fn line(&mut self, line: &Line<'_>, failures: &mut FailureList) -> bool {
        let text = without_prefix(line.raw);
        self.tune(text);
        if let Some(message) = Message::of(text) {
            self.finish_buffer(failures);
            message.add(line.number, self.tuned.take(), failures);
            self.section = ParserSection::Figures;
            return true;
        }
        let Some(failure) = failures.last().filter(|_| self.section != ParserSection::Outside) else {
            return false;
        };
        if ["Peak buffers:", "Largest program allocations in"].iter().any(|start| text.starts_with(start)) {
            // The list is printed with each copy of the message.
            failure.holders.clear();
            self.buffer = None;
            self.section = ParserSection::Buffers;
            return true;
        }
        match self.section {
            ParserSection::Buffers => self.buffer_line(text, failures),
            _ => figure(text, failure),
        }
    }

    fn tune(&mut self, text: &str) {
        if TUNING.iter().any(|start| text.contains(start)) {
            self.tuned = Some(Tuned::default());
        }
        let Some(tuned) = &mut self.tuned else { return };
        if tuned.operation.is_none() {
            let (op, source) = operation(text);
            let source = source.map(|source| format!(" ({source})")).unwrap_or_default();
            tuned.operation = op.map(|op| format!("{op}{source}"));
        }
        tuned.age += 1;
        if tuned.age > TUNING_LINES {
            self.tuned = None;
        }
    }

    fn buffer_line(&mut self, text: &str, failures: &mut FailureList) -> bool {
        if text.is_empty() {
            return true;
        }
        if text.starts_with("=====") {
            self.finish_buffer(failures);
            return true;
        }
        if is_numbered(text, "Buffer ", ":") {
            self.finish_buffer(failures);
            self.buffer = Some(Holder::default());
            return true;
        }
        if let Some((count, rest)) = text.split_once(". Size: ")
            && count.bytes().all(|byte| byte.is_ascii_digit())
        {
            self.finish_buffer(failures);
            self.buffer = size(rest).map(|bytes| Holder { bytes, ..Holder::default() });
            return true;
        }
        let Some(buffer) = &mut self.buffer else {
            // Anything else ends the list.
            self.section = ParserSection::Outside;
            return false;
        };
        describe(text, buffer)
    }

    fn finish_buffer(&mut self, failures: &mut FailureList) {
        let (Some(mut buffer), Some(failure)) = (self.buffer.take(), failures.last()) else { return };
        if buffer.bytes > 0 && failure.holders.len() < MAX_HOLDERS {
            if buffer.name.is_empty() {
                "buffer without a name".clone_into(&mut buffer.name);
            }
            failure.holders.push(buffer);
        }
    }
}

/// The first line of a message.
struct Message<'a> {
    text: &'a str,
    requested: u64,
    limit: Option<u64>,
    /// What was free, and the largest piece of it.
    free: Option<u64>,
    largest: Option<u64>,
    /// Of a TPU, where it is not its main memory.
    space: Option<&'a str>,
}

/// Each start is followed by the size.
const STARTS: [&str; 5] = [
    "Out of memory while trying to allocate ",
    ON_HOST,
    "Failed to allocate request for ",
    "Attempting to reserve ",
    "Attempting to allocate ",
];
/// XLA's CPU client, which takes memory from the host.
pub(crate) const ON_HOST: &str = "Out of memory allocating ";
/// The compiler of a TPU; the size comes later.
const COMPILER: &str = "Ran out of memory in memory space ";
/// The main memory of a TPU.
const MAIN_SPACE: &str = "hbm";

impl<'a> Message<'a> {
    fn of(text: &'a str) -> Option<Self> {
        if let Some(at) = text.find(COMPILER) {
            return Message::of_compiler(&text[at..]);
        }
        let (at, start) = STARTS.iter().find_map(|start| Some((text.find(start)?, *start)))?;
        let (text, rest) = (&text[at..], &text[at + start.len()..]);
        let size_at_start = size(rest)?;
        if start.starts_with("Attempting") && !rest.contains("That was not possible") {
            return None;
        }
        // `2.99GiB (3206250496B)`: the second is exact.
        let requested = between(rest, "(", "B)").and_then(number).unwrap_or(size_at_start);
        // `There are 58.64M free. Due to fragmentation, the largest contiguous region of free memory is 30.56M.`
        let largest = after(rest, "largest contiguous region of free memory is ").and_then(size);
        // `There are 8.97G free, 0B reserved, and 8.90G reservable.`
        let reservable = between(rest, ", and ", " reservable").and_then(size);
        let free = between(rest, "There are ", " free").and_then(size);
        Some(Message { text, requested, limit: None, free, largest: largest.or(reservable), space: None })
    }

    /// `hbm. Used 41.74G of 16.00G hbm.`, `vmem while allocating on stack for %x. Scoped allocation with size 17.00M and limit 16.00M exceeded …`.
    fn of_compiler(text: &'a str) -> Option<Self> {
        let rest = after(text, COMPILER)?;
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let space = &rest[..end];
        let used = after(rest, "Used ").and_then(|rest| rest.split_once(" of "));
        let (used, limit) = used.or_else(|| after(rest, "with size ")?.split_once(" and limit "))?;
        let space = (!space.is_empty() && space != MAIN_SPACE).then_some(space);
        Some(Message {
            text,
            requested: size(used)?,
            limit: Some(size(limit)?),
            free: None,
            largest: None,
            space,
        })
    }

    fn add(&self, line: u64, tuned: Option<Tuned>, failures: &mut FailureList) {
        let allocator = between(self.text, " with allocator ", " on device ").and_then(name);
        // Copies of a message differ in what follows the first sentence, and in what quotes it.
        let key = self.text.split(['[', ';']).next().unwrap_or(self.text).trim_end_matches([' ', '.', ')']);
        let Some(failure) = name(key).and_then(|key| failures.of_message(line, &key, allocator.as_deref()))
        else {
            return;
        };
        failure.framework = failure.framework.or(Some(Framework::Jax));
        failure.requested = failure.requested.or(Some(self.requested));
        failure.pool.free = failure.pool.free.or(self.free);
        failure.pool.largest_usable = failure.pool.largest_usable.or(self.largest);
        failure.pool.limit = failure.pool.limit.or(self.limit);
        let requester = match tuned {
            Some(tuned) => {
                failure.is_autotuning = true;
                let what = tuned.operation.map(|operation| format!(" for {operation}"));
                Some(format!("XLA's autotuner{}", what.unwrap_or_default()))
            }
            None => between(self.text, "[executable_name='", "'").and_then(name),
        };
        failure.requester = failure.requester.take().or(requester);
        let device = [" on device ordinal ", " on device "].iter().find_map(|start| after(self.text, start));
        let device = device.and_then(number).map(|device| format!("device {device}"));
        let device = device.or_else(|| self.space.map(str::to_owned));
        failure.device = failure.device.take().or(device);
    }
}

/// A line of the program's plan or of a TPU's memory.
fn figure(text: &str, failure: &mut Failure) -> bool {
    let plan = &mut failure.program;
    let rows: [(&[&str], &mut Option<u64>); 9] = [
        (&["parameter allocation:", "arguments "], &mut plan.arguments),
        (&["constant allocation:"], &mut plan.constants),
        (&["maybe_live_out allocation:", "output "], &mut plan.outputs),
        (&["preallocated temp allocation:", "HLO temp "], &mut plan.temporaries),
        (&["total allocation:", "program "], &mut plan.total),
        (&["total fragmentation:"], &mut plan.fragmentation),
        (&["HBM capacity "], &mut failure.stats.limit),
        (&["Currently allocated:"], &mut failure.stats.in_use),
        (&["Max free chunk "], &mut failure.stats.largest_free),
    ];
    for (starts, section) in rows {
        if let Some(rest) = starts.iter().find_map(|start| text.strip_prefix(start)) {
            *section = section.or_else(|| size(rest));
            return true;
        }
    }
    text.starts_with("BufferAssignment ") || text.starts_with("Program hbm requirement ")
}

/// `Operator: op_name="…" source_file="train.py" source_line=12`, `Shape: f32[4096,128,3]`, `XLA Label: fusion`.
fn describe(text: &str, buffer: &mut Holder) -> bool {
    if let Some(rest) = text.strip_prefix("Size:") {
        buffer.bytes = size(rest).unwrap_or(buffer.bytes);
    } else if let Some(rest) = text.strip_prefix("Operator:") {
        let (op, source) = operation(rest);
        if let Some(op) = op {
            buffer.name = op;
        }
        buffer.source = source;
    } else if let Some(rest) = text.strip_prefix("Entry Parameter Subshape:") {
        "entry parameter".clone_into(&mut buffer.name);
        buffer.shape = name(rest);
    } else if let Some(rest) = text.strip_prefix("Shape:") {
        buffer.shape = name(rest);
    } else if let Some(rest) = text.strip_prefix("XLA Label:").or_else(|| text.strip_prefix("XLA label:")) {
        let label = rest.split(" = ").next().and_then(name);
        if let Some(label) = label.filter(|_| buffer.name.is_empty()) {
            buffer.name = label;
        }
    } else {
        return ["Unpadded size:", "Extra memory", "Allocation type:"]
            .iter()
            .any(|key| text.starts_with(key));
    }
    true
}

/// The name of an operation and its line: `op_name="jit(f)/dot_general" source_file="train.py" source_line=12`.
fn operation(text: &str) -> (Option<String>, Option<String>) {
    // The name may have quotes inside; the next attribute, or the end of them all, ends it.
    let ends = ["\" source_file=", "\" stack_frame_id=", "\"}"];
    let op = after(text, "op_name=\"").map(|op| {
        let end = ends.iter().filter_map(|end| op.find(end)).min();
        end.map_or(op, |end| &op[..end])
    });
    let file = between(text, "source_file=\"", "\"").and_then(name);
    let line = after(text, "source_line=").and_then(number);
    let source = file.zip(line).map(|(file, line)| format!("{file}:{line}"));
    (op.and_then(|op| name(op.trim_end_matches('"'))), source)
}

/// The text behind what a logging library or a launcher puts before it: `… xla_util.cc:76]      Shape: …`.
fn without_prefix(raw: &str) -> &str {
    let text = match raw.split_once(".cc:").and_then(|(_, rest)| rest.split_once(']')) {
        Some((line, rest)) if line.bytes().all(|byte| byte.is_ascii_digit()) => rest,
        _ => raw,
    };
    let text = text.trim_start();
    match text.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
        Some((_, rest)) => rest.trim(),
        None => text.trim_end(),
    }
}

fn is_numbered(text: &str, start: &str, end: &str) -> bool {
    let inside = text.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
    inside.is_some_and(|inside| !inside.is_empty() && inside.bytes().all(|byte| byte.is_ascii_digit()))
}
