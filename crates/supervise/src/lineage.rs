//! Which process started which, and where a signal that ended one came from: what its sender recorded, or what the supervisor passed on.

use rustc_hash::FxHashMap;
use stormlog_catalog::run::ends::Ends;
use stormlog_postmortem::verdict::Sender;

/// Processes that are remembered: of more, the origin of a signal is not known.
const MOST: usize = 65_536;
/// Steps up the tree.
const MAX_DEPTH: usize = 64;

/// The parents of processes, the ended ones included.
#[derive(Debug, Default)]
pub(crate) struct Lineage {
    parents: FxHashMap<u32, u32>,
    groups: FxHashMap<u32, u32>,
}

/// A signal that reached the program through its supervisor or its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delivered {
    pub(crate) signal: i32,
    /// The process that sent it; `None` for the terminal.
    pub(crate) sender: Option<u32>,
}

impl Lineage {
    pub(crate) fn add(&mut self, pid: u32, parent: u32) {
        if self.parents.len() < MOST || self.parents.contains_key(&pid) {
            self.parents.insert(pid, parent);
        }
    }

    /// The process group that a process is in now.
    pub(crate) fn set_group(&mut self, pid: u32, group: u32) {
        if group > 0 && (self.groups.len() < MOST || self.groups.contains_key(&pid)) {
            self.groups.insert(pid, group);
        }
    }

    /// The process that sent `signal` to `pid`, which started at `since_ns`, as a process of the run recorded it. `name` gives what the user would
    /// call a process.
    pub(crate) fn sender(
        &self,
        ends: &Ends,
        (pid, signal): (u32, i32),
        since_ns: u64,
        name: impl Fn(u32) -> Option<String>,
    ) -> Option<Sender> {
        let sender = ends.signal_to(pid, signal, since_ns, |pid| self.groups.get(&pid).copied())?.sender;
        if sender == pid {
            return Some(Sender::Itself);
        }
        let mut above = self.parents.get(&pid).copied();
        for depth in 0..MAX_DEPTH {
            match above {
                Some(ancestor) if ancestor == sender => {
                    let program = name(sender);
                    return Some(Sender::Above { pid: sender.into(), program, is_parent: depth == 0 });
                }
                Some(ancestor) => above = self.parents.get(&ancestor).copied(),
                None => break,
            }
        }
        Some(Sender::Run { pid: sender.into() })
    }
}
