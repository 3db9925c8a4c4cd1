//! compute-sanitizer's text of `memcheck --leak-check full`: leaked device blocks with the host stacks that allocated them. The program's own output
//! is between its lines.

use stormlog_model::memory::{Device, Memory, Source};
use stormlog_model::stacks::{FrameKind, Weight};

use crate::error::ImportError;
use crate::input::File;
use crate::sink::{About, Held, ROOT, Sink, Site, Step};

const MOST_FRAMES: usize = 4096;
/// The report does not say which GPU a block is on.
pub(crate) const GPU: Memory = Memory::Device(Device { kind: 1, index: 0, source: Source::Driver });

/// One place in a stack.
#[derive(Default)]
pub(crate) struct Frame {
    pub(crate) function: String,
    pub(crate) file: String,
    pub(crate) line: u32,
}

/// A leaked block; the innermost frame first.
#[derive(Default)]
pub(crate) struct Leak {
    pub(crate) bytes: u64,
    pub(crate) stack: Vec<Frame>,
}

impl Leak {
    pub(crate) fn push(&mut self, frame: Frame) {
        if self.stack.len() < MOST_FRAMES {
            self.stack.push(frame);
        }
    }

    pub(crate) fn hold(&self, sink: &mut dyn Sink) {
        let frames = self.stack.iter().rev();
        let node = frames.fold(ROOT, |node, Frame { function, file, line }| {
            sink.node(node, Step::Code { kind: FrameKind::Native, function, file, line: *line })
        });
        let weight = Weight { bytes: self.bytes, count: 1 };
        sink.hold(Site::of(GPU, node), Held::at_one_moment(weight, None));
    }
}

/// What every report is about.
pub(crate) fn begin(sink: &mut dyn Sink) {
    sink.about(About::default());
    sink.note(
        "A compute-sanitizer report has the blocks that were never freed, of all GPUs together: what was freed is not in it.".to_owned(),
    );
}

/// A report without a leak: either there is none, or none was looked for.
pub(crate) fn no_leak(file: &File<'_>, was_looked_for: bool) -> ImportError {
    file.nothing(match was_looked_for {
        true => "without a leak: all device memory was freed",
        false => "without leaks: record with `compute-sanitizer --tool memcheck --leak-check full`",
    })
}

pub(crate) fn read(file: &File<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
    let mut lines = file.lines()?;
    let (mut leak, mut leaks, mut was_looked_for): (Option<Leak>, u64, bool) = (None, 0, false);
    begin(sink);
    while let Some((line, _)) = lines.next()? {
        let Some(text) = line.strip_prefix("=========").map(str::trim) else { continue };
        if let Some(frame) = text.strip_prefix("Host Frame:") {
            if let Some(leak) = &mut leak {
                leak.push(host_frame(frame.trim()));
            }
            continue;
        }
        if let Some(rest) = text.strip_prefix("Leaked ") {
            finish(&mut leak, &mut leaks, sink);
            let digits: String =
                rest.chars().take_while(|c| c.is_ascii_digit() || *c == ',').filter(|c| *c != ',').collect();
            let bytes = digits
                .parse()
                .map_err(|_| file.damaged("the size of a leak is not a number", lines.position()))?;
            leak = Some(Leak { bytes, stack: Vec::new() });
        } else if text.is_empty() {
            finish(&mut leak, &mut leaks, sink);
        }
        was_looked_for |= text.starts_with("LEAK SUMMARY");
    }
    finish(&mut leak, &mut leaks, sink);
    if leaks == 0 { Err(no_leak(file, was_looked_for)) } else { Ok(()) }
}

fn finish(leak: &mut Option<Leak>, leaks: &mut u64, sink: &mut dyn Sink) {
    if let Some(leak) = leak.take() {
        leak.hold(sink);
        *leaks += 1;
    }
}

/// `leaky(unsigned long) in leak.cu:4 [0x8cad] in leak`; older: `main [0x8cfa] in /tmp/leak`.
fn host_frame(text: &str) -> Frame {
    let (place, module) = text.rsplit_once("] in ").unwrap_or((text, ""));
    let (name, address) = place.rsplit_once(" [").unwrap_or((place, ""));
    let (function, at) = name.rsplit_once(" in ").unwrap_or((name, ""));
    let (file, line) = at.rsplit_once(':').unwrap_or((at, ""));
    let line = line.parse().unwrap_or(0);
    let function = if function.is_empty() { address } else { function };
    let file = if file.is_empty() { module } else { file };
    Frame { function: function.to_owned(), file: file.to_owned(), line }
}
