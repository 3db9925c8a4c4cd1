//! The kills that the kernel's log has since a run began, and which of them hit a process of it.
//!
//! The log counts processes by the machine's first PID namespace. A process of a container has another number there: it is found by its name, the moment and
//! the limit, and where none fits the log says nothing about it.

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use stormlog_collect::host::HostFacts;
use stormlog_collect::kernel_log::{KernelLog, OomKill};
use stormlog_liveness::INITIAL_NAMESPACE;
use stormlog_model::{Counter, Event, Record};
use stormlog_postmortem::verdict::kernel::KernelKill;
use stormlog_store::wall_ns;

use super::kernel::kernel_kill;
use super::last_look::is_of_process;

/// The log's clock and the others are not quite the same.
const MARGIN_US: u64 = 2_000_000;

/// Kills while a run lasted.
pub(super) struct KernelKills {
    kills: Vec<OomKill>,
    /// Whether the run's process numbers are those of the log.
    is_by_number: bool,
    /// Microseconds between 1970 and the start of the log's clock.
    boot_us: u64,
}

impl KernelKills {
    /// `None` when the log cannot say: after a restart, on another machine, or where it may not be read.
    pub(super) fn during(record: &Record) -> Option<Self> {
        let supervisor = record.get("supervisor");
        let boot = supervisor.and_then(|supervisor| supervisor.get("boot_id")?.as_str());
        if boot.is_none() || boot != HostFacts::read().boot_id.as_deref() {
            return None;
        }
        let started_us = record.get("started_at_ns").and_then(Value::as_u64)? / 1000;
        let up = clock_gettime(ClockId::Monotonic);
        let up_us = u64::try_from(up.tv_sec).ok()?.saturating_mul(1_000_000) + up.tv_nsec as u64 / 1000;
        let boot_us = (wall_ns() / 1000).saturating_sub(up_us);
        let since_us = started_us.saturating_sub(boot_us + MARGIN_US);
        let kills = KernelLog::kills_since(since_us).ok()?.kills;
        let namespace = supervisor.and_then(|supervisor| supervisor.get("pid_namespace")?.as_u64());
        Some(KernelKills {
            kills,
            is_by_number: namespace.is_none_or(|found| found == INITIAL_NAMESPACE),
            boot_us,
        })
    }

    /// The kill of a process, whose events these are.
    pub(super) fn of(&self, pid: u32, events: &[Event]) -> Option<&OomKill> {
        if self.is_by_number {
            return self.kills.iter().find(|kill| kill.pid == pid);
        }
        let last = events.iter().rev().find(|event| is_of_process(event))?;
        let comm = last.metadata.map.get("comm")?.as_str()?;
        let last_us = last.timestamp_ns / 1000;
        let latest_us = last_us + last.head.sampling_interval_ms * 2000 + MARGIN_US;
        let is_then = |kill: &&OomKill| {
            let at_us = kill.at_us.map(|at| at + self.boot_us);
            at_us.is_some_and(|at| (last_us.saturating_sub(MARGIN_US)..=latest_us).contains(&at))
        };
        let limit = last.counter(Counter::Total);
        // One for the whole machine has no limit in the log.
        let is_limit = |kill: &&OomKill| kill.limit.is_none() || limit.is_none() || kill.limit == limit;
        let fits = |kill: &&OomKill| kill.comm == comm && is_then(kill) && is_limit(kill);
        self.kills.iter().find(fits)
    }

    /// The log as evidence about a process; `None` where its silence means nothing.
    pub(super) fn facts(&self, pid: u32, own: Option<&OomKill>) -> Option<Vec<KernelKill>> {
        match (self.is_by_number, own) {
            (true, _) => Some(self.kills.iter().map(kernel_kill).collect()),
            (false, Some(kill)) => Some(vec![KernelKill { pid: pid.into(), ..kernel_kill(kill) }]),
            (false, None) => None,
        }
    }
}
