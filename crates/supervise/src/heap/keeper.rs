//! The heap captures of a program: compacts what recorded processes write, and ends a capture when its process has ended.
//!
//! A living process costs one descriptor here, one that has ended none. A capture that cannot be compacted is left as it is: every reader
//! takes live files too. Must never touch the recorded process, nor end a capture that a process may still write.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use stormlog_capture::Compactor;
use stormlog_capture::file::Sample;
use stormlog_capture::layout::state;
use stormlog_capture::live::{Header, Live};
use stormlog_catalog::run::live_files;
use stormlog_collect::process::ProcessReader;

use super::options::HeapOptions;

/// Between two readings of a process's memory.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);
/// Between two looks whether a process that is not found by its number still writes: it may have another one where it runs.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// Full slots of one capture, 256 MiB of them, that are more than may wait.
const BEHIND: usize = 4096;

/// One capture that is being written, or was when last looked at.
struct Open {
    compactor: Compactor,
    sampled: Option<Instant>,
    /// Its process is not found by its number.
    is_gone: bool,
    asked: Option<Instant>,
    /// Whether a process is known to have its live file open for writing, by another number than the recorded one; `None` before that was asked.
    is_written: Option<bool>,
    /// Its process became another program, which has a capture of its own.
    is_superseded: bool,
}

impl Open {
    /// Whether its process can write no more.
    fn is_over(&mut self) -> bool {
        if !self.is_gone || self.asked.is_some_and(|at| at.elapsed() < ASK_EVERY) {
            return false;
        }
        self.asked = Some(Instant::now());
        if self.compactor.has_ending() || self.compactor.refresh().is_ok_and(Header::ended) {
            return true;
        }
        // Killed, or in another PID namespace: the kernel knows whether it writes, unless we have the file open ourselves.
        self.compactor.release();
        let live = stormlog_files::open_regular(&Live::path_of(self.compactor.path()));
        let is_written = live.ok().and_then(|live| stormlog_pidfd::is_written(live.as_fd()));
        if is_written == Some(false) {
            return true;
        }
        self.is_written = Some(is_written == Some(true));
        let _ = self.compactor.step();
        self.compactor.release();
        false
    }

    /// Its process is not found any more: what it has left waits without a descriptor, a moment for the sampler that may know how it ended.
    fn has_gone(&mut self) {
        self.is_gone = true;
        self.asked = Some(Instant::now());
        self.compactor.release();
    }

    fn process(&self) -> (u32, u64) {
        let header = self.compactor.header();
        (header.pid, header.process_start_ticks)
    }
}

/// Looks after all captures in one directory.
pub struct HeapKeeper {
    directory: PathBuf,
    /// Only this capture and those of forked children, whose names begin like it.
    only: Option<OsString>,
    options: HeapOptions,
    open: Vec<Open>,
    /// Names that are not looked at again: captures that are open, and those that cannot be opened.
    known: HashSet<OsString>,
    stop: Arc<AtomicBool>,
}

impl HeapKeeper {
    /// For the captures in `directory`.
    #[must_use]
    pub fn new(directory: &Path, options: HeapOptions) -> Self {
        HeapKeeper {
            directory: directory.to_owned(),
            only: None,
            options,
            open: Vec::new(),
            known: HashSet::new(),
            stop: Arc::default(),
        }
    }

    /// For one capture in a directory that may hold others.
    #[must_use]
    pub fn for_capture(path: &Path, options: HeapOptions) -> Self {
        let directory = path.parent().unwrap_or_else(|| Path::new("."));
        HeapKeeper { only: path.file_name().map(OsString::from), ..HeapKeeper::new(directory, options) }
    }

    /// A step ends as soon as it can once this is true.
    pub(crate) fn stopped_by(self, stop: &Arc<AtomicBool>) -> Self {
        HeapKeeper { stop: Arc::clone(stop), ..self }
    }

