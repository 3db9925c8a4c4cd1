//! Jobs and their ranks, over all run directories that have a part of one: living runs and those that have ended.
//!
//! Runs belong together by the job id that their launcher gave; a run without one is a job of its own. Whether a rank is missing or unlike the others is
//! decided by the rules of `analyze`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use stormlog_analyze::rules::outliers::outlying;
use stormlog_analyze::rules::ranks::missing_ranks;

use crate::ended_ranks::{EndedRank, EndedRanks, EndedRun};
use crate::history::History;
use crate::picture::{NodePicture, RankRow, RunRow};

/// A job.
#[derive(Debug, Clone, Default)]
pub struct JobRow {
    /// Tells it from the others: the launcher's id, else the directory of its run.
    pub key: String,
    /// The launcher's id, else the program's name.
    pub name: String,
    /// Ranks that it should have.
    pub world_size: u64,
    /// Whether a rank of it is being recorded.
    pub is_living: bool,
    /// When its newest run began, nanoseconds since 1970.
    pub started_at_ns: Option<i64>,
    /// Run directories.
    pub runs: usize,
    /// Ranks that no run has.
    pub missing: Vec<u64>,
    /// The middle of the ranks' peaks, where some are unlike it.
    pub typical_peak: Option<u64>,
    /// Whether the ranks are compared by the memory of devices.
    pub is_of_devices: bool,
    /// In the order of their numbers.
    pub ranks: Vec<JobRank>,
}

/// A rank: the process that is it now, or was it last.
#[derive(Debug, Clone)]
pub struct JobRank {
    /// Its number.
    pub rank: i64,
    /// Its machine.
    pub host: Option<Arc<str>>,
    /// The directory of its run.
    pub run: Arc<Path>,
    /// The main process.
    pub pid: Option<u32>,
    /// `running`, `silent` (its samples have stopped), or how it ended.
    pub state: &'static str,
    /// What ended it, as a sentence.
    pub verdict: Option<String>,
    /// How often the launcher had restarted the job.
    pub attempt: Option<u64>,
    /// How many times this rank was started, this one included.
    pub attempts: u64,
    /// Host memory of all its processes.
    pub host_memory: RankMemory,
    /// Device memory of all its processes.
    pub device_memory: RankMemory,
    /// Its peak is unlike the others'.
    pub is_outlier: bool,
}

/// One memory of a rank.
#[derive(Debug, Clone, Default)]
pub struct RankMemory {
    /// Bytes now.
    pub now: Option<u64>,
    /// Most bytes, as far as that was read.
    pub peak: Option<u64>,
    /// Bytes a second.
    pub growth: Option<f64>,
    /// Seconds until its limit is reached.
    pub time_to_limit: Option<f64>,
    /// Over time; `None` where it was not read yet.
    pub history: Option<Arc<History>>,
}

impl JobRow {
    /// The memory that the ranks are compared by.
    #[must_use]
    pub fn memory<'a>(&self, rank: &'a JobRank) -> &'a RankMemory {
        if self.is_of_devices { &rank.device_memory } else { &rank.host_memory }
    }

    /// The time that the ranks were recorded in.
    #[must_use]
    pub fn range_ns(&self) -> Option<(u64, u64)> {
        let ranges = self.ranks.iter().filter_map(|rank| self.memory(rank).history.as_ref()?.range_ns());
        ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }
}

/// The key of the job that a run which has ended belongs to.
pub(crate) fn key_of(run: &EndedRun) -> String {
    run.job_id.clone().unwrap_or_else(|| run.row.path.to_string_lossy().into_owned())
}

#[derive(Default)]
struct Gathered {
    row: JobRow,
    runs: BTreeSet<Arc<Path>>,
    living: Vec<(u64, JobRank)>,
    /// The newest of each rank, and how many there were.
    ended: BTreeMap<i64, (i64, u64, JobRank)>,
}

/// All jobs: living ones first, then by the start of the newest run.
pub(crate) fn jobs(picture: &NodePicture, ended: &EndedRanks) -> Vec<JobRow> {
    let mut all: BTreeMap<String, Gathered> = BTreeMap::new();
    let runs: BTreeMap<&Path, &RunRow> = picture.runs.iter().map(|run| (&*run.path, run)).collect();
    for row in &picture.ranks {
        let Some(run) = runs.get(&*row.run) else { continue };
        let key = if run.has_job_id { run.job.to_string() } else { run.path.to_string_lossy().into_owned() };
        let job = all.entry(key).or_default();
        job.begin(&run.job, run.started_at_ns, row.world_size, &run.path);
        job.living.push((row.slot, living_rank(row)));
    }
    for run in ended.runs.values() {
        let path: Arc<Path> = Arc::from(run.row.path.as_path());
        for rank in &run.ranks {
            let job = all.entry(key_of(run)).or_default();
            let name = run.job_id.as_deref().unwrap_or(&run.row.program);
            job.begin(name, run.row.started_at_ns, Some(rank.world_size), &path);
            job.take_ended(rank, &path);
        }
    }
    let mut jobs: Vec<JobRow> = all.into_iter().map(|(key, job)| job.finish(key)).collect();
    jobs.sort_by_key(|job| std::cmp::Reverse((job.is_living, job.started_at_ns)));
    jobs
}

