//! The objects between the samples and the roots: which object refers to which, as far as paths were followed.
//!
//! Each walk over the heap takes one step from all objects whose referrers are not known yet, so the number of walks is the length of the longest
//! path, however many samples there are. Must never hold more than its fixed number of objects.

use super::kinds::Kinds;
use super::python::{Object, Python};
use super::region::{Region, Zeroed};
use super::roots::{Root, Roots};
use super::sweep::{Visitor, walk};

/// Objects of all paths together.
const MOST_NODES: usize = 1 << 15;
const SLOTS: usize = MOST_NODES * 4;
/// Referrers of one object that are followed.
const REFERRERS: usize = 4;
/// Bits of the filter in front of the table.
const FILTER_BITS: usize = 1 << 21;
/// Steps from an object to its root, at most.
pub const LONGEST_PATH: usize = 40;

const EXPANDED: u8 = 1;
const WANTED: u8 = 2;
const NEEDED: u8 = 4;
const FAR: u16 = u16::MAX;

/// An object of a path.
#[derive(Clone, Copy, Default)]
pub struct Node {
    object: usize,
    /// Their places plus 1.
    referrers: [u32; REFERRERS],
    /// The referrer on the shortest way to a root, plus 1; 0 for a root.
    toward: u32,
    /// Steps to the root, plus 1; 0 while none is known.
    distance: u16,
    flags: u8,
    root: Root,
}
// SAFETY: all fields are integers, valid when zeroed, but `Root`: an integer and an enum whose first variant is 0.
unsafe impl Zeroed for Node {}

/// Objects and references of the paths.
pub struct Graph<'a> {
    nodes: &'a mut [Node],
    count: usize,
    slots: &'a mut [u32],
    filter: &'a mut [u64],
    stack: &'a mut [u32],
    is_full: bool,
}

impl<'a> Graph<'a> {
    pub fn new(region: &'a Region) -> Option<Self> {
        Some(Graph {
            nodes: region.array(MOST_NODES)?,
            count: 0,
            slots: region.array(SLOTS)?,
            filter: region.array(FILTER_BITS / 64)?,
            stack: region.array(MOST_NODES)?,
            is_full: false,
        })
    }

    /// The place of an object, which is added where it is new.
    pub fn add(&mut self, object: usize) -> Option<usize> {
        let (slot, found) = self.slot(object)?;
        if found != 0 {
            return Some(found as usize - 1);
        }
        if self.count == MOST_NODES {
            self.is_full = true;
            return None;
        }
        self.nodes[self.count] = Node { object, ..Node::default() };
        self.count += 1;
        self.slots[slot] = self.count as u32;
        Some(self.count - 1)
    }

    fn slot(&self, object: usize) -> Option<(usize, u32)> {
        let start = hash(object) as usize;
        (0..64).map(|probe| (start + probe) % SLOTS).find_map(|slot| {
            let found = self.slots[slot];
            let is_it = found == 0 || self.nodes[found as usize - 1].object == object;
            is_it.then_some((slot, found))
        })
    }

    pub fn object(&self, node: usize) -> Option<Object> {
        // SAFETY: every node was live when it was added, and the GIL is held since.
        unsafe { Object::of(self.nodes.get(node)?.object) }
    }

    /// Follows the paths of the first `targets` objects until each has a root, nothing refers to it, or the deadline comes. False in the last case.
    pub fn follow(
        &mut self,
        python: &Python,
        kinds: &mut Kinds<'_>,
        roots: &Roots<'_>,
        targets: usize,
        deadline: u64,
    ) -> bool {
        let mut known = 0;
        let mut is_complete = false;
        for _ in 0..LONGEST_PATH {
            self.find_roots(python, kinds, roots, known, false);
            known = self.count;
            if !self.want(targets) {
                is_complete = !self.is_full;
                break;
            }
            if !walk(python, kinds, roots, self, deadline) {
                break;
            }
            for node in &mut self.nodes[..known] {
                node.flags |= if node.flags & WANTED != 0 { EXPANDED } else { 0 };
            }
        }
        // Words of evaluation stacks may be stale: they count where nothing else was found.
        self.find_roots(python, kinds, roots, 0, true);
        is_complete
    }

    /// Finds the roots among the nodes from `first` on, and the ways to them.
    fn find_roots(
        &mut self,
        python: &Python,
        kinds: &mut Kinds<'_>,
        roots: &Roots<'_>,
        first: usize,
        with_temporaries: bool,
    ) {
        for node in first..self.count {
            if self.nodes[node].distance != 0 {
                continue;
            }
            if let Some(object) = self.object(node) {
                let (kind, _) = kinds.of(python, object);
                let root = roots.root_of(object, kind, with_temporaries);
                self.nodes[node].root = root;
                self.nodes[node].distance = root.penalty();
            }
        }
        self.spread();
    }

