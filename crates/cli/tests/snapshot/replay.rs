//! `replay`: --set, --search, --limit, --device, --json.

use super::{json, recording, stormlog};

#[test]
fn answers_would_it_have_fitted() {
    let file = recording("varlen-s11-default");
    let answer = json(&[
        "replay",
        &file,
        "--set",
        "expandable_segments:True",
        "--set",
        "max_split_size_mb:64",
        "--json",
    ]);
    assert_eq!(answer["self_match"], serde_json::json!({"matched": 4438, "total": 4438}));
    assert_eq!(answer["recorded"]["peak_reserved_bytes"], 2_868_903_936u64);
    assert_eq!(answer["predictions"][0]["peak_reserved_bytes"], 2_323_644_416u64);
    assert_eq!(answer["predictions"].as_array().unwrap().len(), 2);

    let (code, page, _) = stormlog(&["replay", &file, "--search", "--limit", "2.3GiB"]);
    assert_eq!(code, 0);
    assert!(
        page.contains(
            "Best: PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before PyTorch 2.9)"
        ),
        "{page}"
    );
    assert!(page.lines().any(|line| line.ends_with("no    (defaults)")), "{page}");
}

#[test]
fn a_limit_that_nothing_meets_and_one_that_everything_meets() {
    let file = recording("varlen-s11-default");
    let search = |limit: &str| json(&["replay", &file, "--search", "--limit", limit, "--json"]);
    let tight = search("1GiB");
    assert!(tight["predictions"].as_array().unwrap().iter().all(|prediction| prediction["oom"] == true));
    assert!(tight["best"].is_null());
    let ample = search("64GiB");
    assert!(ample["predictions"].as_array().unwrap().iter().all(|prediction| prediction["oom"] == false));
    assert_eq!(ample["limit_bytes"], 64u64 << 30);
    let (_, page, _) = stormlog(&["replay", &file, "--search", "--limit", "1GiB"]);
    assert!(page.contains("None of these fits"), "{page}");
}

#[test]
fn a_dangerous_pair_of_settings_is_flagged() {
    let set = "max_split_size_mb:64,expandable_segments:True";
    let (code, page, _) = stormlog(&["replay", &recording("varlen-s11-default"), "--set", set]);
    assert_eq!(code, 0);
    assert!(page.contains("lets reserved memory grow without bound"), "{page}");
}

#[test]
fn wrong_usage_prints_what_to_do() {
    let file = recording("gpt-train");
    for setting in ["max_split_size_mb:3", "colour:red", "expandable_segments"] {
        let (code, out, err) = stormlog(&["replay", &file, "--set", setting]);
        assert_eq!((code, out.as_str()), (2, ""), "{setting}");
        assert!(err.contains(setting), "{err}");
    }
    let (code, _, err) = stormlog(&["replay", &file, "--device", "7", "--search"]);
    assert_eq!(code, 2);
    assert!(err.contains("device 7"), "{err}");
    for size in ["0", "much", "-5GiB"] {
        let (code, _, err) = stormlog(&["replay", &file, &format!("--limit={size}")]);
        assert_eq!(code, 2, "{size}");
        assert!(err.contains("expected a size such as 512MiB or 24GiB"), "{err}");
    }
}
