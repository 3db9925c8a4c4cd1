//! Alerts: one long breach is one alert with an end, whatever the samples do.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use proptest::prelude::*;
use stormlog_alert::alerts::{
    AlertEvent, AlertKind, AlertSample, Alerts, RECOVERED, ThresholdError, Thresholds,
};

const GIB: u64 = 1 << 30;

fn usage(alerts: &mut Alerts, percents: &[f64]) -> Vec<AlertEvent> {
    let mut events = Vec::new();
    for (second, percent) in percents.iter().enumerate() {
        events.extend(alerts.observe(&AlertSample {
            timestamp_ns: second as u64 * 1_000_000_000,
            usage_bytes: Some((percent * GIB as f64 / 100.0) as u64),
            total_bytes: Some(GIB),
            ..AlertSample::default()
        }));
    }
    events
}

fn kinds(events: &[AlertEvent]) -> Vec<(&'static str, &'static str)> {
    events.iter().map(|event| (event.event_type, event.kind.as_str())).collect()
}

#[test]
fn one_long_breach_is_one_alert_with_an_end() {
    let mut alerts = Alerts::default();
    let mut percents = vec![50.0];
    percents.extend([85.0; 1000]);
    // Around the threshold nothing ends: 79 is within the margin, and two calm samples are not three.
    percents.extend([79.0, 81.0, 79.0, 70.0, 70.0, 81.0, 70.0, 70.0, 70.0, 70.0]);
    let events = usage(&mut alerts, &percents);
    assert_eq!(kinds(&events), [("warning", "usage_warning"), (RECOVERED, "usage_warning")]);
    assert!(events[0].context.starts_with("WARNING: Memory usage at 85.0%"));
    assert_eq!(events[0].metadata["usage_percent"].as_f64().unwrap().round(), 85.0);
    let end = &events[1].metadata;
    assert_eq!(end["started_at_ns"], 1_000_000_000u64);
    assert_eq!(end["duration_ns"], 1_008_000_000_000u64);
    assert_eq!(end["ended_by"], "recovered");
    assert_eq!(alerts.open().count(), 0);
}

#[test]
fn critical_is_not_announced_as_a_warning_too_but_falls_back_to_one() {
    let events = usage(&mut Alerts::default(), &[50.0, 97.0, 97.0, 90.0, 90.0, 90.0, 90.0, 10.0, 10.0, 10.0]);
    assert_eq!(
        kinds(&events),
        [
            ("critical", "usage_critical"),
            (RECOVERED, "usage_critical"),
            ("warning", "usage_warning"),
            (RECOVERED, "usage_warning"),
        ]
    );
    assert!(events[0].context.starts_with("CRITICAL: Memory usage at 97.0%"));
    let events = usage(&mut Alerts::default(), &[85.0, 97.0, 10.0, 10.0, 10.0]);
    assert_eq!(
        kinds(&events),
        [
            ("warning", "usage_warning"),
            ("critical", "usage_critical"),
            (RECOVERED, "usage_critical"),
            (RECOVERED, "usage_warning"),
        ]
    );
}

#[test]
fn large_allocations_in_a_row_are_one_alert() {
    let mut alerts = Alerts::default();
    let mut events = Vec::new();
    for (second, mib) in [0i64, 200, 300, 0, 200, 0, 0, -500].into_iter().enumerate() {
        let timestamp_ns = second as u64 * 1_000_000_000;
        let change_bytes = Some(mib << 20);
        events.extend(alerts.observe(&AlertSample { timestamp_ns, change_bytes, ..AlertSample::default() }));
    }
    assert_eq!(kinds(&events), [("warning", "large_allocation"), (RECOVERED, "large_allocation")]);
    assert_eq!(events[0].context, "Large allocation detected: 200.0 MiB");
    assert_eq!(events[0].metadata["large_allocation"], true);
    assert_eq!(events[1].metadata["total_bytes"], 700u64 << 20);
    assert_eq!(events[1].metadata["peak"], 300u64 << 20);
    // Exactly the threshold is not more than the threshold.
    let exact = AlertSample { change_bytes: Some(104_857_600), ..AlertSample::default() };
    assert!(Alerts::default().observe(&exact).is_empty());
}

#[test]
fn fragmentation_needs_its_counters() {
    let mut alerts = Alerts::default();
    let sample = |inactive, reserved| AlertSample {
        inactive_bytes: inactive,
        reserved_bytes: reserved,
        ..AlertSample::default()
    };
    assert!(alerts.observe(&sample(None, Some(100))).is_empty());
    assert!(alerts.observe(&sample(Some(50), Some(0))).is_empty());
    assert!(alerts.observe(&sample(Some(30), Some(100))).is_empty());
    let events = alerts.observe(&sample(Some(31), Some(100)));
    assert_eq!(events[0].context, "High fragmentation: 31.0%");
    assert_eq!(events[0].metadata["fragmentation"].as_f64(), Some(0.31));
    for _ in 0..2 {
        assert!(alerts.observe(&sample(Some(1), Some(100))).is_empty());
    }
    // Unknown is not calm.
    assert!(alerts.observe(&sample(None, Some(100))).is_empty());
    assert_eq!(kinds(&alerts.observe(&sample(Some(1), Some(100)))), [(RECOVERED, "fragmentation")]);
}

#[test]
fn the_end_of_the_session_ends_what_holds() {
    let mut alerts = Alerts::default();
    usage(&mut alerts, &[99.0]);
    assert_eq!(alerts.open().collect::<Vec<_>>(), [(AlertKind::UsageCritical, 0)]);
    let events = alerts.finish(5_000_000_000);
    assert_eq!(kinds(&events), [(RECOVERED, "usage_critical")]);
    assert_eq!(events[0].metadata["ended_by"], "session_end");
    assert!(alerts.finish(6_000_000_000).is_empty());
}

