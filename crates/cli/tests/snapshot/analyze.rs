//! `analyze` on snapshots: the same envelope, the same exit codes as for everything else.

use serde_json::Value;

use super::{recording, stormlog};

fn envelope(paths: &[&str]) -> (i32, Value) {
    let (code, out, err) = stormlog(&[&["analyze", "--json"], paths].concat());
    (code, serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}\n{err}")))
}

#[test]
fn trouble_is_a_finding_with_evidence_and_advice() {
    for (name, id, severity) in [
        ("gpt-oom", "snapshot.oom_full", "critical"),
        ("kvcache-s11-oomretry", "snapshot.oom_fragmentation", "critical"),
        ("gpt-leak", "snapshot.leak", "warning"),
        ("varlen-s11-default", "snapshot.fragmentation", "warning"),
        ("emptycache-s11-default", "snapshot.empty_cache", "warning"),
    ] {
        let path = recording(name);
        let (code, report) = envelope(&[&path]);
        assert_eq!(code, 3, "{name}");
        assert_eq!(report["format"], "stormlog.report");
        assert_eq!(report["verdict"]["status"], "findings");
        let summary = report["verdict"]["summary"].as_str().unwrap();
        assert!(summary.ends_with("in 1 allocator snapshot"), "{summary}");
        let finding = &report["findings"][0];
        assert_eq!(
            (finding["id"].as_str(), finding["severity"].as_str()),
            (Some(id), Some(severity)),
            "{name}"
        );
        assert_eq!(finding["evidence"][0]["path"], path.as_str());
        let pointer = finding["evidence"][0]["pointer"].as_str().unwrap();
        assert!(report.pointer(pointer).is_some_and(|found| !found.is_null()), "{name}: {pointer}");
        assert!(!finding["advice"].as_array().unwrap().is_empty(), "{name}");
        assert_eq!(report["artifacts"][0]["kind"], "allocator_snapshot");
        assert_eq!(report["payload"]["snapshots"][0]["verdict"]["sentence"], finding["title"]);
    }
}

#[test]
fn nothing_wrong_is_exit_0() {
    let (code, report) = envelope(&[&recording("gpt-train")]);
    assert_eq!((code, report["findings"].as_array().unwrap().len()), (0, 0));
    assert_eq!(report["verdict"]["summary"], "nothing wrong in 1 allocator snapshot");
}

#[test]
fn text_markdown_and_html() {
    let path = recording("gpt-leak");
    let (code, page, _) = stormlog(&["analyze", &path]);
    assert_eq!(code, 3);
    assert!(page.contains("verdict   leak: 6 blocks (48.00 MiB)") && page.contains("TAKEN AT"), "{page}");
    let (code, page, _) = stormlog(&["analyze", &path, "--format", "md"]);
    assert_eq!(code, 3);
    assert!(page.contains("| warning | leak | 0.90 |") && page.contains("\nTry:\n"), "{page}");
    assert!(!page.contains("## Sessions"), "there are none: {page}");
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("report.html");
    assert_eq!(stormlog(&["analyze", &path, "--output", output.to_str().unwrap()]).0, 3);
    assert!(std::fs::read_to_string(output).unwrap().contains("warning · leak · confidence 0.90"));
}

#[test]
fn several_snapshots_and_a_broken_one() {
    let (train, leak) = (recording("gpt-train"), recording("gpt-leak"));
    let (code, report) = envelope(&[&train, &leak]);
    assert_eq!(code, 3);
    assert_eq!(report["payload"]["snapshots"].as_array().unwrap().len(), 2);
    assert_eq!(report["findings"][0]["evidence"][0]["pointer"], "/payload/snapshots/1/growth/0");

    let directory = tempfile::tempdir().unwrap();
    let cut = directory.path().join("cut.pickle.gz");
    let whole = std::fs::read(&leak).unwrap();
    std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let (code, out, err) = stormlog(&["analyze", "--json", &train, cut.to_str().unwrap()]);
    assert_eq!(code, 5);
    assert!(err.contains("cut.pickle.gz"), "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["verdict"]["status"], "invalid_input");
    assert_eq!(
        report["payload"]["snapshots"].as_array().unwrap().len(),
        1,
        "the other one is still reported"
    );
}
