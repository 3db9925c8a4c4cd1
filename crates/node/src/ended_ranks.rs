//! The ranks of runs that have ended: which there were, how each ended, and its memory over time.
//!
//! A run that has ended does not change: it is read once. Its recordings are read only for the job that is looked at, all processes of a rank in the order
//! of time, so that the highest sum is one that there was. Must never read past a deadline.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use stormlog_catalog::run::layout::LOG_DIRECTORY;
use stormlog_catalog::run::{Process, Run, RunDirectory};
use stormlog_model::{Counter, Event, SessionSummary};
use stormlog_store::recording::RecordedEvents;

use crate::history::History;
use crate::picture::EndedRow;
use crate::rank::ONE_LOOK_NS;

/// Runs that have ended whose ranks are known: the newest.
const MOST_RUNS: usize = 256;
/// Events between two looks at the clock.
const STRIDE: u32 = 256;

/// A rank of a run that has ended.
#[derive(Debug, Clone)]
pub(crate) struct EndedRank {
    pub(crate) rank: i64,
    pub(crate) host: Arc<str>,
    pub(crate) world_size: i64,
    pub(crate) attempt: Option<u64>,
    pub(crate) pid: Option<u32>,
    pub(crate) started_at_ns: i64,
    /// `completed`, `deliberate`, `failed` or `unknown`.
    pub(crate) state: &'static str,
    pub(crate) verdict: Option<String>,
    /// Most bytes resident in one of its processes.
    pub(crate) peak_rss_bytes: Option<u64>,
    sessions: Vec<(PathBuf, u32)>,
    /// Once its recordings were read.
    pub(crate) memory: Option<(Arc<History>, Arc<History>)>,
}

/// The ranks of one run.
#[derive(Debug)]
pub(crate) struct EndedRun {
    pub(crate) job_id: Option<String>,
    pub(crate) row: Arc<EndedRow>,
    pub(crate) ranks: Vec<EndedRank>,
}

/// Those that were read.
#[derive(Default)]
pub(crate) struct EndedRanks {
    pub(crate) runs: BTreeMap<PathBuf, EndedRun>,
    reading: Option<(PathBuf, usize, RankReading)>,
}

impl EndedRanks {
    /// Reads the ranks of the newest runs; false where the deadline came first.
    pub(crate) fn look(&mut self, ended: &[Arc<EndedRow>], deadline: Instant) -> bool {
        let mut newest: Vec<&Arc<EndedRow>> = ended.iter().collect();
        newest.sort_by_key(|row| Reverse(row.started_at_ns));
        newest.truncate(MOST_RUNS);
        let kept: std::collections::BTreeSet<&Path> = newest.iter().map(|row| row.path.as_path()).collect();
        self.runs.retain(|path, _| kept.contains(path.as_path()));
        for row in newest {
            if self.runs.contains_key(&row.path) {
                continue;
            }
            if Instant::now() >= deadline {
                return false;
            }
            self.runs.insert(row.path.clone(), EndedRun::read(row));
        }
        true
    }

    /// Reads the memory of the ranks of a job; false where the deadline came first.
    pub(crate) fn read_memory(&mut self, is_of_job: &dyn Fn(&EndedRun) -> bool, deadline: Instant) -> bool {
        loop {
            let (path, at, mut reading) = match self.reading.take() {
                Some(reading) => reading,
                None => {
                    let unread = |run: &EndedRun| run.ranks.iter().position(|rank| rank.memory.is_none());
                    let mut runs = self.runs.iter().filter(|(_, run)| is_of_job(run));
                    let Some((path, at)) = runs.find_map(|(path, run)| Some((path.clone(), unread(run)?)))
                    else {
                        return true;
                    };
                    let reading = RankReading::open(&self.runs[&path].ranks[at].sessions);
                    (path, at, reading)
                }
            };
            if !reading.read(deadline) {
                self.reading = Some((path, at, reading));
                return false;
            }
            if let Some(rank) = self.runs.get_mut(&path).and_then(|run| run.ranks.get_mut(at)) {
                rank.memory = Some((Arc::new(reading.host), Arc::new(reading.device)));
            }
        }
    }
}

impl EndedRun {
    fn read(row: &Arc<EndedRow>) -> Self {
        let run = RunDirectory::open(&row.path).and_then(|run| Run::load(&run).ok().flatten());
        let processes = run.map(|run| run.processes).unwrap_or_default();
        let summaries = || processes.iter().filter_map(Process::identity);
        let job_id = summaries().find_map(|summary| summary.job_id.clone());
        let launched = row.launch.as_ref().and_then(|launch| launch.job_id.clone());
        let job_id = job_id.or(launched).filter(|job| !job.trim().is_empty());
        let first = summaries().filter(|summary| summary.world_size > 1).map(|summary| summary.rank).min();
        // A launcher without a rank counts with the first.
        let rank_of = |summary: &SessionSummary| match first {
            Some(first) if summary.world_size <= 1 => first,
            _ => summary.rank,
        };
        let mut by_rank: BTreeMap<(i64, Option<u64>), Vec<&Process>> = BTreeMap::new();
        for process in &processes {
            if let Some(summary) = process.identity() {
                by_rank.entry((rank_of(summary), summary.attempt)).or_default().push(process);
            }
        }
        let ranks = by_rank.into_iter().filter_map(|((rank, attempt), of)| EndedRank::of(rank, attempt, &of));
        EndedRun { job_id, row: Arc::clone(row), ranks: ranks.collect() }
    }
}

