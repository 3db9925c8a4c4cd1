//! Where a view that is a file goes: named by the user, or next to the capture. Must never overwrite a file unless asked to.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use stormlog_files::{Existing, write_output};

use crate::exit::UsageError;

pub(crate) struct Output {
    pub(crate) path: Option<PathBuf>,
    pub(crate) force: bool,
}

impl Output {
    /// Writes `bytes` and says where; `name` is put behind the capture's own name when the user gave none.
    pub(crate) fn write(&self, capture: &Path, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        if self.path.as_deref() == Some(Path::new("-")) {
            return Ok(io::stdout().lock().write_all(bytes)?);
        }
        let path = self.path.clone().unwrap_or_else(|| beside(capture, name));
        write_whole(&path, bytes, self.force)?;
        writeln!(io::stdout(), "{}", path.display())?;
        Ok(())
    }

    /// Reports an existing file early, before the work is done.
    pub(crate) fn check(&self, capture: &Path, name: &str) -> anyhow::Result<()> {
        let path = self.path.clone().unwrap_or_else(|| beside(capture, name));
        // What is not a regular file is written to, so it does not count as existing.
        match path.is_file() && !self.force && path != Path::new("-") {
            true => Err(in_the_way(&path).into()),
            false => Ok(()),
        }
    }
}

fn in_the_way(path: &Path) -> UsageError {
    UsageError(format!(
        "{} exists; overwrite it with --force, or choose another file with --output",
        path.display()
    ))
}

/// `heap.bin` → `heap-flamegraph.html`.
fn beside(capture: &Path, name: &str) -> PathBuf {
    let own = capture.file_name().unwrap_or_default().to_string_lossy();
    let stem = own.strip_suffix(".bin").unwrap_or(&own).replace(".bin.", "-");
    capture.with_file_name(format!("{stem}-{name}"))
}

fn write_whole(path: &Path, bytes: &[u8], force: bool) -> anyhow::Result<()> {
    let existing = if force { Existing::Replace } else { Existing::Keep };
    match write_output(path, bytes, existing) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(in_the_way(path).into()),
        written => written.with_context(|| format!("cannot write {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn files_lie_beside_their_capture() {
        assert_eq!(beside(Path::new("/r/heap.bin"), "tree.html"), Path::new("/r/heap-tree.html"));
        assert_eq!(beside(Path::new("heap-7.bin.2"), "x.svg"), Path::new("heap-7-2-x.svg"));
        assert_eq!(beside(Path::new("a/out"), "x.svg"), Path::new("a/out-x.svg"));
    }

    #[test]
    fn nothing_is_written_over_unasked() {
        let folder = std::env::temp_dir().join(format!("stormlog-output-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("page.html");
        write_whole(&path, b"one", false).unwrap();
        let error = write_whole(&path, b"two", false).unwrap_err();
        assert!(error.to_string().contains("--force"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"one");
        write_whole(&path, b"three", true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"three");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing else is left");
        fs::remove_dir_all(&folder).unwrap();
    }
}
