//! What the memory of a device is for, by the stacks of its blocks and their sizes: parameters, gradients, optimizer state, activations and the
//! rest. The words and what frames say are in `model::gpu_category`. Must add up to what lives, and call unknown what no rule covers.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Serialize;
use stormlog_capture::record::mark;
use stormlog_model::gpu_category::{Category, WORKSPACES, category_of_stack};
use stormlog_model::stacks::{FrameKind, NodeId, StackTree};

use crate::devices::DeviceLedger;
use crate::frames::is_backward_remark;
use crate::ledger::{Ledger, Site};
use crate::tree::{BEFORE_RECORDING, ROOT, Step, Tree};

/// Bytes and blocks of one category.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CategoryAmount {
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
}

/// Blocks of one site and size that live at the moment that is judged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LiveBlocks {
    pub(crate) site: u32,
    pub(crate) size: u64,
    pub(crate) count: u64,
    /// The allocations of its thread before it.
    pub(crate) born: u32,
}

/// The blocks that live now.
pub(crate) fn living(ledger: &Ledger) -> Vec<LiveBlocks> {
    let block = |block: &crate::ledger::Block| LiveBlocks {
        site: block.site,
        size: block.size,
        count: 1,
        born: block.born >> 1,
    };
    let mut list: Vec<LiveBlocks> = ledger.blocks.iter().map(|(_, found)| block(found)).collect();
    // What is older than the recording has no blocks.
    let known = list.iter().fold(FxHashMap::<u32, u64>::default(), |mut sums, block| {
        *sums.entry(block.site).or_default() += block.size;
        sums
    });
    for (site, held) in ledger.sites.iter().enumerate() {
        let rest = held.now.bytes.saturating_sub(known.get(&(site as u32)).copied().unwrap_or(0));
        if rest > 0 {
            list.push(LiveBlocks { site: site as u32, size: rest, count: 1, born: 0 });
        }
    }
    list
}

impl DeviceLedger {
    /// What lived when the program's own code had ended, or at the end, by category; those that have nothing are left out.
    pub(crate) fn categories(&self, tree: &Tree) -> BTreeMap<&'static str, CategoryAmount> {
        let (sites, living) = (&self.ledger.sites, &self.judged);
        let mut kinds: Vec<Option<Category>> = vec![None; sites.len()];
        let mut is_known = vec![false; sites.len()];
        let mut rows: Vec<(LiveBlocks, Option<Category>)> = Vec::with_capacity(living.len());
        for block in living {
            let at = block.site as usize;
            let Some(site) = sites.get(at) else { continue };
            if !is_known[at] {
                (kinds[at], is_known[at]) = (of_site(tree, site), true);
            }
            rows.push((*block, kinds[at]));
        }
        // The first that was allocated first: a workspace is taken once, and gradients outlive what the pass needs for a moment.
        rows.sort_by_key(|(block, _)| block.born);
        let mut gradients = Gradients::of(&rows);
        let mut workspaces: FxHashMap<(u32, u64), ()> = FxHashMap::default();
        let mut sums: BTreeMap<&'static str, CategoryAmount> = BTreeMap::new();
        for (block, kind) in &rows {
            let site = &sites[block.site as usize];
            let is_operation = matches!(kind, Some(Category::Activations | Category::BackwardTemporaries));
            let is_workspace = is_operation
                && WORKSPACES.contains(&block.size)
                && workspaces.insert((site.key.thread, block.size), ()).is_none();
            let category = match kind {
                _ if is_workspace => Category::Workspaces,
                Some(Category::BackwardTemporaries) if gradients.takes(block) => Category::Gradients,
                Some(kind) => *kind,
                // The program's own line, outside of modules, optimizers and loaders.
                None if site.key.python != ROOT && !is_before(tree, site) => Category::Data,
                None => Category::Unknown,
            };
            let sum = sums.entry(category.name()).or_default();
            sum.bytes = sum.bytes.saturating_add(block.size.saturating_mul(block.count));
            sum.blocks += block.count;
        }
        sums
    }
}

/// PyTorch hands out a block of its large pool with up to this much more than was requested, where the rest would be too small to split off.
const PADDING: u64 = 1 << 20;

/// Tells gradients from what a backward pass needs for a moment: a gradient has the size of a parameter, but for padding, and each parameter has one.
struct Gradients {
    /// How many parameters of each size have no gradient yet.
    left: BTreeMap<u64, u64>,
    /// No parameter is known (the recording began late): what outlived its pass is a gradient.
    takes_all: bool,
}

impl Gradients {
    fn of(rows: &[(LiveBlocks, Option<Category>)]) -> Self {
        let mut left: BTreeMap<u64, u64> = BTreeMap::new();
        for (block, _) in rows.iter().filter(|(_, kind)| *kind == Some(Category::Parameters)) {
            *left.entry(block.size).or_default() += block.count;
        }
        Gradients { takes_all: left.is_empty(), left }
    }

    fn takes(&mut self, block: &LiveBlocks) -> bool {
        // The small pool splits to the byte that was rounded to.
        let padding = if block.size > PADDING { PADDING } else { 0 };
        let alike = block.size.saturating_sub(padding)..=block.size.saturating_add(padding);
        let free = self.left.range_mut(alike).filter(|(_, count)| **count >= block.count);
        match free.min_by_key(|(size, _)| size.abs_diff(block.size)) {
            Some((_, count)) => {
                *count -= block.count;
                true
            }
            None => self.takes_all,
        }
    }
}

/// What the stack of a node says about the memory of a device: as [`of_site`], for trees that are drawn. Gradients are not separated from what a backward pass needs
/// for a moment: that takes the sizes of the blocks.
#[must_use]
pub fn category_of_node(tree: &StackTree, node: NodeId) -> Category {
    if tree.stack(node).any(is_backward_remark) {
        return Category::BackwardTemporaries;
    }
    let frames = || tree.stack(node).filter(|frame| frame.kind == FrameKind::Python);
    let found = category_of_stack(frames().map(|frame| (frame.file.as_str(), frame.function.as_str())));
    found.unwrap_or(if frames().next().is_some() { Category::Data } else { Category::Unknown })
}

/// What a site's stack says.
pub(crate) fn of_site(tree: &Tree, site: &Site) -> Option<Category> {
    match is_of_engine(tree, site) {
        true => Some(Category::BackwardTemporaries),
        false => category_of_stack(frames(tree, site)),
    }
}

/// Whether a thread of the autograd engine took it for a backward pass.
pub(crate) fn is_of_engine(tree: &Tree, site: &Site) -> bool {
    let is_backward = |step: Step| matches!(step, Step::Mark { mark } if [mark::BACKWARD, mark::BACKWARD_AMBIGUOUS].contains(&u64::from(mark)));
    tree.frames(site.key.python).any(is_backward)
}

/// File and function of the frames of a site, the innermost first.
pub(crate) fn frames<'a>(tree: &'a Tree, site: &Site) -> impl Iterator<Item = (&'a str, &'a str)> {
    let code = |step: Step| match step {
        Step::Python { code, .. } | Step::Line { code, .. } => tree.codes.get(code as usize),
        _ => None,
    };
    tree.frames(site.key.python).filter_map(code).map(|code| (code.file.as_str(), code.name.as_str()))
}

fn is_before(tree: &Tree, site: &Site) -> bool {
    tree.frames(site.key.python).any(|step| matches!(step, Step::Mark { mark } if mark == BEFORE_RECORDING))
}
