//! The model against the real allocator: address by address under the recorded settings, peak by peak under others.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "in a test a panic is the report"
)]

mod support;

use stormlog_torch::{AllocatorSettings, Recording, Replayer};
use support::{all, counted, counter, counters, limit, snapshot};

#[test]
fn every_recorded_address_is_predicted() {
    for name in all() {
        let snapshot = snapshot(&name);
        let recording = Recording::new(&snapshot, 0);
        let replayer = Replayer::new(&recording);
        let (matched, prediction) = replayer.self_check(None);
        println!(
            "{name}: {}/{} peak {} of {}",
            matched.matched,
            matched.total,
            prediction.peak_reserved_bytes,
            replayer.recorded().peak_reserved_bytes
        );
        assert_eq!(matched.matched, matched.total, "{name}");
        assert_eq!(prediction.peak_reserved_bytes, replayer.recorded().peak_reserved_bytes, "{name}");
    }
}

#[test]
fn with_the_limit_known_garbage_collection_and_retries_are_predicted_too() {
    for name in counted() {
        let counters = counters(&name);
        let Some(limit) = limit(&counters) else { continue };
        let snapshot = snapshot(&name);
        let recording = Recording::new(&snapshot, 0);
        let replayer = Replayer::new(&recording);
        let (matched, prediction) = replayer.self_check(Some(limit));
        println!("{name}: {}/{} retries {}", matched.matched, matched.total, prediction.retries);
        assert_eq!(matched.matched, matched.total, "{name}");
        assert_eq!(prediction.peak_reserved_bytes, counter(&counters, "reserved_bytes.all.peak"), "{name}");
        assert_eq!(prediction.retries, counter(&counters, "num_alloc_retries"), "{name}");
        assert_eq!(prediction.oom, counter(&counters, "num_ooms") > 0, "{name}");
    }
}

#[test]
fn other_settings_are_predicted_from_the_default_recording() {
    let (mut exact, mut total, mut wrong) = (0, 0, Vec::new());
    for name in counted() {
        let Some((workload, kind)) = name.split_once("-s11-") else { continue };
        if ["default", "gc", "oomretry"].contains(&kind) {
            continue;
        }
        let snapshot = snapshot(&format!("{workload}-s11-default"));
        let recording = Recording::new(&snapshot, 0);
        let settings = AllocatorSettings::default().with(counters(&name)["conf"].as_str().unwrap()).unwrap();
        let predicted = Replayer::new(&recording).predict(&settings, None).peak_reserved_bytes;
        let truth = counter(&counters(&name), "reserved_bytes.all.peak");
        let off = (predicted as f64 - truth as f64) / truth as f64;
        println!("{name}: {predicted} {truth} {:+.2} %", off * 100.0);
        total += 1;
        exact += u32::from(predicted == truth);
        if off.abs() > 0.01 {
            wrong.push(name);
        }
    }
    println!("{exact} of {total} exact");
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(exact * 2 > total);
}

/// Garbage collection and the out-of-memory error of the limited runs follow from the unlimited recording.
#[test]
fn limited_runs_are_predicted_from_the_unlimited_recording() {
    let snapshot = snapshot("kvcache-s11-default");
    let recording = Recording::new(&snapshot, 0);
    let replayer = Replayer::new(&recording);
    for name in ["kvcache-s11-gc", "kvcache-s11-oomretry"] {
        let counters = counters(name);
        let settings = AllocatorSettings::default().with(counters["conf"].as_str().unwrap()).unwrap();
        let predicted = replayer.predict(&settings, limit(&counters));
        assert_eq!(predicted.peak_reserved_bytes, counter(&counters, "reserved_bytes.all.peak"), "{name}");
        assert_eq!(predicted.oom, counter(&counters, "num_ooms") > 0, "{name}");
        assert_eq!(predicted.retries, counter(&counters, "num_alloc_retries"), "{name}");
    }
}

