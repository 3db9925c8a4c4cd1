//! What `analyze`, `check` and `compare` read, with a line that counts on a terminal and an end by Ctrl-C.

use std::path::{Path, PathBuf};

use stormlog_catalog::recording::{self, Loaded, Reader};

use crate::cmd::heap::attached_captures as captures;
use crate::exit::CtrlC;
use crate::progress::Progress;

/// Reads everything. Only Ctrl-C is an error.
pub(crate) fn load(paths: &[PathBuf], ctrl_c: &CtrlC) -> anyhow::Result<Loaded> {
    let mut progress = Progress::new("events");
    let captures = |path: &Path| {
        let read = captures::read(path).into_iter();
        read.map(|one| one.map_err(|error| error.to_string())).collect()
    };
    let mut goes_on = || {
        progress.step();
        ctrl_c.check().is_ok()
    };
    let loaded = recording::load(paths, &mut Reader { captures: &captures, goes_on: &mut goes_on });
    ctrl_c.check()?;
    Ok(loaded?)
}
