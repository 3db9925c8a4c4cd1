//! What the OOM killer did to a cgroup between two moments, and whose limit it was.
//!
//! Kills count at the group of the victim whatever killed it, the host's own OOM killer included; the sign of a cgroup's
//! limit is that level's `oom` count (v2) or `failcnt` (v1). Without such a sign it was not a limit we can see. On v1 the
//! sign is weaker, since `failcnt` also rises when reclaim then helped: where the kernel log can be read, it decides.

use std::path::PathBuf;

use serde::Serialize;

use super::{CgroupEvents, LevelMemory, Limit, MemoryCgroup, Version};

/// What one level counted since the watch began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LevelChange {
    /// The directory.
    pub directory: PathBuf,
    /// How much each count rose.
    pub events: CgroupEvents,
    /// Its limit now, or when the watch began if it is gone.
    pub limit: Option<Limit>,
    /// Its usage now.
    pub usage: Option<u64>,
    /// Its highest usage.
    pub peak: Option<u64>,
}

/// Who ran out of memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OomScope {
    /// No process of the group was killed.
    NoKill,
    /// The limit of this level was reached.
    Cgroup {
        /// The level's directory.
        directory: PathBuf,
        /// Its limit.
        limit: Option<u64>,
    },
    /// No limit on the way to the true root was reached: the host itself ran out of memory.
    Host,
    /// No limit that can be seen from here was reached: one further up was, or the host ran out.
    AboveOrHost,
    /// The kernel does not say.
    Unknown,
}

/// What happened since a watch began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OomReport {
    /// Processes of the group (or of the nearest level that counts) that were killed, whichever they were: others may
    /// share the group. `None` when the kernel does not count them.
    pub kills: Option<u64>,
    /// Who ran out of memory.
    pub scope: OomScope,
    /// Each level from the group up.
    pub levels: Vec<LevelChange>,
    /// True when the group was removed meanwhile, so that what it counted is lost (v1) or only in its parents (v2).
    pub is_group_gone: bool,
}

/// The counts of a cgroup at one moment, to compare with later ones.
#[derive(Debug, Clone)]
pub struct OomWatch {
    cgroup: MemoryCgroup,
    before: Vec<LevelMemory>,
}

impl OomWatch {
    /// Begins to watch.
    pub fn start(cgroup: MemoryCgroup) -> Self {
        let before = cgroup.read().levels;
        OomWatch { cgroup, before }
    }

    /// The cgroup watched.
    pub fn cgroup(&self) -> &MemoryCgroup {
        &self.cgroup
    }

    /// Compares with now. The counts are final once the process was reaped.
    pub fn look(&self) -> OomReport {
        let now = self.cgroup.read().levels;
        let is_group_gone = !self.cgroup.directory.is_dir();
        let levels: Vec<LevelChange> = self.before.iter().zip(&now).map(|(a, b)| change(a, b)).collect();
        let own = levels.first().and_then(|own| own.events.oom_kill);
        // In version 2 parents count for their children too, also for those that are gone.
        let kills = match self.cgroup.version {
            Version::V2 => own.or_else(|| levels.iter().find_map(|level| level.events.oom_kill)),
            Version::V1 => own,
        };
        let scope = self.scope(kills, &levels);
        OomReport { kills, scope, levels, is_group_gone }
    }

    fn scope(&self, kills: Option<u64>, levels: &[LevelChange]) -> OomScope {
        match kills {
            None => return OomScope::Unknown,
            Some(0) => return OomScope::NoKill,
            Some(_) => {}
        }
        // Parents count their children's events, so the lowest level that counted one is where it happened.
        let hit = levels.iter().find(|level| match self.cgroup.version {
            Version::V2 => level.events.oom.is_some_and(|count| count > 0),
            Version::V1 => {
                level.events.failcnt.is_some_and(|count| count > 0)
                    && level.limit.is_some_and(|limit| limit != Limit::Unlimited)
            }
        });
        match hit {
            Some(level) => OomScope::Cgroup {
                directory: level.directory.clone(),
                limit: level.limit.and_then(Limit::bytes),
            },
            None if self.cgroup.sees_root => OomScope::Host,
            None => OomScope::AboveOrHost,
        }
    }
}

fn change(before: &LevelMemory, now: &LevelMemory) -> LevelChange {
    let rise = |pick: fn(&CgroupEvents) -> Option<u64>| {
        // A group removed and made again starts at 0.
        Some(pick(&now.events)?.saturating_sub(pick(&before.events).unwrap_or(0)))
    };
    LevelChange {
        directory: now.directory.clone(),
        events: CgroupEvents {
            low: rise(|events| events.low),
            high: rise(|events| events.high),
            max: rise(|events| events.max),
            oom: rise(|events| events.oom),
            oom_kill: rise(|events| events.oom_kill),
            oom_group_kill: rise(|events| events.oom_group_kill),
            failcnt: rise(|events| events.failcnt),
        },
        limit: now.limit.or(before.limit),
        usage: now.usage,
        peak: now.peak.or(before.peak),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn events(directory: &Path, oom: u64, kills: u64) {
        let text = format!("low 0\nhigh 0\nmax {oom}\noom {oom}\noom_kill {kills}\noom_group_kill 0\n");
        fs::write(directory.join("memory.events"), text).unwrap();
    }

    fn stand_in() -> (tempfile::TempDir, MemoryCgroup) {
        let temporary = tempfile::tempdir().unwrap();
        let mount = temporary.path().to_path_buf();
        let directory = mount.join("job/task");
        fs::create_dir_all(&directory).unwrap();
        fs::write(mount.join("job/memory.max"), "1000\n").unwrap();
        let path = "/job/task".to_owned();
        (temporary, MemoryCgroup { version: Version::V2, path, directory, mount, sees_root: true })
    }

    #[test]
    fn the_level_whose_limit_was_hit_is_named_from_a_stand_in_sysfs() {
        let (temporary, cgroup) = stand_in();
        let (job, task) = (temporary.path().join("job"), temporary.path().join("job/task"));
        events(&job, 3, 3);
        events(&task, 0, 3);
        let watch = OomWatch::start(cgroup);
        assert_eq!(watch.look().scope, OomScope::NoKill);
        events(&job, 4, 4);
        events(&task, 0, 4);
        let report = watch.look();
        assert_eq!(report.kills, Some(1));
        assert_eq!(report.scope, OomScope::Cgroup { directory: job.clone(), limit: Some(1000) });
        // The group goes away with its process; its parent remembers.
        fs::remove_dir_all(&task).unwrap();
        let report = watch.look();
        assert!(report.is_group_gone);
        assert_eq!(report.kills, Some(1));
    }

    #[test]
    fn a_kill_without_a_limit_is_the_hosts_from_a_stand_in_sysfs() {
        let (temporary, mut cgroup) = stand_in();
        let task = temporary.path().join("job/task");
        events(&task, 0, 0);
        let watch = OomWatch::start(cgroup.clone());
        events(&task, 0, 1);
        assert_eq!(watch.look().scope, OomScope::Host);
        cgroup.sees_root = false;
        assert_eq!(OomWatch { cgroup, before: watch.before.clone() }.look().scope, OomScope::AboveOrHost);
        fs::remove_file(task.join("memory.events")).unwrap();
        assert_eq!(watch.look().scope, OomScope::Unknown);
    }
}
