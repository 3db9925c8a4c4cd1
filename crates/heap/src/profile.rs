//! A heap as a tree of stacks, for one question: what lived at the peak, what was left, what came and went.

use rustc_hash::FxHashMap;
use stormlog_model::stacks::{Holding, StackProfile, StackTree, Weight};

use crate::frames::{Namer, Symbolizer};
use crate::heap::Heap;
use crate::ids::Ids;
use crate::ledger::Ledger;
use crate::level::Amount;
use crate::lifetimes::Life;
use crate::tree::{ROOT, Tree};

/// The selected blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Those that lived when the heap was largest.
    Peak,
    /// Those that lived when the program's own code had ended; where that is not known, at the end.
    Leaks,
    /// Those that lived at the very end, after the interpreter had taken itself down.
    End,
    /// Those that were freed right after.
    Temporary,
    /// Those that lived when the last request got no memory. Not known of a failure whose records were folded.
    Failure,
    /// Those that lived at the time given to [`HeapReadOptions`](crate::HeapReadOptions).
    At,
    /// Those allocated in the span given to [`HeapReadOptions`](crate::HeapReadOptions) that lived when it ended.
    Span,
    /// All there ever were.
    Total,
}

/// What a thread allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadShare {
    /// Kernel thread id.
    pub thread: u64,
    /// Its name, where known.
    pub name: Option<String>,
    /// How much.
    pub weight: Weight,
}

impl ThreadShare {
    /// Its name and number, as a person reads them.
    #[must_use]
    pub fn label(&self) -> String {
        match &self.name {
            Some(name) => format!("{name} ({})", self.thread),
            None => format!("thread {}", self.thread),
        }
    }
}

/// What the stacks hold, and when it came and went.
#[derive(Debug, Clone, Default)]
pub struct Profile {
    /// What each thread holds on each stack; threads are sorted, the largest first.
    pub held: StackProfile,
    /// By which allocators.
    pub allocators: Vec<AllocatorShare>,
    /// When the memory of each stack came and went, where [`HeapReadOptions::moments`](crate::HeapReadOptions) asked for it.
    pub lifetimes: Vec<Lifetime>,
    /// Which of those moments were kept; a lifetime counts in these.
    pub moments: Vec<usize>,
}

/// What one thread got from one allocator on one stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocatorShare {
    /// The stack's node.
    pub node: u32,
    /// Its place in [`StackProfile::threads`].
    pub thread: u32,
    /// The allocator, for [`allocator_name`](crate::allocator_name).
    pub allocator: u8,
    /// Bytes.
    pub bytes: u64,
}

/// Blocks of one thread and stack that came and went between the same moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// The stack's node.
    pub node: u32,
    /// Its place in [`StackProfile::threads`].
    pub thread: u32,
    /// First moment at which they are there.
    pub birth: u32,
    /// First moment at which they are gone; the number of moments when they never went.
    pub death: u32,
    /// How much.
    pub weight: Weight,
}

impl Heap {
    /// The tree for one question, of the selected memory; of all of them, each is a root.
    pub fn profile(&self, mode: Mode, symbolizer: Option<&mut dyn Symbolizer>) -> Profile {
        self.profile_with(mode, symbolizer, None)
    }

    /// What lived when the program's own code had ended, with when it came and went by the looks of a capture whose records are folded: the moments, and the bytes
    /// that the largest sites held. `None` where one memory is not selected, or no looks were kept.
    pub fn folded_lives(
        &self,
        symbolizer: Option<&mut dyn Symbolizer>,
    ) -> Option<(Profile, Vec<(u64, u64)>)> {
        let ledger = match self.asked()[..] {
            [(_, ledger)] => ledger,
            _ => return None,
        };
        let (times, lives) = ledger.history.as_ref()?.lives(ledger);
        Some((self.profile_with(Mode::Leaks, symbolizer, Some(lives)), times))
    }

