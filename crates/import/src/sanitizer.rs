//! compute-sanitizer's text of `memcheck --leak-check full`: leaked device blocks with the host stacks that allocated them. The program's own output
//! is between its lines.

use stormlog_model::memory::{Device, Memory, Source};
use stormlog_model::stacks::{FrameKind, Weight};

use crate::error::ImportError;
use crate::frame::name_start;
use crate::input::{ENDS_EARLY, File};
use crate::sink::{About, Held, ROOT, Sink, Site, Step};

const MOST_FRAMES: usize = 4096;
/// Characters of an error.
pub(crate) const MOST_TEXT: usize = 300;
/// The report does not say which GPU a block is on.
pub(crate) const GPU: Memory = Memory::Device(Device { kind: 1, index: 0, source: Source::Driver });

/// One place in a stack.
pub(crate) struct Frame {
    function: String,
    file: String,
    line: u32,
}

/// A leaked block; the innermost frame first.
#[derive(Default)]
pub(crate) struct Leak {
    pub(crate) bytes: u64,
    pub(crate) stack: Vec<Frame>,
}

impl Frame {
    pub(crate) fn new(function: &str, file: &str, line: u32) -> Self {
        let name = |text: &str| name_start(text).to_owned();
        Frame { function: name(function), file: name(file), line }
    }
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

/// What a report has beside its leaks, for one without any.
#[derive(Default)]
pub(crate) struct Summary {
    /// Its last line, or its closing tag, is there.
    pub(crate) is_whole: bool,
    pub(crate) leaks_were_counted: bool,
    pub(crate) errors: u64,
    /// What the first error is, and where.
    pub(crate) first_error: Option<String>,
}

impl Summary {
    /// The error of a report without a leak: there is none, none was looked for, or the program failed before.
    pub(crate) fn no_leak(&self, file: &File<'_>) -> ImportError {
        let errors = match self.errors {
            0 => String::new(),
            1 => "with 1 error and no leak".to_owned(),
            count => format!("with {count} errors and no leak"),
        };
        file.nothing(match &self.first_error {
            Some(first) if self.errors > 0 => format!("{errors}: {first}; fix that and run again"),
            Some(first) => format!("without a leak: {first}"),
            None if self.errors > 0 => errors,
            None if self.leaks_were_counted => "without a leak: all device memory was freed".to_owned(),
            None if !self.is_whole => {
                "without a result: the program was killed, or compute-sanitizer could not start it".to_owned()
            }
            None => "without a leak; if it was recorded without `--leak-check full`, record with \
                     `compute-sanitizer --tool memcheck --leak-check full`"
                .to_owned(),
        })
    }
}

pub(crate) fn read(file: &File<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
    let mut lines = file.lines()?;
    let (mut leak, mut leaks): (Option<Leak>, u64) = (None, 0);
    let mut summary = Summary::default();
    begin(sink);
    while let Some((line, is_whole)) = lines.next()? {
        let Some(rest) = line.strip_prefix("=========") else { continue };
        let text = rest.trim();
        if let Some(count) = text.strip_prefix("ERROR SUMMARY:") {
            summary.is_whole = is_whole || count.contains(" error");
            summary.errors =
                count.split_whitespace().next().and_then(|count| count.parse().ok()).unwrap_or(0);
            continue;
        }
        // Half a line has half a number.
        if !is_whole {
            break;
        }
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
        summary.line(rest);
    }
    finish(&mut leak, &mut leaks, sink);
    if leaks == 0 {
        return Err(summary.no_leak(file));
    }
    if !summary.is_whole {
        sink.note(ENDS_EARLY.to_owned());
    }
    Ok(())
}

impl Summary {
    /// A line of the text behind its `=========`: a finding has one blank before it, what belongs to it has more.
    fn line(&mut self, rest: &str) {
        let text = rest.trim();
        self.leaks_were_counted |= text.starts_with("LEAK SUMMARY");
        let is_other = text.is_empty()
            || ["COMPUTE-SANITIZER", "LEAK SUMMARY", "Leaked "].iter().any(|start| text.starts_with(start));
        let is_finding = !is_other && !rest.starts_with("  ");
        match &mut self.first_error {
            None if is_finding => self.first_error = Some(text.chars().take(MOST_TEXT).collect()),
            Some(first) if text.starts_with("at ") && !first.contains(" at ") => {
                *first = format!("{first} {}", text.chars().take(MOST_TEXT).collect::<String>());
            }
            _ => {}
        }
    }
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
    Frame::new(function, file, line)
}
