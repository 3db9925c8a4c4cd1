//! The interactive flame graph: what the caller knows, turned into the columns the page's script reads. Must never lose a byte on
//! the way: the page's total is the total that came in.

use rustc_hash::FxHashMap;
use serde::Serialize;
use stormlog_model::stacks::{Frame, FrameKind, NodeId, Origin, StackProfile};

use crate::page::Template;
use crate::prune::visible;

const TEMPLATE: Template = Template {
    html: concat!(include_str!("../assets/head.html"), include_str!("../assets/flamegraph/page.html")),
    style: concat!(include_str!("../assets/page.css"), include_str!("../assets/flamegraph/style.css")),
    scripts: &[
        include_str!("../assets/say.js"),
        include_str!("../assets/page.js"),
        include_str!("../assets/flamegraph/data.js"),
        include_str!("../assets/flamegraph/tree.js"),
        include_str!("../assets/flamegraph/held.js"),
        include_str!("../assets/flamegraph/graph.js"),
        include_str!("../assets/flamegraph/detail.js"),
        include_str!("../assets/flamegraph/strip.js"),
        include_str!("../assets/flamegraph/main.js"),
    ],
};

/// What a page holds at most. What is beyond is folded into "(smaller)": the page stays small and quick.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limits {
    /// Frames, about.
    pub(crate) nodes: usize,
    /// Moments of the axis of time.
    pub(crate) moments: usize,
    /// A stack is drawn when it holds at least this part of the whole.
    pub(crate) share: f64,
}

/// Of the page of one capture. A millionth of the whole is a thousandth of a pixel on a wide screen.
const LIMITS: Limits = Limits { nodes: 60_000, moments: usize::MAX, share: 1.0 / 1_000_000.0 };

/// What the page says and shows.
#[derive(Debug, Clone, Default)]
pub struct FlameGraph {
    /// What it is called in the switch, where a page has several.
    pub name: String,
    /// Head line.
    pub title: String,
    /// Line below it.
    pub subtitle: String,
    /// Short facts, name and value.
    pub facts: Vec<(String, String)>,
    /// Sentences that must be seen: a failed request, lost records.
    pub notes: Vec<String>,
    /// What the page says when nothing is held.
    pub empty: String,
    /// The stacks and what they hold.
    pub held: StackProfile,
    /// What the same stacks held before: the graph then shows the difference. One for each row of `held`.
    pub before: Option<Vec<(u64, u64)>>,
    /// Start with the leaves on top.
    pub inverted: bool,
    /// Memory over time.
    pub strip: Option<Strip>,
    /// Blocks by when they came and went, so that a span of the strip can be shown.
    pub spans: Option<Vec<Lifetime>>,
    /// Source lines by (file, line).
    pub source: FxHashMap<(String, u32), String>,
}

/// Memory over time, in equal steps or not.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Strip {
    /// Milliseconds since the start.
    #[serde(rename = "time")]
    pub time_ms: Vec<u64>,
    /// Bytes on the heap at each of them.
    #[serde(rename = "heap")]
    pub heap_bytes: Vec<u64>,
    /// Resident bytes, where known.
    #[serde(rename = "rss", skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<Vec<Option<u64>>>,
    /// What the two are called.
    pub names: [&'static str; 2],
}

/// Blocks of one stack that came and went between the same steps of the strip.
#[derive(Debug, Clone, Copy)]
pub struct Lifetime {
    /// The stack.
    pub node: NodeId,
    /// Index of the thread.
    pub thread: u32,
    /// First step at which they are alive.
    pub birth: u32,
    /// First step at which they are gone; the number of steps when they never went.
    pub death: u32,
    /// Bytes.
    pub bytes: u64,
    /// Allocations.
    pub count: u64,
}

/// The page.
#[must_use]
pub fn page(graph: &FlameGraph) -> String {
    TEMPLATE.fill(&graph.title, &data(graph, LIMITS))
}

/// A page of several graphs of one recording with a switch between them, on one axis of time. It starts with the one at `start`.
#[must_use]
pub fn pages(graphs: &[FlameGraph], start: usize) -> String {
    let Some(first) = graphs.get(start) else { return page(&FlameGraph::default()) };
    let others = graphs.iter().enumerate().filter(|(place, _)| *place != start);
    let others = others.map(|(_, graph)| data(graph, LIMITS)).collect();
    TEMPLATE.fill(&first.title, &Data { others, place: start, ..data(first, LIMITS) })
}

