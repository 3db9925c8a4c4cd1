//! The sentences, on recordings whose cause is known.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "in a test a panic is the report"
)]

mod support;

use stormlog_torch::{
    Category, OomCause, Recording, ReplayProgress, ReportOptions, SnapshotMoment, SnapshotReport,
    VerdictKind, diff, replay_report, report, stack_profile,
};
use support::{all, counted, counter, counters, snapshot};

fn page(name: &str) -> SnapshotReport {
    report(&snapshot(name), &ReportOptions::default())
}

#[test]
fn peak_events_are_those_of_what_they_are_called_for() {
    for name in ["gpt-train", "varlen-s11-default"] {
        let snapshot = snapshot(name);
        let report = report(&snapshot, &ReportOptions::default());
        let device = report.devices.iter().find(|device| device.events > 0).unwrap();
        let recording = Recording::new(&snapshot, device.device);
        let totals: Vec<_> = recording.totals().collect();
        let event = device.peak_allocated_event.unwrap();
        assert_eq!(totals[event].allocated, device.peak_allocated_bytes, "{name}");
        assert_eq!(totals[device.peak_event].reserved, device.peak_reserved_bytes, "{name}");
    }
}

#[test]
fn the_true_cause_is_named() {
    for (name, kind, words) in [
        ("gpt-oom", VerdictKind::OomFull, &["out of memory: requested", "1000 MiB", "3.83 GiB"][..]),
        (
            "kvcache-s11-oomretry",
            VerdictKind::OomFragmentation,
            &["fragmentation", "47.18 MiB", "131.5 MiB", "21.93 MiB"],
        ),
        ("leak-s11-default", VerdictKind::Leak, &["14 blocks", "alloc_workload.py:30 leak"]),
        ("leak-s11-expandable", VerdictKind::Leak, &["14 blocks"]),
        ("gpt-leak", VerdictKind::Leak, &["6 blocks", "48.00 MiB", "gpu_probe.py:47 train"]),
        ("varlen-s11-default", VerdictKind::Fragmentation, &["2.67 GiB", "2.08 GiB", "1.29"]),
        ("varlen-s11-split64", VerdictKind::Fragmentation, &["max_split_size_mb:64"]),
        ("emptycache-s11-default", VerdictKind::EmptyCacheChurn, &["empty_cache() ran 6 times"]),
        ("emptycache-s11-expandable", VerdictKind::EmptyCacheChurn, &["empty_cache() ran 6 times"]),
        ("kvcache-s11-default", VerdictKind::Growth, &["73 of 176 blocks"]),
        // Most of it is free at the end, and yet nothing was fragmented when it mattered.
        ("gpt-train", VerdictKind::Healthy, &["1.05", "cache, not fragmentation"]),
        ("varlen-s11-expandable", VerdictKind::Healthy, &["1.04"]),
        ("streams-s11-default", VerdictKind::Healthy, &["no problem found"]),
    ] {
        let verdict = page(name).verdict;
        assert_eq!(verdict.kind, kind, "{name}: {}", verdict.sentence);
        for word in words {
            assert!(verdict.sentence.contains(word), "{name}: {:?} lacks {word:?}", verdict.sentence);
        }
    }
}