#[test]
fn thresholds_are_set_by_name() {
    let mut thresholds = Thresholds::default();
    thresholds.set("memory_warning_percent", 10.0).unwrap();
    assert_eq!(thresholds.memory_warning_percent, 10.0);
    assert_eq!(thresholds.set("nope", 1.0).unwrap_err().to_string(), "Unknown threshold: nope");
    for wrong in [f64::NAN, f64::INFINITY, -1.0] {
        let error = thresholds.set("memory_leak_threshold", wrong).unwrap_err();
        assert!(matches!(error, ThresholdError::NotANumber { .. }), "{error}");
    }
}

#[test]
fn usage_beyond_a_number_of_bytes_is_one_alert_without_any_total() {
    let mut alerts = Alerts::new(Thresholds::only_above((100 << 20) as f64));
    let mut seen = Vec::new();
    for (at, mib) in [100u64, 101, 150, 99, 120, 90, 90, 90, 130].into_iter().enumerate() {
        let sample =
            AlertSample { timestamp_ns: at as u64, usage_bytes: Some(mib << 20), ..AlertSample::default() };
        seen.extend(alerts.observe(&sample).into_iter().map(|event| (at, event.event_type, event.context)));
    }
    assert_eq!(seen[0], (1, "warning", "Memory usage 101.0 MB exceeds threshold 100.0 MB".to_owned()));
    assert_eq!((seen[1].0, seen[1].1), (7, RECOVERED));
    assert!(seen[1].2.contains("highest 150.0 MB"), "{}", seen[1].2);
    assert_eq!((seen[2].0, seen[2].1, seen.len()), (8, "warning", 3));
    // A threshold that nothing reaches takes an alert back.
    alerts.thresholds.memory_threshold_bytes = f64::MAX;
    let calm = AlertSample { usage_bytes: Some(130 << 20), ..AlertSample::default() };
    let ended: Vec<_> = (0..3).flat_map(|_| alerts.observe(&calm)).map(|event| event.event_type).collect();
    assert_eq!(ended, [RECOVERED]);
}

proptest! {
    /// Starts and ends of a kind alternate, beginning with a start, for any samples and thresholds; `finish` closes.
    #[test]
    fn never_two_starts_without_an_end(
        samples in prop::collection::vec(
            (any::<u64>(), any::<Option<u64>>(), any::<Option<u64>>(), any::<Option<i64>>(), any::<Option<u64>>(),
             any::<Option<u64>>(), 0u64..120),
            0..200,
        ),
        warning in 0.0..100.0f64, critical in 0.0..100.0f64, margin in 0.0..50.0f64, quiet in 0u32..5,
    ) {
        let mut alerts = Alerts::new(Thresholds {
            memory_warning_percent: warning,
            memory_critical_percent: critical,
            usage_margin_percent: margin,
            quiet_samples: quiet,
            ..Thresholds::default()
        });
        let mut open = std::collections::HashMap::new();
        let check = |event: &AlertEvent, open: &mut std::collections::HashMap<AlertKind, bool>| {
            let before = open.insert(event.kind, event.is_start()).unwrap_or(false);
            prop_assert_ne!(before, event.is_start());
            Ok(())
        };
        for (timestamp_ns, usage_bytes, total_bytes, change_bytes, inactive_bytes, reserved_bytes, percent) in samples {
            // Random totals rarely meet a threshold, so half of the samples are percentages of 100 bytes.
            let (usage_bytes, total_bytes) =
                if timestamp_ns % 2 == 0 { (usage_bytes, total_bytes) } else { (Some(percent), Some(100)) };
            let sample =
                AlertSample { timestamp_ns, usage_bytes, total_bytes, change_bytes, inactive_bytes, reserved_bytes };
            for event in alerts.observe(&sample) {
                check(&event, &mut open)?;
            }
            let held = open.values().filter(|held| **held).count();
            prop_assert_eq!(alerts.open().count(), held);
        }
        for event in alerts.finish(u64::MAX) {
            check(&event, &mut open)?;
        }
        prop_assert!(open.values().all(|held| !held));
    }

    /// A usage alert ends exactly with the sample that is the N-th in a row below threshold − margin.
    #[test]
    fn alert_ends_after_n_calm_samples(percents in prop::collection::vec(0.0..100.0f64, 1..100), quiet in 1u32..5) {
        let thresholds = Thresholds { quiet_samples: quiet, memory_critical_percent: 200.0, ..Thresholds::default() };
        let mut alerts = Alerts::new(thresholds);
        let (mut open, mut calm) = (false, 0);
        for percent in percents {
            // Whole percents of 100 bytes: no rounding between what is fed and what is computed.
            let percent = percent.floor();
            let (usage_bytes, total_bytes) = (Some(percent as u64), Some(100));
            let events = alerts.observe(&AlertSample { usage_bytes, total_bytes, ..AlertSample::default() });
            let expected = if !open && percent >= 80.0 {
                (open, calm) = (true, 0);
                vec!["warning"]
            } else if open {
                calm = if percent < 78.0 { calm + 1 } else { 0 };
                if calm >= quiet { open = false; vec![RECOVERED] } else { vec![] }
            } else {
                vec![]
            };
            prop_assert_eq!(events.iter().map(|event| event.event_type).collect::<Vec<_>>(), expected);
        }
    }
}
