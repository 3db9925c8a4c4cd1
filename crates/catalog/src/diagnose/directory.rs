//! The directory of a bundle: private whatever the umask, and never one that holds something else already.

use std::io;
use std::path::{Path, PathBuf};

use stormlog_files::Directory;

/// Bundles of one second in one directory.
const MOST_OF_A_SECOND: u32 = 10_000;

/// Why there is no directory for a bundle.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Something that is not a directory has that name.
    #[error("Output path is not a directory: {}", .0.display())]
    NotADirectory(PathBuf),
    /// The system refused.
    #[error("Cannot create output directory {}: {source}", path.display())]
    Create {
        /// The directory.
        path: PathBuf,
        /// What the system reported.
        source: io::Error,
    },
    /// All names of this second are taken.
    #[error("{}: too many bundles were created here within one second; wait a moment or choose another directory", .0.display())]
    TooMany(PathBuf),
}

/// What prevents a directory at `output`, if anything: a file there or above it.
#[must_use]
pub fn obstacle(output: &Path) -> Option<PathBuf> {
    output.ancestors().find(|path| path.exists()).filter(|there| !there.is_dir()).map(Path::to_owned)
}

/// The directory asked for, where there is none yet; else a new one in it, or in the current one.
pub fn new_directory(output: Option<&Path>, prefix: &str) -> Result<PathBuf, DirectoryError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| DirectoryError::Create { path, source }
    };
    let output = output.unwrap_or(Path::new("."));
    let base = std::path::absolute(output).map_err(failed(output))?;
    if let Some(there) = obstacle(&base) {
        return Err(DirectoryError::NotADirectory(there));
    }
    if !base.is_dir() {
        stormlog_files::create_directory(&base).map_err(failed(&base))?;
        return Ok(base);
    }
    let stamp = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string();
    for again in 0..MOST_OF_A_SECOND {
        let suffix = if again == 0 { String::new() } else { format!("-{again}") };
        let path = base.join(format!("{prefix}-{stamp}{suffix}"));
        match Directory::create_below(&path) {
            Ok(_) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(&path)(error)),
        }
    }
    Err(DirectoryError::TooMany(base))
}