#[test]
fn the_failed_request_is_explained_with_the_numbers_torch_printed() {
    // "Tried to allocate 1000.00 MiB … 3.83 GiB is allocated by PyTorch, and 185.96 MiB is reserved by PyTorch but unallocated."
    let options = ReportOptions { device_total: Some(150_109_880_320), ..ReportOptions::default() };
    let oom = report(&snapshot("gpt-oom"), &options).oom.unwrap();
    assert_eq!(oom.request_bytes, 1_048_576_000);
    assert_eq!(oom.device_free_bytes, Some(145_010_851_840));
    let unallocated = oom.decomposition.reserved_bytes - oom.allocated_bytes;
    assert_eq!((unallocated as f64 / 1_048_576.0 * 100.0).round() / 100.0, 185.96);
    assert_eq!(oom.cause, OomCause::Full);
    // "4.19 GiB allowed": within what the recording shows.
    let allowed = 4_503_296_409;
    assert!(oom.limit.at_least <= allowed && allowed < oom.limit.below.unwrap());
    assert!(oom.released_by_retry_bytes > 0 && oom.retries == 1);
    // "this process has 4.74 GiB memory in use": the rest of the device's use is not the allocator's.
    let parts = oom.decomposition;
    assert_eq!(
        parts.reserved_bytes + parts.outside_bytes.unwrap() + parts.device_free_bytes.unwrap(),
        150_109_880_320
    );
    assert!(oom.site.unwrap().contains("gpu_probe.py:45 train"));

    let oom = page("kvcache-s11-oomretry").oom.unwrap();
    assert_eq!(oom.cause, OomCause::Fragmentation);
    assert!(oom.usable_free_bytes > oom.request_bytes && oom.largest_usable_free_bytes < oom.request_bytes);
    assert!(page("gpt-train").oom.is_none());
}

#[test]
fn parts_sum_to_the_whole_at_the_peak_and_at_the_error() {
    for name in all() {
        let page = page(&name);
        let decompositions =
            page.devices.iter().map(|device| (device.decomposition_at_peak, device.peak_reserved_bytes));
        let at_error = page.oom.iter().map(|oom| (oom.decomposition, oom.decomposition.reserved_bytes));
        for (parts, reserved) in decompositions.chain(at_error) {
            let sum = parts.requested_bytes
                + parts.rounding_bytes
                + parts.split_slack_bytes
                + parts.pending_free_bytes
                + parts.stranded_bytes
                + parts.releasable_bytes
                + parts.walled_off_bytes
                + parts.other_stream_bytes;
            assert_eq!(sum, parts.reserved_bytes, "{name}");
            assert_eq!(parts.reserved_bytes, reserved, "{name}");
        }
        for pool in &page.devices[0].pools_at_peak {
            assert_eq!(pool.active_bytes + pool.free_bytes, pool.reserved_bytes, "{name}");
        }
    }
}

#[test]
fn the_page_for_scripts_has_the_promised_shape() {
    for name in counted() {
        let json = serde_json::to_value(page(&name)).unwrap();
        let counters = counters(&name);
        let device = &json["devices"][0];
        for (key, counted) in
            [("allocated", "allocated_bytes"), ("active", "active_bytes"), ("reserved", "reserved_bytes")]
        {
            let peak = device[format!("peak_{key}_bytes")].as_u64().unwrap();
            assert_eq!(peak, counter(&counters, &format!("{counted}.all.peak")), "{name}");
        }
        assert_eq!(device["events"].as_u64().unwrap() as usize, snapshot(&name).event_count(0));
        assert!(
            device["decomposition_at_peak"].is_object()
                && json["top"].is_array()
                && json["categories"].is_array()
        );
        assert!(json["verdict"]["kind"].is_string() && json["verdict"]["sentence"].is_string());
        assert_eq!(json["oom"].is_null(), counter(&counters, "num_ooms") == 0, "{name}");
        assert_eq!(device["overflowed"], serde_json::json!(false), "{name}");
    }
}

#[test]
fn a_file_without_a_trace_still_gets_a_page() {
    let json = r#"[{"address": 4194304, "total_size": 4194304, "stream": 0, "segment_type": "large", "device": 0, "blocks": [
        {"size": 1048576, "requested_size": 1048000, "state": "active_allocated"}, {"size": 3145728, "state": "inactive"}]}]"#;
    let page = report(&stormlog_torch::read(json.as_bytes()).unwrap(), &ReportOptions::default());
    assert_eq!(page.verdict.kind, VerdictKind::NoTrace);
    let parts = page.devices[0].decomposition_at_peak;
    assert_eq!((parts.requested_bytes, parts.rounding_bytes, parts.split_slack_bytes), (1_048_000, 64, 512));
    assert_eq!((parts.stranded_bytes, parts.reserved_bytes), (3_145_728, 4_194_304));
    assert_eq!(page.top[0].bytes, 1_048_576);
}

