//! The captures of one run while it goes on: threads keep them compact, and each goes to its process's directory when that has ended.
//!
//! One thread gives way to the program: what it does not get to waits in the live file. Where too much waits, a second one helps that does not.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;

use super::digest::HeapDigest;
use super::keeper::{HeapKeeper, HeapOptions};
use crate::error::RunError;

/// Where processes write, in the run directory; a process does not know its session directory.
const DIRECTORY: &str = "heap";
/// The name in a session directory, which every reader looks for.
const FILE: &str = stormlog_heap::FILE_NAME;
const STEP: Duration = Duration::from_millis(25);
/// Between two looks whether help is needed.
const HELP: Duration = Duration::from_millis(500);
/// How much the first thread gives way: a tenth of what a thread of the program gets where there are not processors enough.
const NICENESS: i32 = 10;

/// All captures of a run.
pub(crate) struct Captures {
    directory: PathBuf,
    keeper: Arc<Mutex<HeapKeeper>>,
    /// The threads end when these are gone.
    threads: Vec<(Sender<()>, JoinHandle<()>)>,
}

impl Captures {
    /// Begins to look after the captures of a run; and the variables its program needs to write them.
    pub(crate) fn begin(
        run: &Path,
        options: &HeapOptions,
    ) -> Result<(Self, Vec<(OsString, OsString)>), RunError> {
        let directory = run.join(DIRECTORY);
        stormlog_files::create_directory(&directory)
            .map_err(|error| RunError::directory(&directory, error))?;
        let absolute =
            std::path::absolute(&directory).map_err(|error| RunError::directory(&directory, error))?;
        if absolute.to_string_lossy().contains([';', '%']) {
            return Err(RunError::HeapPath(absolute));
        }
        let library = stormlog_hook_image::install_or(run)?;
        let mut preload = library.into_os_string();
        if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
            preload.push(":");
            preload.push(before);
        }
        let order = options.order(&absolute.join("%p.bin"));
        let keeper = Arc::new(Mutex::new(HeapKeeper::new(&directory, options.clone())));
        let threads = [("stormlog-heap", keep as fn(&_, _)), ("stormlog-help", help)]
            .into_iter()
            .map(|(name, work)| {
                let (stop, stopped) = channel();
                let keeper = Arc::clone(&keeper);
                let thread =
                    thread::Builder::new().name(name.into()).spawn(move || work(&keeper, stopped))?;
                Ok((stop, thread))
            })
            .collect::<std::io::Result<_>>()
            .map_err(|error| RunError::directory(&directory, error))?;
        let env = vec![("LD_PRELOAD".into(), preload), ("STORMLOG_HEAP".into(), order)];
        Ok((Captures { directory, keeper, threads }, env))
    }

    /// Finishes the captures of a process that has ended and moves them to its directory; what they say, `of_failure` when it died of a
    /// request that got no memory.
    pub(crate) fn settle(&self, pid: u32, cause: &Value, of_failure: bool, to: &Path) -> Option<HeapDigest> {
        let finished = lock(&self.keeper).finish(pid, cause);
        // A process that became another program by exec wrote one each; the program that ended is the last.
        let mut first = None;
        for (index, path) in finished.iter().rev().enumerate() {
            let name = if index == 0 { FILE.to_owned() } else { format!("heap-{}.bin", index + 1) };
            let target = to.join(name);
            let moved = if std::fs::rename(path, &target).is_ok() { target } else { path.clone() };
            first.get_or_insert(moved);
        }
        HeapDigest::read(&first?, of_failure)
    }

    /// Ends the looking after. What still runs goes on writing into its live file.
    pub(crate) fn end(self) {
        for (stop, thread) in self.threads {
            drop(stop);
            // It only moves records; what it did not move stays where it is.
            let _ = thread.join();
        }
        lock(&self.keeper).finish_rest();
        // Only when nothing is left in it.
        let _ = std::fs::remove_dir(&self.directory);
    }
}

fn keep(keeper: &Mutex<HeapKeeper>, stopped: Receiver<()>) {
    // Linux counts this by thread. Where it is refused, the thread is as important as the others.
    let _ = rustix::process::setpriority_process(None, NICENESS);
    while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(STEP) {
        lock(keeper).step();
    }
}

fn help(keeper: &Mutex<HeapKeeper>, stopped: Receiver<()>) {
    let mut pause = HELP;
    while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(pause) {
        let mut keeper = lock(keeper);
        let is_needed = keeper.is_behind();
        if is_needed {
            keeper.step();
        }
        pause = if is_needed { Duration::ZERO } else { HELP };
    }
}

fn lock(keeper: &Mutex<HeapKeeper>) -> MutexGuard<'_, HeapKeeper> {
    keeper.lock().unwrap_or_else(PoisonError::into_inner)
}
