//! Anything may come in: the rules must answer, with findings that can be written.

use std::sync::Arc;

use proptest::prelude::*;
use stormlog_analyze::report::{html, markdown, optimization_report, text};
use stormlog_analyze::{AnalysisOptions, Measures, Recording, analyze};
use stormlog_model::{Counter, Counters, Event, Head, Identity, Metadata, Record};

/// Counters, time, identity and type, from a few bits each: small numbers collide, large ones are at the edge.
fn event() -> impl Strategy<Value = Event> {
    let number = prop_oneof![
        Just(None),
        Just(Some(0_u64)),
        (0..1_u64 << 40).prop_map(Some),
        Just(Some(u64::MAX)),
        Just(Some(u64::MAX - 1)),
        Just(Some(i64::MAX as u64)),
    ];
    let time = prop_oneof![
        0..1_000_u64,
        Just(0),
        Just(u64::MAX),
        1_700_000_000_000_000_000..1_700_000_001_000_000_000_u64
    ];
    let kind = prop_oneof![
        6 => Just("sample"),
        1 => Just("error"),
        1 => Just("phase_enter"),
        1 => Just("phase_exit"),
        1 => Just("collector_degraded"),
        1 => Just("SAMPLE "),
    ];
    let counters = proptest::collection::vec(number, 7);
    (counters, time, kind, 0..4_u64, -1..3_i64, 0..3_i64).prop_map(|(values, at, kind, rank, device, pid)| {
        let mut counters = Counters::UNKNOWN;
        let order = Counter::ALL.into_iter().filter(|counter| *counter != Counter::Change);
        order.zip(values).for_each(|(counter, value)| counters.set(counter, value));
        let scope = serde_json::json!({
            "action": kind.strip_prefix("phase_"), "name": "p", "path": ["p"], "depth": 1, "scope_id": "s:1",
            "thread_id": pid, "thread_name": "t", "sequence": rank,
        });
        let metadata = Record::from_iter([
            ("phase_scope".to_owned(), scope),
            ("num_alloc_retries".to_owned(), rank.into()),
            ("psi_full_avg10".to_owned(), (at as f64).into()),
            ("note".to_owned(), "all_reduce <b>|`".into()),
        ]);
        Event {
            timestamp_ns: at,
            counters,
            context: Some("OOM Tried to allocate 1e300 GiB".into()),
            head: Arc::new(Head {
                session_id: format!("s{}", pid % 2),
                event_type: kind.to_owned(),
                collector: "c".to_owned(),
                sampling_interval_ms: u64::MAX,
                pid,
                host: "h".to_owned(),
                identity: Identity { job_id: None, rank, local_rank: 0, world_size: 4 },
                device_id: device,
            }),
            metadata: Arc::new(Metadata { map: metadata, capabilities: Default::default(), inferred: true }),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_mix_of_events_is_judged(events in proptest::collection::vec(event(), 0..200)) {
        let mut recording = Recording::default();
        for (number, event) in events.iter().enumerate() {
            if number % 50 == 49 {
                recording.next_source();
            }
            recording.observe(event);
        }
        let analysis = analyze(recording, Vec::new(), &AnalysisOptions::default());
        for finding in &analysis.findings {
            prop_assert!((0.0..=1.0).contains(&finding.confidence), "{finding:?}");
            prop_assert!(finding.id.starts_with(|first: char| first.is_ascii_lowercase()));
        }
        let report = serde_json::to_string(&optimization_report(&analysis, None));
        prop_assert!(report.is_ok());
        prop_assert!(!html(&analysis, &[]).contains("<b>"));
        prop_assert!(!markdown(&analysis, &[]).is_empty() && !text(&analysis).is_empty());
        prop_assert!(Measures::of(&analysis).growth.is_finite());
    }
}
