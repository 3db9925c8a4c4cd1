//! The memory cgroups that processes of the run are in: each is watched from when it is first seen, since a program may be moved to
//! one of its own (`systemd-run --scope`, a job step), whose limit is not ours.
//!
//! Must cost one short read a look at a process, and must never mix the kills of one group with those of another.

use std::collections::BTreeMap;

use stormlog_collect::cgroup::{MemoryCgroup, OomReport, OomWatch, Version};
use stormlog_postmortem::verdict::CgroupFacts;

use crate::facts;

/// Bound on the tracked cgroups; processes in others are judged by the cgroup of the supervisor.
const MOST: usize = 64;

/// One of the groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct GroupId(usize);

#[derive(Debug)]
struct Group {
    watch: OomWatch,
    /// OOM kills in it that are known to have hit a process whose end is reported already.
    explained_kills: u64,
}

/// All groups seen so far.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: Vec<Group>,
    /// By what `/proc/PID/cgroup` says.
    known: BTreeMap<Vec<u8>, GroupId>,
}

impl Groups {
    /// Begins to count in our own, before the program exists that starts there.
    pub(crate) fn start() -> Self {
        let mut groups = Groups::default();
        groups.find(std::process::id());
        groups
    }

    /// The group the process is in now; `None` when that cannot be read (any more).
    pub(crate) fn find(&mut self, pid: u32) -> Option<GroupId> {
        let membership = std::fs::read(format!("/proc/{pid}/cgroup")).ok()?;
        if let Some(id) = self.known.get(&membership) {
            return Some(*id);
        }
        if self.groups.len() >= MOST {
            return None;
        }
        let cgroup = MemoryCgroup::of(pid).ok()?;
        let same = |group: &Group| group.watch.cgroup().directory == cgroup.directory;
        // Other controllers may differ where memory does not.
        let at = self.groups.iter().position(same).unwrap_or_else(|| {
            self.groups.push(Group { watch: OomWatch::start(cgroup), explained_kills: 0 });
            self.groups.len() - 1
        });
        self.known.insert(membership, GroupId(at));
        Some(GroupId(at))
    }

    /// What happened in the group since it was first seen.
    pub(crate) fn look(&self, id: GroupId) -> Option<(OomReport, Vec<CgroupFacts>)> {
        let group = self.groups.get(id.0)?;
        let report = group.watch.look();
        let facts = facts::cgroups(&report, &group.watch.cgroup().mount, group.explained_kills);
        Some((report, facts))
    }

    /// A process in the group was killed for memory; the count of that kill explains no other end. Version 2 counts it above as well.
    pub(crate) fn was_killed(&mut self, id: GroupId) {
        let Some(place) = self.groups.get(id.0).map(|group| group.watch.cgroup().clone()) else { return };
        for group in &mut self.groups {
            let above = group.watch.cgroup();
            let counts = match above.version {
                Version::V1 => above.directory == place.directory,
                Version::V2 => place.directory.starts_with(&above.directory),
            };
            group.explained_kills += u64::from(counts);
        }
    }
}
