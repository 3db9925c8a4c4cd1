//! Stacks summed up by place: by line, function or module. Must count every byte once.

use rustc_hash::FxHashMap;
use stormlog_model::own_code::{Strongest, module_of};
use stormlog_model::stacks::{FrameKind, Weight};

use crate::frames::Namer;
use crate::stats::LocationTotals;
use crate::tree::{Step, Tree};

/// What a place is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GroupBy {
    /// The responsible line: of the program's own code where a stack has it.
    #[default]
    Line,
    /// The line that allocates, whosever code it is.
    OwnLine,
    /// The module whose code allocates.
    Module,
    /// The responsible function.
    Function,
}

/// Stacks (their Python and their native node) and what they hold, by place.
pub(crate) fn grouped(
    stacks: &FxHashMap<(u32, u32), Weight>,
    by: GroupBy,
    namer: &mut Namer<'_, '_>,
    tree: &Tree,
) -> Vec<LocationTotals> {
    let mut by_frame: Vec<Weight> = Vec::new();
    let mut responsible = Responsible::default();
    for ((python, native), weight) in stacks {
        let frame = match by {
            GroupBy::Line | GroupBy::Function => responsible.of(namer, tree, *python, *native),
            GroupBy::OwnLine | GroupBy::Module => innermost(namer, tree, *python, *native),
        };
        if by_frame.len() <= frame as usize {
            by_frame.resize(frame as usize + 1, Weight::default());
        }
        by_frame[frame as usize] += *weight;
    }
    let mut known: FxHashMap<LocationTotals, Weight> = FxHashMap::default();
    for (frame, weight) in namer.frames.iter().zip(by_frame) {
        if weight == Weight::default() {
            continue;
        }
        let (function, file, line) = match by {
            GroupBy::Line | GroupBy::OwnLine => (frame.function.clone(), frame.file.clone(), frame.line),
            GroupBy::Function => (frame.function.clone(), frame.file.clone(), 0),
            GroupBy::Module if frame.file.is_empty() => (frame.function.clone(), String::new(), 0),
            GroupBy::Module if frame.kind == FrameKind::Native => {
                (frame.file.rsplit('/').next().unwrap_or_default().to_owned(), String::new(), 0)
            }
            GroupBy::Module => (module_of(&frame.file), String::new(), 0),
        };
        *known.entry(LocationTotals { function, file, line, bytes: 0, count: 0 }).or_default() += weight;
    }
    let place =
        |(place, Weight { bytes, count }): (LocationTotals, Weight)| LocationTotals { bytes, count, ..place };
    known.into_iter().map(place).collect()
}

/// The first of the places, the largest first.
pub(crate) fn top(
    places: &[LocationTotals],
    top: usize,
    key: impl Fn(&LocationTotals) -> u64,
) -> Vec<LocationTotals> {
    let mut sorted: Vec<&LocationTotals> = places.iter().collect();
    let name = |place: &LocationTotals| (place.file.clone(), place.line, place.function.clone());
    sorted.sort_by(|one, other| key(other).cmp(&key(one)).then_with(|| name(one).cmp(&name(other))));
    sorted.into_iter().take(top).cloned().collect()
}

fn innermost(namer: &mut Namer<'_, '_>, tree: &Tree, python: u32, native: u32) -> u32 {
    let is_frame =
        |step: &Step| !matches!(step, Step::Mark { .. } | Step::Named { kind: FrameKind::Remark, .. });
    match tree.frames(python).find(is_frame).or_else(|| tree.frames(python).next()) {
        Some(step) => namer.python(step),
        None => native_or_none(namer, native),
    }
}

/// Names of native functions are looked up only where there is nothing else to show: that takes long.
fn native_or_none(namer: &mut Namer<'_, '_>, native: u32) -> u32 {
    namer.responsible_native(native).unwrap_or_else(|| namer.remark("<no Python stack>"))
}

/// Finds the responsible frames of stacks, which share most of their callers.
#[derive(Default)]
struct Responsible {
    /// For each node of the recorded tree the responsible frame of the stack that ends there.
    known: Vec<Strongest<u32>>,
}

impl Responsible {
    fn of(&mut self, namer: &mut Namer<'_, '_>, tree: &Tree, python: u32, native: u32) -> u32 {
        // Every frame of Python has a stronger claim than a native one.
        let frame = self.python(namer, tree, python).frame();
        frame.unwrap_or_else(|| native_or_none(namer, native))
    }

    fn python(&mut self, namer: &mut Namer<'_, '_>, tree: &Tree, node: u32) -> Strongest<u32> {
        self.known.resize(tree.nodes.len(), Strongest::default());
        let mut best = Strongest::default();
        let mut passed = Vec::new();
        let mut at = node;
        // A parent always has the smaller number, so this ends.
        while let Some((parent, step)) =
            tree.nodes.get(at as usize).copied().filter(|(parent, _)| *parent < at)
        {
            best = self.known[at as usize];
            if !best.is_empty() {
                break;
            }
            let frame = namer.python(step);
            passed.push((at, namer.claim(frame), frame));
            at = parent;
        }
        for (node, claim, frame) in passed.into_iter().rev() {
            best.add_callee(claim, frame);
            self.known[node as usize] = best;
        }
        best
    }
}
