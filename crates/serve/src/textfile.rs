//! The file of `--textfile`, for the text-file collector of node_exporter: replaced whole, readable by every user, without timestamps.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use stormlog_files::{Existing, write_output};

/// A file that is replaced at every look.
#[derive(Debug)]
pub struct Textfile {
    path: PathBuf,
}

impl Textfile {
    /// At that path; its name must end in `.prom`, or the collector does not read it.
    pub fn new(path: PathBuf) -> Result<Self, String> {
        match path.extension().is_some_and(|extension| extension == "prom") {
            true => Ok(Textfile { path }),
            false => Err(format!("{}: the collector reads files whose names end in .prom", path.display())),
        }
    }

    /// Writes the whole text.
    pub fn write(&self, text: &str) -> io::Result<()> {
        write_output(&self.path, text.as_bytes(), Existing::Replace)?;
        // The collector is another user, whatever this one's umask is.
        match fs::symlink_metadata(&self.path)?.is_file() {
            true => fs::set_permissions(&self.path, fs::Permissions::from_mode(0o644)),
            false => Ok(()),
        }
    }
}