impl Gathered {
    fn begin(&mut self, name: &str, started_at_ns: Option<i64>, world_size: Option<i64>, run: &Arc<Path>) {
        if self.row.name.is_empty() {
            name.clone_into(&mut self.row.name);
        }
        self.row.started_at_ns = self.row.started_at_ns.max(started_at_ns);
        let world_size = world_size.and_then(|size| u64::try_from(size).ok()).unwrap_or(1);
        self.row.world_size = self.row.world_size.max(world_size);
        self.runs.insert(Arc::clone(run));
    }

    fn take_ended(&mut self, rank: &EndedRank, run: &Arc<Path>) {
        let found = ended_rank(rank, run);
        let (newest, count, row) =
            self.ended.entry(rank.rank).or_insert_with(|| (rank.started_at_ns, 0, found.clone()));
        *count += 1;
        if rank.started_at_ns >= *newest {
            (*newest, *row) = (rank.started_at_ns, found);
        }
    }

    fn finish(mut self, key: String) -> JobRow {
        let mut job = self.row;
        job.key = key;
        job.is_living = !self.living.is_empty();
        job.runs = self.runs.len();
        self.living.sort_by_key(|(slot, rank)| (rank.rank, *slot));
        let earlier: BTreeMap<i64, u64> =
            self.ended.iter().map(|(rank, (_, count, _))| (*rank, *count)).collect();
        for (_, mut rank) in self.living {
            rank.attempts += earlier.get(&rank.rank).copied().unwrap_or(0);
            self.ended.remove(&rank.rank);
            job.ranks.push(rank);
        }
        for (_, count, mut rank) in self.ended.into_values() {
            rank.attempts = count;
            job.ranks.push(rank);
        }
        job.ranks.sort_by_key(|rank| rank.rank);
        let mut there: Vec<u64> = job.ranks.iter().filter_map(|rank| u64::try_from(rank.rank).ok()).collect();
        there.dedup();
        job.missing = missing_ranks(&there, job.world_size);
        job.is_of_devices = job.ranks.iter().any(|rank| rank.device_memory.peak.is_some_and(|peak| peak > 0));
        mark_outliers(&mut job);
        job
    }
}

fn mark_outliers(job: &mut JobRow) {
    let (at, peaks): (Vec<usize>, Vec<f64>) =
        (0..job.ranks.len()).filter_map(|at| Some((at, job.memory(&job.ranks[at]).peak? as f64))).unzip();
    let Some(found) = outlying(&peaks) else { return };
    job.typical_peak = Some(found.centre as u64);
    for index in found.indices {
        job.ranks[at[index]].is_outlier = true;
    }
}

fn living_rank(row: &RankRow) -> JobRank {
    let held = row.devices.iter().filter_map(|device| device.now.held()).reduce(u64::saturating_add);
    let rates = row.devices.iter().filter_map(|device| device.growth);
    let times = row.devices.iter().filter_map(|device| device.time_to_limit);
    JobRank {
        rank: row.rank,
        host: row.host.clone(),
        run: Arc::clone(&row.run),
        pid: row.pid,
        state: if row.is_silent { "silent" } else { "running" },
        verdict: None,
        attempt: row.attempt,
        attempts: 1,
        host_memory: RankMemory {
            now: row.resident,
            peak: row.peak,
            growth: row.growth,
            time_to_limit: row.time_to_limit,
            history: row.history.clone(),
        },
        device_memory: RankMemory {
            now: held,
            peak: row.device_history.as_ref().and_then(|history| history.peak()).max(held),
            growth: rates.reduce(|a, b| a + b),
            time_to_limit: times.min_by(f64::total_cmp),
            history: row.device_history.clone(),
        },
        is_outlier: false,
    }
}

fn ended_rank(rank: &EndedRank, run: &Arc<Path>) -> JobRank {
    let (host, device) = match &rank.memory {
        Some((host, device)) => (Some(Arc::clone(host)), Some(Arc::clone(device))),
        None => (None, None),
    };
    let peak = |history: &Option<Arc<History>>| history.as_ref().and_then(|history| history.peak());
    JobRank {
        rank: rank.rank,
        host: Some(Arc::clone(&rank.host)),
        run: Arc::clone(run),
        pid: rank.pid,
        state: rank.state,
        verdict: rank.verdict.clone(),
        attempt: rank.attempt,
        attempts: 1,
        host_memory: RankMemory {
            peak: peak(&host).max(rank.peak_rss_bytes),
            history: host,
            ..RankMemory::default()
        },
        device_memory: RankMemory { peak: peak(&device), history: device, ..RankMemory::default() },
        is_outlier: false,
    }
}