    fn profile_with(
        &self,
        mode: Mode,
        symbolizer: Option<&mut dyn Symbolizer>,
        folded: Option<Vec<Life>>,
    ) -> Profile {
        let own_code = self.own_code();
        let mut namer = Namer::new(&self.state.tree, symbolizer, &own_code);
        let mut growing = Growing::default();
        let mut threads: FxHashMap<u32, Weight> = FxHashMap::default();
        let mut held: Vec<(u32, u32, Weight)> = Vec::new();
        let mut allocators: Vec<AllocatorShare> = Vec::new();
        let asked = self.asked();
        // Each memory counts its own changes: only one can tell when its blocks came and went.
        let alone = match asked[..] {
            [(_, ledger)] => Some(ledger),
            _ => None,
        };
        let moments = alone.and_then(|ledger| Some(ledger.lives.as_ref()?.moments())).unwrap_or_default();
        let recorded = alone.and_then(|ledger| Some(ledger.lives.as_ref()?.all(ledger)));
        let lives = folded.or(recorded).unwrap_or_default();
        let timed = alone.filter(|_| !lives.is_empty());
        let sites = timed.map_or(0, |ledger| ledger.sites.len());
        let mut has_lives = vec![false; sites];
        lives.iter().for_each(|life| has_lives[life.site as usize] = true);
        let mut places = vec![0; if lives.is_empty() { 0 } else { sites }];
        for (memory, ledger) in asked {
            let root = memory.map(|memory| namer.remark(&memory.to_string()));
            let root = growing.begin(root);
            let mut known: FxHashMap<(u32, u32), u32> = FxHashMap::default();
            for (index, site) in ledger.sites.iter().enumerate() {
                let weight = ledger.weight(ledger.amount_at(mode, index));
                if weight == Weight::default() && !has_lives.get(index).is_some_and(|has| *has) {
                    continue;
                }
                let node = if site.key.native == ROOT {
                    growing.python(&mut namer, &self.state.tree, site.key.python)
                } else {
                    *known.entry((site.key.python, site.key.native)).or_insert_with(|| {
                        let stack = namer.stack(site.key);
                        stack.into_iter().rev().fold(root, |parent, frame| growing.child(parent, frame))
                    })
                };
                *threads.entry(site.key.thread).or_default() += weight;
                held.push((node, site.key.thread, weight));
                if weight.bytes > 0 {
                    let (thread, allocator, bytes) = (site.key.thread, site.key.kind, weight.bytes);
                    allocators.push(AllocatorShare { node, thread, allocator, bytes });
                }
                if let Some(place) = places.get_mut(index) {
                    *place = node;
                }
            }
        }
        let mut threads: Vec<(u32, ThreadShare)> =
            threads.into_iter().map(|(thread, weight)| (thread, self.thread_share(thread, weight))).collect();
        threads.sort_by_key(|(_, share)| (std::cmp::Reverse(share.weight.bytes), share.thread));
        let order: FxHashMap<u32, u32> =
            threads.iter().enumerate().map(|(place, (thread, _))| (*thread, place as u32)).collect();
        let held = held.into_iter().filter(|(.., weight)| *weight != Weight::default());
        let mut rows: Vec<Holding> = held
            .map(|(node, thread, Weight { bytes, count })| Holding {
                node,
                thread: order[&thread],
                bytes,
                count,
            })
            .collect();
        rows.sort_unstable_by_key(|row| (row.node, row.thread));
        rows.dedup_by(|next, kept| {
            let is_same = (next.node, next.thread) == (kept.node, kept.thread);
            if is_same {
                kept.bytes = kept.bytes.saturating_add(next.bytes);
                kept.count = kept.count.saturating_add(next.count);
            }
            is_same
        });
        allocators.iter_mut().for_each(|share| share.thread = order[&share.thread]);
        let lifetimes = timed.into_iter().flat_map(|ledger| {
            lives.iter().map(|life| Lifetime {
                node: places[life.site as usize],
                thread: order[&ledger.sites[life.site as usize].key.thread],
                birth: life.birth,
                death: life.death,
                weight: ledger.weight(life.amount),
            })
        });
        let (lifetimes, frames) = (lifetimes.collect(), namer.frames);
        let (parent, frame) = growing.nodes.into_iter().unzip();
        let tree = StackTree { frames, parent, frame, own_code };
        let threads = threads.iter().map(|(_, share)| share.label()).collect();
        Profile { held: StackProfile { tree, rows, threads }, allocators, lifetimes, moments }
    }

    pub(crate) fn thread_share(&self, index: u32, weight: Weight) -> ThreadShare {
        let thread = self.state.threads.get(index as usize).copied().unwrap_or(0);
        ThreadShare { thread, name: self.thread_name(index, thread), weight }
    }
}

impl Ledger {
    /// What a site held.
    pub(crate) fn amount_at(&self, mode: Mode, site: usize) -> Amount {
        let kept = |amounts: &Option<Vec<Amount>>| amounts.as_ref().and_then(|list| list.get(site)).copied();
        let held = &self.sites[site];
        match mode {
            Mode::Peak => held.peak,
            Mode::Leaks => match &self.code_end {
                Some(end) => end.sites.get(site).copied().unwrap_or_default(),
                None => held.now,
            },
            Mode::End => held.now,
            Mode::Temporary => held.temporary,
            Mode::Failure => self.at_failure(site).unwrap_or_default(),
            Mode::At => kept(&self.at).unwrap_or_default(),
            Mode::Span => kept(&self.span).unwrap_or_default(),
            Mode::Total => held.total,
        }
    }

    pub(crate) fn weight(&self, amount: Amount) -> Weight {
        Weight { bytes: amount.bytes, count: self.weights.blocks(amount.count) }
    }
}

/// The tree of a profile, as far as it is.
struct Growing {
    /// Parent and frame of each node; node 0 is the root.
    nodes: Vec<(u32, u32)>,
    children: Ids,
    /// Where nodes of the recorded tree went, 0 while that is not known: stacks share most of their way.
    python: Vec<u32>,
    /// The node that outermost frames hang from now.
    root: u32,
}

impl Default for Growing {
    fn default() -> Self {
        let (children, python, root) = Default::default();
        Growing { nodes: vec![(0, 0)], children, python, root }
    }
}

impl Growing {
    /// What comes next hangs from `frame`, or from the root itself.
    fn begin(&mut self, frame: Option<u32>) -> u32 {
        self.python.clear();
        self.root = frame.map_or(0, |frame| self.child(0, frame));
        self.root
    }

    fn child(&mut self, parent: u32, frame: u32) -> u32 {
        let child = self.children.place(&self.nodes, (parent, frame), |node| *node);
        if child as usize == self.nodes.len() {
            self.nodes.push((parent, frame));
        }
        child
    }

    /// The place of a stack that is Python alone.
    fn python(&mut self, namer: &mut Namer<'_, '_>, tree: &Tree, node: u32) -> u32 {
        self.python.resize(tree.nodes.len(), 0);
        let mut new = Vec::new();
        let mut at = node;
        let mut place = self.root;
        // A parent always has the smaller number, so this ends.
        while let Some((parent, step)) =
            tree.nodes.get(at as usize).copied().filter(|(parent, _)| *parent < at)
        {
            let known = self.python[at as usize];
            if known != 0 {
                place = known;
                break;
            }
            new.push((at, step));
            at = parent;
        }
        for (node, step) in new.into_iter().rev() {
            place = self.child(place, namer.python(step));
            self.python[node as usize] = place;
        }
        place
    }
}
