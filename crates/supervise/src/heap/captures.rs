//! The captures of one run: threads keep them compact while their processes live, and complete those that have ended.
//!
//! One thread gives way to the program: what it does not get to waits in the live file. Where too much waits, a second one helps that does
//! not give way. A third completes the captures of processes that have ended, when nothing else wants the processor. The sampler must never
//! wait for any of them, or it misses the ends of short-lived children: it sends what it has to say.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;
use stormlog_capture::live::Live;
use stormlog_catalog::captures::CaptureHead;
use stormlog_catalog::run::layout::{CAPTURE_FILE, CAPTURES_DIRECTORY, growing_capture_name};
use stormlog_catalog::run::{LiveFile, live_files};
use stormlog_heap_report::HeapDigest;
use stormlog_pidfd::LockedPages;

use super::finisher::complete;
use super::keeper::{HeapKeeper, discard};
use super::options::HeapOptions;
use super::pace::{GIVES_WAY, HELP, LEAST, give_way};
use super::trivial::is_trivial;
use crate::error::RunError;

/// Captures that wait to be completed; more are completed after the run.
const MAX_WAITING: usize = 256;
/// Captures kept of processes that ended before the sampler met them, the newest.
const KEPT_UNMET: usize = 256;

/// All captures of a run.
pub(crate) struct Captures {
    directory: PathBuf,
    shared: Arc<Shared>,
    /// To the thread that keeps; gone when the threads have ended.
    orders: Option<Sender<Settle>>,
    threads: Vec<JoinHandle<()>>,
}

/// A process has ended and its captures belong into its directory.
struct Settle {
    pid: u32,
    cause: Value,
    to: PathBuf,
    /// However little is in the last one.
    is_kept: bool,
}

struct Shared {
    keeper: Mutex<HeapKeeper>,
    options: HeapOptions,
    stop: Arc<AtomicBool>,
    /// Processes that the sampler knows, and will say how they ended.
    claimed: Mutex<HashSet<u32>>,
    ended: Mutex<Ended>,
    /// Whether children's captures are read when they are complete.
    wants_digests: bool,
    /// Every allocation of the program runs through the library: at the limit of its cgroup it must not be dropped and read again.
    _library: Option<LockedPages>,
}

/// Captures of processes that have ended.
#[derive(Default)]
struct Ended {
    waiting: VecDeque<PathBuf>,
    /// Those that no sampler met.
    unmet: VecDeque<PathBuf>,
    /// What those in process directories come to, by directory.
    digests: HashMap<PathBuf, HeapDigest>,
}

