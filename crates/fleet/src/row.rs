//! The rows that a fleet report is made of, whatever they were read from: a lake's tables or run directories.
//!
//! Unknown is `None`. Times are microseconds since 1970 by the clock of the host that recorded them: clocks of hosts differ by up to
//! [`CLOCK_SKEW_US`](crate::CLOCK_SKEW_US).

use std::sync::Arc;

/// The process that a row is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// The launcher's name of the job; of a run without one, the run's own id.
    pub job_id: Arc<str>,
    /// The run.
    pub run_id: Arc<str>,
    /// The machine.
    pub host: Arc<str>,
    /// Rank over the whole job; `None` of a launcher that has no rank itself.
    pub rank: Option<i64>,
    /// Number of ranks.
    pub world_size: i64,
    /// How often the launcher had restarted the job; `None` where it does not count that.
    pub attempt: Option<i64>,
    /// The process.
    pub pid: i64,
}

/// One sample of one memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample<'a> {
    /// Time.
    pub at_us: i64,
    /// Bytes that the process held of this memory: see [`Sample::held_of`].
    pub held: Option<i64>,
    /// Bytes that the allocator handed out.
    pub allocated: Option<i64>,
    /// Bytes that the allocator holds from the driver.
    pub reserved: Option<i64>,
    /// Size of the device, or the memory limit on the host.
    pub total: Option<i64>,
    /// The phase of the program.
    pub phase: Option<&'a str>,
    /// The step of the program.
    pub step: Option<i64>,
}

impl Sample<'_> {
    /// What a process holds. Host: what is resident. Device: by the driver, else what its allocator reserved, else what that handed out, else what is used
    /// of the whole device.
    #[must_use]
    pub fn held_of(
        device: i64,
        used: Option<i64>,
        by_driver: Option<i64>,
        reserved: Option<i64>,
        allocated: Option<i64>,
    ) -> Option<i64> {
        if device < 0 { used } else { by_driver.or(reserved).or(allocated).or(used) }
    }
}

/// A process.
#[derive(Debug, Clone, Default)]
pub struct ProcessRow {
    /// Which.
    pub origin: Origin,
    /// What runs of one job over time have in common.
    pub job_name: Option<String>,
    /// The version of the job: a label, a commit, an image.
    pub job_version: Option<String>,
    /// Whether it is a rank or the program of its run, rather than a launcher, a worker or a child.
    pub is_main: bool,
    /// First sample.
    pub started_us: Option<i64>,
    /// Last sample of an ended process.
    pub ended_us: Option<i64>,
    /// Most bytes resident, as the kernel counted.
    pub peak_host: Option<i64>,
}

/// The death of a process.
#[derive(Debug, Clone, Default)]
pub struct DeathRow {
    /// Of which process.
    pub origin: Origin,
    /// Time.
    pub at_us: i64,
    /// A word of `stormlog_postmortem::Cause`.
    pub cause: String,
    /// What happened, a sentence.
    pub sentence: Option<String>,
    /// The fingerprint: equal for the same trouble in every job.
    pub signature: Option<String>,
    /// The line that held most, or that failed.
    pub line: Option<String>,
}

/// Something that a rule found.
#[derive(Debug, Clone, Default)]
pub struct FindingRow {
    /// In which process, as far as the rule names one.
    pub origin: Origin,
    /// The kind of finding.
    pub kind: String,
    /// `info`, `warning` or `critical`.
    pub severity: String,
    /// One sentence.
    pub title: String,
}

/// A line that holds memory of a process.
#[derive(Debug, Clone, Default)]
pub struct HolderRow {
    /// Of which process.
    pub origin: Origin,
    /// Of a device, or of the host.
    pub is_of_device: bool,
    /// `model.py:31 build`.
    pub place: String,
    /// How much.
    pub bytes: i64,
}
