//! Samples put together by what holds them: the first collection on the path from the root, or the object itself. Must never hold more than its
//! fixed number of groups; what does not fit is left out of the report and noted in it.

use super::graph::Graph;
use super::kinds::{Kind, Kinds};
use super::path_describer::PathDescriber;
use super::python::{Object, Python};
use super::region::{Region, Zeroed};
use super::roots::Roots;
use super::sampler::{GRAPHS, RECORDED, Sample, Sampler};

const MOST_GROUPS: usize = 4096;

/// What one holder keeps of one memory.
#[derive(Clone, Copy, Default)]
pub struct Group {
    /// The place of the holder in the graph, plus 1; without a root what is common to those kept in the same way.
    key: u64,
    pub memory: u16,
    pub bytes: u64,
    pub objects: u64,
    /// Place of the largest sample.
    pub largest: u32,
    largest_weight: u64,
    instead: u32,
}

impl Group {
    /// Whether an autograd graph keeps it, and the holder keeps the graph.
    pub fn is_by_graph(&self) -> bool {
        self.key >> 63 == 0 && self.key & BY_GRAPH != 0
    }

    /// The place of the object whose path leads to the holder.
    pub fn node(&self, nodes: &[u32]) -> Option<usize> {
        (self.instead as usize).checked_sub(1).or_else(|| node_of(nodes, self.largest as usize))
    }
}

/// Bit of a key: through an autograd graph.
const BY_GRAPH: u64 = 1 << 62;

fn node_of(nodes: &[u32], sample: usize) -> Option<usize> {
    nodes.get(sample).and_then(|node| (*node as usize).checked_sub(1))
}

/// Tensors with a path, by their storages: a storage may have been met first at a tensor that only native code refers to.
struct Owners<'a> {
    slots: &'a mut [(usize, usize)],
}

impl<'a> Owners<'a> {
    const SLOTS: usize = 8192;

    fn new(
        region: &'a Region,
        python: &Python,
        kinds: &mut Kinds<'_>,
        graph: &Graph<'_>,
        sampler: &Sampler<'_>,
        nodes: &[u32],
    ) -> Option<Self> {
        let owners = Owners { slots: region.array(Self::SLOTS)? };
        for (at, sample) in sampler.samples().enumerate().filter(|(_, sample)| sample.memory == GRAPHS) {
            let Some(node) = node_of(nodes, at).filter(|node| graph.is_rooted(*node)) else { continue };
            // SAFETY: sampled in this pass, which holds the GIL to its end, so the object is alive.
            let tensor = unsafe { Object::of(sample.object) };
            let storage = tensor.and_then(|tensor| kinds.tensors.storage(python, tensor));
            if let Some(storage) = storage
                && let Some(slot) = Self::places(storage.address).find(|slot| owners.slots[*slot].0 == 0)
            {
                owners.slots[slot] = (storage.address, node);
            }
        }
        Some(owners)
    }

    fn places(address: usize) -> impl Iterator<Item = usize> {
        let start = (address >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        (0..16).map(move |probe| (start + probe) % Self::SLOTS)
    }

    fn of(&self, address: usize) -> Option<usize> {
        let found = Self::places(address).find(|slot| self.slots[*slot].0 == address);
        found.map(|slot| self.slots[slot].1)
    }
}
// SAFETY: all fields are integers, valid when zeroed.
unsafe impl Zeroed for Group {}

/// All holders, and which one each sample belongs to.
pub struct Holders<'a> {
    groups: &'a mut [Group],
    count: usize,
    of_sample: &'a mut [u64],
    pub is_full: bool,
    /// The holder of an autograd graph, as a key and as a place plus 1; 0: none.
    graph_key: u64,
    graph_node: u32,
}

impl<'a> Holders<'a> {
    /// `nodes` has the place of each sample in the graph, plus 1.
    pub fn new(
        region: &'a Region,
        python: &Python,
        kinds: &mut Kinds<'_>,
        graph: &Graph<'_>,
        roots: &Roots<'_>,
        sampler: &Sampler<'_>,
        nodes: &[u32],
    ) -> Option<Self> {
        let mut holders = Holders {
            groups: region.array(MOST_GROUPS)?,
            count: 0,
            of_sample: region.array(nodes.len())?,
            is_full: false,
            graph_key: 0,
            graph_node: 0,
        };
        let tensors = Owners::new(region, python, kinds, graph, sampler, nodes)?;
        let mut describer = PathDescriber { python, kinds, graph, roots };
        // Tensors as objects first: what keeps a graph also keeps the tensors that no Python object refers to.
        for is_tensors in [true, false] {
            for (at, sample) in sampler.samples().enumerate() {
                let is_graph = sample.memory == GRAPHS;
                let Some(node) = node_of(nodes, at).filter(|_| is_graph == is_tensors) else { continue };
                if is_graph && !keeps_graph(python, sample) {
                    continue;
                }
                if graph.is_rooted(node) {
                    let chain = describer.chain(node);
                    if !describer.is_ours(&chain) {
                        holders.add(at, chain.key() as u64 + 1, sample, 0);
                    }
                } else if let Some(other) = tensors.of(sample.address).filter(|_| !is_graph) {
                    holders.add(at, describer.chain(other).key() as u64 + 1, sample, other as u32 + 1);
                } else if !is_graph && describer.is_tensor(node) && holders.graph_key != 0 {
                    holders.add(at, holders.graph_key | BY_GRAPH, sample, holders.graph_node);
                } else {
                    holders.add(at, graph.signature(node), sample, 0);
                }
            }
            holders.choose_graph(graph, nodes);
        }
        holders.groups[..holders.count].sort_unstable_by_key(|group| core::cmp::Reverse(group.bytes));
        Some(holders)
    }

