//! What `analyze`, `check` and `compare` read, with a line that counts on a terminal and an end by Ctrl-C.

use std::path::{Path, PathBuf};

use stormlog_catalog::recording::{self, Loaded, Reader};
use stormlog_story::captures::CaptureReader;

use crate::exit::CtrlC;
use crate::progress::Progress;

/// Reads everything. Only Ctrl-C is an error.
pub(crate) fn load(paths: &[PathBuf], ctrl_c: &CtrlC) -> anyhow::Result<Loaded> {
    load_with(paths, &CaptureReader::default(), ctrl_c)
}

/// The same, with what is kept of the captures for later questions.
pub(crate) fn load_with(
    paths: &[PathBuf],
    captures: &CaptureReader,
    ctrl_c: &CtrlC,
) -> anyhow::Result<Loaded> {
    let mut progress = Progress::new("events");
    let captures = |path: &Path| captures.at(path);
    let mut keep_reading = || {
        progress.step();
        ctrl_c.check().is_ok()
    };
    let loaded = recording::load(paths, &mut Reader { captures: &captures, keep_reading: &mut keep_reading });
    ctrl_c.check()?;
    Ok(loaded?)
}