pub(crate) fn data(graph: &FlameGraph, limits: Limits) -> Data<'_> {
    let (held, place, before) = shown(graph, limits);
    let mut strings = Strings::default();
    let frames = frames(&held, &mut strings);
    let source = source(&held, graph, &mut strings);
    Data {
        name: &graph.name,
        others: Vec::new(),
        place: 0,
        title: &graph.title,
        subtitle: &graph.subtitle,
        facts: &graph.facts,
        notes: &graph.notes,
        empty: &graph.empty,
        inverted: graph.inverted,
        nodes: Nodes {
            up: (0..held.tree.len()).map(|node| node as u32 - held.tree.parent[node]).collect(),
            frame: held.tree.frame.clone(),
        },
        entries: entries(&held, before.as_deref()),
        threads: held.threads.clone(),
        strip: graph.strip.as_ref(),
        spans: graph.spans.as_deref().map(|lives| spans(lives, &place)),
        frames,
        source,
        strings: strings.list,
    }
}

/// A row's bytes and allocations in the recording that is compared with.
type ComparedRows = Vec<(u64, u64)>;

/// The visible stacks, where each stack went, and what each row held before.
fn shown(graph: &FlameGraph, limits: Limits) -> (StackProfile, Vec<NodeId>, Option<ComparedRows>) {
    let mut extra: Vec<(NodeId, u64)> =
        graph.spans.iter().flatten().map(|life| (life.node, life.bytes)).collect();
    let Some(before) = &graph.before else {
        let (held, place) = visible(&graph.held, &extra, limits);
        return (held, place, None);
    };
    if graph.held.tree.len() <= limits.nodes {
        let place = (0..graph.held.tree.len() as NodeId).collect();
        return (graph.held.clone(), place, Some(before.clone()));
    }
    // What is small on one side may be large on the other.
    let past = || graph.held.rows.iter().zip(before);
    extra.extend(past().map(|(row, (bytes, _))| (row.node, *bytes)));
    let (held, place) = visible(&graph.held, &extra, limits);
    let mut sums: FxHashMap<(NodeId, u32), (u64, u64)> = FxHashMap::default();
    for (row, (bytes, count)) in past() {
        let node = place.get(row.node as usize).copied().unwrap_or(0);
        let sum = sums.entry((node, row.thread)).or_default();
        *sum = (sum.0.saturating_add(*bytes), sum.1.saturating_add(*count));
    }
    let before = held.rows.iter().map(|row| sums.get(&(row.node, row.thread)).copied().unwrap_or_default());
    let before = before.collect();
    (held, place, Some(before))
}

#[derive(Serialize)]
pub(crate) struct Data<'a> {
    name: &'a str,
    /// The other graphs of the page, in order, and the place of this one among them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    others: Vec<Data<'a>>,
    place: usize,
    title: &'a str,
    subtitle: &'a str,
    facts: &'a [(String, String)],
    notes: &'a [String],
    empty: &'a str,
    inverted: bool,
    frames: Frames,
    nodes: Nodes,
    entries: Entries,
    threads: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strip: Option<&'a Strip>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spans: Option<Spans>,
    source: FxHashMap<u32, u32>,
    strings: Vec<String>,
}

#[derive(Serialize, Default)]
struct Frames {
    function: Vec<u32>,
    file: Vec<u32>,
    line: Vec<u32>,
    flags: Vec<u32>,
    /// How strong the claim to be the responsible frame is, 0 the strongest.
    claim: Vec<u32>,
}

#[derive(Serialize)]
struct Nodes {
    up: Vec<u32>,
    frame: Vec<u32>,
}

#[derive(Serialize, Default)]
struct Entries {
    node: Vec<i64>,
    thread: Vec<u32>,
    bytes: Vec<u64>,
    count: Vec<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    before_bytes: Option<Vec<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    before_count: Option<Vec<u64>>,
}

#[derive(Serialize, Default)]
struct Spans {
    node: Vec<i64>,
    thread: Vec<u32>,
    birth: Vec<u32>,
    death: Vec<u32>,
    bytes: Vec<u64>,
    count: Vec<u64>,
}

#[derive(Default)]
struct Strings {
    known: FxHashMap<String, u32>,
    list: Vec<String>,
}

impl Strings {
    fn id(&mut self, text: &str) -> u32 {
        if let Some(&id) = self.known.get(text) {
            return id;
        }
        let id = self.list.len() as u32;
        self.list.push(text.to_owned());
        self.known.insert(text.to_owned(), id);
        id
    }
}

/// The bits `tree.js` knows.
fn flags(frame: &Frame, origin: Origin) -> u32 {
    let native = u32::from(frame.kind == FrameKind::Native);
    native
        | match origin {
            Origin::User | Origin::Native => 0,
            Origin::Library => 2,
            Origin::Import => 4,
            Origin::Interpreter => 8,
        }
}

fn frames(held: &StackProfile, strings: &mut Strings) -> Frames {
    let mut columns = Frames::default();
    for frame in &held.tree.frames {
        columns.function.push(strings.id(&frame.function));
        columns.file.push(strings.id(&frame.file));
        columns.line.push(frame.line);
        columns.flags.push(flags(frame, held.tree.origin(frame)));
        columns.claim.push(held.tree.own_code.claim(frame) as u32);
    }
    columns
}

