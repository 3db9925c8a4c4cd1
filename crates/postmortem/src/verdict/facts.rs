//! What is known about a death, as plain data, filled in by the reader of counters, logs and wait statuses.
//!
//! Unknown is `None`: an unread counter must never look like one that did not move.

use super::kernel::KernelKill;
use crate::Cause;
use crate::bundle::HeldBy;

/// How the process ended, as its parent saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It exited with that status.
    Exited(i32),
    /// A signal ended it.
    Signaled(i32),
    /// It is gone and no process waited for it.
    Vanished,
    /// It still runs (a bundle made at an exception).
    Running,
}

/// An exception that was reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedException {
    /// `MemoryError`, `torch.OutOfMemoryError`.
    pub type_name: String,
    /// `str(exc)`.
    pub message: String,
    /// What [`crate::classify`] made of it; `None` when memory did not run out.
    pub cause: Option<Cause>,
    /// Whether it ended the program. One that was caught explains nothing that comes later.
    pub is_fatal: bool,
}

/// A request that got no memory, as the recording library saw it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FailedRequest {
    /// Of a device's memory; else of the host's.
    pub is_device: bool,
    /// How much was requested.
    pub bytes: u64,
    /// Time between it and the end of the process.
    pub seconds_before: f64,
}

/// A counter before and after.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
    /// At the latest look at which the program was known to live; the later, the better the proof.
    pub before: Option<u64>,
    /// After its end.
    pub after: Option<u64>,
}

impl Change {
    /// How far it rose; `None` when either reading is missing, or it was reset in between.
    pub fn rise(self) -> Option<u64> {
        self.after?.checked_sub(self.before?)
    }

    pub(super) fn rose(self) -> bool {
        self.rise().is_some_and(|rise| rise > 0)
    }
}

/// A cgroup the process was in, or one above it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CgroupFacts {
    /// `/train`.
    pub path: String,
    /// Its limit; `None` when there is none or it is unknown.
    pub limit_bytes: Option<u64>,
    /// Usage at the last look.
    pub usage_bytes: Option<u64>,
    /// What the usage would come to until the next look, at the pace of the last ones; `None` where the counters were read after the end.
    pub soon_bytes: Option<u64>,
    /// `oom`: how often its own limit was met with nothing to reclaim.
    pub oom: Change,
    /// `oom_kill`: processes in it killed by any OOM killer, the machine's included.
    pub oom_kill: Change,
    /// Kills among those that are known to have been other processes.
    pub kills_elsewhere: u64,
}

/// The machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// Memory of the machine.
    pub total_bytes: Option<u64>,
    /// What was available at the last look.
    pub available_bytes: Option<u64>,
    /// `oom_kill` of `/proc/vmstat` over the last seconds: every OOM kill, of cgroups as well.
    pub oom_kill: Change,
}

/// Growth of the floor before the end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Growth {
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// 0 to 1.
    pub confidence: f64,
    /// Since when.
    pub since_ns: u64,
}

/// Where a signal came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sender {
    /// A process above it in the tree: `its parent, main.py (pid 7)`.
    Above {
        /// The process.
        pid: u64,
        /// Its program, where that is known.
        program: Option<String>,
        /// Whether it is the parent itself.
        is_parent: bool,
    },
    /// The process itself.
    Itself,
    /// Another process of the run.
    Run {
        /// The process.
        pid: u64,
    },
    /// It was sent to the supervisor of the run, which passed it on, or to the whole group: by a terminal (`None`) or by a process.
    Supervisor {
        /// The process that sent it.
        pid: Option<u64>,
    },
}

impl Sender {
    /// Whether the program was stopped by what started it.
    pub(super) fn is_in_charge(&self) -> bool {
        matches!(self, Sender::Above { .. } | Sender::Supervisor { .. })
    }

    /// `its parent, main.py (pid 7)`.
    pub(super) fn words(&self) -> String {
        match self {
            Sender::Above { pid, program, is_parent } => {
                let relation = if *is_parent { "its parent" } else { "a process above it" };
                match program {
                    Some(program) => format!("{relation}, {program} (pid {pid})"),
                    None => format!("{relation} (pid {pid})"),
                }
            }
            Sender::Itself => "itself".to_owned(),
            Sender::Run { pid } => format!("process {pid} of the same run"),
            Sender::Supervisor { pid: Some(pid) } => format!("process {pid}"),
            Sender::Supervisor { pid: None } => "the terminal".to_owned(),
        }
    }
}

/// Everything about a death.
#[derive(Debug, Clone, PartialEq)]
pub struct DeathFacts {
    /// `train.py`.
    pub program: String,
    /// The process.
    pub pid: u64,
    /// How long it ran.
    pub ran_seconds: Option<f64>,
    /// How it ended.
    pub ending: Ending,
    /// The last exception it reported.
    pub exception: Option<ReportedException>,
    /// The last request that got no memory.
    pub failed_request: Option<FailedRequest>,
    /// Its cgroup and those above it, its own first.
    pub cgroups: Vec<CgroupFacts>,
    /// Kills the kernel reported while it ran; `None` when its log could not be read.
    pub kernel: Option<Vec<KernelKill>>,
    /// The machine.
    pub host: HostFacts,
    /// Its address space limit.
    pub rlimit_as_bytes: Option<u64>,
    /// Resident memory at the last sample.
    pub last_rss_bytes: Option<u64>,
    /// The most address space.
    pub peak_vms_bytes: Option<u64>,
    /// The most resident memory.
    pub peak_rss_bytes: Option<u64>,
    /// Growth before the end.
    pub growth: Option<Growth>,
    /// Who held what, largest first.
    pub held_by: Vec<HeldBy>,
    /// Where the signal that ended it came from, where that is known.
    pub sender: Option<Sender>,
    /// It exited in order and no exception ended it: its exit status is its own choice, as `sys.exit(3)` is.
    pub has_chosen_status: bool,
    /// Whether the program used a GPU; `None` when unknown.
    pub uses_gpu: Option<bool>,
}

impl DeathFacts {
    /// Nothing known but the ending.
    pub fn of(program: &str, pid: u64, ending: Ending) -> Self {
        DeathFacts {
            program: program.to_owned(),
            pid,
            ran_seconds: None,
            ending,
            exception: None,
            failed_request: None,
            cgroups: Vec::new(),
            kernel: None,
            host: HostFacts::default(),
            rlimit_as_bytes: None,
            last_rss_bytes: None,
            peak_vms_bytes: None,
            peak_rss_bytes: None,
            growth: None,
            held_by: Vec::new(),
            sender: None,
            has_chosen_status: false,
            uses_gpu: None,
        }
    }
}
