//! A small file that the user named.

use std::path::Path;

use anyhow::Context;
use stormlog_files::{Existing, write_output};

/// Replaces what is there; makes the directory where it is missing.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> anyhow::Result<()> {
    if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
        std::fs::create_dir_all(above).with_context(|| above.display().to_string())?;
    }
    write_output(path, content.as_ref(), Existing::Replace).with_context(|| path.display().to_string())
}
