//! Asks a process that runs what keeps its memory: the recording library is loaded into it, looks, and writes its report where we wait for it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use stormlog_catalog::run::layout::retained_name;
use stormlog_catalog::run::{Process, runs};
use stormlog_model::layout::RUN_VARIABLE;

use crate::attach::{AttachError, AttachMethod, Call, attach, hand_over};

/// A process whose main thread is inside a long call answers when it is back in Python.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);

/// The report of a process, as a file below `scratch`, which the caller removes.
pub fn ask_why(
    pid: u32,
    library: &Path,
    method: AttachMethod,
    scratch: &Path,
) -> Result<PathBuf, AttachError> {
    let directory = scratch.join("why");
    let failed = |source| AttachError::Io { path: directory.clone(), source };
    std::fs::create_dir(&directory).map_err(failed)?;
    hand_over(pid, &directory)?;
    let path = directory.join(retained_name(&pid.to_string()));
    let mut spec = OsString::from("reason=request;path=");
    spec.push(&path);
    attach(pid, library, Call::Why(&spec), method, scratch)?;
    let begun = Instant::now();
    while !path.exists() {
        if begun.elapsed() > PATIENCE {
            return Err(AttachError::Silent(pid));
        }
        std::thread::sleep(LOOK);
    }
    Ok(path)
}

/// The process as the run that it belongs to knows it, where it is one of a run.
#[must_use]
pub fn running_process(pid: u32) -> Option<Process> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let prefix = format!("{RUN_VARIABLE}=");
    let mut values = environment.split(|byte| *byte == 0);
    let run = values.find_map(|value| std::str::from_utf8(value).ok()?.strip_prefix(&prefix))?;
    let found = runs(Path::new(run)).ok()?.runs.into_iter().next()?;
    found.processes.into_iter().rev().find(|process| process.pid == Some(pid))
}
