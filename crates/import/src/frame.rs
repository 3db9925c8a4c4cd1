//! Whether a named frame is Python or native: other tools do not record it. Must decide by the names alone.

use stormlog_model::stacks::FrameKind;

/// The kind of a frame.
pub(crate) fn kind_of(function: &str, file: &str) -> FrameKind {
    let is_python = file.ends_with(".py")
        || function == "<module>"
        || file.starts_with("<frozen ")
        || ["<stdin>", "<string>"].contains(&file)
        || file.starts_with("<ipython-input-");
    if is_python { FrameKind::Python } else { FrameKind::Native }
}
