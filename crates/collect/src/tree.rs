//! A process and its descendants, kept up to date by polling.
//!
//! A process is its number and its start time: numbers are reused. A member whose parent died is adopted by another
//! process but stays a member; a process must never become one merely because it got the number of one. What is born and
//! orphaned between two looks is missed, unless the watcher is the reaper of orphans (`PR_SET_CHILD_SUBREAPER`).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::process::{ProcessStat, parse_stat};
use crate::text::{self, number, words};
use crate::{CollectError, Roots};

/// More members than this are not followed; a fork bomb must not take the watcher with it.
const MEMBERS_LIMIT: usize = 1 << 16;

/// Of the directory of a process's threads, which need not be listed then: two as of any directory, and one for each.
const LINKS_OF_ONE_THREAD: u64 = 3;

/// One process of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TreeMember {
    /// Its number.
    pub pid: u32,
    /// Its parent when first seen.
    pub ppid: u32,
    /// Clock ticks between boot and its start.
    pub start_time: u64,
    /// Its name when last seen.
    pub comm: String,
    /// Steps below the root, which is 0.
    pub depth: u32,
    /// True when its parent died and it was adopted.
    pub is_orphan: bool,
}

/// What changed between two looks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeChange {
    /// Members that are new.
    pub added: Vec<TreeMember>,
    /// Members that ended.
    pub gone: Vec<TreeMember>,
    /// True when there are more descendants than are followed.
    pub truncated: bool,
}

/// A process and its descendants.
#[derive(Debug, Clone)]
pub struct ProcessTree {
    roots: Roots,
    root: u32,
    members: BTreeMap<u32, TreeMember>,
    /// Kernels without `task/TID/children` are asked once.
    has_children_files: bool,
}

impl ProcessTree {
    /// The tree below a process, as of now.
    pub fn of(pid: u32) -> Result<Self, CollectError> {
        Self::of_in(Roots::default(), pid)
    }

    /// The tree below a process of another `/proc`.
    pub fn of_in(roots: Roots, pid: u32) -> Result<Self, CollectError> {
        let stat = read_stat(&roots, pid).ok_or(CollectError::ProcessGone { pid })?;
        let children = roots.of_process(pid).join("task").join(pid.to_string()).join("children");
        let root = member(pid, stat, 0);
        let mut tree = ProcessTree {
            has_children_files: children.exists(),
            roots,
            root: pid,
            members: BTreeMap::from([(pid, root)]),
        };
        tree.refresh();
        Ok(tree)
    }

    /// The members in order of their numbers, the root included while it lives.
    pub fn members(&self) -> impl Iterator<Item = &TreeMember> {
        self.members.values()
    }

    /// The process the tree was requested.
    pub fn root(&self) -> u32 {
        self.root
    }

    /// Looks again.
    pub fn refresh(&mut self) -> TreeChange {
        let mut change = TreeChange::default();
        self.drop_ended(&mut change);
        let by_parent = (!self.has_children_files).then(|| self.scan());
        // Members found in this look are asked for their children too.
        let mut queue: Vec<u32> = self.members.keys().copied().collect();
        while let Some(parent) = queue.pop() {
            let children = match &by_parent {
                Some(by_parent) => by_parent.get(&parent).cloned().unwrap_or_default(),
                None => self.listed_children(parent),
            };
            for child in children {
                if self.members.len() >= MEMBERS_LIMIT {
                    change.truncated = true;
                    return change;
                }
                if let Some(added) = self.adopt(parent, child) {
                    queue.push(child);
                    change.added.push(added);
                }
            }
        }
        change
    }

    /// Takes in a process that is known to belong here by other means than its parent, which may have died before it
    /// was seen. `None` when it is a member already, or has ended.
    pub fn take_in(&mut self, pid: u32) -> Option<TreeMember> {
        if self.members.contains_key(&pid) || self.members.len() >= MEMBERS_LIMIT {
            return None;
        }
        let stat = read_stat(&self.roots, pid).filter(|stat| !stat.has_exited())?;
        let above = self.members.get(&stat.ppid).map(|parent| parent.depth);
        let added = TreeMember {
            is_orphan: above.is_none(),
            ..member(pid, stat, above.unwrap_or(0).saturating_add(1))
        };
        self.members.insert(pid, added.clone());
        Some(added)
    }

    fn drop_ended(&mut self, change: &mut TreeChange) {
        let roots = &self.roots;
        let mut orphans = Vec::new();
        self.members.retain(|pid, member| match read_stat(roots, *pid) {
            Some(stat) if stat.start_time == member.start_time && !stat.has_exited() => {
                if stat.ppid != member.ppid && member.depth > 0 {
                    orphans.push(*pid);
                }
                member.comm = stat.comm;
                true
            }
            _ => {
                change.gone.push(member.clone());
                false
            }
        });
        for pid in orphans {
            if let Some(member) = self.members.get_mut(&pid) {
                member.is_orphan = true;
            }
        }
    }

    /// Takes a child in if it still is one: between the listing and now it may have ended and its number been reused.
    fn adopt(&mut self, parent: u32, child: u32) -> Option<TreeMember> {
        if self.members.contains_key(&child) {
            return None;
        }
        let above = self.members.get(&parent)?;
        let stat = read_stat(&self.roots, child)?;
        if stat.ppid != parent || stat.start_time < above.start_time || stat.has_exited() {
            return None;
        }
        let added = member(child, stat, above.depth.saturating_add(1));
        self.members.insert(child, added.clone());
        Some(added)
    }

    fn listed_children(&self, pid: u32) -> Vec<u32> {
        let tasks = self.roots.of_process(pid).join("task");
        let mut children = Vec::new();
        let mut take = |task: &Path| {
            if let Ok(list) = text::read_bounded(&task.join("children"), text::WHOLE_LIMIT) {
                children.extend(words(&list).filter_map(|word| u32::try_from(number(word)?).ok()));
            }
        };
        if fs::metadata(&tasks).is_ok_and(|directory| directory.nlink() == LINKS_OF_ONE_THREAD) {
            take(&tasks.join(pid.to_string()));
        } else if let Ok(listed) = fs::read_dir(&tasks) {
            listed.flatten().for_each(|task| take(&task.path()));
        }
        children
    }

    /// All processes by parent, for kernels that do not list children.
    fn scan(&self) -> FxHashMap<u32, Vec<u32>> {
        let mut by_parent: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        let Ok(entries) = fs::read_dir(&self.roots.proc) else { return by_parent };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(pid) = number(name.as_encoded_bytes()).and_then(|pid| u32::try_from(pid).ok()) else {
                continue;
            };
            if let Some(stat) = read_stat(&self.roots, pid) {
                by_parent.entry(stat.ppid).or_default().push(pid);
            }
        }
        by_parent
    }
}

fn member(pid: u32, stat: ProcessStat, depth: u32) -> TreeMember {
    let ProcessStat { comm, ppid, start_time, .. } = stat;
    TreeMember { pid, ppid, start_time, comm, depth, is_orphan: false }
}

fn read_stat(roots: &Roots, pid: u32) -> Option<ProcessStat> {
    parse_stat(&text::read_bounded(&roots.of_process(pid).join("stat"), 4096).ok()?)
}
