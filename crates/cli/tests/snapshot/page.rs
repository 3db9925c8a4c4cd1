//! `snapshot` and `snapshot --oom`.

use super::{json, recording, stormlog};

#[test]
fn one_page_names_the_cause_and_the_cure() {
    let (code, page, err) = stormlog(&["snapshot", &recording("varlen-s11-default")]);
    assert_eq!((code, err.as_str()), (0, ""));
    for part in [
        "fragmentation: 2.67 GiB were held for at most 2.08 GiB in use",
        "expandable_segments:True would have held 2.16 GiB",
        "pad to a few sizes",
        "4438 of 4438 recorded addresses predicted",
        "activations",
        "(stranded)",
    ] {
        assert!(page.contains(part), "{part:?} is missing in\n{page}");
    }
}

#[test]
fn each_kind_of_finding_has_advice() {
    for (name, change) in [
        ("gpt-oom", "half the batch would free about"),
        ("gpt-leak", "keeps what is made at"),
        ("emptycache-s11-default", "remove the 6 empty_cache() calls"),
        ("kvcache-s11-default", "give it a bound"),
    ] {
        let (code, page, _) = stormlog(&["snapshot", &recording(name)]);
        assert_eq!(code, 0);
        let said = page.lines().any(|line| line.starts_with("  change    ") && line.contains(change));
        assert!(said, "{name}: {change:?} is missing in\n{page}");
    }
    let (_, page, _) = stormlog(&["snapshot", &recording("gpt-train")]);
    assert!(!page.contains("  change ") && !page.contains("  try "), "nothing to do:\n{page}");
}

#[test]
fn the_page_for_scripts() {
    let page = json(&["snapshot", &recording("gpt-oom"), "--json", "--no-advice"]);
    assert_eq!(page["devices"][0]["peak_reserved_bytes"], 4_341_104_640u64);
    assert_eq!(page["verdict"]["kind"], "oom_full");
    assert_eq!(page["oom"]["request_bytes"], 1_048_576_000u64);
    assert!(page["top"].as_array().unwrap().len() == 10 && page["categories"].is_array());
    assert!(page["hints"].is_array() && page["also"].is_array());
}

#[test]
fn the_failed_request() {
    let (code, page, _) = stormlog(&["snapshot", &recording("kvcache-s11-oomretry"), "--oom"]);
    assert_eq!(code, 0);
    assert!(page.starts_with("fragmentation: requested 47.18 MiB; 131.5 MiB is free"), "{page}");
    assert!(page.contains("largest block 21.93 MiB") && page.contains("retries   1"), "{page}");
    let (code, out, err) = stormlog(&["snapshot", &recording("gpt-train"), "--oom"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("no request failed"), "{err}");
}

#[test]
fn with_the_device_known_the_error_accounts_for_all_of_it() {
    let total = 150_109_880_320u64;
    let arguments =
        ["snapshot", &recording("gpt-oom"), "--device-total", &total.to_string(), "--json", "-n", "3"];
    let page = json(&arguments);
    let parts = &page["oom"]["decomposition"];
    let sum: u64 = ["reserved_bytes", "outside_bytes", "device_free_bytes"]
        .iter()
        .map(|part| parts[part].as_u64().unwrap())
        .sum();
    assert_eq!(sum, total);
    assert_eq!(page["top"].as_array().unwrap().len(), 3);
}

#[test]
fn a_bundle_and_a_run_are_as_good_as_the_snapshot_in_them() {
    let run = tempfile::tempdir().unwrap();
    let bundle = run.path().join("rank0-pid7-cuda0/oom_dump_1");
    std::fs::create_dir_all(&bundle).unwrap();
    let recorded = recording("gpt-oom");
    std::fs::copy(&recorded, bundle.join("cuda_allocator_snapshot.pickle")).unwrap();
    let [run, bundle] = [run.path(), &bundle].map(|path| path.to_str().unwrap());
    for command in ["snapshot", "replay"] {
        let wanted = json(&[command, &recorded, "--json"]);
        assert_eq!(json(&[command, run, "--json"]), wanted, "{command}");
        assert_eq!(json(&[command, bundle, "--json"]), wanted, "{command}");
    }
    let difference = json(&["diff", bundle, run, "--json"]);
    assert_eq!(difference["total"]["delta_bytes"], 0);
    let page = std::path::Path::new(run).join("timeline.html");
    assert_eq!(stormlog(&["timeline", run, "-o", page.to_str().unwrap()]).0, 0);
    assert!(page.metadata().unwrap().len() > 10_000);
    let (code, _, err) = stormlog(&["replay", std::env::temp_dir().join("none-here").to_str().unwrap()]);
    assert!(code != 0 && err.contains("none-here"), "{err}");
}
