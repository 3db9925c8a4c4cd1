//! Lines of a log, bounded, and the message behind the prefix that a logging library puts before it.

use std::borrow::Cow;
use std::io::{self, BufRead};

use stormlog_model::text::parse_bytes;

/// A longer line is cut: what a reader looks for is at the start of a message.
const MAX_LINE: usize = 64 << 10;

/// One line and what is known of its origin.
pub(crate) struct Line<'a> {
    /// From 1.
    pub number: u64,
    /// The line without its end.
    pub raw: &'a str,
    /// What follows `bfc_allocator.cc:NNN] `, where that is in the line; otherwise the line without leading spaces.
    pub message: &'a str,
    /// Whether the BFC allocator's source file is named in it.
    pub is_bfc: bool,
}

impl<'a> Line<'a> {
    pub fn of(number: u64, raw: &'a str) -> Self {
        let behind = raw.split_once("bfc_allocator.cc:").and_then(|(_, rest)| rest.split_once("] "));
        match behind {
            Some((_, message)) => Line { number, raw, message, is_bfc: true },
            None => {
                Line { number, raw, message: raw.trim_start(), is_bfc: raw.contains("bfc_allocator.cc:") }
            }
        }
    }
}

/// Reads lines of any length and holds at most [`MAX_LINE`] bytes of one.
pub(crate) struct LineReader<R> {
    input: R,
    number: u64,
    bytes: Vec<u8>,
}

impl<R: BufRead> LineReader<R> {
    pub fn new(input: R) -> Self {
        LineReader { input, number: 0, bytes: Vec::new() }
    }

    pub fn next_line(&mut self) -> io::Result<Option<(u64, Cow<'_, str>)>> {
        self.bytes.clear();
        let mut is_read = false;
        loop {
            let buffer = match self.input.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if buffer.is_empty() {
                break;
            }
            is_read = true;
            let end = memchr::memchr(b'\n', buffer);
            let part = &buffer[..end.unwrap_or(buffer.len())];
            let room = MAX_LINE.saturating_sub(self.bytes.len()).min(part.len());
            self.bytes.extend_from_slice(&part[..room]);
            let used = end.map_or(buffer.len(), |end| end + 1);
            self.input.consume(used);
            if end.is_some() {
                break;
            }
        }
        if !is_read {
            return Ok(None);
        }
        if self.bytes.last() == Some(&b'\r') {
            self.bytes.pop();
        }
        self.number += 1;
        Ok(Some((self.number, String::from_utf8_lossy(&self.bytes))))
    }
}

/// The text after the first occurrence of `start`.
pub(crate) fn after<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    text.split_once(start).map(|(_, rest)| rest)
}

/// The text between two others.
pub(crate) fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    after(text, start)?.split_once(end).map(|(inside, _)| inside)
}

/// The number at the start of a text.
pub(crate) fn number(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// The size at the start of a text as the libraries print it: `1.00GiB`, `512B`, `4294967296 bytes`.
pub(crate) fn size(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let unit = &text[digits..];
    let letters = unit.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit.len());
    // A sentence ends with a full stop: "286.00MiB." has none in its number, "1024." has.
    let figure = text[..digits].trim_end_matches('.');
    parse_bytes(&format!("{figure}{}", &unit[..letters]))
}

/// A name out of a log, no longer than one is.
pub(crate) fn name(text: &str) -> Option<String> {
    const MAX_NAME: usize = 1024;
    let text = text.trim();
    (!text.is_empty()).then(|| text.chars().take(MAX_NAME).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_the_libraries_print_them() {
        for (text, bytes) in [
            ("1.00GiB (rounded", Some(1 << 30)),
            ("286.00MiB.  Current", Some(286 << 20)),
            ("0B allocated", Some(0)),
            ("4294967296 bytes.", Some(4 << 30)),
            ("1024.", Some(1024)),
            ("x", None),
            ("12parsecs", None),
        ] {
            assert_eq!(size(text), bytes, "{text}");
        }
    }

    #[test]
    fn a_line_longer_than_the_bound_is_cut_and_the_next_one_is_whole() -> io::Result<()> {
        let text = format!("{}\nnext\r\n", "x".repeat(MAX_LINE + 5));
        let mut lines = LineReader::new(text.as_bytes());
        assert_eq!(lines.next_line()?.map(|(number, text)| (number, text.len())), Some((1, MAX_LINE)));
        assert_eq!(
            lines.next_line()?.map(|(number, text)| (number, text.into_owned())),
            Some((2, "next".to_owned()))
        );
        assert!(lines.next_line()?.is_none());
        Ok(())
    }
}
