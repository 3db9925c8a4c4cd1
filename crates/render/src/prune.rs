//! Leaves out frames nobody could see, so that a page of a hundred thousand stacks stays small. Must never change a total: what is
//! left out is counted under its caller, in a box that says so.

use stormlog_model::stacks::{Frame, FrameKind, Holding, Holdings, NodeId, StackTree};

/// A stack is drawn when it holds at least this part of the whole; a thousandth of a pixel on a wide screen.
const LEAST_SHARE: f64 = 1.0 / 1_000_000.0;

/// The visible part of `held`, and where each old node went. Keeps at most about `most` nodes.
pub(crate) fn visible(held: &Holdings, extra: &[(NodeId, u64)], most: usize) -> (Holdings, Vec<NodeId>) {
    let (_, total) = held.own_and_total();
    let mut bytes: Vec<u64> = total.iter().map(|weight| weight.bytes).collect();
    add_extra(&held.tree, extra, &mut bytes);
    let least = threshold(&bytes, most);
    let mut tree = StackTree::new();
    tree.frames.clone_from(&held.tree.frames);
    tree.own_code.clone_from(&held.tree.own_code);
    let rest = tree.frames.len() as u32;
    tree.frames.push(Frame {
        function: "(smaller)".into(),
        file: String::new(),
        line: 0,
        kind: FrameKind::Remark,
    });
    let mut place: Vec<NodeId> = vec![0; held.tree.len()];
    let mut smaller: Vec<NodeId> = vec![0; held.tree.len()];
    for node in 1..held.tree.len() {
        let parent = held.tree.parent[node] as usize;
        // Below a box of smaller ones everything is in that box.
        if smaller[parent] != 0 && place[parent] == smaller[parent] {
            place[node] = place[parent];
            smaller[node] = place[parent];
        } else if bytes[node] >= least {
            place[node] = tree.push(place[parent], held.tree.frame[node]);
        } else {
            if smaller[parent] == 0 {
                smaller[parent] = tree.push(place[parent], rest);
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
    (Holdings { tree, rows, threads: held.threads.clone() }, place)
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

fn threshold(bytes: &[u64], most: usize) -> u64 {
    let whole = bytes.first().copied().unwrap_or(0);
    let least = (whole as f64 * LEAST_SHARE) as u64;
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
    fn what_is_left_out_is_still_counted() {
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
        let held = Holdings { tree, rows, threads: vec!["main".into()] };
        let (kept, place) = visible(&held, &[], 1000);
        assert_eq!(kept.whole(), held.whole());
        assert_eq!(kept.tree.len(), 4, "root, main, big, (smaller)");
        assert_eq!(place[small as usize], place[deep as usize]);
        let names: Vec<_> = kept.tree.stack(place[deep as usize]).map(|f| f.function.as_str()).collect();
        assert_eq!(names, ["(smaller)", "main"]);
    }
}