#[test]
fn a_lost_beginning_is_noticed() {
    let cut = snapshot("leak-s11-default").without_oldest(0, 5000);
    let page = report(&cut, &ReportOptions::default());
    assert_eq!(page.devices[0].overflowed, Some(true));
    assert!(page.devices[0].live_before_recording_bytes > 0);
}

#[test]
fn categories_of_a_training_step() {
    let shares = page("gpt-train").categories;
    let share =
        |category| shares.iter().find(|share| share.category == category).map_or(0.0, |share| share.share);
    // 8 layers of 512 and a 32,000-word vocabulary: 58,019,072 weights of four bytes, and twice that for AdamW.
    let parameters = shares.iter().find(|share| share.category == Category::Parameters).unwrap();
    let optimizer = shares.iter().find(|share| share.category == Category::OptimizerState).unwrap();
    assert_eq!(optimizer.bytes, 2 * parameters.bytes);
    assert!(share(Category::Activations) > 0.4 && share(Category::BackwardTemporaries) > 0.2);
    assert!(share(Category::Unknown) < 0.03, "{shares:?}");
    let total: f64 = shares.iter().map(|share| share.share).sum();
    assert!((total - 1.0).abs() < 1e-9);
}

#[test]
fn advice_is_what_the_other_recording_really_reached() {
    let advice = page("varlen-s11-default").advice;
    assert_eq!(advice[0].settings, "expandable_segments:True");
    assert_eq!(
        advice[0].peak_reserved_bytes,
        counter(&counters("varlen-s11-expandable"), "reserved_bytes.all.peak")
    );
    let advice = page("kvcache-s11-oomretry").advice;
    assert_eq!((advice[0].settings.as_str(), advice[0].avoids_oom), ("expandable_segments:True", Some(true)));
    assert!(page("gpt-oom").advice.is_empty(), "nothing helps when all memory is in use");
    assert!(page("gpt-train").advice.is_empty());
}

#[test]
fn replay_for_scripts() {
    let settings = stormlog_torch::AllocatorSettings::default();
    let asked =
        [settings.with("expandable_segments:True").unwrap(), settings.with("max_split_size_mb:64").unwrap()];
    let report = replay_report(&snapshot("varlen-s11-default"), 0, &asked, None, false);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["self_match"], serde_json::json!({"matched": 4438, "total": 4438}));
    assert_eq!(json["recorded"]["peak_reserved_bytes"], 2_868_903_936u64);
    assert_eq!(json["predictions"][0]["peak_reserved_bytes"], 2_323_644_416u64);
    assert_eq!(json["predictions"][1]["peak_reserved_bytes"], 5_318_377_472u64);
    assert_eq!(json["predictions"][0]["oom"], false);
    assert_eq!(report.best.as_deref(), Some("expandable_segments:True"));
    assert!(report.warning.is_none());

    // Would it fit in less? Only with the better settings.
    let report = replay_report(&snapshot("varlen-s11-default"), 0, &asked, Some(2_400_000_000), true);
    let fits: Vec<&str> = report.predictions.iter().filter(|p| !p.oom).map(|p| p.settings.as_str()).collect();
    assert!(fits.contains(&"expandable_segments:True") && !fits.contains(&""), "{fits:?}");
    assert!(report.predictions.len() >= 14);
}

#[test]
fn replay_step_by_step_ends_as_the_search_does() {
    let snapshot = snapshot("streams-s11-default");
    let whole = replay_report(&snapshot, 0, &[], None, true);
    let mut progress = ReplayProgress::begin(&snapshot, 0, None);
    assert_eq!((progress.done(), progress.total()), (0, whole.predictions.len()));
    assert!(progress.report().predictions.is_empty());
    let mut before = 0;
    while progress.step(&snapshot) {
        assert!(progress.done() > before);
        before = progress.done();
    }
    assert_eq!(progress.done(), progress.total());
    assert_eq!(progress.report(), whole);
}