/// From any recording to any other setting of the same workload: mostly exact, never far off.
#[test]
fn every_recording_predicts_every_other() {
    let (mut exact, mut total, mut far) = (0, 0, Vec::new());
    for from in counted() {
        let Some((workload, kind)) = from.split_once("-s11-") else { continue };
        if ["gc", "oomretry"].contains(&kind) {
            continue;
        }
        let snapshot = snapshot(&from);
        let recording = Recording::new(&snapshot, 0);
        let replayer = Replayer::new(&recording);
        for to in counted() {
            if !to.starts_with(workload) || to.ends_with("gc") || to.ends_with("oomretry") || to == from {
                continue;
            }
            let counters = counters(&to);
            let settings = AllocatorSettings::default().with(counters["conf"].as_str().unwrap()).unwrap();
            let predicted = replayer.predict(&settings, None).peak_reserved_bytes;
            let truth = counter(&counters, "reserved_bytes.all.peak");
            let off = (predicted as f64 - truth as f64) / truth as f64;
            total += 1;
            exact += u32::from(predicted == truth);
            if off != 0.0 {
                println!("{from} -> {to}: {:+.2} %", off * 100.0);
            }
            if off.abs() > 0.02 {
                far.push(format!("{from} -> {to}"));
            }
        }
    }
    println!("{exact} of {total} exact");
    assert!(far.is_empty(), "{far:?}");
    assert!(exact * 10 > total * 8);
}

/// With the first half of the events lost, the start state comes from rewinding, its hidden slack from later placements.
#[test]
fn addresses_are_still_predicted_when_the_beginning_is_lost() {
    let (mut matched, mut total) = (0, 0);
    for name in all() {
        let whole = snapshot(&name);
        let cut = whole.without_oldest(0, whole.event_count(0) / 2);
        let recording = Recording::new(&cut, 0);
        let (found, _) = Replayer::new(&recording).self_check(None);
        if found.matched != found.total {
            println!("{name}: {}/{}", found.matched, found.total);
        }
        assert!(found.is_sound(), "{name}: {}/{}", found.matched, found.total);
        matched += found.matched;
        total += found.total;
    }
    println!("{matched} of {total}");
    assert!(total > 20_000 && matched * 1000 >= total * 999);
}

/// What is joined to the split size serves no smaller request again: step by step another segment.
#[test]
fn a_setting_that_runs_away_is_flagged() {
    let mib = 1u64 << 20;
    let (base, size) = (0x7f00_0000_0000u64, 62 * mib + mib / 2);
    let event = |action: &str, size: u64| serde_json::json!({"action": action, "addr": base, "size": size, "stream": 0});
    let mut trace = vec![event("segment_alloc", 64 * mib)];
    for _ in 0..10 {
        trace.extend([event("alloc", size), event("free_requested", size), event("free_completed", size)]);
    }
    let block =
        serde_json::json!({"address": base, "size": 64 * mib, "requested_size": 0, "state": "inactive"});
    let segment = serde_json::json!({
        "device": 0, "address": base, "total_size": 64 * mib, "stream": 0, "segment_type": "large", "blocks": [block]
    });
    let json = serde_json::json!({"segments": [segment], "device_traces": [trace]}).to_string();
    let snapshot = stormlog_torch::read(json.as_bytes()).unwrap();
    let recording = Recording::new(&snapshot, 0);
    let replayer = Replayer::new(&recording);
    let predict = |text: &str| replayer.predict(&AllocatorSettings::default().with(text).unwrap(), None);
    let (calm, wild) = (predict("max_split_size_mb:128"), predict("max_split_size_mb:64"));
    assert_eq!((calm.peak_reserved_bytes, calm.caution), (64 * mib, None));
    assert_eq!(wild.peak_reserved_bytes, 640 * mib);
    assert!(wild.caution.is_some_and(|words| words.contains("grows with every step")));
}
