//! The tree as it is shown: without hidden frames, branches in the order of their size.

use rustc_hash::FxHashMap;
use stormlog_model::stacks::{Frame, Origin, StackProfile, Weight};

/// Everything together; no frame.
pub(in crate::state) const ROOT: u32 = 0;

/// Whose frames are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hidden {
    /// All are shown.
    Nothing,
    /// Python's import system and the interpreter's own functions.
    Imports,
    /// Everything but the program's own code and what is unknown.
    Libraries,
}

impl Hidden {
    pub(in crate::state) fn next(self) -> Hidden {
        match self {
            Hidden::Nothing => Hidden::Imports,
            Hidden::Imports => Hidden::Libraries,
            Hidden::Libraries => Hidden::Nothing,
        }
    }

    fn hides(self, origin: Origin) -> bool {
        match (self, origin) {
            (Hidden::Nothing, _) | (_, Origin::User) => false,
            (Hidden::Imports, origin) => matches!(origin, Origin::Import | Origin::Interpreter),
            (Hidden::Libraries, _) => true,
        }
    }
}

#[derive(Debug, Clone, Default)]
struct Node {
    parent: u32,
    frame: u32,
    own: Weight,
    total: Weight,
    children: Vec<u32>,
}

/// The shown tree; a parent comes before its children.
#[derive(Debug)]
pub(in crate::state) struct Shape {
    nodes: Vec<Node>,
}

impl Shape {
    pub(in crate::state) fn new(held: &StackProfile, hidden: Hidden, by_count: bool) -> Shape {
        let tree = &held.tree;
        let hides: Vec<bool> = tree.frames.iter().map(|frame| hidden.hides(tree.origin(frame))).collect();
        let (own, total) = held.own_and_total();
        let mut nodes = vec![Node::default()];
        let mut shown = vec![ROOT; tree.len()];
        let mut known: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        for node in 1..tree.len() {
            let (above, frame) = (shown[tree.parent[node] as usize], tree.frame[node]);
            shown[node] = if total[node] == Weight::default() || hides.get(frame as usize) != Some(&false) {
                above
            } else {
                *known.entry((above, frame)).or_insert_with(|| {
                    nodes.push(Node { parent: above, frame, ..Node::default() });
                    nodes.len() as u32 - 1
                })
            };
            nodes[shown[node] as usize].own += own[node];
        }
        nodes[0].own += own[0];
        for at in (0..nodes.len()).rev() {
            let own = nodes[at].own;
            nodes[at].total += own;
            let (total, parent) = (nodes[at].total, nodes[at].parent as usize);
            if at > 0 {
                nodes[parent].total += total;
                nodes[parent].children.push(at as u32);
            }
        }
        let size = |weight: Weight| {
            if by_count { (weight.count, weight.bytes) } else { (weight.bytes, weight.count) }
        };
        let sizes: Vec<(u64, u64)> = nodes.iter().map(|node| size(node.total)).collect();
        for node in &mut nodes {
            node.children.sort_by_key(|child| (std::cmp::Reverse(sizes[*child as usize]), *child));
        }
        Shape { nodes }
    }

    /// With its callees, and by itself.
    pub(in crate::state) fn weight(&self, node: u32) -> (Weight, Weight) {
        self.nodes.get(node as usize).map(|node| (node.total, node.own)).unwrap_or_default()
    }

    pub(in crate::state) fn children(&self, node: u32) -> &[u32] {
        self.nodes.get(node as usize).map_or(&[], |node| &node.children)
    }

    pub(in crate::state) fn parent(&self, node: u32) -> u32 {
        self.nodes.get(node as usize).map_or(ROOT, |node| node.parent)
    }

    pub(in crate::state) fn frame(&self, node: u32) -> Option<u32> {
        self.nodes.get(node as usize).filter(|_| node != ROOT).map(|node| node.frame)
    }

    /// The frames from the root to a node.
    pub(in crate::state) fn way_to(&self, node: u32) -> Vec<u32> {
        let mut way: Vec<u32> = std::iter::successors(Some(node), |node| Some(self.parent(*node)))
            .map_while(|node| self.frame(node))
            .collect();
        way.reverse();
        way
    }

    /// The node at the end of a way, passing over frames that are not here.
    pub(in crate::state) fn follow(&self, way: &[u32]) -> u32 {
        let step = |at: u32, frame: &u32| {
            let mut children = self.children(at).iter().copied();
            children.find(|child| self.frame(*child) == Some(*frame)).unwrap_or(at)
        };
        way.iter().fold(ROOT, step)
    }

    /// The frames from the root to a node, as the stacks name them.
    pub(in crate::state) fn frames_to(&self, held: &StackProfile, node: u32) -> Vec<Frame> {
        let way = self.way_to(node);
        way.iter().filter_map(|frame| held.tree.frames.get(*frame as usize)).cloned().collect()
    }

    /// The node at the end of a way in other stacks of the same program; `None` where it is not there.
    pub(in crate::state) fn find(&self, held: &StackProfile, way: &[Frame]) -> Option<u32> {
        way.iter().try_fold(ROOT, |at, frame| {
            let is_it = |child: &u32| {
                let of = self.frame(*child).and_then(|frame| held.tree.frames.get(frame as usize));
                of == Some(frame)
            };
            self.children(at).iter().copied().find(is_it)
        })
    }

    /// All nodes as they would be listed if everything were open.
    pub(in crate::state) fn in_order(&self) -> Vec<u32> {
        let mut order = Vec::with_capacity(self.nodes.len());
        let mut pending = vec![ROOT];
        while let Some(node) = pending.pop() {
            order.push(node);
            pending.extend(self.children(node).iter().rev());
        }
        order
    }
}
