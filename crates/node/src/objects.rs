//! What exists once on a node, however many ranks use it: the machine, cgroups. Read from the kernel's files, not from the programs.

use stormlog_collect::Roots;
use stormlog_collect::cgroup::{CgroupEvents, LevelMemory, MemoryCgroup};
use stormlog_collect::host::HostReader;
use stormlog_collect::pressure::{Pressure, host_memory_pressure};

use crate::picture::HostRow;

/// The cgroup that limits a run, or its own where none does.
#[derive(Debug, Clone)]
pub struct Cgroup {
    /// As the hierarchy names it.
    pub path: String,
    /// Bytes charged to it, the page cache included.
    pub usage: Option<u64>,
    /// The same without inactive file pages.
    pub working_set: Option<u64>,
    /// Bytes that it may use.
    pub limit: Option<u64>,
    /// Most bytes that were charged to it.
    pub peak: Option<u64>,
    /// Hits of its limits, and kills.
    pub events: CgroupEvents,
    /// Time that its tasks waited for memory; `None` where another level limits.
    pub pressure: Option<Pressure>,
}

impl Cgroup {
    /// Reads the level that the limit is set at.
    pub(crate) fn read(group: &MemoryCgroup) -> Self {
        let memory = group.read();
        let limiting = memory.effective_limit.as_ref().and_then(|limit| limit.directory.clone());
        let directory = limiting.unwrap_or_else(|| group.directory.clone());
        let found = memory.levels.iter().find(|level| level.directory == directory);
        let level = found.cloned().unwrap_or_else(LevelMemory::default);
        let below = directory.strip_prefix(&group.mount).ok();
        let path = match (directory == group.directory, below) {
            (true, _) | (_, None) => group.path.clone(),
            (false, Some(below)) => format!("/{}", below.display()),
        };
        let is_own = directory == group.directory;
        Cgroup {
            path,
            usage: level.usage,
            working_set: level.working_set(),
            limit: level.limit.and_then(stormlog_collect::cgroup::Limit::bytes),
            peak: level.peak,
            events: level.events,
            pressure: memory.pressure.filter(|_| is_own),
        }
    }

    /// Whether it is the root of the hierarchy, which is the machine.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.path == "/" || self.path.is_empty()
    }

    /// Its counts by the kernel's words; v1 calls hits of the limit `failcnt`.
    #[must_use]
    pub fn counts(&self) -> [(&'static str, Option<u64>); 6] {
        let CgroupEvents { low, high, max, oom, oom_kill, oom_group_kill, failcnt } = self.events;
        [
            ("low", low),
            ("high", high),
            ("max", max.or(failcnt)),
            ("oom", oom),
            ("oom_kill", oom_kill),
            ("oom_group_kill", oom_group_kill),
        ]
    }
}

/// The machine.
#[derive(Debug, Default)]
pub(crate) struct Host {
    reader: Option<HostReader>,
    pub(crate) now: HostRow,
}

impl Host {
    /// Reads it.
    pub(crate) fn look(&mut self) {
        if self.reader.is_none() {
            self.reader = HostReader::open().ok();
        }
        let memory = self.reader.as_mut().and_then(|reader| reader.memory().ok());
        self.now = HostRow {
            total: memory.and_then(|memory| memory.total),
            available: memory.and_then(|memory| memory.available),
            swap_total: memory.and_then(|memory| memory.swap_total),
            swap_used: memory.and_then(|memory| memory.swap_used()),
            pressure: host_memory_pressure(&Roots::default()).ok().flatten(),
        };
    }
}
