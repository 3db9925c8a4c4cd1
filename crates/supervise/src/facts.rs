//! The readings of `stormlog-collect` as the facts a verdict is made from.

use stormlog_collect::cgroup::{LevelChange, Limit, OomReport};
use stormlog_collect::host::HostReader;
use stormlog_collect::kernel_log::{Constraint, OomKill};
use stormlog_record::bundle::HeldBy;
use stormlog_record::verdict::kernel::{KernelKill, Scope};
use stormlog_record::verdict::{CgroupFacts, Change, HostFacts};

use crate::exceptions::Reported;
use crate::watch::Watched;

/// Who held what at the end, when there was more than one process to hold it.
pub(crate) fn held_by(alive: &[Watched]) -> Vec<HeldBy> {
    const MOST: usize = 10;
    let row = |watched: &Watched| {
        let place = format!("{} (pid {}, rank {})", watched.comm, watched.pid, watched.summary.rank);
        Some(HeldBy { place, bytes: watched.last_rss?, note: None })
    };
    let mut rows: Vec<HeldBy> = alive.iter().filter_map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    rows.truncate(if rows.len() > 1 { MOST } else { 0 });
    rows
}

pub(crate) fn full_name(reported: &Reported) -> String {
    match reported.module.as_str() {
        "" | "builtins" | "__main__" => reported.type_name.clone(),
        module => format!("{module}.{}", reported.type_name),
    }
}

/// Type and message in one line, and the line it was raised on.
pub(crate) fn spelt(reported: &Reported) -> (String, Option<String>) {
    let message: String = reported.message.lines().next().unwrap_or_default().chars().take(200).collect();
    let name = full_name(reported);
    let text = if message.is_empty() { name } else { format!("{name}: {message}") };
    let place = reported.frames.last().map(|(file, line, function)| format!("{file}:{line} {function}"));
    (text, place)
}

pub(crate) fn cgroups(report: &OomReport, elsewhere: u64) -> Vec<CgroupFacts> {
    let change = |rise: Option<u64>| Change { before: rise.map(|_| 0), after: rise };
    let facts = |(level, change_of): (usize, &LevelChange)| CgroupFacts {
        path: change_of.directory.display().to_string(),
        limit_bytes: change_of.limit.and_then(Limit::bytes),
        usage_bytes: change_of.peak.or(change_of.usage),
        // Version 1 counts the times the limit was hit, which is the same sign.
        oom: change(change_of.events.oom.or(change_of.events.failcnt.filter(|_| change_of.limit.is_some()))),
        oom_kill: change(change_of.events.oom_kill),
        kills_elsewhere: if level == 0 { elsewhere } else { 0 },
    };
    report.levels.iter().enumerate().map(facts).collect()
}

pub(crate) fn kernel_kill(kill: &OomKill) -> KernelKill {
    KernelKill {
        pid: kill.pid.into(),
        name: Some(kill.comm.clone()),
        scope: match kill.constraint {
            Some(Constraint::Memcg) => Some(Scope::Cgroup),
            Some(Constraint::None | Constraint::Cpuset | Constraint::MemoryPolicy) => Some(Scope::Global),
            None => None,
        },
        cgroup: kill.cgroup.clone(),
        rss_bytes: kill.rss(),
    }
}

pub(crate) fn host() -> HostFacts {
    let memory = HostReader::open().and_then(|mut reader| reader.memory()).unwrap_or_default();
    HostFacts { total_bytes: memory.total, available_bytes: memory.available, ..HostFacts::default() }
}
