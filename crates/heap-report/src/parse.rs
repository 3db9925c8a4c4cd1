//! Every record of a capture as a line of text or of JSON, in the order of the file: stream by stream. For scripts and for the curious.

use std::io::{self, Write};
use std::path::Path;

use stormlog_capture::op::{Op, Ops, is_allocation};
use stormlog_capture::record::{definition, kind};
use stormlog_capture::source::Source;
use stormlog_heap::import::memray::is_memray;
use stormlog_heap::{HeapError, allocator_name};

use crate::error::ViewError;

/// Records taken at a time.
const BATCH: usize = 4096;

/// How a record is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `MALLOC address=0x7f… bytes=…`
    Text,
    /// `{"record":"MALLOC","address":…,"bytes":…}`
    Json,
}

/// Writes all records; gives how many. `step` is called after each batch and may end it with an error.
pub fn parse<E: From<ViewError> + From<io::Error>>(
    path: &Path,
    shape: Shape,
    out: &mut impl Write,
    mut step: impl FnMut(usize) -> Result<(), E>,
) -> Result<u64, E> {
    let heap = |error: stormlog_capture::CaptureError| E::from(ViewError::Heap(error.into()));
    if is_memray(path) {
        return Err(ViewError::OfMemray { path: path.to_owned() }.into());
    }
    if let Some(format) = stormlog_import::recognise(path).map(stormlog_import::Format::name) {
        return Err(ViewError::OfOtherTool { path: path.to_owned(), format }.into());
    }
    let mut source = Source::open(path).map_err(heap)?;
    let pieces = source.pieces(true).map_err(heap)?;
    let mut ops = Ops::default();
    let mut count = 0;
    for piece in &pieces {
        let mut records = source.read(piece).map_err(heap)?;
        let values = [
            ("stream", Number(piece.stream.into())),
            ("sequence", Number(piece.first_sequence)),
            ("thread", Number(piece.thread)),
        ];
        shape.line(out, "CHUNK", &values)?;
        loop {
            ops.clear();
            let more = records.next(BATCH, &mut ops).ok_or_else(|| {
                let what = format!("the records of stream {} do not decode", piece.stream);
                heap(stormlog_capture::CaptureError::Damaged { path: path.to_owned(), what })
            })?;
            ops.unfold(0, |_| true);
            let mut payload = &ops.payload[..];
            for op in &ops.list {
                let length = if op.kind == kind::DEFINITION { op.python as usize } else { 0 };
                let (own, rest) = payload.split_at(length.min(payload.len()));
                payload = rest;
                shape.record(out, op, own)?;
            }
            count += ops.list.len() as u64;
            step(ops.list.len())?;
            if !more {
                break;
            }
        }
    }
    if count == 0 && !source.has_checkpoint() && source.cut().map_err(heap)?.is_some() {
        return Err(ViewError::Heap(HeapError::NothingLeft { path: path.to_owned() }).into());
    }
    Ok(count)
}

