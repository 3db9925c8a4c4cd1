//! A process that this one did not start: is it there, has it ended, and what is known of how.
//!
//! Its exit status belongs to its parent: older kernels show it only while the process waits for that parent. Where it
//! was missed, the kernel's log and the cgroup's counters are all there is, and where they are silent nothing is claimed.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::geteuid;
use serde_json::Value;
use stormlog_collect::CollectError;
use stormlog_collect::kernel_log::{DEFAULT_RECORDS, KernelLog, OomKill};
use stormlog_collect::process::{ProcessReader, ProcessStat};
use stormlog_model::{Identity, Problem};
use stormlog_pidfd::Pidfd;
use stormlog_postmortem::verdict::{Change, DeathFacts, Ending, Verdict, judge};

use crate::environ::Environ;
use crate::facts::host;
use crate::groups::{GroupId, Groups};
use stormlog_catalog::run::kernel_kill;

/// How long to sleep between looks where the kernel cannot wake us.
const LOOK: Duration = Duration::from_millis(20);

/// A process being watched from outside.
#[derive(Debug)]
pub struct Attached {
    reader: ProcessReader,
    name: String,
    pidfd: Option<Pidfd>,
    sees_status: bool,
    groups: Groups,
    group: GroupId,
    kernel_log: Option<KernelLog>,
    kills: Vec<OomKill>,
    since: Instant,
}

/// The end of a process that was watched from outside.
#[derive(Debug)]
pub struct Departure {
    /// What the evidence means; `None` when there is none.
    pub verdict: Option<Verdict>,
    /// One sentence.
    pub sentence: String,
}

impl Attached {
    /// Begins to watch a process; an error when there is none of that number.
    pub fn open(pid: u32) -> Result<Self, CollectError> {
        let mut reader = ProcessReader::open(pid)?;
        let stat = reader.stat()?;
        if stat.has_exited() {
            return Err(CollectError::ProcessGone { pid });
        }
        // Opened by number: only after the reader, which then still answers if the number is still this process's.
        let pidfd = Pidfd::open(pid).ok();
        if reader.stat().is_err() {
            return Err(CollectError::ProcessGone { pid });
        }
        let owner = std::fs::metadata(format!("/proc/{pid}")).map(|directory| directory.uid());
        let own = geteuid();
        let mut groups = Groups::default();
        let group = groups.find(pid).unwrap_or_default();
        Ok(Attached {
            pidfd,
            sees_status: own.is_root() || owner.is_ok_and(|owner| owner == own.as_raw()),
            groups,
            group,
            kernel_log: KernelLog::from_now().ok(),
            kills: Vec::new(),
            since: Instant::now(),
            name: stat.comm,
            reader,
        })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.reader.pid()
    }

    /// Its name when the watch began.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Who it is in a distributed job: what is given explicitly first, then its own environment, as its launcher set it.
    pub fn identity(&self, explicit: [Option<&Value>; 4]) -> Result<Identity, Problem> {
        Environ::of(self.pid(), false).identity(explicit)
    }

    /// Waits up to `longest` for its end. A signal to us ends the wait early.
    pub fn wait(&mut self, longest: Duration) -> Option<Departure> {
        let found = self.groups.find(self.pid());
        if let Some(pidfd) = &self.pidfd {
            let timeout = Timespec::try_from(longest).ok();
            // Interrupted by a signal is as good as waited: the caller looks again.
            let _ = poll(&mut [PollFd::new(pidfd, PollFlags::IN)], timeout.as_ref());
        } else {
            std::thread::sleep(longest.min(LOOK));
        }
        match self.reader.stat() {
            Ok(stat) if stat.has_exited() => Some(self.depart(self.ending(&stat))),
            Err(error) if error.is_gone() => Some(self.depart(self.remembered())),
            // Still there, so what was found before was its own.
            _ => {
                self.group = found.unwrap_or(self.group);
                None
            }
        }
    }

    /// How one that was reaped ended, where the kernel remembers it for us.
    fn remembered(&self) -> Ending {
        match self.pidfd.as_ref().and_then(Pidfd::exit_status) {
            Some(status) => ended(status),
            None => Ending::Vanished,
        }
    }

    /// How one ended that still waits for its parent.
    fn ending(&self, stat: &ProcessStat) -> Ending {
        match stat.exit_code {
            // A reader without permission sees 0, too.
            Some(status) if status != 0 || self.sees_status => ended(ExitStatus::from_raw(status)),
            _ => Ending::Vanished,
        }
    }

    fn depart(&mut self, ending: Ending) -> Departure {
        if let Some(report) = self.kernel_log.as_mut().and_then(|log| log.read(DEFAULT_RECORDS).ok()) {
            self.kills.extend(report.kills);
        }
        let mut facts = DeathFacts::of(&self.name, self.pid().into(), ending);
        facts.cgroups = self.groups.look(self.group).map(|(_, facts)| facts).unwrap_or_default();
        facts.kernel = self.kernel_log.is_some().then(|| self.kills.iter().map(kernel_kill).collect());
        // The machine's count of OOM kills was not read while it lived.
        facts.host = host(Change::default());
        let verdict = judge(&facts);
        let watched = self.since.elapsed().as_secs_f64();
        let who = format!("{} (pid {})", self.name, self.pid());
        match ending {
            Ending::Exited(0) => Departure {
                verdict: Some(verdict),
                sentence: format!("{who} exited 0 after {watched:.1} s of sampling."),
            },
            // Others share its cgroup: a kill there is evidence only together with a death by SIGKILL or the log's word.
            Ending::Vanished if !self.is_named_by_the_kernel() => Departure {
                verdict: None,
                sentence: format!(
                    "{who} ended after {watched:.1} s of sampling; its parent collected the exit status, so the cause is unknown. Nothing shows an OOM kill."
                ),
            }
            .or_suspected(verdict),
            _ => Departure { sentence: verdict.sentence.clone(), verdict: Some(verdict) },
        }
    }

    fn is_named_by_the_kernel(&self) -> bool {
        self.kills.iter().any(|kill| kill.pid == self.pid())
    }
}

impl Departure {
    /// Replaces the verdict by what the OOM counters suggest, marked as uncertain, if they point to memory.
    fn or_suspected(self, verdict: Verdict) -> Self {
        if !verdict.cause.is_memory() {
            return self;
        }
        Departure { sentence: verdict.sentence.clone(), verdict: Some(verdict) }
    }
}

fn ended(status: ExitStatus) -> Ending {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Exited(code),
        (None, Some(signal)) => Ending::Signaled(signal),
        (None, None) => Ending::Vanished,
    }
}