    /// The holder of most tensors that keep a graph.
    fn choose_graph(&mut self, graph: &Graph<'_>, nodes: &[u32]) {
        let groups = self.groups[..self.count].iter().filter(|group| group.memory == GRAPHS);
        let rooted = groups.filter(|group| group.key >> 63 == 0);
        if let Some(most) = rooted.max_by_key(|group| group.objects) {
            self.graph_key = most.key;
            self.graph_node = node_of(nodes, most.largest as usize)
                .filter(|node| graph.is_rooted(*node))
                .map_or(0, |node| node as u32 + 1);
        }
    }

    /// `instead`: the place plus 1 of the object whose path is the sample's; 0: its own.
    fn add(&mut self, at: usize, key: u64, sample: &Sample, instead: u32) {
        if sample.memory == RECORDED {
            self.of_sample[at] = key;
            return;
        }
        let found = self.groups[..self.count]
            .iter()
            .position(|group| group.key == key && group.memory == sample.memory);
        let Some(index) = found.or_else(|| {
            (self.count < MOST_GROUPS).then(|| {
                self.groups[self.count] = Group { key, memory: sample.memory, ..Group::default() };
                self.count += 1;
                self.count - 1
            })
        }) else {
            self.is_full = true;
            return;
        };
        self.of_sample[at] = key;
        let group = &mut self.groups[index];
        group.bytes += sample.weight;
        group.objects += (sample.weight / sample.bytes.max(1)).max(1);
        if sample.weight > group.largest_weight {
            group.largest_weight = sample.weight;
            group.largest = at as u32;
            group.instead = instead;
        }
    }

    /// The holders, the one with the most bytes first.
    pub fn groups(&self) -> &[Group] {
        &self.groups[..self.count]
    }

    /// Whether a sample of this memory belongs to a holder.
    pub fn has(&self, group: &Group, at: usize, sample: &Sample, memory: u16) -> bool {
        self.of_sample[at] == group.key && sample.memory == memory
    }
}

/// Whether a sampled tensor is the result of an operation that autograd remembers.
fn keeps_graph(python: &Python, sample: &Sample) -> bool {
    // SAFETY: sampled in this pass, which holds the GIL to its end, so the object is alive.
    let Some(tensor) = (unsafe { Object::of(sample.object) }) else { return false };
    let Some(node) = python.attribute(tensor, c"grad_fn") else { return false };
    let is_node = node.class().name() != b"NoneType";
    python.release(node);
    is_node
}

/// Calls `name` with the operations of a tensor's autograd graph, from the last one back, along the first input of each.
pub fn operations(
    python: &Python,
    kinds: &mut Kinds<'_>,
    tensor: Object,
    most: usize,
    mut name: impl FnMut(&[u8]),
) {
    let Some(mut node) = python.attribute(tensor, c"grad_fn") else { return };
    for _ in 0..most {
        if node.class().name() == b"NoneType" {
            break;
        }
        name(node.class().short_name());
        let Some(inputs) = python.attribute(node, c"next_functions") else { break };
        let is_tuple = |kinds: &mut Kinds<'_>, object| kinds.of(python, object).0 == Kind::Tuple;
        let mut next = None;
        if is_tuple(kinds, inputs) {
            for index in 0..inputs.length().min(8) {
                let pair = python.item(inputs, index).filter(|pair| is_tuple(kinds, *pair));
                next = pair
                    .and_then(|pair| python.item(pair, 0))
                    .filter(|one| one.class().name() != b"NoneType");
                if next.is_some() {
                    break;
                }
            }
        }
        let next = next.inspect(|next| python.keep(*next));
        python.release(inputs);
        python.release(node);
        match next {
            Some(next) => node = next,
            None => return,
        }
    }
    python.release(node);
}
