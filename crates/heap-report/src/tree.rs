//! The stacks as an indented tree for people, the biggest first. Must show where every byte went: what is left out is counted in a line.

use stormlog_model::format_bytes;
use stormlog_model::stacks::{NodeId, StackProfile, Weight};
use stormlog_model::text::short_name;

use stormlog_model::text::grouped;

/// Deeper frames are not indented further.
const DEEPEST: usize = 60;

/// The lines of the tree. Frames on the way to the `biggest` stacks are shown, the rest is summed up where it leaves the shown part.
#[must_use]
pub fn lines(held: &StackProfile, biggest: usize) -> Vec<String> {
    let (own, total) = held.own_and_total();
    let shown = shown(held, &own, biggest);
    let mut children: Vec<Vec<NodeId>> = vec![Vec::new(); held.tree.len()];
    for node in 1..held.tree.len() {
        if total[node] != Weight::default() {
            children[held.tree.parent[node] as usize].push(node as NodeId);
        }
    }
    let line = |weight, depth, name: &str| line(weight, total[0], depth, name);
    let mut lines = vec![line(total[0], 0, "all")];
    // The next step is the last one: what follows is put in from its end.
    let mut steps: Vec<Step> = vec![Step::Node(0, 0)];
    while let Some(step) = steps.pop() {
        let (node, depth) = match step {
            Step::Line(line) => {
                lines.push(line);
                continue;
            }
            Step::Node(node, depth) => (node, depth),
        };
        if node != 0 {
            lines.push(line(total[node as usize], depth, &name(held, node)));
        }
        let (mut inside, outside): (Vec<NodeId>, Vec<NodeId>) =
            children[node as usize].iter().partition(|child| shown[**child as usize]);
        if !outside.is_empty() {
            let mut rest = Weight::default();
            outside.iter().for_each(|child| rest += total[*child as usize]);
            let what = format!("… {} smaller", grouped(outside.len() as u64));
            steps.push(Step::Line(line(rest, depth + 1, &what)));
        }
        if node == 0 && own[0] != Weight::default() {
            steps.push(Step::Line(line(own[0], 1, "(no stack)")));
        }
        inside.sort_by_key(|child| (total[*child as usize].bytes, std::cmp::Reverse(*child)));
        steps.extend(inside.into_iter().map(|child| Step::Node(child, depth + 1)));
    }
    lines
}

/// What is still to be written: a frame with all below it, or a line as it is.
enum Step {
    Node(NodeId, usize),
    Line(String),
}

fn shown(held: &StackProfile, own: &[Weight], biggest: usize) -> Vec<bool> {
    let mut order: Vec<NodeId> = (1..held.tree.len() as NodeId).collect();
    order.sort_by_key(|node| (std::cmp::Reverse(own[*node as usize].bytes), *node));
    let mut shown = vec![false; held.tree.len()];
    shown[0] = true;
    for node in order.into_iter().take(biggest).filter(|node| own[*node as usize] != Weight::default()) {
        let mut at = node as usize;
        while !shown[at] {
            shown[at] = true;
            at = held.tree.parent[at] as usize;
        }
    }
    shown
}

fn name(held: &StackProfile, node: NodeId) -> String {
    let frame = &held.tree.frames[held.tree.frame[node as usize] as usize];
    let place = frame.place();
    let gap = if place.is_empty() { "" } else { "  " };
    short_name(&format!("{}{gap}{place}", frame.function))
}

fn line(weight: Weight, whole: Weight, depth: usize, name: &str) -> String {
    let share = 100.0 * weight.bytes as f64 / whole.bytes.max(1) as f64;
    let indent = " ".repeat(depth.min(DEEPEST));
    let count = whole.counted().map_or_else(|| "-".to_owned(), |_| grouped(weight.count));
    format!("{:>11} {share:>5.1} % {count:>12}  {indent}{name}", format_bytes(weight.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stormlog_model::stacks::{Frame, FrameKind, Holding, StackTree};

    #[test]
    fn biggest_first_and_nothing_lost() {
        let mut tree = StackTree::new();
        for function in ["main", "small", "\x1b[2Jbig"] {
            let (file, kind) = ("a.py".to_owned(), FrameKind::Python);
            tree.frames.push(Frame { function: function.into(), file, line: 4, kind });
        }
        let main = tree.push(0, 0);
        let small = tree.push(main, 1);
        let big = tree.push(main, 2);
        let row = |node, bytes| Holding { node, thread: 0, bytes, count: 1 };
        let held = StackProfile { rows: vec![row(small, 10), row(big, 90)], tree, threads: vec![] };
        let text = lines(&held, 1);
        assert_eq!(
            text,
            [
                "      100 B 100.0 %            2  all",
                "      100 B 100.0 %            2   main  a.py:4",
                "       90 B  90.0 %            1    ␛[2Jbig  a.py:4",
                "       10 B  10.0 %            1    … 1 smaller",
            ]
        );
        assert_eq!(lines(&held, 9)[2], "       90 B  90.0 %            1    ␛[2Jbig  a.py:4");
    }
}
