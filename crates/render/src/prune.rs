//! Leaves out frames too small to see, so that a page of a hundred thousand stacks stays small. Must never change a total: what is
//! left out is counted under its caller, in a box that says so.

use rustc_hash::FxHashMap;
use stormlog_model::stacks::{Frame, FrameKind, Holding, NodeId, StackProfile, StackTree};

use crate::flamegraph::Limits;

/// The visible part of `held`, and where each old node went.
pub(crate) fn visible(
    held: &StackProfile,
    extra: &[(NodeId, u64)],
    limits: Limits,
) -> (StackProfile, Vec<NodeId>) {
    let (_, total) = held.own_and_total();
    let mut bytes: Vec<u64> = total.iter().map(|weight| weight.bytes).collect();
    add_extra(&held.tree, extra, &mut bytes);
    let least = threshold(&bytes, limits);
    let mut tree = StackTree::new();
    tree.own_code.clone_from(&held.tree.own_code);
    // Frames that no visible stack has would be most of a small page.
    let mut known: FxHashMap<u32, u32> = FxHashMap::default();
    let mut frame_of = |frames: &mut Vec<Frame>, old: u32| {
        *known.entry(old).or_insert_with(|| {
            frames.push(held.tree.frames.get(old as usize).cloned().unwrap_or_else(smaller_frame));
            frames.len() as u32 - 1
        })
    };
    let rest = held.tree.frames.len() as u32;
    let mut place: Vec<NodeId> = vec![0; held.tree.len()];
    let mut smaller: Vec<NodeId> = vec![0; held.tree.len()];
    for node in 1..held.tree.len() {
        let parent = held.tree.parent[node] as usize;
        // Below a box of smaller ones everything is in that box.
        if smaller[parent] != 0 && place[parent] == smaller[parent] {
            place[node] = place[parent];
            smaller[node] = place[parent];
        } else if bytes[node] >= least {
            let frame = frame_of(&mut tree.frames, held.tree.frame[node]);
            place[node] = tree.push(place[parent], frame);
        } else {
            if smaller[parent] == 0 {
                let frame = frame_of(&mut tree.frames, rest);
                smaller[parent] = tree.push(place[parent], frame);
            }
            place[node] = smaller[parent];
            smaller[node] = place[node];
        }
    }
    let mut rows: Vec<Holding> = held
        .rows
        .iter()
        .map(|row| Holding { node: place.get(row.node as usize).copied().unwrap_or(0), ..*row })
        .collect();
    merge(&mut rows);
    (StackProfile { tree, rows, threads: held.threads.clone() }, place)
}

/// The box of what is left out.
fn smaller_frame() -> Frame {
    Frame { function: "(smaller)".into(), file: String::new(), line: 0, kind: FrameKind::Remark }
}

fn add_extra(tree: &StackTree, extra: &[(NodeId, u64)], bytes: &mut [u64]) {
    if extra.is_empty() {
        return;
    }
    let mut total = vec![0u64; bytes.len()];
    for &(node, held) in extra {
        if let Some(sum) = total.get_mut(node as usize) {
            *sum = sum.saturating_add(held);
        }
    }
    for node in (1..total.len()).rev() {
        let parent = tree.parent[node] as usize;
        total[parent] = total[parent].saturating_add(total[node]);
    }
    for (sum, more) in bytes.iter_mut().zip(total) {
        *sum = (*sum).max(more);
    }
}

fn threshold(bytes: &[u64], limits: Limits) -> u64 {
    let whole = bytes.first().copied().unwrap_or(0);
    let least = (whole as f64 * limits.share) as u64;
    let most = limits.nodes;
    if bytes.len() <= most {
        return least.max(1);
    }
    let mut sorted = bytes.to_vec();
    let (_, nth, _) = sorted.select_nth_unstable_by(most, |a, b| b.cmp(a));
    least.max(nth.saturating_add(1))
}

/// One row for each stack and thread, in the order of the stacks.
fn merge(rows: &mut Vec<Holding>) {
    rows.sort_unstable_by_key(|row| (row.node, row.thread));
    rows.dedup_by(|next, kept| {
        let same = (next.node, next.thread) == (kept.node, kept.thread);
        if same {
            kept.bytes = kept.bytes.saturating_add(next.bytes);
            kept.count = kept.count.saturating_add(next.count);
        }
        same
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pruned_frames_are_still_counted() {
        let mut tree = StackTree::new();
        for name in ["main", "big", "small", "deep"] {
            tree.frames.push(Frame {
                function: name.into(),
                file: "a.py".into(),
                line: 1,
                kind: FrameKind::Python,
            });
        }
        let main = tree.push(0, 0);
        let big = tree.push(main, 1);
        let small = tree.push(main, 2);
        let deep = tree.push(small, 3);
        let rows = vec![
            Holding { node: big, thread: 0, bytes: 1 << 40, count: 1 },
            Holding { node: small, thread: 0, bytes: 7, count: 1 },
            Holding { node: deep, thread: 0, bytes: 3, count: 2 },
        ];
        let held = StackProfile { tree, rows, threads: vec!["main".into()] };
        let (kept, place) = visible(&held, &[], Limits { nodes: 1000, moments: usize::MAX, share: 1e-6 });
        assert_eq!(kept.whole(), held.whole());
        assert_eq!(kept.tree.len(), 4, "root, main, big, (smaller)");
        assert_eq!(place[small as usize], place[deep as usize]);
        let names: Vec<_> = kept.tree.stack(place[deep as usize]).map(|f| f.function.as_str()).collect();
        assert_eq!(names, ["(smaller)", "main"]);
    }
}
