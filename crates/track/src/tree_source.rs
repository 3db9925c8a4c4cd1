//! Another process and its descendants: what all of them have resident, summed up.
//!
//! Pages they share are counted once for each, as `ps` does: exact shares (PSS) need a walk of every page table, which
//! would be felt by the program at every sample. It must never slip onto a process that got the number of one of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stormlog_collect::process::ProcessReader;
use stormlog_collect::{CollectError, ProcessTree};

use crate::source::{Headroom, failed};
use crate::{Sampled, Source};

/// How often children are looked for: a look reads a file of every thread.
const TREE_AGE: Duration = Duration::from_millis(200);

/// The processes of a tree as of the last look, for callers that read what else they hold.
#[derive(Debug, Clone, Default)]
pub struct TreePids(Arc<Mutex<Vec<u32>>>);

impl TreePids {
    /// Their numbers; empty once the tree is gone.
    pub fn list(&self) -> Vec<u32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces them: for callers that follow the tree themselves.
    pub fn set(&self, pids: Vec<u32>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = pids;
    }
}

/// A process and its descendants.
#[derive(Debug)]
pub struct TreeSource {
    root: ProcessReader,
    tree: ProcessTree,
    children: BTreeMap<u32, ProcessReader>,
    looked_at: Instant,
    room: Headroom,
    pids: TreePids,
}

impl TreeSource {
    /// Opens a process by its number.
    pub fn open(pid: u32) -> Result<Self, CollectError> {
        let mut root = ProcessReader::open(pid)?;
        // Says at once when there is nothing to watch: a kernel thread, or a process that ended.
        root.memory()?;
        let mut source = TreeSource {
            root,
            tree: ProcessTree::of(pid)?,
            children: BTreeMap::new(),
            looked_at: Instant::now(),
            room: Headroom::of(pid),
            pids: TreePids::default(),
        };
        source.follow();
        Ok(source)
    }

    /// The processes, kept up to date while it is sampled.
    pub fn pids(&self) -> TreePids {
        self.pids.clone()
    }

    /// Opens what is new and drops what is gone.
    fn follow(&mut self) {
        let root = self.root.pid();
        let mut before = std::mem::take(&mut self.children);
        for member in self.tree.members().filter(|member| member.pid != root) {
            let known = before.remove(&member.pid).filter(|reader| reader.start_time() == member.start_time);
            let reader = known.or_else(|| ProcessReader::open(member.pid).ok());
            // One that started at another time is another process.
            if let Some(reader) = reader.filter(|reader| reader.start_time() == member.start_time) {
                self.children.insert(member.pid, reader);
            }
        }
        self.pids.set(self.tree.members().map(|member| member.pid).collect());
    }
}

impl Source for TreeSource {
    fn sample(&mut self) -> Sampled {
        let own = match self.root.memory() {
            Ok(memory) => memory.rss,
            Err(error) => {
                if error.is_gone() {
                    self.pids.set(Vec::new());
                }
                return failed(&error);
            }
        };
        if self.looked_at.elapsed() >= TREE_AGE {
            self.looked_at = Instant::now();
            self.tree.refresh();
            self.follow();
        }
        // A child that ended since the last look holds nothing any more.
        let of_children = self.children.values_mut().filter_map(|child| child.memory().ok());
        let rss = of_children.fold(own, |sum, memory| sum.saturating_add(memory.rss));
        self.room.seen_from_outside(rss)
    }
}