#[test]
fn snapshot_report_lists_other_problems_and_hints() {
    let page = page("leak-s11-default");
    assert_eq!(
        page.also.iter().map(|verdict| verdict.kind).collect::<Vec<_>>(),
        [VerdictKind::Fragmentation]
    );
    assert!(page.hints[0].contains("alloc_workload.py:30 leak") && page.hints[0].contains("23.03 MiB"));
    let findings = page.findings("a.pickle", "/payload");
    let ids: Vec<&str> = findings.iter().map(|finding| finding.id.as_str()).collect();
    assert_eq!(ids, ["snapshot.leak", "snapshot.fragmentation"]);
    assert_eq!(findings[0].metrics["kept_bytes"], page.growth[0].bytes);
    // The hints first, then the settings.
    assert_eq!(findings[0].advice.len(), page.hints.len() + page.advice.len());
    assert_eq!(findings[0].evidence[0].pointer.as_deref(), Some("/payload/growth/0"));

    let full = self::page("gpt-oom");
    assert!(
        full.no_setting_helps().is_some() && full.hints[0].contains("135.1 GiB free"),
        "{:?}",
        full.hints
    );
    let split = self::page("varlen-s11-split64");
    assert!(split.hints[0].starts_with("drop max_split_size_mb"), "{:?}", split.hints);
    // What it would have been without empty_cache() is replayed, not guessed.
    let churn = self::page("emptycache-s11-default");
    assert!(churn.hints[0].contains("a peak of 838.0 MiB instead of 754.0 MiB"), "{:?}", churn.hints);
    assert!(self::page("gpt-train").findings("a.pickle", "").is_empty());
}

#[test]
fn stacks_of_a_moment_hold_every_byte() {
    let snapshot = snapshot("gpt-train");
    let recordings = Recording::all(&snapshot);
    let marks = ["peak", "end", "500", "Optimizer.step#AdamW.step", "start:Optimizer.step#AdamW.step@2"];
    for moment in marks.map(|text| text.parse::<SnapshotMoment>().unwrap()) {
        let held = stack_profile(&recordings, &moment).unwrap();
        let found = diff(&recordings, &recordings, &moment).unwrap();
        assert_eq!(held.whole().bytes, found.total.after_bytes, "{moment}");
        assert_eq!(held.whole().count, found.total.after_count, "{moment}");
    }
    let nowhere =
        stack_profile(&recordings, &"Optimizer.step#AdamW.step@99".parse::<SnapshotMoment>().unwrap());
    assert!(nowhere.unwrap_err().to_string().contains("(number 99) on device 0: it has Optimizer.step"));
}

#[test]
fn differences_between_runs() {
    let (train, leak) = (snapshot("gpt-train"), snapshot("gpt-leak"));
    let (train, leak) = (Recording::all(&train), Recording::all(&leak));
    let same = diff(&train, &train, &SnapshotMoment::Peak).unwrap();
    assert!(same.stacks.is_empty() && same.total.delta_bytes == 0);

    let end = diff(&train, &leak, &SnapshotMoment::End).unwrap();
    assert_eq!(end.before.reserved_bytes, 3_649_044_480);
    let sum: i64 = end.stacks.iter().map(|stack| stack.sides.delta_bytes).sum();
    assert_eq!(sum, end.total.delta_bytes);
    let kept = end
        .stacks
        .iter()
        .find(|stack| stack.site.as_deref().is_some_and(|site| site.contains("gpu_probe.py:47")))
        .unwrap();
    assert_eq!((kept.sides.delta_bytes, kept.sides.delta_count), (50_331_648, 6));

    // Line numbers do not matter: varlen and leak share code at different lines.
    let (a, b) = (snapshot("varlen-s11-default"), snapshot("varlen-s11-round8"));
    let peak = diff(&Recording::all(&a), &Recording::all(&b), &SnapshotMoment::Peak).unwrap();
    assert!(
        peak.stacks.iter().all(|stack| stack.sides.before_count == stack.sides.after_count),
        "rounding only"
    );
    assert!(peak.after.rounding_bytes > peak.before.rounding_bytes);
    let by_category: i64 = peak.categories.iter().map(|entry| entry.sides.delta_bytes).sum();
    assert_eq!(by_category, peak.total.delta_bytes);
}