    /// Whether some program writes more than is taken from it.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.open.iter().any(|open| {
            let bound = open.compactor.header().slot_limit as usize;
            open.compactor.waiting() > if bound > 0 { bound / 2 } else { BEHIND }
        })
    }

    /// Finds new captures, takes their full chunks and reads their processes' memory. To be called some ten times a second.
    pub fn step(&mut self) {
        self.find();
        for open in self.open.iter_mut().filter(|open| !open.is_superseded && !open.is_gone) {
            if open.sampled.is_none_or(|at| at.elapsed() >= SAMPLE_EVERY) {
                open.sampled = Some(Instant::now());
                let header = open.compactor.header();
                match read_memory(header.pid, header.start_monotonic_ns) {
                    Some(sample) => open.compactor.sample(sample),
                    None => {
                        open.has_gone();
                        continue;
                    }
                }
            }
            // What cannot be moved now (a full disk) stays in the live file and is tried again.
            let _ = open.compactor.step();
        }
    }

    /// Finishes the captures of a process that has ended, or stopped recording. `cause` is what is known of its end.
    /// The paths of the finished captures, in the order they were begun.
    pub fn finish(&mut self, pid: u32, cause: &Value) -> Vec<PathBuf> {
        self.find();
        let mut ended = self.take(|open| open.compactor.header().pid == pid);
        ended.sort_by_key(|open| open.compactor.header().start_monotonic_ns);
        let paths = ended.iter().map(|open| open.compactor.path().to_owned()).collect();
        for open in ended {
            // Where this fails the live file stays, and readers take it as it is.
            let _ = open.compactor.finish(cause.clone());
        }
        paths
    }

    /// As [`finish`](Self::finish) for a process that waits for it: small captures are finished, larger ones only ended. Those can be read as they
    /// are; to compress them takes seconds for each million of records.
    pub fn finish_at_exit(&mut self, pid: u32, cause: &Value) {
        self.find();
        for mut open in self.take(|open| open.compactor.header().pid == pid) {
            let path = open.compactor.path();
            let size = [path.to_owned(), Live::path_of(path)]
                .iter()
                .filter_map(|file| std::fs::metadata(file).ok())
                .map(|file| file.len())
                .sum::<u64>();
            // Where this fails the live file stays, and readers take it as it is.
            let _ = match size <= super::finisher::SMALL {
                true => open.compactor.finish(cause.clone()).map(drop),
                false => open.compactor.end(cause.clone()).map(drop),
            };
        }
    }

    /// Ends the captures of a process and moves them to its directory `to`, to be completed there: the last first, for a process that became
    /// another program by exec wrote one each. One that still writes is moved and not ended.
    pub(crate) fn settle(&mut self, pid: u32, cause: &Value, to: &Path) -> Vec<PathBuf> {
        self.find();
        let mut own = self.take(|open| open.compactor.header().pid == pid);
        own.sort_by_key(|open| open.compactor.header().start_monotonic_ns);
        own.reverse();
        let mut ended = Vec::new();
        for (index, mut open) in own.into_iter().enumerate() {
            let is_running = is_running(open.compactor.header());
            if !is_running {
                // Without it the capture only does not say how its process ended.
                let _ = open.compactor.end(cause.clone());
            }
            // A directory that is gone was dropped, and what belongs into it with it.
            if !to.is_dir() {
                discard(open.compactor.path());
                continue;
            }
            let _ = open.compactor.rename(&to.join(stormlog_catalog::run::layout::capture_name(index)));
            if !is_running {
                ended.push(open.compactor.path().to_owned());
            }
        }
        ended
    }

    /// Ends the captures of processes that are gone and that `is_claimed` does not know, such as children too short-lived to be watched.
    /// They stay where they are, to be completed.
    pub(crate) fn end_gone(&mut self, is_claimed: impl Fn(u32) -> bool) -> Vec<PathBuf> {
        let mut gone =
            self.take(|open| !open.is_superseded && !is_claimed(open.process().0) && open.is_over());
        let processes: HashSet<(u32, u64)> = gone.iter().map(Open::process).collect();
        if !processes.is_empty() {
            gone.extend(self.take(|open| processes.contains(&open.process())));
        }
        let mut ended = Vec::new();
        for mut open in gone {
            let _ = open.compactor.end(serde_json::json!({}));
            ended.push(open.compactor.path().to_owned());
        }
        ended
    }

    /// At the end of a run: as [`end_gone`](Self::end_gone), of all that is left. Those that live keep writing.
    pub(crate) fn end_rest(&mut self) -> Vec<PathBuf> {
        self.find();
        for open in &mut self.open {
            open.is_gone = !is_running(open.compactor.header());
            open.asked = None;
        }
        self.end_gone(|_| false)
    }

    /// Whether recording has ended in every process that was recorded, though the processes may live.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        let running = |open: &Open| {
            let live = Live::open(&Live::path_of(open.compactor.path())).and_then(|live| live.header());
            live.is_ok_and(|header| header.state == state::RUNNING)
        };
        !self.open.is_empty() && !self.open.iter().any(running)
    }

    /// Whether there is a capture here whose process is not found any more.
    pub(crate) fn has_ended(mut self) -> bool {
        self.find();
        self.open.iter().any(|open| open.is_gone)
    }

    /// Whether there is a capture that a process writes, as far as that can be known, or that is to be asked about again.
    pub(crate) fn is_needed(&self) -> bool {
        let is_needed = |open: &Open| !open.is_gone || open.is_written != Some(false);
        self.open.iter().any(|open| !open.is_superseded && is_needed(open))
    }

    /// Takes out what fits, in the order it was found. Its name stays known where its live file stays.
    fn take(&mut self, mut fits: impl FnMut(&mut Open) -> bool) -> Vec<Open> {
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        for mut open in std::mem::take(&mut self.open) {
            if fits(&mut open) { taken.push(open) } else { left.push(open) }
        }
        self.open = left;
        taken
    }

    fn find(&mut self) {
        let Some(live) = live_files(&self.directory) else { return };
        let is_meant = |name: &OsString| {
            self.only.as_ref().is_none_or(|only| name.as_bytes().starts_with(only.as_bytes()))
        };
        let names = live.into_iter().map(|file| file.name).filter(is_meant);
        let (there, found): (Vec<OsString>, Vec<OsString>) =
            names.partition(|name| self.known.contains(name));
        // What is no longer there was finished or moved; the name may come again, with the number.
        self.known = there.into_iter().collect();
        for name in found {
            let path = self.directory.join(&name);
            match Compactor::open(&path, self.options.compaction(&self.stop)) {
                Ok(compactor) => self.add(compactor),
                // A file that is only now being made has no header yet; it is there at the next look.
                Err(_) if is_young(&path) => continue,
                Err(_) => {}
            }
            self.known.insert(name);
        }
    }

    fn add(&mut self, compactor: Compactor) {
        let mut new = Open {
            compactor,
            sampled: None,
            is_gone: false,
            asked: None,
            is_written: None,
            is_superseded: false,
        };
        let start = new.compactor.header().start_monotonic_ns;
        for open in self.open.iter_mut().filter(|open| open.process() == new.process()) {
            // The clock is coarse: of two that began at one moment the later one has the later name.
            if open.compactor.header().start_monotonic_ns <= start {
                open.is_superseded = true;
                open.compactor.release();
            }
        }
        if !is_running(new.compactor.header()) {
            new.has_gone();
        }
        self.open.push(new);
    }
}

