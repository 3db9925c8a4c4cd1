//! Names of frames: how much of one is kept, and whether it is Python or native, which other tools do not record. Must decide by the names alone.

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

/// Bytes of one name that are kept.
const MOST_NAME: usize = 1 << 14;

/// As much of a name as is kept: a file may have one that is longer than there is memory for.
#[must_use]
pub fn name_start(name: &str) -> &str {
    let end = (0..=name.len().min(MOST_NAME)).rev().find(|end| name.is_char_boundary(*end));
    &name[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_name_ends_with_a_whole_character() {
        let name = format!("a{}", "é".repeat(MOST_NAME));
        assert_eq!(name_start(&name).len(), MOST_NAME - 1);
        assert_eq!(name_start("main"), "main");
    }
}