impl Captures {
    /// Begins to look after the captures of a run; and the variables its program needs to write them.
    pub(crate) fn begin(
        run: &Path,
        options: &HeapOptions,
        wants_digests: bool,
    ) -> Result<(Self, Vec<(OsString, OsString)>), RunError> {
        let directory = run.join(CAPTURES_DIRECTORY);
        stormlog_files::create_directory(&directory)
            .map_err(|error| RunError::directory(&directory, error))?;
        let absolute =
            std::path::absolute(&directory).map_err(|error| RunError::directory(&directory, error))?;
        if absolute.to_string_lossy().contains([';', '%']) {
            return Err(RunError::HeapPath(absolute));
        }
        let library = stormlog_hook_image::install_or(run)?;
        let locked = File::open(&library).and_then(|file| LockedPages::of(&file)).ok();
        let mut preload = library.into_os_string();
        if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
            preload.push(":");
            preload.push(before);
        }
        let spec = options.hook_spec(&absolute.join(growing_capture_name("%p")));
        let stop = Arc::new(AtomicBool::new(false));
        let shared = Arc::new(Shared {
            keeper: Mutex::new(HeapKeeper::new(&directory, options.clone()).stopped_by(&stop)),
            options: options.clone(),
            stop,
            claimed: Mutex::default(),
            ended: Mutex::default(),
            wants_digests,
            _library: locked,
        });
        let (orders, ordered) = channel();
        let mut captures = Captures { directory, shared, orders: Some(orders), threads: Vec::new() };
        captures.start("stormlog-heap", move |shared| keep(shared, &ordered))?;
        captures.start("stormlog-help", help)?;
        captures.start("stormlog-pack", pack)?;
        let env = vec![("LD_PRELOAD".into(), preload), ("STORMLOG_HEAP".into(), spec)];
        Ok((captures, env))
    }

    fn start(&mut self, name: &str, work: impl FnOnce(&Shared) + Send + 'static) -> Result<(), RunError> {
        let shared = Arc::clone(&self.shared);
        let started = thread::Builder::new().name(name.into()).spawn(move || work(&shared));
        self.threads.push(started.map_err(|error| RunError::directory(&self.directory, error))?);
        Ok(())
    }

    /// The sampler knows the process and will [settle](Self::settle) its captures.
    pub(crate) fn claim(&self, pid: u32) {
        lock(&self.shared.claimed).insert(pid);
    }

    /// Ends the captures of a process that has ended and has them moved to its directory.
    /// `is_kept`: the capture of the last program it was is kept, however little is in it.
    pub(crate) fn settle(&self, pid: u32, cause: Value, to: &Path, is_kept: bool) {
        let order = Settle { pid, cause, to: to.to_owned(), is_kept };
        let refused = match &self.orders {
            Some(orders) => orders.send(order).err().map(|error| error.0),
            None => Some(order),
        };
        if let Some(order) = refused {
            self.shared.settle(&order);
        }
    }

    /// The capture of the program that a process was last, where it is now.
    pub(crate) fn newest_of(&self, pid: u32) -> Option<PathBuf> {
        newest_capture(&self.directory, pid)
    }

    /// The command line that a process recorded of itself when its program began.
    pub(crate) fn command_of(&self, pid: u32) -> Option<Vec<OsString>> {
        let head = CaptureHead::of(&self.newest_of(pid)?);
        Some(head.command.into_iter().map(OsString::from).collect())
    }

    /// Where captures grow.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Ends the threads. What they were doing stays in the live files.
    pub(crate) fn halt(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.orders = None;
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // It only moves records; what it did not move stays where it is.
            let _ = thread.join();
        }
    }

    /// Ends what is left of processes that are gone, to be completed. What lives keeps writing into its live file.
    pub(crate) fn end(mut self) {
        self.halt();
        let rest = lock(&self.shared.keeper).end_rest();
        self.shared.keep_unmet(rest);
        // Only when nothing is left in it.
        let _ = std::fs::remove_dir(&self.directory);
    }

    /// Whether the threads have ended: what is settled from now on is settled at once.
    pub(crate) fn is_halted(&self) -> bool {
        self.orders.is_none()
    }

    /// What captures in process directories come to, read now where that was not done before.
    pub(crate) fn digests(
        &self,
        directories: Vec<PathBuf>,
    ) -> impl FnOnce() -> HashMap<PathBuf, HeapDigest> + Send + 'static {
        let mut known = std::mem::take(&mut lock(&self.shared.ended).digests);
        move || {
            for directory in directories {
                if !known.contains_key(&directory)
                    && let Some(digest) = HeapDigest::read_still(&directory.join(CAPTURE_FILE), false)
                {
                    known.insert(directory, digest);
                }
            }
            known
        }
    }

    /// A process directory is no longer kept.
    pub(crate) fn forget(&self, directory: &Path) {
        lock(&self.shared.ended).digests.remove(directory);
    }
}

impl Shared {
    fn settle(&self, order: &Settle) {
        let settled = lock(&self.keeper).settle(order.pid, &order.cause, &order.to);
        lock(&self.claimed).remove(&order.pid);
        let last = order.to.join(CAPTURE_FILE);
        let kept = settled.into_iter().filter(|path| (order.is_kept && *path == last) || self.keeps(path));
        let kept: Vec<PathBuf> = kept.collect();
        lock(&self.ended).waiting.extend(kept);
    }

