//! Stacks as people read them.

use stormlog_model::own_code::{OwnCode, Strongest};

use crate::intern::{StackId, Tables};

/// Whether a file is the user's program.
pub(crate) fn is_own(file: &str) -> bool {
    OwnCode::default().source(file).is_own()
}

/// A frame as `file.py:12 function`, with the file's last two parts.
pub(crate) fn frame(tables: &Tables, id: crate::intern::FrameId) -> String {
    let frame = tables.frame(id);
    let file = tables.text(frame.filename);
    let short = file.rmatch_indices('/').nth(1).map_or(file, |(at, _)| &file[at + 1..]);
    format!("{short}:{} {}", frame.line, tables.text(frame.name))
}

/// The frame that is responsible for what a stack holds.
pub(crate) fn responsible_frame(tables: &Tables, stack: StackId) -> Option<String> {
    let own_code = OwnCode::default();
    let found =
        Strongest::of(tables.stack(stack), |id| own_code.source(tables.text(tables.frame(*id).filename)));
    found.map(|id| frame(tables, id))
}

/// The stack without what changes from run to run: no line numbers, no directories above the package.
pub(crate) fn normalised(tables: &Tables, stack: StackId) -> String {
    let mut text = String::new();
    for id in tables.stack(stack) {
        let frame = tables.frame(id);
        let file = tables.text(frame.filename);
        let file = ["site-packages/", "dist-packages/"]
            .iter()
            .find_map(|mark| file.rsplit_once(mark))
            .map_or_else(|| file.rsplit('/').next().unwrap_or(file), |(_, package)| package);
        text.push_str(file);
        text.push(' ');
        text.push_str(tables.text(frame.name));
        text.push('\n');
    }
    text
}