fn source(held: &StackProfile, graph: &FlameGraph, strings: &mut Strings) -> FxHashMap<u32, u32> {
    let mut lines = FxHashMap::default();
    if graph.source.is_empty() {
        return lines;
    }
    for (id, frame) in held.tree.frames.iter().enumerate() {
        if let Some(text) = graph.source.get(&(frame.file.clone(), frame.line)) {
            lines.insert(id as u32, strings.id(text));
        }
    }
    lines
}

fn entries(held: &StackProfile, before: Option<&[(u64, u64)]>) -> Entries {
    let mut columns = Entries::default();
    let mut last = 0;
    for row in &held.rows {
        columns.node.push(i64::from(row.node) - last);
        last = i64::from(row.node);
        columns.thread.push(row.thread);
        columns.bytes.push(row.bytes);
        columns.count.push(row.count);
    }
    if let Some(before) = before {
        columns.before_bytes = Some(before.iter().map(|pair| pair.0).collect());
        columns.before_count = Some(before.iter().map(|pair| pair.1).collect());
    }
    columns
}

fn spans(lives: &[Lifetime], place: &[NodeId]) -> Spans {
    let mut merged: FxHashMap<(NodeId, u32, u32, u32), (u64, u64)> = FxHashMap::default();
    for life in lives {
        let node = place.get(life.node as usize).copied().unwrap_or(0);
        let sum = merged.entry((node, life.thread, life.birth, life.death)).or_default();
        sum.0 = sum.0.saturating_add(life.bytes);
        sum.1 = sum.1.saturating_add(life.count);
    }
    let mut rows: Vec<_> = merged.into_iter().collect();
    rows.sort_unstable();
    let mut columns = Spans::default();
    let mut last = 0;
    for ((node, thread, birth, death), (bytes, count)) in rows {
        columns.node.push(i64::from(node) - last);
        last = i64::from(node);
        columns.thread.push(thread);
        columns.birth.push(birth);
        columns.death.push(death);
        columns.bytes.push(bytes);
        columns.count.push(count);
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::unpacked as unpack;
    use stormlog_model::stacks::{Holding, StackTree};

    fn graph() -> FlameGraph {
        let mut tree = StackTree::new();
        for (name, file) in
            [("main", "a.py"), ("</script>", "b.py"), ("loads", "/usr/lib/python3.11/json/__init__.py")]
        {
            tree.frames.push(Frame {
                function: name.into(),
                file: file.into(),
                line: 7,
                kind: FrameKind::Python,
            });
        }
        let main = tree.push(0, 0);
        let odd = tree.push(main, 1);
        let loads = tree.push(odd, 2);
        let rows = vec![
            Holding { node: main, thread: 0, bytes: 100, count: 1 },
            Holding { node: odd, thread: 1, bytes: 300, count: 2 },
            Holding { node: loads, thread: 1, bytes: 100, count: 1 },
        ];
        FlameGraph {
            title: "a <b>".into(),
            held: StackProfile { tree, rows, threads: vec!["one".into(), "two".into()] },
            spans: Some(vec![Lifetime { node: odd, thread: 1, birth: 0, death: 2, bytes: 400, count: 3 }]),
            strip: Some(Strip {
                time_ms: vec![0, 5, 9],
                heap_bytes: vec![100, 500, 100],
                rss_bytes: None,
                names: ["heap", "resident"],
            }),
            source: FxHashMap::from_iter([(("a.py".to_owned(), 7), "x = load()".to_owned())]),
            ..FlameGraph::default()
        }
    }

    #[test]
    fn the_page_holds_every_byte() {
        let page = page(&graph());
        let data = unpack(&page);
        let sum: u64 = data["entries"]["bytes"].as_array().unwrap().iter().map(|v| v.as_u64().unwrap()).sum();
        assert_eq!(sum, 500);
        assert_eq!(data["frames"]["flags"][2], 2, "the standard library is a library");
        assert_eq!(data["spans"]["bytes"][0], 400);
        let source = data["source"]["0"].as_u64().unwrap();
        assert_eq!(data["strings"][source as usize], "x = load()");
        assert!(page.contains("<title>a &lt;b&gt;</title>"));
        assert_eq!(page.matches("</script>").count(), 2, "only the page's own scripts end");
    }

    #[test]
    fn a_comparison_keeps_both_sides() {
        let mut graph = graph();
        graph.before = Some(vec![(0, 0), (900, 2), (0, 0)]);
        let data = unpack(&page(&graph));
        assert_eq!(data["entries"]["before_bytes"][1], 900);
    }
}