    /// Whether a capture is worth a file; one that is not is removed.
    fn keeps(&self, path: &Path) -> bool {
        let is_dropped = self.options.drops_trivial && is_trivial(path);
        if is_dropped {
            discard(path);
        }
        !is_dropped
    }

    /// Keeps the newest captures of processes that no sampler met.
    fn keep_unmet(&self, mut paths: Vec<PathBuf>) {
        paths.retain(|path| self.keeps(path));
        let mut ended = lock(&self.ended);
        for path in paths {
            ended.unmet.push_back(path.clone());
            ended.waiting.push_back(path);
            if ended.unmet.len() > KEPT_UNMET
                && let Some(oldest) = ended.unmet.pop_front()
            {
                discard(&oldest);
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

fn keep(shared: &Shared, orders: &Receiver<Settle>) {
    give_way(GIVES_WAY);
    let pace = shared.options.pace();
    let mut next = Instant::now() + pace;
    loop {
        match orders.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(order) => shared.settle(&order),
            Err(RecvTimeoutError::Timeout) => {
                let gone = {
                    let mut keeper = lock(&shared.keeper);
                    keeper.step();
                    let claimed = lock(&shared.claimed);
                    keeper.end_gone(|pid| claimed.contains(&pid))
                };
                shared.keep_unmet(gone);
                next = Instant::now() + pace;
            }
            // All that was ordered before has been done.
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn help(shared: &Shared) {
    let mut pause = HELP;
    while !shared.is_stopped() {
        thread::park_timeout(pause);
        let mut keeper = lock(&shared.keeper);
        let is_needed = keeper.is_behind();
        if is_needed {
            keeper.step();
        }
        pause = if is_needed { Duration::ZERO } else { HELP };
    }
}

fn pack(shared: &Shared) {
    give_way(LEAST);
    while !shared.is_stopped() {
        let next = {
            let mut ended = lock(&shared.ended);
            // The surplus stays as it is until the run is over: a live file and the part that was taken from it.
            let surplus = ended.waiting.len().saturating_sub(MAX_WAITING);
            ended.waiting.drain(..surplus);
            ended.waiting.pop_front()
        };
        let Some(path) = next else {
            thread::park_timeout(shared.options.pace());
            continue;
        };
        complete(&path, &shared.options);
        if shared.wants_digests
            && path.file_name().is_some_and(|name| name == CAPTURE_FILE)
            && let Some(directory) = path.parent()
            && let Some(digest) = HeapDigest::read_still(&path, false)
        {
            lock(&shared.ended).digests.insert(directory.to_owned(), digest);
        }
    }
}

/// The capture in that directory of the program that a process was last.
pub(crate) fn newest_capture(directory: &Path, pid: u32) -> Option<PathBuf> {
    let prefix = growing_capture_name(&pid.to_string());
    let header = |path: &Path| Live::open(&Live::path_of(path)).and_then(|live| live.header()).ok();
    let own = |file: &LiveFile| file.name.as_bytes().starts_with(prefix.as_bytes());
    let paths = live_files(directory)?;
    let paths = paths.into_iter().filter(own).map(|file| directory.join(file.name));
    let own = paths.filter_map(|path| Some((header(&path).filter(|header| header.pid == pid)?, path)));
    own.max_by_key(|(header, _)| header.start_monotonic_ns).map(|(_, path)| path)
}

/// Bytes on disk of a growing capture and its live file.
pub(crate) fn capture_bytes(capture: &Path) -> u64 {
    let blocks = |path: &Path| std::fs::metadata(path).map_or(0, |there| MetadataExt::blocks(&there));
    (blocks(capture) + blocks(&Live::path_of(capture))) * 512
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
