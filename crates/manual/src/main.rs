//! `stormlog-manual DIR`: writes the man pages and shell completions of every program below DIR, as a wheel installs them below its
//! prefix (`share/man/man1`, …). Run by scripts/build_backend.py when a wheel is built, and not part of one.

use std::error::Error;
use std::path::PathBuf;

use stormlog_manual::files;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args_os().nth(1).map(PathBuf::from).ok_or("usage: stormlog-manual DIR")?;
    for (path, bytes) in files::all()? {
        let path = directory.join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, bytes)?;
    }
    Ok(())
}