/// A value of a record.
enum Value<'a> {
    Address(u64),
    Number(u64),
    Word(&'a str),
    /// Bytes of the recorded program, escaped so that a terminal shows them and nothing else.
    Payload(&'a [u8]),
}

use Value::{Address, Number, Payload, Word};

impl Shape {
    /// One line: the record's name and its values.
    fn line(self, out: &mut impl Write, name: &str, values: &[(&str, Value<'_>)]) -> io::Result<()> {
        match self {
            Shape::Text => write!(out, "{name}")?,
            Shape::Json => write!(out, "{{\"record\":\"{name}\"")?,
        }
        for (key, value) in values {
            match (self, value) {
                // What it holds has no end that a reader would see: it is last, without a name.
                (Shape::Text, Payload(bytes)) => write!(out, " {}", bytes.escape_ascii())?,
                (Shape::Text, Address(address)) => write!(out, " {key}={address:#x}")?,
                (Shape::Text, Number(number)) => write!(out, " {key}={number}")?,
                (Shape::Text, Word(word)) => write!(out, " {key}={word}")?,
                (Shape::Json, Payload(bytes)) => {
                    let text = serde_json::Value::String(bytes.escape_ascii().to_string());
                    write!(out, ",\"{key}\":{text}")?;
                }
                (Shape::Json, Address(number) | Number(number)) => write!(out, ",\"{key}\":{number}")?,
                (Shape::Json, Word(word)) => write!(out, ",\"{key}\":\"{word}\"")?,
            }
        }
        match self {
            Shape::Text => writeln!(out),
            Shape::Json => writeln!(out, "}}"),
        }
    }

    fn record(self, out: &mut impl Write, op: &Op, payload: &[u8]) -> io::Result<()> {
        let Op { address, size, python, native, .. } = *op;
        let node = ("node", Number(python.into()));
        let parent = ("parent", Number(native.into()));
        let stacks = [("python", Number(python.into())), ("native", Number(native.into()))];
        let at = ("address", Address(address));
        match op.kind {
            kind::FREE => self.line(out, "FREE", &[at]),
            kind::PY_FREE => self.line(out, "PYMALLOC_FREE", &[at]),
            kind::REALLOC_TAKE => self.line(out, "REALLOC_TAKE", &[at]),
            kind::REALLOC_UNDO => self.line(out, "REALLOC_UNDO", &[at]),
            kind::MUNMAP => self.line(out, "MUNMAP", &[at, ("bytes", Number(size))]),
            kind::TIME => self.line(out, "TIME", &[("microseconds", Number(size))]),
            kind::FAILED => {
                let [python, native] = stacks;
                let allocator = Word(allocator_name((address & 0xff) as u8));
                let errno = ("errno", Number(address >> 8));
                let values = [("allocator", allocator), errno, ("bytes", Number(size)), python, native];
                self.line(out, "FAILED", &values)
            }
            kind::NODE_PYTHON => {
                let code = ("code", Address(address));
                let (instruction, entry) = (("instruction", Number(size >> 1)), ("entry", Number(size & 1)));
                self.line(out, "NODE_PYTHON", &[node, parent, code, instruction, entry])
            }
            kind::NODE_LINE => {
                let code = ("code", Address(address));
                let (line, entry) = (("line", Number(size >> 1)), ("entry", Number(size & 1)));
                self.line(out, "NODE_LINE", &[node, parent, code, line, entry])
            }
            kind::NODE_NATIVE => self.line(out, "NODE_NATIVE", &[node, parent, at]),
            kind::NODE_TRUNCATED => self.line(out, "NODE_TRUNCATED", &[node, parent]),
            kind::NODE_MARK => self.line(out, "NODE_MARK", &[node, parent, ("mark", Number(address))]),
            kind::DEVICE_FREE => self.line(out, "DEVICE_FREE", &[at, ("bytes", Number(size))]),
            kind::DEVICE_ALLOCATION => {
                let [python, native] = stacks;
                self.line(out, "DEVICE_ALLOCATION", &[at, ("bytes", Number(size)), python, native])
            }
            kind::DEFINITION => {
                let name = match size {
                    definition::CODE => "CODE",
                    definition::MODULE => "MODULE",
                    definition::MODULE_GONE => "MODULE_GONE",
                    definition::THREAD_NAME => "THREAD_NAME",
                    definition::PYTHON => "PYTHON",
                    definition::LIMITS => "LIMITS",
                    definition::CODE_ENDED => "CODE_ENDED",
                    definition::DEVICE => "DEVICE",
                    definition::DEVICE_TOTALS => "DEVICE_TOTALS",
                    definition::DEVICE_FAILED => "DEVICE_FAILED",
                    definition::DEVICE_REPORTS => "DEVICE_REPORTS",
                    _ => "UNKNOWN",
                };
                let (id, payload) = (("id", Address(address)), ("payload", Payload(payload)));
                match native {
                    1 => self.line(out, name, &[id, ("more", Number(1)), payload]),
                    _ => self.line(out, name, &[id, payload]),
                }
            }
            allocator if is_allocation(allocator) => {
                let [python, native] = stacks;
                let name = allocator_name(allocator).to_ascii_uppercase();
                self.line(out, &name, &[at, ("bytes", Number(size)), python, native])
            }
            other => self.line(out, "UNKNOWN", &[("kind", Number(other.into()))]),
        }
    }
}
