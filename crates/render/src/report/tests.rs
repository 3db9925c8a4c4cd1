use stormlog_model::stacks::{Frame, FrameKind, Holding, StackProfile, StackTree};

use super::*;
use crate::flamegraph::{FlameGraph, Lifetime, Strip};
use crate::page::unpacked;

/// `count` stacks of one frame each, of which half come and go.
fn graph(count: u32, moments: u32) -> Graph {
    let mut tree = StackTree::new();
    let mut rows = Vec::new();
    let mut spans = Vec::new();
    for id in 0..count {
        let function = format!("function_with_a_name_of_its_own_{id}");
        let file = format!("/srv/app/module_{}.py", id / 7);
        tree.frames.push(Frame { function, file, line: id, kind: FrameKind::Python });
        let node = tree.push(if id % 5 == 0 { 0 } else { tree.len() as u32 - 1 }, id);
        let bytes = 1000 + u64::from(id.wrapping_mul(2_654_435_761) % 100_000);
        rows.push(Holding { node, thread: 0, bytes, count: 1 });
        let birth = id.wrapping_mul(40_503) % moments;
        let death = if id % 2 == 0 { moments } else { birth + 1 + id % 9 };
        spans.push(Lifetime { node, thread: 0, birth, death: death.min(moments), bytes, count: 1 });
    }
    let alive = |at: u32| {
        spans.iter().filter(|life| life.birth <= at && life.death > at).map(|life| life.bytes).sum()
    };
    let strip = Strip {
        time_ms: (0..u64::from(moments)).map(|at| at * 100).collect(),
        heap_bytes: (0..moments).map(alive).collect(),
        rss_bytes: None,
        names: ["heap", "resident"],
    };
    let held = StackProfile { tree, rows, threads: vec!["main".into()] };
    let flame = FlameGraph { held, strip: Some(strip), spans: Some(spans), ..FlameGraph::default() };
    Graph { memory: "host".into(), flame, ..Graph::default() }
}

fn alive(flame: &serde_json::Value, at: u64) -> u64 {
    let column = |name: &str| flame["spans"][name].as_array().cloned().unwrap_or_default();
    let (birth, death, bytes) = (column("birth"), column("death"), column("bytes"));
    let is_alive = |i: &usize| birth[*i].as_u64() <= Some(at) && death[*i].as_u64() > Some(at);
    (0..bytes.len()).filter(is_alive).filter_map(|i| bytes[i].as_u64()).sum()
}

#[test]
fn a_large_recording_fits_the_page_and_every_moment_adds_up() {
    let report = Report { title: "big".into(), graphs: vec![graph(6_000, 100)], ..Report::default() };
    let most = 150_000;
    let page = page(&report, most);
    assert!(page.len() <= most, "{} bytes", page.len());
    let data = unpacked(&page);
    let shown = &data["graphs"][0];
    let flame = &shown["flame"];
    let heap = flame["strip"]["heap"].as_array().cloned().unwrap_or_default();
    assert!(heap.len() >= 12, "{} moments", heap.len());
    for (at, bytes) in heap.iter().enumerate() {
        assert_eq!(Some(alive(flame, at as u64)), bytes.as_u64(), "moment {at}");
    }
    let peak = report.graphs[0].flame.strip.as_ref().and_then(|strip| strip.heap_bytes.iter().max().copied());
    assert_eq!(heap.iter().filter_map(serde_json::Value::as_u64).max(), peak, "the peak stays");
    let words = shown["left_out"].to_string();
    assert!(words.contains("moments") && words.contains("(smaller)"), "{words}");
}

#[test]
fn a_small_recording_is_whole() {
    let report = Report { graphs: vec![graph(50, 20)], ..Report::default() };
    let data = unpacked(&page(&report, PAGE_BYTES));
    assert_eq!(data["graphs"][0]["left_out"].as_array().map(Vec::len), Some(0));
    assert_eq!(data["graphs"][0]["flame"]["strip"]["heap"].as_array().map(Vec::len), Some(20));
}

#[test]
fn a_difference_that_is_cut_keeps_both_sums() {
    let mut one = graph(6_000, 4);
    one.flame.spans = None;
    let before: Vec<(u64, u64)> = one.flame.held.rows.iter().map(|row| (row.bytes / 2 + 1, 1)).collect();
    let sums = (one.flame.held.whole().bytes, before.iter().map(|pair| pair.0).sum::<u64>());
    one.flame.before = Some(before);
    let page = page(&Report { graphs: vec![one], ..Report::default() }, 100_000);
    assert!(page.len() <= 100_000, "{} bytes", page.len());
    let data = unpacked(&page);
    let sum = |name: &str| -> u64 {
        let column = data["graphs"][0]["flame"]["entries"][name].as_array().cloned().unwrap_or_default();
        column.iter().filter_map(serde_json::Value::as_u64).sum()
    };
    assert_eq!((sum("bytes"), sum("before_bytes")), sums);
}

#[test]
fn hostile_names_stay_packed() {
    let hostile = "</script><img src=x onerror=alert(1)>".to_owned();
    let process = Process { name: hostile.clone(), ..Process::default() };
    let report = Report { title: hostile, processes: vec![process], ..Report::default() };
    let page = page(&report, PAGE_BYTES);
    assert!(page.contains("<title>&lt;/script&gt;"));
    assert_eq!(page.matches("onerror").count(), 1, "escaped in the title, packed elsewhere");
    assert_eq!(page.matches("</script>").count(), 2, "only the page's own scripts end");
}