impl EndedRank {
    fn of(rank: i64, attempt: Option<u64>, processes: &[&Process]) -> Option<Self> {
        let world = |process: &Process| process.identity().map_or(1, |summary| summary.world_size);
        let world_size = processes.iter().map(|process| world(process)).max()?;
        let in_world = processes.iter().filter(|process| world(process) == world_size);
        let main = in_world.min_by_key(|process| (!process.is_root, process.started_at_ns(), process.pid))?;
        let summary = main.identity()?;
        let sessions = processes.iter().flat_map(|process| {
            let pid = process.pid.unwrap_or(0);
            process.sessions.iter().map(move |session| (session.path.clone(), pid))
        });
        Some(EndedRank {
            rank,
            host: Arc::from(summary.host.as_str()),
            world_size,
            attempt,
            pid: main.pid,
            started_at_ns: summary.started_at_ns,
            state: main.end.as_str(),
            verdict: main.end.facts().and_then(|facts| facts.verdict.clone()),
            peak_rss_bytes: processes.iter().filter_map(|process| process.peak_rss_bytes).max(),
            sessions: sessions.collect(),
            memory: None,
        })
    }
}

/// What a process holds by device: as the driver reports it, and as its allocator reserved it.
type Held = (BTreeMap<i64, u64>, BTreeMap<i64, u64>);

/// The recordings of a rank, read in the order of time.
struct RankReading {
    logs: Vec<(RecordedEvents, u32)>,
    next: BinaryHeap<Reverse<(u64, usize)>>,
    pending: Vec<Option<Event>>,
    resident: BTreeMap<u32, u64>,
    held: BTreeMap<u32, Held>,
    host: History,
    device: History,
}

impl RankReading {
    fn open(sessions: &[(PathBuf, u32)]) -> Self {
        let open =
            |(path, pid): &(PathBuf, u32)| Some((RecordedEvents::log(&path.join(LOG_DIRECTORY)).ok()?, *pid));
        let logs: Vec<(RecordedEvents, u32)> = sessions.iter().filter_map(open).collect();
        let mut reading = RankReading {
            next: BinaryHeap::with_capacity(logs.len()),
            pending: vec![None; logs.len()],
            logs,
            resident: BTreeMap::new(),
            held: BTreeMap::new(),
            host: History::default(),
            device: History::default(),
        };
        (0..reading.logs.len()).for_each(|at| reading.advance(at));
        reading
    }

    fn advance(&mut self, at: usize) {
        // A damaged record is one sample less.
        let event = self.logs[at].0.by_ref().find_map(Result::ok);
        if let Some(event) = &event {
            self.next.push(Reverse((event.timestamp_ns, at)));
        } else {
            // A process that has ended holds nothing.
            let pid = self.logs[at].1;
            self.resident.remove(&pid);
            self.held.remove(&pid);
        }
        self.pending[at] = event;
    }

    /// False where the deadline came first.
    fn read(&mut self, deadline: Instant) -> bool {
        let mut taken = 0u32;
        while let Some(Reverse((at_ns, at))) = self.next.pop() {
            if let Some(event) = self.pending[at].take() {
                self.take(&event, self.logs[at].1);
            }
            let is_last_of_look =
                self.next.peek().is_none_or(|Reverse((next, _))| next.saturating_sub(at_ns) > ONE_LOOK_NS);
            if is_last_of_look {
                self.sum_up(at_ns);
            }
            self.advance(at);
            taken += 1;
            if taken.is_multiple_of(STRIDE) && Instant::now() >= deadline {
                return self.next.is_empty();
            }
        }
        true
    }

    fn take(&mut self, event: &Event, pid: u32) {
        let device = event.head.device_id;
        if device < 0 {
            if let Some(rss) = event.counter(Counter::Used) {
                self.resident.insert(pid, rss);
            }
            return;
        }
        let (driver, reserved) = self.held.entry(pid).or_default();
        let of_process = event.metadata.map.get("process_device_used_bytes").and_then(Value::as_u64);
        driver.extend(of_process.map(|bytes| (device, bytes)));
        reserved.extend(event.counter(Counter::Reserved).map(|bytes| (device, bytes)));
    }

    fn sum_up(&mut self, at_ns: u64) {
        if let Some(sum) = self.resident.values().copied().reduce(u64::saturating_add) {
            self.host.push(at_ns, sum);
        }
        // The driver and the program may number a device differently: each process counts by one of them.
        let of_process = self.held.values().filter_map(|(driver, reserved)| {
            let known = if driver.is_empty() { reserved } else { driver };
            known.values().copied().reduce(u64::saturating_add)
        });
        if let Some(sum) = of_process.reduce(u64::saturating_add) {
            self.device.push(at_ns, sum);
        }
    }
}
