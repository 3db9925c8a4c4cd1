//! `diff` of two snapshots: at the peak, at the end, at marks; as text, JSON and a page.

use super::{json, recording, stormlog};

#[test]
fn diff_at_the_end_shows_the_leak() {
    let (train, leak) = (recording("gpt-train"), recording("gpt-leak"));
    let found = json(&["diff", &train, &leak, "--at", "end", "--json"]);
    assert_eq!(found["at"], "end");
    let kept = found["stacks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|stack| stack["site"].as_str().is_some_and(|site| site.contains("gpu_probe.py:47")));
    assert_eq!(kept.unwrap()["delta_bytes"], 50_331_648);
    let sum: i64 =
        found["categories"].as_array().unwrap().iter().map(|c| c["delta_bytes"].as_i64().unwrap()).sum();
    assert_eq!(found["total"]["delta_bytes"], sum);
    assert_eq!(found["devices"][0]["total"], found["total"]);

    let (code, page, _) = stormlog(&["diff", &train, &leak, "--at", "end", "-n", "4"]);
    assert_eq!(code, 0);
    assert!(
        page.starts_with("end ") && page.contains("gpu_probe.py:47 train") && page.contains("… 1 smaller"),
        "{page}"
    );
    let (_, page, _) = stormlog(&["diff", &train, &train]);
    assert!(page.starts_with("peak ") && page.contains("No difference."), "{page}");
}

#[test]
fn at_a_span_the_program_marked() {
    let (train, leak) = (recording("gpt-train"), recording("gpt-leak"));
    let at = |mark: &str| json(&["diff", &train, &leak, "--at", mark, "--json"]);
    let (first, last) = (at("Optimizer.step#AdamW.step@1"), at("Optimizer.step#AdamW.step"));
    assert_eq!(first["at"]["mark"], "Optimizer.step#AdamW.step@1");
    let delta = |found: &serde_json::Value| found["total"]["delta_bytes"].as_i64().unwrap();
    assert!(delta(&first) < delta(&last), "the leak grows: {} {}", delta(&first), delta(&last));

    let (code, out, err) = stormlog(&["diff", &train, &leak, "--at", "lunch"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("no end of the last lunch") && err.contains("Optimizer.step#AdamW.step"), "{err}");
}

#[test]
fn all_devices_count() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, sizes: [u64; 2]| {
        let segment = |device: usize, size: u64| {
            format!(
                r#"{{"device": {device}, "address": 4194304, "total_size": 20971520, "stream": 0, "segment_type": "large", "blocks": [
                {{"size": {size}, "requested_size": {size}, "state": "active_allocated"}},
                {{"size": {}, "state": "inactive"}}]}}"#,
                20_971_520 - size
            )
        };
        let path = directory.path().join(name);
        std::fs::write(&path, format!("[{},\n{}]", segment(0, sizes[0]), segment(1, sizes[1]))).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (a, b) = (file("a.json", [2 << 20, 3 << 20]), file("b.json", [2 << 20, 7 << 20]));
    let found = json(&["diff", &a, &b, "--at", "end", "--json"]);
    assert_eq!(found["total"]["delta_bytes"], 4 << 20);
    assert_eq!(found["devices"].as_array().unwrap().len(), 2);
    assert_eq!(found["devices"][1]["total"]["delta_bytes"], 4 << 20);
    let (_, page, _) = stormlog(&["diff", &a, &b, "--at", "end"]);
    assert!(page.lines().any(|line| line.starts_with("+4.00 MiB") && line.ends_with("device 1")), "{page}");
}

#[test]
fn a_page_in_red_and_blue() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("diff.html");
    let arguments =
        ["diff", &recording("gpt-train"), &recording("gpt-leak"), "--html", "-o", output.to_str().unwrap()];
    let (code, out, err) = stormlog(&arguments);
    assert_eq!((code, out.trim(), err.as_str()), (0, output.to_str().unwrap(), ""));
    let page = std::fs::read_to_string(&output).unwrap();
    assert!(page.contains("gpt-train.pickle.gz → gpt-leak.pickle.gz: GPU memory at the peak"));
    assert!(page.starts_with("<!doctype html>") && page.contains("id=\"data\""));
}

#[test]
fn diff_rejects_a_snapshot_and_another_file() {
    let directory = tempfile::tempdir().unwrap();
    let other = directory.path().join("notes.txt");
    std::fs::write(&other, "not a snapshot").unwrap();
    let (code, _, err) = stormlog(&["diff", &recording("gpt-train"), other.to_str().unwrap()]);
    assert_eq!(code, 2);
    assert!(err.contains("compare two captures or two snapshots"), "{err}");
}
