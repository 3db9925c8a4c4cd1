//! compute-sanitizer's XML (`--xml`). Its writer gives each element a line of its own or begins and ends it on one, which is what is read here; no
//! entity but the five of XML is resolved, and no other file is.

use crate::error::{ImportError, Position};
use crate::frame::name_start;
use crate::input::File;
use crate::sanitizer::{Frame, Leak, MOST_TEXT, Summary, begin};
use crate::sink::Sink;

/// The record being read.
#[derive(Default)]
struct Record {
    is_leak: bool,
    is_in_stack: bool,
    /// What the record says of itself.
    text: String,
    leak: Leak,
    frame: FrameElement,
}

/// What a frame has so far.
#[derive(Default)]
struct FrameElement {
    function: String,
    file: String,
    line: u32,
    address: String,
    module: String,
}

pub(crate) fn read(file: &File<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
    let mut lines = file.lines()?;
    let (mut record, mut leaks, mut summary) = (Record::default(), 0u64, Summary::default());
    begin(sink);
    while let Some((line, _)) = lines.next()? {
        let text = line.trim();
        match text {
            "<record>" => record = Record::default(),
            "</record>" if record.is_leak => {
                record.leak.hold(sink);
                record.is_leak = false;
                leaks += 1;
            }
            "</record>" => {
                let text = std::mem::take(&mut record.text);
                if !text.is_empty() {
                    summary.errors += 1;
                    summary.first_error.get_or_insert(text.chars().take(MOST_TEXT).collect());
                }
            }
            "<hostStack>" => record.is_in_stack = true,
            "</hostStack>" => record.is_in_stack = false,
            "<frame>" => record.frame = FrameElement::default(),
            "</frame>" if record.is_in_stack => record.end_frame(),
            "</ComputeSanitizerOutput>" => summary.is_whole = true,
            _ => {
                if let Some((name, value)) = element(text) {
                    record
                        .value(name, &value)
                        .ok_or_else(|| file.damaged("a number is damaged", lines.position()))?;
                }
            }
        }
    }
    if !summary.is_whole {
        return Err(file.damaged("its closing tag is missing", Position::End));
    }
    // The XML has no count of leaks: without errors it is whole, so they were looked for.
    summary.leaks_were_counted = true;
    if leaks == 0 { Err(summary.no_leak(file)) } else { Ok(()) }
}

impl Record {
    fn value(&mut self, name: &str, value: &str) -> Option<()> {
        let value = name_start(value);
        match name {
            "kind" => self.is_leak = value == "Leak",
            "text" if self.text.is_empty() => value.clone_into(&mut self.text),
            "size" if self.is_leak => self.leak.bytes = value.parse().ok()?,
            "func" => value.clone_into(&mut self.frame.function),
            "path" => value.clone_into(&mut self.frame.file),
            "line" => self.frame.line = value.parse().ok()?,
            "pc" => value.clone_into(&mut self.frame.address),
            "module" => value.clone_into(&mut self.frame.module),
            _ => {}
        }
        Some(())
    }

    fn end_frame(&mut self) {
        let FrameElement { function, file, line, address, module } = std::mem::take(&mut self.frame);
        let function = if function.is_empty() { address } else { function };
        let file = if file.is_empty() { module } else { file };
        self.leak.push(Frame::new(&function, &file, line));
    }
}

/// The name and the value of `<name>value</name>`.
fn element(text: &str) -> Option<(&str, String)> {
    let (name, rest) = text.strip_prefix('<')?.split_once('>')?;
    let value = rest.strip_suffix('>')?.strip_suffix(name)?.strip_suffix("</")?;
    Some((name, unescaped(value)))
}

fn unescaped(text: &str) -> String {
    let mut plain = text.to_owned();
    // The ampersand last: what it makes is not an entity.
    for (entity, sign) in [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")] {
        if plain.contains(entity) {
            plain = plain.replace(entity, sign);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_unescaped_once() {
        let line = "<func>cudaError cudaMalloc&lt;int&gt; &amp;lt;</func>";
        assert_eq!(element(line), Some(("func", "cudaError cudaMalloc<int> &lt;".to_owned())));
        assert_eq!(element("<func>"), None);
        assert_eq!(element("<a>b</c>"), None);
    }
}
