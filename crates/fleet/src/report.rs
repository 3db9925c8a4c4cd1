//! The report: plain values, the same for the terminal, JSON and the page. The names of the fields are a promise to scripts (docs/fleet.md).

use serde::Serialize;

/// Version of the JSON form; it only ever gains fields.
pub const SCHEMA_VERSION: u32 = 1;

/// What is known of a fleet.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    /// `stormlog.fleet`.
    pub format: &'static str,
    /// See [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The answer, at most eight lines.
    pub headline: Vec<String>,
    /// How much was read.
    pub totals: Totals,
    /// The largest peak first.
    pub jobs: Vec<JobReport>,
    /// The largest difference first.
    pub outlier_ranks: Vec<OutlierRank>,
    /// The largest difference first.
    pub outlier_hosts: Vec<OutlierHost>,
    /// The most frequent first.
    pub deaths_by_cause: Vec<CauseReport>,
    /// The most frequent first.
    pub deaths_by_signature: Vec<SignatureReport>,
    /// The first death of each attempt of a job, the newest first.
    pub first_deaths: Vec<FirstDeath>,
    /// The most severe first.
    pub findings: Vec<FindingReport>,
    /// Peaks of jobs of one name over time, regressions first.
    pub trends: Vec<Trend>,
    /// What could not be read, or was read twice.
    pub problems: Problems,
}

/// How much was read.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Jobs.
    pub jobs: u64,
    /// Runs.
    pub runs: u64,
    /// Ranks, each counted once in its job.
    pub ranks: u64,
    /// Machines.
    pub hosts: u64,
    /// Processes.
    pub processes: u64,
    /// Samples.
    pub samples: u64,
    /// Deaths.
    pub deaths: u64,
    /// Jobs of which a process ran out of memory and died.
    pub memory_death_jobs: u64,
    /// First sample.
    pub first_at: Option<String>,
    /// Last sample.
    pub last_at: Option<String>,
}

/// A job.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct JobReport {
    /// The launcher's id, else that of its run.
    pub job_id: String,
    /// What jobs of its kind have in common.
    pub name: Option<String>,
    /// Version label.
    pub version: Option<String>,
    /// First sample.
    pub started_at: Option<String>,
    /// Last sample.
    pub ended_at: Option<String>,
    /// Ranks that it should have.
    pub world_size: u64,
    /// Ranks that were recorded.
    pub ranks_seen: u64,
    /// How many were not.
    pub missing_count: u64,
    /// The first of them.
    pub missing_ranks: Vec<u64>,
    /// Ranks that two machines or runs claimed at one time.
    pub duplicated_ranks: Vec<i64>,
    /// Times that the job was started again.
    pub restarts: u64,
    /// Machines.
    pub hosts: u64,
    /// Runs.
    pub runs: u64,
    /// Deaths of its processes.
    pub deaths: u64,
    /// Host memory; `None` where none was recorded.
    pub host_memory: Option<MemoryReport>,
    /// Device memory; `None` where none was recorded.
    pub device_memory: Option<MemoryReport>,
}

impl JobReport {
    /// The memory that its ranks are compared by: that of devices where there is one.
    #[must_use]
    pub fn main_memory(&self) -> Option<(&'static str, &MemoryReport)> {
        let device = self.device_memory.as_ref().map(|memory| ("device", memory));
        device.or_else(|| self.host_memory.as_ref().map(|memory| ("host", memory)))
    }
}

/// One memory of a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct MemoryReport {
    /// The highest peak of a rank; of the launcher where no rank was recorded.
    pub peak_bytes: u64,
    /// Of which rank; `None` for the launcher.
    pub peak_rank: Option<i64>,
    /// On which machine.
    pub peak_host: Option<String>,
    /// When.
    pub peak_at: Option<String>,
    /// In which phase.
    pub peak_phase: Option<String>,
    /// The middle of the ranks' peaks.
    pub median_peak_bytes: u64,
    /// All ranks' peaks together.
    pub sum_of_peaks_bytes: u64,
    /// The highest peak of a process without a rank.
    pub launcher_peak_bytes: Option<u64>,
    /// Host: the limits of its machines together. Device: the sizes of its devices together.
    pub limit_bytes: Option<u64>,
    /// Host: limits minus peaks. Device: reserved minus allocated.
    pub waste_bytes: Option<u64>,
}

/// A rank whose peak is unlike those of the other ranks.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct OutlierRank {
    /// Its job.
    pub job_id: String,
    /// In which attempt.
    pub attempt: Option<i64>,
    /// The rank.
    pub rank: i64,
    /// Its machine.
    pub host: Option<String>,
    /// `host` or `device`.
    pub memory: &'static str,
    /// Its peak.
    pub peak_bytes: u64,
    /// The middle of all ranks.
    pub median_bytes: u64,
    /// Peak minus median.
    pub difference_bytes: i64,
    /// The difference beyond which a rank is unlike the others.
    pub threshold_bytes: u64,
    /// The phase of its peak.
    pub phase: Option<String>,
    /// The phase in which most other ranks peak.
    pub usual_phase: Option<String>,
    /// The line that keeps more than in the other ranks.
    pub line: Option<String>,
    /// How much more.
    pub line_more_bytes: Option<u64>,
}

