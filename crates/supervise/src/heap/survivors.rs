//! Processes that outlive their run or its supervisor, and continue writing into their captures: these are compacted as in a run, and completed when
//! their processes end.
//!
//! Without it a bounded capture would be full after a while, and lose what comes then. Must end when no capture is left that a process may
//! write, or when the run's directory is gone.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use stormlog_catalog::run::unfinished_captures;

use super::finisher::complete;
use super::keeper::HeapKeeper;
use super::options::HeapOptions;
use super::pace::{GIVES_WAY, HELP, LEAST, give_way};

/// Between two looks for captures that were moved or made since.
const LOOK: u32 = 10;

/// The captures of one run, by directory.
pub(crate) struct Survivors {
    run: PathBuf,
    options: HeapOptions,
    keepers: Mutex<Vec<(PathBuf, HeapKeeper)>>,
    is_over: AtomicBool,
}

impl Survivors {
    pub(crate) fn new(run: &Path, options: &HeapOptions) -> Self {
        let (run, options) = (run.to_owned(), options.clone());
        Survivors { run, options, keepers: Mutex::default(), is_over: AtomicBool::new(false) }
    }

    /// Until the last of them has ended. As in a run, one thread gives way to the program, one helps where too much waits, and one completes when
    /// nothing else wants the processor.
    pub(crate) fn watch(&self) {
        thread::scope(|scope| {
            let (ended, waiting) = channel();
            let helper = scope.spawn(|| self.help());
            scope.spawn(move || {
                give_way(LEAST);
                self.complete(&waiting);
            });
            scope.spawn(move || {
                give_way(GIVES_WAY);
                self.keep(&ended);
                self.is_over.store(true, Ordering::Release);
                helper.thread().unpark();
            });
        });
        for (directory, _) in &*self.keepers() {
            // Only where nothing is left in it.
            let _ = std::fs::remove_dir(directory);
        }
    }

    fn keep(&self, ended: &Sender<PathBuf>) {
        for step in 0.. {
            if step % LOOK == 0 {
                self.look();
            }
            let mut is_needed = false;
            for (_, keeper) in &mut *self.keepers() {
                keeper.step();
                let gone = keeper.end_gone(|_| false);
                gone.into_iter().for_each(|path| {
                    // The thread that completes lives as long as this one.
                    let _ = ended.send(path);
                });
                is_needed |= keeper.is_needed();
            }
            if !is_needed {
                return;
            }
            thread::sleep(self.options.pace());
        }
    }

    /// Finds directories that have captures by now.
    fn look(&self) {
        let found = unfinished_captures(&self.run);
        let mut keepers = self.keepers();
        for (directory, _) in found {
            if !keepers.iter().any(|(known, _)| *known == directory) {
                let keeper = HeapKeeper::new(&directory, self.options.clone());
                keepers.push((directory, keeper));
            }
        }
    }

    fn help(&self) {
        let mut pause = HELP;
        while !self.is_over.load(Ordering::Acquire) {
            thread::park_timeout(pause);
            let mut is_needed = false;
            for (_, keeper) in self.keepers().iter_mut().filter(|(_, keeper)| keeper.is_behind()) {
                keeper.step();
                is_needed = true;
            }
            pause = if is_needed { Duration::ZERO } else { HELP };
        }
    }

    fn complete(&self, ended: &Receiver<PathBuf>) {
        while let Ok(path) = ended.recv() {
            complete(&path, &self.options);
        }
    }

    fn keepers(&self) -> MutexGuard<'_, Vec<(PathBuf, HeapKeeper)>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
