//! Formats we only write, for other tools to read. Those of stacks take [`StackProfile`], those of time a [`Timeline`]; every one gives bytes.
//!
//! This crate must never open a file, and never lose a byte of what is held: the weights of an export add up to the whole.
#![forbid(unsafe_code)]

mod chrome;
mod collapsed;
mod firefox;
mod gprof2dot;
#[cfg(feature = "parquet")]
mod parquet;
mod perfetto;
mod pprof;
mod speedscope;
mod svg;
mod table;
mod tensorboard;
mod timeline;

use std::borrow::Cow;

use stormlog_model::stacks::{Frame, FrameKind, StackProfile};

pub use collapsed::collapsed;
pub use firefox::firefox;
pub use gprof2dot::gprof2dot;
#[cfg(feature = "parquet")]
pub use parquet::{ParquetError, parquet};
pub use pprof::{HeapProfile, pprof};
pub use speedscope::speedscope;
pub use svg::svg;
pub use table::csv;
pub use timeline::{Counter, Instant, Slice, Timeline, TimelineProcess, TraceFormat};

/// What an export is about, for the formats that have room to say so.
#[derive(Debug, Clone)]
pub struct About<'a> {
    /// The program.
    pub title: &'a str,
    /// Wall clock at the start of the recording, milliseconds since 1970; 0 when unknown.
    pub start_ms: u64,
    /// The process.
    pub pid: u32,
}

/// `function (file:line)`: how tools without columns for it want a frame.
fn label(frame: &Frame) -> String {
    let place = frame.place();
    if place.is_empty() { frame.function.clone() } else { format!("{} ({place})", frame.function) }
}

/// The same with a frame for what has no stack: other tools leave out memory without one, or fail on it.
fn all_in_frames(held: &StackProfile) -> Cow<'_, StackProfile> {
    if held.rows.iter().all(|row| row.node != 0) {
        return Cow::Borrowed(held);
    }
    let mut held = held.clone();
    held.tree.frames.push(Frame {
        function: "(no stack)".to_owned(),
        file: String::new(),
        line: 0,
        kind: FrameKind::Remark,
    });
    let node = held.tree.push(0, held.tree.frames.len() as u32 - 1);
    held.rows.iter_mut().filter(|row| row.node == 0).for_each(|row| row.node = node);
    Cow::Owned(held)
}

/// Frames of a row, the outermost first, as indexes into the tree's frames.
fn outermost_first(held: &StackProfile, node: u32) -> Vec<u32> {
    let mut path = Vec::new();
    let mut at = node;
    while at != 0 {
        path.push(held.tree.frame[at as usize]);
        at = held.tree.parent[at as usize];
    }
    path.reverse();
    path
}

#[cfg(test)]
mod testing {
    use stormlog_model::stacks::{Frame, FrameKind, Holding, StackProfile, StackTree};

    use crate::timeline::{Counter, Instant, Slice, Timeline, TimelineProcess};

    /// One process with a counter, a phase, two steps that meet, and an alert.
    pub(crate) fn timeline() -> Timeline {
        let slice = |track: &str, from_ns, to_ns| Slice {
            track: track.to_owned(),
            from_ns,
            to_ns,
            name: format!("{track} {from_ns}"),
        };
        let slices =
            vec![slice("phases", 1_000, 9_000), slice("steps", 2_000, 3_000), slice("steps", 3_000, 4_000)];
        let counters =
            vec![Counter { name: "host RSS".to_owned(), points: vec![(1_000, 7), (5_001_000, 9)] }];
        let instants =
            vec![Instant { at_ns: 8_000, name: "warning".to_owned(), text: "memory is short".to_owned() }];
        let name = "train.py".to_owned();
        Timeline { processes: vec![TimelineProcess { pid: 7, name, counters, slices, instants }] }
    }

    /// main → load (10 bytes), main → load → parse (30 bytes), and main itself (5 bytes).
    pub(crate) fn held() -> StackProfile {
        let mut tree = StackTree::new();
        for (name, line) in [("main", 3), ("load;x", 8), ("par\nse<\u{202e}", 21)] {
            tree.frames.push(Frame {
                function: name.into(),
                file: "train.py".into(),
                line,
                kind: FrameKind::Python,
            });
        }
        let main = tree.push(0, 0);
        let load = tree.push(main, 1);
        let parse = tree.push(load, 2);
        let row = |node, bytes, count| Holding { node, thread: 0, bytes, count };
        StackProfile {
            rows: vec![row(main, 5, 1), row(load, 10, 2), row(parse, 30, 3)],
            tree,
            threads: vec!["MainThread".into()],
        }
    }
}
