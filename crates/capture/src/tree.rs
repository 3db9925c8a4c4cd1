//! Guesses the next frame of the stack tree: it hangs near the stack that allocated last, and what was called from a line before is called
//! from there again. Both sides of the codec run this in step. Must bound the work for a frame, whatever a file contains.

use rustc_hash::FxHashMap;

/// How far up the last stack a parent is looked for, and how many frames below one line, and how many code objects, are remembered.
const STEPS: usize = 250;
const CHILDREN: usize = 64;
const RECENT: usize = 256;

/// A Python frame: its code, and line × 2 + entry. All zero for frames of other sorts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Frame {
    pub(crate) code: u64,
    pub(crate) line: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Tree {
    first: u32,
    /// Parent and frame of each node, from the first on.
    nodes: Vec<(u32, Frame)>,
    /// The node that allocated last, or that was made since.
    pub(crate) near: u32,
    /// What was called from a line, the latest at the end.
    children: FxHashMap<Frame, Vec<Frame>>,
    /// Code objects in the order of their last use.
    recent: Vec<u64>,
}

impl Tree {
    /// The next node has this id.
    pub(crate) fn new(first: u32) -> Self {
        Tree { first, ..Tree::default() }
    }

    /// How many steps up from the last stack a node is; `None`: it is not there.
    pub(crate) fn steps_to(&self, node: u32) -> Option<u8> {
        let mut at = self.near;
        for steps in 0..STEPS {
            if at == node {
                return u8::try_from(steps).ok();
            }
            at = self.node(at)?.0;
        }
        None
    }

    /// The node this many steps up.
    pub(crate) fn climb(&self, steps: u8) -> Option<u32> {
        let mut at = self.near;
        for _ in 0..steps {
            at = self.node(at)?.0;
        }
        Some(at)
    }

    /// How many others were called later from the line of `parent`; `None`: this frame never was.
    pub(crate) fn rank(&self, parent: u32, frame: Frame) -> Option<u8> {
        let called = self.children.get(&self.frame(parent))?;
        let rank = called.iter().rev().position(|child| *child == frame)?;
        u8::try_from(rank).ok()
    }

    /// The frame of that rank.
    pub(crate) fn ranked(&self, parent: u32, rank: u8) -> Option<Frame> {
        let called = self.children.get(&self.frame(parent))?;
        called.iter().rev().nth(usize::from(rank)).copied()
    }

    /// How many code objects were used later; `None`: this one is not among those remembered.
    pub(crate) fn code_rank(&self, code: u64) -> Option<u64> {
        self.recent.iter().rev().position(|recent| *recent == code).map(|rank| rank as u64)
    }

    /// The code object of that rank.
    pub(crate) fn ranked_code(&self, rank: u64) -> Option<u64> {
        self.recent.iter().rev().nth(usize::try_from(rank).ok()?).copied()
    }

    /// A new node with a Python frame.
    pub(crate) fn add(&mut self, parent: u32, frame: Frame) {
        to_end(self.children.entry(self.frame(parent)).or_default(), frame, CHILDREN);
        to_end(&mut self.recent, frame.code, RECENT);
        self.push(parent, frame);
    }

    /// A new node of another sort.
    pub(crate) fn add_other(&mut self, parent: u32) {
        self.push(parent, Frame::default());
    }

    fn push(&mut self, parent: u32, frame: Frame) {
        self.near = self.first.wrapping_add(self.nodes.len() as u32);
        self.nodes.push((parent, frame));
    }

    fn node(&self, id: u32) -> Option<&(u32, Frame)> {
        self.nodes.get(id.checked_sub(self.first)? as usize)
    }

    fn frame(&self, id: u32) -> Frame {
        self.node(id).map(|node| node.1).unwrap_or_default()
    }
}

/// Moves an entry to the end; the oldest is forgotten where there are too many.
fn to_end<T: PartialEq>(list: &mut Vec<T>, entry: T, most: usize) {
    if let Some(place) = list.iter().position(|known| *known == entry) {
        list.remove(place);
    } else if list.len() == most {
        list.remove(0);
    }
    list.push(entry);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_call_is_predicted() {
        let mut tree = Tree::new(1);
        let frame = |code: u64| Frame { code, line: code * 20 };
        for (parent, code) in [(0, 7), (1, 8), (2, 9), (1, 5)] {
            tree.add(parent, frame(code));
        }
        assert_eq!(
            (tree.near, tree.steps_to(4), tree.steps_to(1), tree.steps_to(3)),
            (4, Some(0), Some(1), None)
        );
        assert_eq!((tree.climb(1), tree.climb(2), tree.climb(3)), (Some(1), Some(0), None));
        assert_eq!(
            (tree.rank(1, frame(5)), tree.rank(1, frame(8)), tree.rank(1, frame(9))),
            (Some(0), Some(1), None)
        );
        assert_eq!((tree.ranked(1, 1), tree.ranked(1, 2)), (Some(frame(8)), None));
        assert_eq!((tree.code_rank(7), tree.ranked_code(0), tree.code_rank(6)), (Some(3), Some(5), None));
        // The same line on another stack has the same calls.
        tree.add(3, frame(7));
        assert_eq!(tree.rank(5, frame(8)), Some(1));
    }

    #[test]
    fn lists_stay_short() {
        let mut tree = Tree::new(1);
        for code in 0..10_000 {
            tree.add(0, Frame { code, line: 1 });
        }
        assert_eq!((tree.recent.len(), tree.children[&Frame::default()].len()), (RECENT, CHILDREN));
        assert_eq!(tree.code_rank(9_999 - RECENT as u64), None);
    }
}
