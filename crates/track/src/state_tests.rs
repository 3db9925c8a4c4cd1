//! The rules over hours of made-up time: what cannot be waited for in a test.
#![allow(clippy::unwrap_used, reason = "tests stop where something is wrong")]

use std::time::Duration;

use serde_json::json;
use stormlog_alert::alerts::Thresholds;
use stormlog_model::{Event, Identity, Record, SessionStatus, SessionSummary};

use crate::state::State;
use crate::{Config, DeviceSample, HOST_DEVICE, Outlets, Sampled, Wording};

const GIB: u64 = 1 << 30;
const S: u64 = 1_000_000_000;

fn state() -> State {
    let session = SessionSummary {
        session_id: "s".into(),
        status: SessionStatus::Running,
        started_at_ns: 0,
        ended_at_ns: None,
        host: "h".into(),
        pid: 1,
        job_id: None,
        rank: 0,
        local_rank: 0,
        world_size: 1,
        attempt: None,
        source: "test".into(),
    };
    let capabilities = json!({
        "backend": "cuda", "telemetry_collector": "c", "sampling_source": "test",
        "supports_allocator_allocated": true, "supports_allocator_reserved": true,
        "supports_allocator_active": true, "supports_allocator_inactive": true,
        "supports_device_used": true, "supports_device_free": true, "supports_device_total": true,
        "supports_native_allocator_history": false, "supports_fragmentation_analysis": true,
        "supports_allocator_attribution": true, "supports_bounded_profiling": false,
    });
    let config = Config {
        session,
        identity: Identity::default(),
        collector: "c".into(),
        interval: Duration::from_millis(100),
        max_events: 100_000,
        flight_events: 0,
        metadata: Record::from_iter([("memory_capabilities".to_owned(), capabilities)]),
        wording: Wording::Device,
        says_health: true,
        alerts: true,
        thresholds: Thresholds { memory_leak_threshold: 1e18, ..Thresholds::default() },
        total_bytes: None,
    };
    State::new(config, Outlets::default()).unwrap()
}

fn sample(used: u64, inactive: u64) -> Sampled {
    let sample = DeviceSample {
        allocated: Some(used),
        reserved: Some(used),
        used: Some(used),
        inactive: Some(inactive),
        total: Some(16 * GIB),
        free: Some((16 * GIB).saturating_sub(used)),
        ..DeviceSample::default()
    };
    Sampled { sample: Some(sample), ..Sampled::default() }
}

fn texts(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.context.as_deref().unwrap_or("")).collect()
}

#[test]
fn steady_growth_is_forecast_before_the_limit_is_near() {
    let mut state = state();
    let mut first = None;
    // 20 MiB a second from 4 GiB on: 80 % would be reached after 7 minutes.
    for tick in 0..3000_u64 {
        let events = state.observe(sample(4 * GIB + tick * (2 << 20), 0), tick * S / 10);
        if let Some(text) = texts(&events).first().copied() {
            first.get_or_insert((tick / 10, text.to_owned()));
        }
    }
    let (second, text) = first.unwrap();
    assert!(
        second < 300 && text.starts_with("WARNING: Memory limit of 16.00 GiB will be reached in about"),
        "{second} {text}"
    );
    assert!(state.statistics().seconds_to_limit.unwrap() > 100.0);
}

#[test]
fn memory_that_does_not_grow_gives_no_forecast() {
    let mut state = state();
    for tick in 0..3000_u64 {
        let wave = (tick % 10) * (30 << 20);
        assert!(state.observe(sample(4 * GIB + wave, 0), tick * S / 10).is_empty());
    }
    assert_eq!(state.statistics().seconds_to_limit, None);
}

#[test]
fn on_the_host_it_is_the_room_left_that_counts() {
    let mut state = state();
    let mut events = Vec::new();
    for tick in 0..3000_u64 {
        // This process stays small; another process fills the machine.
        let mut sampled = sample(GIB, 0);
        let seen = sampled.sample.as_mut().unwrap();
        seen.device_id = HOST_DEVICE;
        seen.free = Some(12 * GIB - tick * (2 << 20));
        events.extend(state.observe(sampled, tick * S / 10));
    }
    assert!(
        texts(&events).iter().any(|text| text.contains("Memory limit of 16.00 GiB will be reached in about"))
    );
}

#[test]
fn fragmentation_is_an_alert_of_its_own() {
    let mut state = state();
    let events = state.observe(sample(10 * GIB, 4 * GIB), S);
    assert_eq!(texts(&events), ["High fragmentation: 40.0%"]);
}
