//! One JSON object: blocks, stacks, the program's spans.

use std::io::{self, Write};

use super::{BlockLifetimes, frames, notes};
use crate::recording::Recording;

pub(super) fn write(recordings: &[Recording<'_>], out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"{\"blocks\":[")?;
    let mut separator: &[u8] = b"\n";
    for recording in recordings {
        for row in BlockLifetimes::of(recording).rows() {
            out.write_all(separator)?;
            serde_json::to_writer(&mut *out, &row)?;
            separator = b",\n";
        }
    }
    out.write_all(b"],\n\"stacks\":[")?;
    // All recordings are of one snapshot, and share its stacks.
    if let Some(recording) = recordings.first() {
        for stack in 0..recording.snapshot.tables.stack_count() as u32 {
            out.write_all(if stack == 0 { b"\n" } else { b",\n" })?;
            serde_json::to_writer(&mut *out, &frames(recording, stack).collect::<Vec<_>>())?;
        }
    }
    out.write_all(b"],\n\"spans\":[")?;
    separator = b"\n";
    for recording in recordings {
        for span in notes::spans(recording.snapshot, recording.device, usize::MAX) {
            out.write_all(separator)?;
            serde_json::to_writer(&mut *out, &span)?;
            separator = b",\n";
        }
    }
    out.write_all(b"]}\n")
}
