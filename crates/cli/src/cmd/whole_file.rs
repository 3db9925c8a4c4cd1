//! A small file, written whole or not at all.

use std::fs;
use std::path::Path;

use anyhow::Context;

/// Writes to a temporary name beside the file and renames; makes the directory where it is missing.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> anyhow::Result<()> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = fs::write(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // What could not be finished is not left lying about.
        let _ = fs::remove_file(&temporary);
    }
    written.with_context(|| path.display().to_string())
}
