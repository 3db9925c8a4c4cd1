//! Which tool wrote a file, by its first bytes. Must answer for any file without reading more than its head, and of a database its list of tables.

use std::io::Read;
use std::path::Path;

use memchr::memmem::find;

use crate::input::open;
use crate::nsight::is_export;
use crate::sqlite::{Database, MAGIC};
use crate::wire;

/// Bytes that are looked at, after decompression. A program's own output may come before a sanitizer's first line.
const HEAD: u64 = 1 << 16;

/// A format of another tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Gzipped protobuf: Go, JAX, tcmalloc, jemalloc, Pyroscope, our own export.
    Pprof,
    /// heaptrack's interpreted data.
    Heaptrack,
    /// Valgrind's massif.
    Massif,
    /// jemalloc's `heap_v2` text.
    Jemalloc,
    /// gperftools' `heap profile:` text.
    Gperftools,
    /// A trace of PyTorch's profiler.
    Kineto,
    /// A Perfetto trace, of which heapprofd's packets are read.
    Perfetto,
    /// compute-sanitizer's text.
    SanitizerText,
    /// compute-sanitizer's XML.
    SanitizerXml,
    /// Nsight Systems, exported as SQLite.
    NsightSystems,
    /// A database of another program.
    Sqlite,
}

impl Format {
    /// What the tool calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Pprof => "pprof profile",
            Format::Heaptrack => "heaptrack recording",
            Format::Massif => "massif profile",
            Format::Jemalloc => "jemalloc heap profile",
            Format::Gperftools => "gperftools heap profile",
            Format::Kineto => "PyTorch profiler trace",
            Format::Perfetto => "Perfetto trace",
            Format::SanitizerText | Format::SanitizerXml => "compute-sanitizer report",
            Format::NsightSystems => "SQLite export of Nsight Systems",
            Format::Sqlite => "SQLite database",
        }
    }
}

impl Format {
    /// Whether it has nothing but the blocks that were never freed.
    #[must_use]
    pub fn is_leak_report(self) -> bool {
        matches!(self, Format::SanitizerText | Format::SanitizerXml)
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.name())
    }
}

/// The format of the file, where it is one of these.
#[must_use]
pub fn recognise(path: &Path) -> Option<Format> {
    let mut head = Vec::new();
    // What does not decompress further is judged by what did.
    let _ = open(path).ok()?.take(HEAD).read_to_end(&mut head);
    if head.starts_with(MAGIC) {
        // Where its tables are listed is not known by the head alone. One that cannot be opened says why when it is read.
        let is_other = Database::open(path).is_ok_and(|database| !is_export(&database));
        return Some(if is_other { Format::Sqlite } else { Format::NsightSystems });
    }
    of_head(&head)
}

fn of_head(head: &[u8]) -> Option<Format> {
    let has = |text: &str| find(head, text.as_bytes()).is_some();
    let second_line = find(head, b"\n").map_or(&head[..0], |end| &head[end + 1..]);
    let first = head.iter().find(|byte| !byte.is_ascii_whitespace());
    Some(if head.starts_with(b"heap_v2/") {
        Format::Jemalloc
    } else if head.starts_with(b"heap profile:") {
        Format::Gperftools
    } else if head.starts_with(b"desc: ") && second_line.starts_with(b"cmd: ") {
        Format::Massif
    } else if head.starts_with(b"v ") && second_line.starts_with(b"X ") {
        Format::Heaptrack
    } else if has("<ComputeSanitizerOutput>") {
        Format::SanitizerXml
    } else if has("========= COMPUTE-SANITIZER") {
        Format::SanitizerText
    } else if first == Some(&b'{') && (has("\"traceEvents\"") || is_kineto_head(head)) {
        Format::Kineto
    } else if is_pprof(head) {
        Format::Pprof
    } else if is_perfetto(head) {
        Format::Perfetto
    } else {
        return None;
    })
}

/// Kineto writes what it knows of the devices before the events, which may be long.
fn is_kineto_head(head: &[u8]) -> bool {
    find(head, b"\"schemaVersion\"").is_some() && find(head, b"\"deviceProperties\"").is_some()
}

/// A profile begins with the type of its first value: a message of two small numbers.
fn is_pprof(head: &[u8]) -> bool {
    // Go's profiles begin with their time, or with what is sampled.
    let mut fields = wire::Fields::of(head).skip_while(|field| matches!(field, (9, wire::Value::Number(_))));
    let Some((1 | 11, wire::Value::Bytes(kind))) = fields.next() else { return false };
    let mut parts = wire::Fields::of(kind);
    let is_small =
        |part: (u32, wire::Value<'_>)| matches!(part, (1 | 2, wire::Value::Number(value)) if value < 1 << 24);
    !kind.is_empty() && kind.len() <= 16 && parts.by_ref().all(is_small) && parts.is_whole()
}

/// A trace begins with a packet; its first fields are of the service that wrote it.
fn is_perfetto(head: &[u8]) -> bool {
    const OF_SERVICE: [u32; 8] = [3, 6, 8, 10, 33, 36, 41, 58];
    let Some(packet) = wire::Fields::first_message(head) else { return false };
    let mut parts = wire::Fields::of(packet);
    let known = parts.by_ref().filter(|(field, _)| OF_SERVICE.contains(field)).count();
    known > 0 && parts.is_whole_or_cut_value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_content_is_not_recognised() {
        for head in [
            &b""[..],
            b"\n",
            b"\n\n\n",
            b"SLHEAPLV",
            b"memray\0\x0c\0\0\0",
            b"{\"session_id\": 1}",
            b"v 1.0\nrelease notes",
            b"desc: a file\nof another kind",
            b"\x0a\x00",
            b"\x0a\x02\x0a\x00",
            b"timestamp_ns,event_type\n1,sample\n",
        ] {
            assert_eq!(of_head(head), None, "{head:?}");
        }
    }

    #[test]
    fn text_formats_are_recognised_by_their_first_lines() {
        for (head, format) in [
            (&b"heap_v2/524288\n  t*: 1: 2 [0: 0]"[..], Format::Jemalloc),
            (b"heap profile:  1: 2 [ 1: 2] @ heapprofile", Format::Gperftools),
            (b"desc: (none)\ncmd: ./a\ntime_unit: i\n", Format::Massif),
            (b"v 10400 3\nX ./a\n", Format::Heaptrack),
            (b"hello\n========= COMPUTE-SANITIZER\n", Format::SanitizerText),
            (b"<?xml version=\"1.0\"?>\n<ComputeSanitizerOutput>", Format::SanitizerXml),
            (b"  {\n  \"schemaVersion\": 1, \"deviceProperties\": [", Format::Kineto),
            (b"{\"traceEvents\": []}", Format::Kineto),
            // Go's CPU profile: the time, then the type of the first value.
            (b"\x48\x85\x53\x0a\x04\x08\x01\x10\x02", Format::Pprof),
        ] {
            assert_eq!(of_head(head), Some(format));
        }
    }
}
