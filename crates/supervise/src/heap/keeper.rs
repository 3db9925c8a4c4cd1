//! The heap captures of a program: gives the hook library its orders, compacts what recorded processes write, and finishes a
//! capture when its process has ended.
//!
//! A capture that cannot be compacted is left as it lies: every reader takes live files too. Must never touch the recorded process.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use stormlog_capture::file::Sample;
use stormlog_capture::layout::{LIVE_SUFFIX, state};
use stormlog_capture::live::{Header, Live};
use stormlog_capture::{Compactor, Options};
use stormlog_collect::process::ProcessReader;
use stormlog_heap::Aggregate;

/// Between two readings of a process's memory.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);
/// Full slots of one capture, 256 MiB of them, that are more than may wait.
const BEHIND: usize = 4096;

/// What to record of the heap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeapOptions {
    /// Frames of C, C++ and Rust too.
    pub native: bool,
    /// Every request to CPython's own allocators.
    pub python_allocators: bool,
    /// Mean bytes between samples; 0 records everything.
    pub sample_bytes: u64,
    /// Keep stacks, live blocks and peaks instead of every record.
    pub aggregate: bool,
    /// Fold the oldest records when a capture is larger than this.
    pub max_size: Option<u64>,
}

impl HeapOptions {
    /// The order the hook library understands; `pattern` may hold `%p` for the process.
    #[must_use]
    pub fn order(&self, pattern: &Path) -> OsString {
        let mut order = OsString::from("path=");
        order.push(pattern);
        if self.native {
            order.push(";native=1");
        }
        if self.python_allocators {
            order.push(";pyalloc=1");
        }
        if self.sample_bytes > 0 {
            order.push(format!(";sample={}", self.sample_bytes));
        }
        if let Some(max) = self.max_size.filter(|max| *max > 0) {
            order.push(format!(";max={max}"));
        }
        order
    }

    fn compaction(&self) -> Options {
        let folds = self.aggregate || self.max_size.is_some();
        Options {
            fold: folds.then(|| Box::new(Aggregate::default()) as Box<_>),
            aggregate: self.aggregate,
            max_size: self.max_size,
            ..Options::default()
        }
    }
}

/// One capture that is being written.
struct Open {
    path: PathBuf,
    compactor: Compactor,
    sampled: Option<Instant>,
}

/// Looks after all captures in one directory.
pub struct HeapKeeper {
    directory: PathBuf,
    /// Only this capture and those of forked children, whose names begin like it.
    only: Option<OsString>,
    options: HeapOptions,
    open: Vec<Open>,
    /// Live files that could not be opened; they are not tried again and again.
    refused: Vec<PathBuf>,
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
            refused: Vec::new(),
        }
    }

    /// For one capture in a directory that may hold others.
    #[must_use]
    pub fn for_capture(path: &Path, options: HeapOptions) -> Self {
        let directory = path.parent().unwrap_or_else(|| Path::new("."));
        HeapKeeper { only: path.file_name().map(OsString::from), ..HeapKeeper::new(directory, options) }
    }

    /// Whether some program writes more than is taken from it.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.open.iter().any(|open| open.compactor.waiting() > BEHIND)
    }

    /// Finds new captures, takes their full chunks and reads their processes' memory. To be called some ten times a second.
    pub fn step(&mut self) {
        self.find();
        for open in &mut self.open {
            if open.sampled.is_none_or(|at| at.elapsed() >= SAMPLE_EVERY) {
                open.sampled = Some(Instant::now());
                if let Some(sample) =
                    read_memory(open.compactor.header().pid, open.compactor.header().start_monotonic_ns)
                {
                    open.compactor.sample(sample);
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
        let (mut ended, open): (Vec<Open>, Vec<Open>) =
            std::mem::take(&mut self.open).into_iter().partition(|open| open.compactor.header().pid == pid);
        self.open = open;
        ended.sort_by_key(|open| open.compactor.header().start_monotonic_ns);
        ended.into_iter().map(|open| finish(open, cause)).collect()
    }

    /// Finishes what is left of processes that are gone, such as children too short-lived to be watched. Those that live go on.
    pub fn finish_rest(&mut self) {
        self.find();
        let (alive, gone): (Vec<Open>, Vec<Open>) =
            std::mem::take(&mut self.open).into_iter().partition(|open| is_running(open.compactor.header()));
        self.open = alive;
        for open in gone {
            finish(open, &serde_json::json!({}));
        }
    }

    /// Whether recording has ended in every process that was recorded, though the processes may live.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        let running = |open: &Open| {
            let live = Live::open(&Live::path_of(&open.path)).and_then(|live| live.header());
            live.is_ok_and(|header| header.state == state::RUNNING)
        };
        !self.open.is_empty() && !self.open.iter().any(running)
    }

    fn find(&mut self) {
        let Ok(entries) = std::fs::read_dir(&self.directory) else { return };
        let mut found: Vec<PathBuf> = entries
            .filter_map(|entry| {
                let name = entry.ok()?.file_name();
                let capture = name.as_bytes().strip_suffix(LIVE_SUFFIX.as_bytes())?;
                let is_ours = self.only.as_ref().is_none_or(|only| capture.starts_with(only.as_bytes()));
                is_ours.then(|| self.directory.join(OsStr::from_bytes(capture)))
            })
            .filter(|path| !self.open.iter().any(|open| &open.path == path) && !self.refused.contains(path))
            .collect();
        found.sort();
        for path in found {
            match Compactor::open(&path, self.options.compaction()) {
                Ok(compactor) => self.open.push(Open { path, compactor, sampled: None }),
                // A file that is only now being made has no header yet; it is there at the next look.
                Err(_) if is_young(&path) => {}
                Err(_) => self.refused.push(path),
            }
        }
    }
}

fn finish(open: Open, cause: &Value) -> PathBuf {
    // Where this fails the live file stays, and readers take it as it is.
    let _ = open.compactor.finish(cause.clone());
    open.path
}

/// The very process that recorded, not a later one of its number.
fn is_running(header: &Header) -> bool {
    let same = |reader: ProcessReader| reader.start_time() == header.process_start_ticks;
    ProcessReader::open(header.pid).is_ok_and(same)
}

fn is_young(path: &Path) -> bool {
    let live = Live::path_of(path);
    let age = std::fs::metadata(live).and_then(|data| data.modified()).ok().and_then(|at| at.elapsed().ok());
    age.is_none_or(|age| age < Duration::from_secs(2))
}

fn read_memory(pid: u32, start_ns: u64) -> Option<Sample> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    let now = clock_gettime(ClockId::MonotonicCoarse);
    let now = u64::try_from(now.tv_sec).ok()? * 1_000_000_000 + u64::try_from(now.tv_nsec).ok()?;
    let page = rustix::param::page_size() as u64;
    Some(Sample { time_us: now.saturating_sub(start_ns) / 1000, rss: pages * page, pss: None, cgroup: None })
}