/// A machine whose ranks are unlike those of the other machines.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct OutlierHost {
    /// Of the job.
    pub job_id: String,
    /// The attempt.
    pub attempt: Option<i64>,
    /// The machine.
    pub host: String,
    /// `host` or `device`.
    pub memory: &'static str,
    /// Ranks on it.
    pub ranks: u64,
    /// The middle of their peaks.
    pub median_bytes: u64,
    /// The middle of all machines.
    pub usual_bytes: u64,
    /// The difference.
    pub difference_bytes: i64,
}

/// Deaths of one cause.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CauseReport {
    /// The cause.
    pub cause: String,
    /// Whether memory ended them.
    pub is_memory: bool,
    /// How many.
    pub count: u64,
    /// Of how many jobs.
    pub jobs: u64,
    /// On how many machines.
    pub hosts: u64,
    /// The last one.
    pub last_at: Option<String>,
}

/// Deaths of one signature: the same trouble, whatever job it happened in.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SignatureReport {
    /// The fingerprint.
    pub signature: String,
    /// The cause.
    pub cause: String,
    /// How many.
    pub count: u64,
    /// In which jobs, the first of them.
    pub jobs: Vec<String>,
    /// In how many.
    pub job_count: u64,
    /// Machines.
    pub host_count: u64,
    /// The first.
    pub first_at: Option<String>,
    /// The last.
    pub last_at: Option<String>,
    /// What happened, of the last one.
    pub sentence: Option<String>,
    /// The line that held most, or that failed.
    pub line: Option<String>,
}

/// The first death of an attempt.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FirstDeath {
    /// The job.
    pub job_id: String,
    /// The attempt.
    pub attempt: Option<i64>,
    /// False where ranks of several machines died within the difference of their clocks.
    pub is_certain: bool,
    /// The first, then those that may have been before it.
    pub candidates: Vec<DeathReport>,
}

/// A death.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DeathReport {
    /// The rank.
    pub rank: Option<i64>,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: i64,
    /// When, by the clock of its machine.
    pub at: Option<String>,
    /// The cause.
    pub cause: String,
    /// What happened.
    pub sentence: Option<String>,
}

/// Findings of one kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FindingReport {
    /// The kind.
    pub kind: String,
    /// The severity.
    pub severity: String,
    /// How many.
    pub count: u64,
    /// In how many jobs.
    pub jobs: u64,
    /// Of how many ranks.
    pub ranks: u64,
    /// One of them.
    pub title: String,
}

/// Jobs of one name and number of ranks over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Trend {
    /// The name.
    pub name: String,
    /// Ranks of each.
    pub world_size: u64,
    /// `host` or `device`.
    pub memory: &'static str,
    /// Whether the newest takes more than those before it.
    pub is_regression: bool,
    /// The oldest first.
    pub points: Vec<TrendPoint>,
}

/// A job in a trend.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TrendPoint {
    /// The job.
    pub job_id: String,
    /// Its version label.
    pub version: Option<String>,
    /// When it began.
    pub started_at: Option<String>,
    /// The highest peak of a rank.
    pub peak_bytes: u64,
    /// The middle of the jobs before it; `None` for the first.
    pub before_bytes: Option<u64>,
    /// Whether it takes more than those before it.
    pub is_regression: bool,
}

/// What could not be read, or was read twice.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Problems {
    /// Files that are torn or damaged, and directories that may not be read.
    pub torn_count: u64,
    /// The first of them, each with what is wrong.
    pub torn_files: Vec<String>,
    /// Directories that are copies of others.
    pub copy_count: u64,
    /// The first of them.
    pub copies: Vec<String>,
    /// What else limits the report.
    pub notes: Vec<String>,
}

/// Items named in a list; more are counted.
pub const MOST_NAMED: usize = 16;

impl Problems {
    /// Notes a file that could not be read, or not to its end.
    pub fn torn(&mut self, what: String) {
        self.torn_count += 1;
        self.torn_files.push(what);
    }

    /// Notes a copy.
    pub fn copy(&mut self, what: String) {
        self.copy_count += 1;
        self.copies.push(what);
    }

    /// Puts what another reader noted beside it.
    pub fn merge(&mut self, other: Problems) {
        self.torn_count += other.torn_count;
        self.torn_files.extend(other.torn_files);
        self.copy_count += other.copy_count;
        self.copies.extend(other.copies);
        self.notes.extend(other.notes);
        self.bound(64 * MOST_NAMED);
    }

    /// Sorts the lists and drops what is beyond `most`.
    pub fn bound(&mut self, most: usize) {
        for list in [&mut self.torn_files, &mut self.copies, &mut self.notes] {
            list.sort_unstable();
            list.dedup();
            list.truncate(most);
        }
    }
}
