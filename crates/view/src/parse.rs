//! Every record of a capture as a line of text, in the order it lies in the file: stream by stream. For scripts and for the curious.

use std::io::{self, Write};
use std::path::Path;

use stormlog_capture::op::{Op, Ops, is_allocation};
use stormlog_capture::record::{definition, kind};
use stormlog_capture::source::Source;
use stormlog_heap::allocator_name;

use crate::error::ViewError;

/// Records taken at a time.
const BATCH: usize = 4096;

/// Writes all records; gives how many. `step` is called after each batch and may end it with an error.
pub fn parse<E: From<ViewError> + From<io::Error>>(
    path: &Path,
    out: &mut impl Write,
    mut step: impl FnMut(usize) -> Result<(), E>,
) -> Result<u64, E> {
    let heap = |error: stormlog_capture::CaptureError| E::from(ViewError::Heap(error.into()));
    let mut source = Source::open(path).map_err(heap)?;
    let pieces = source.pieces(true).map_err(heap)?;
    let mut ops = Ops::default();
    let mut count = 0;
    for piece in &pieces {
        let mut records = source.read(piece).map_err(heap)?;
        writeln!(
            out,
            "CHUNK stream={} sequence={} thread={}",
            piece.stream, piece.first_sequence, piece.thread
        )?;
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
                record(out, op, own)?;
            }
            count += ops.list.len() as u64;
            step(ops.list.len())?;
            if !more {
                break;
            }
        }
    }
    Ok(count)
}

fn record(out: &mut impl Write, op: &Op, payload: &[u8]) -> io::Result<()> {
    let Op { address, size, python, native, .. } = *op;
    match op.kind {
        kind::FREE | kind::PY_FREE | kind::REALLOC_TAKE | kind::REALLOC_UNDO => {
            let name = match op.kind {
                kind::FREE => "FREE",
                kind::PY_FREE => "PYMALLOC_FREE",
                kind::REALLOC_TAKE => "REALLOC_TAKE",
                _ => "REALLOC_UNDO",
            };
            writeln!(out, "{name} address={address:#x}")
        }
        kind::MUNMAP => writeln!(out, "MUNMAP address={address:#x} bytes={size}"),
        kind::TIME => writeln!(out, "TIME microseconds={size}"),
        kind::FAILED => {
            let allocator = allocator_name((address & 0xff) as u8);
            writeln!(
                out,
                "FAILED allocator={allocator} errno={} bytes={size} python={python} native={native}",
                address >> 8
            )
        }
        kind::NODE_PYTHON => writeln!(
            out,
            "NODE_PYTHON node={python} parent={native} code={address:#x} instruction={} entry={}",
            size >> 1,
            size & 1
        ),
        kind::NODE_NATIVE => writeln!(out, "NODE_NATIVE node={python} parent={native} address={address:#x}"),
        kind::NODE_TRUNCATED => writeln!(out, "NODE_TRUNCATED node={python} parent={native}"),
        kind::DEFINITION => {
            let name = match size {
                definition::CODE => "CODE",
                definition::MODULE => "MODULE",
                definition::MODULE_GONE => "MODULE_GONE",
                definition::THREAD_NAME => "THREAD_NAME",
                definition::PYTHON => "PYTHON",
                definition::LIMITS => "LIMITS",
                _ => "UNKNOWN",
            };
            let more = if native == 1 { " more=1" } else { "" };
            writeln!(out, "{name} id={address:#x}{more} {}", text_in(payload))
        }
        allocator if is_allocation(allocator) => {
            let name = allocator_name(allocator).to_ascii_uppercase();
            writeln!(out, "{name} address={address:#x} bytes={size} python={python} native={native}")
        }
        other => writeln!(out, "UNKNOWN kind={other}"),
    }
}

/// The readable parts of a payload, escaped so that a terminal shows them and nothing else.
fn text_in(payload: &[u8]) -> String {
    payload.escape_ascii().to_string()
}
