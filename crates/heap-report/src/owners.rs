//! Which threads and allocators the memory of a row came from. Must group as the rows do.

use rustc_hash::FxHashMap;
use stormlog_heap::allocator_name;

use stormlog_model::text::short_name;

use crate::reading::HeapQueryResult;
use crate::rows::{By, CodeLocation, Row};

/// Names that are listed; more are counted.
const NAMED: usize = 2;

/// The threads and the allocators of each row, the largest first, as text.
#[must_use]
pub fn owners(answer: &HeapQueryResult, rows: &[Row], by: By) -> Vec<(String, String)> {
    let tree = &answer.held.tree;
    let key = |node: u32| -> Vec<CodeLocation> {
        let mut stack: Vec<CodeLocation> = match by {
            By::Stack => tree.stack(node).map(CodeLocation::from).collect(),
            By::Line | By::Function => tree.stack(node).take(1).map(CodeLocation::from).collect(),
        };
        if by == By::Function {
            stack.iter_mut().for_each(|place| place.line = 0);
        }
        stack
    };
    let places: FxHashMap<&[CodeLocation], usize> =
        rows.iter().enumerate().map(|(at, row)| (row.stack.as_slice(), at)).collect();
    let mut threads: Vec<FxHashMap<u32, u64>> = vec![FxHashMap::default(); rows.len()];
    let mut allocators: Vec<FxHashMap<u8, u64>> = vec![FxHashMap::default(); rows.len()];
    let mut known: FxHashMap<u32, Option<usize>> = FxHashMap::default();
    let mut at = |node: u32| *known.entry(node).or_insert_with(|| places.get(key(node).as_slice()).copied());
    for row in &answer.held.rows {
        if let Some(at) = at(row.node) {
            let bytes = threads[at].entry(row.thread).or_default();
            *bytes = bytes.saturating_add(row.bytes);
        }
    }
    for share in &answer.allocators {
        if let Some(at) = at(share.node) {
            let bytes = allocators[at].entry(share.allocator).or_default();
            *bytes = bytes.saturating_add(share.bytes);
        }
    }
    let thread = |thread: &u32| {
        let name = answer.held.threads.get(*thread as usize);
        name.map_or_else(String::new, |name| short_name(name))
    };
    let allocator = |allocator: &u8| allocator_name(*allocator).to_owned();
    threads
        .iter()
        .zip(&allocators)
        .map(|(threads, kinds)| (list(threads, thread), list(kinds, allocator)))
        .collect()
}

fn list<K: Ord + Copy>(held: &FxHashMap<K, u64>, name: impl Fn(&K) -> String) -> String {
    let mut sorted: Vec<(K, u64)> = held.iter().map(|(key, bytes)| (*key, *bytes)).collect();
    sorted.sort_unstable_by_key(|(key, bytes)| (std::cmp::Reverse(*bytes), *key));
    let mut names: Vec<String> = sorted.iter().take(NAMED).map(|(key, _)| name(key)).collect();
    if sorted.len() > NAMED {
        names.push(format!("{} more", sorted.len() - NAMED));
    }
    names.join(", ")
}