/// Removes a capture.
pub(crate) fn discard(path: &Path) {
    // What cannot be removed only takes room.
    let _ = std::fs::remove_file(Live::path_of(path));
    let _ = std::fs::remove_file(path);
}

/// The very process that recorded, not a later one of its number.
fn is_running(header: &Header) -> bool {
    let Ok(mut reader) = ProcessReader::open(header.pid) else { return false };
    reader.start_time() == header.process_start_ticks && reader.stat().is_ok_and(|stat| !stat.has_exited())
}

fn is_young(path: &Path) -> bool {
    let live = Live::path_of(path);
    let age = std::fs::metadata(live).and_then(|data| data.modified()).ok().and_then(|at| at.elapsed().ok());
    age.is_none_or(|age| age < Duration::from_secs(2))
}

fn read_memory(pid: u32, start_ns: u64) -> Option<Sample> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    // One that waits to be reaped has no pages.
    let pages: u64 = text.split(' ').nth(1)?.parse().ok().filter(|pages| *pages > 0)?;
    let now = clock_gettime(ClockId::MonotonicCoarse);
    let now = u64::try_from(now.tv_sec).ok()? * 1_000_000_000 + u64::try_from(now.tv_nsec).ok()?;
    let page = rustix::param::page_size() as u64;
    Some(Sample { time_us: now.saturating_sub(start_ns) / 1000, rss: pages * page, pss: None, cgroup: None })
}
