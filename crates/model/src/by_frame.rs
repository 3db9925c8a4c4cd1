//! What lines and functions hold, summed over all stacks. Must count a byte once for each of them: a recursive function has its memory once.

use rustc_hash::FxHashMap;

use crate::frame::Frame;
use crate::stacks::{StackProfile, Weight};

/// A line or function, and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its frame; of a function without a line.
    pub frame: Frame,
    /// Allocated right there.
    pub own: Weight,
    /// Allocated there and in what it called.
    pub total: Weight,
}

impl StackProfile {
    /// By line, the largest own share first.
    #[must_use]
    pub fn by_line(&self) -> Vec<Entry> {
        self.by_frame(Frame::clone)
    }

    /// By function, the largest own share first.
    #[must_use]
    pub fn by_function(&self) -> Vec<Entry> {
        self.by_frame(|frame| Frame { line: 0, ..frame.clone() })
    }

    fn by_frame(&self, group: impl Fn(&Frame) -> Frame) -> Vec<Entry> {
        let (own, total) = self.own_and_total();
        let mut ids: FxHashMap<Frame, usize> = FxHashMap::default();
        let mut entries: Vec<Entry> = Vec::new();
        let mut id = |frame: &Frame| {
            *ids.entry(group(frame)).or_insert_with_key(|key| {
                let (own, total) = Default::default();
                entries.push(Entry { frame: key.clone(), own, total });
                entries.len() - 1
            })
        };
        let groups: Vec<usize> = self.tree.frames.iter().map(&mut id).collect();
        for node in 1..self.tree.len() {
            let at = groups[self.tree.frame[node] as usize];
            entries[at].own += own[node];
            if total[node] != Weight::default() && self.is_outermost(&groups, node) {
                entries[at].total += total[node];
            }
        }
        entries.retain(|entry| entry.total != Weight::default());
        entries.sort_by(|one, other| {
            let size = |entry: &Entry| (entry.own.bytes, entry.total.bytes);
            size(other).cmp(&size(one)).then_with(|| one.name().cmp(&other.name()))
        });
        entries
    }

    /// Whether no caller of a node is of its group.
    fn is_outermost(&self, groups: &[usize], node: usize) -> bool {
        let group = |node: usize| groups[self.tree.frame[node] as usize];
        let mut at = self.tree.parent[node] as usize;
        while at != 0 && group(at) != group(node) {
            at = self.tree.parent[at] as usize;
        }
        at == 0
    }
}

impl Entry {
    fn name(&self) -> (&str, &str, u32) {
        (&self.frame.file, &self.frame.function, self.frame.line)
    }
}
