//! The readings of `stormlog-collect` as the facts a verdict is made from.

use std::path::Path;

use stormlog_catalog::run::exceptions::Reported;
use stormlog_collect::Roots;
use stormlog_collect::cgroup::{LevelChange, Limit, OomReport};
use stormlog_collect::host::{HostReader, host_oom_kills};
use stormlog_postmortem::verdict::{CgroupFacts, Change, HostFacts};

use crate::outcome::Raised;

/// What of an exception is shown in a line.
pub(crate) fn spelt(reported: &Reported) -> Raised {
    let message: String = reported.message.lines().next().unwrap_or_default().chars().take(200).collect();
    let name = reported.full_name();
    let text = if message.is_empty() { name } else { format!("{name}: {message}") };
    let place = reported.frames.last().map(|(file, line, function)| format!("{file}:{line} {function}"));
    let thread = reported.thread.clone().filter(|_| !reported.is_in_main_thread());
    Raised { text, place, thread }
}

/// How often version 1 counted its limit hit. Not every kernel counts a limit on memory and swap together, so none is not a sign.
fn hits(level: &LevelChange) -> Option<u64> {
    level.events.failcnt.filter(|count| *count > 0 && level.limit.is_some())
}

/// Each level of a group, named by its place below `mount`; `elsewhere` of the kills in it are known to have hit others.
pub(crate) fn cgroups(report: &OomReport, mount: &Path, elsewhere: u64) -> Vec<CgroupFacts> {
    let name = |directory: &Path| match directory.strip_prefix(mount) {
        Ok(place) => format!("/{}", place.display()),
        Err(_) => directory.display().to_string(),
    };
    let change = |rise: Option<u64>| Change { before: rise.map(|_| 0), after: rise };
    let facts = |(level, change_of): (usize, &LevelChange)| CgroupFacts {
        soon_bytes: None,
        path: name(&change_of.directory),
        limit_bytes: change_of.limit.and_then(Limit::bytes),
        usage_bytes: change_of.peak.or(change_of.usage),
        oom: change(change_of.events.oom.or(hits(change_of))),
        oom_kill: change(change_of.events.oom_kill),
        kills_elsewhere: if level == 0 { elsewhere } else { 0 },
    };
    report.levels.iter().enumerate().map(facts).collect()
}

pub(crate) fn host(kills: Change) -> HostFacts {
    let memory = HostReader::open().and_then(|mut reader| reader.memory()).unwrap_or_default();
    HostFacts { total_bytes: memory.total, available_bytes: memory.available, oom_kill: kills }
}

/// The machine's count of OOM kills, looked at now and then, so that at a death the rise of the last seconds is known.
#[derive(Debug, Default)]
pub(crate) struct HostKills {
    /// The last look and the one before it: the last may have come after the kill and before the death was reported.
    looks: [Option<u64>; 2],
}

impl HostKills {
    pub(crate) fn look(&mut self) {
        let [last, _] = self.looks;
        let now = host_oom_kills(&Roots::default());
        self.looks = [now, last.or(now)];
    }

    pub(crate) fn change(&self) -> Change {
        Change { before: self.looks[1], after: host_oom_kills(&Roots::default()) }
    }
}