    /// Lets each object know its shortest way to a root.
    fn spread(&mut self) {
        for _ in 0..LONGEST_PATH {
            let mut is_changed = false;
            for node in 0..self.count {
                let mut best = (self.nodes[node].distance, self.nodes[node].toward);
                for referrer in self.nodes[node].referrers {
                    let Some(at) = (referrer as usize).checked_sub(1) else { continue };
                    let distance = self.nodes[at].distance;
                    let is_better = distance != 0 && (best.0 == 0 || distance + 1 < best.0);
                    if is_better && distance < FAR - 1 {
                        best = (distance + 1, referrer);
                    }
                }
                is_changed |= best.0 != self.nodes[node].distance;
                (self.nodes[node].distance, self.nodes[node].toward) = best;
            }
            if !is_changed {
                return;
            }
        }
    }

    /// Marks what the next walk looks for; false when there is nothing.
    fn want(&mut self, targets: usize) -> bool {
        for node in &mut self.nodes[..self.count] {
            node.flags &= !(WANTED | NEEDED);
        }
        self.filter.fill(0);
        let mut is_any = false;
        for target in 0..targets {
            let mut depth = 0;
            let mut pending = Some(target);
            while let Some(at) = pending {
                let node = &mut self.nodes[at];
                if node.distance == 0 && node.flags & NEEDED == 0 {
                    node.flags |= NEEDED;
                    if node.flags & EXPANDED == 0 {
                        node.flags |= WANTED;
                        is_any = true;
                        let bit = hash(node.object) as usize % FILTER_BITS;
                        self.filter[bit / 64] |= 1 << (bit % 64);
                    }
                    for referrer in node.referrers {
                        if referrer != 0 && depth < self.stack.len() {
                            self.stack[depth] = referrer - 1;
                            depth += 1;
                        }
                    }
                }
                pending = (depth > 0).then(|| self.stack[depth - 1] as usize);
                depth = depth.saturating_sub(1);
            }
        }
        is_any
    }

    /// From the root to the node, as places. Without a root: the node alone.
    pub fn path(&self, node: usize, path: &mut [usize; LONGEST_PATH]) -> usize {
        let mut length = 0;
        let mut at = Some(node);
        while let Some(place) = at
            && length < LONGEST_PATH
        {
            path[length] = place;
            length += 1;
            at = (self.nodes[place].toward as usize).checked_sub(1);
        }
        path[..length].reverse();
        length
    }

    pub fn root(&self, node: usize) -> Root {
        self.nodes[node].root
    }

    pub fn is_rooted(&self, node: usize) -> bool {
        self.nodes[node].distance != 0
    }

    /// Whether all walks looked for what refers to the object.
    pub fn is_followed(&self, node: usize) -> bool {
        self.nodes[node].flags & EXPANDED != 0
    }

    /// A number for an object without a root that is the same for objects kept in the same way: by the types of what refers to it.
    pub fn signature(&self, node: usize) -> u64 {
        let mut signature = 1_u64 << 63;
        let mut at = Some(node);
        for _ in 0..LONGEST_PATH {
            let Some(object) = at.and_then(|at| self.object(at)) else { break };
            signature =
                (signature.rotate_left(7) ^ object.kind_address() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            at = at.and_then(|at| self.referrer(at));
        }
        signature | 1 << 63
    }

    /// One of the objects that refer to this one.
    pub fn referrer(&self, node: usize) -> Option<usize> {
        (self.nodes[node].referrers[0] as usize).checked_sub(1)
    }
}

impl Visitor for Graph<'_> {
    #[inline]
    fn reference(&mut self, from: Object, to: Object) {
        let bit = hash(to.address()) as usize % FILTER_BITS;
        if self.filter[bit / 64] >> (bit % 64) & 1 == 0 {
            return;
        }
        let Some((_, found)) = self.slot(to.address()) else { return };
        let Some(at) = (found as usize).checked_sub(1) else { return };
        if self.nodes[at].flags & WANTED == 0 || self.nodes[at].referrers[REFERRERS - 1] != 0 {
            return;
        }
        let Some(referrer) = self.add(from.address()) else { return };
        let referrer = referrer as u32 + 1;
        let places = &mut self.nodes[at].referrers;
        if !places.contains(&referrer)
            && let Some(free) = places.iter_mut().find(|place| **place == 0)
        {
            *free = referrer;
        }
    }
}

#[inline(always)]
fn hash(object: usize) -> u64 {
    (object as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
}
