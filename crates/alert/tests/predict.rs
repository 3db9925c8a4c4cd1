//! Forecasts on made-up traces whose end is known: a leak is foretold, what only looks like one is not.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use stormlog_alert::alerts::{AlertEvent, AlertKind, RECOVERED};
use stormlog_alert::predict::{PredictConfig, Predictor, Reading};

const MIB: f64 = 1024.0 * 1024.0;
const LIMIT: f64 = 16_384.0 * MIB;

/// A generator of the same noise on every machine, between 0 and 1.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

struct Run {
    events: Vec<(f64, AlertEvent)>,
    predictor: Predictor,
    hit_at: Option<f64>,
}

impl Run {
    fn first(&self, kind: AlertKind) -> Option<f64> {
        self.events.iter().find(|(_, event)| event.kind == kind && event.is_start()).map(|(at, _)| *at)
    }
}

/// Samples ten times a second until `seconds` have passed or the limit is met.
fn run(seconds: f64, mut used: impl FnMut(f64) -> f64, psi: Option<f64>) -> Run {
    let mut predictor = Predictor::new(PredictConfig::default());
    let mut events = Vec::new();
    let mut hit_at = None;
    for tick in 0..(seconds * 10.0) as u64 {
        let at = tick as f64 / 10.0;
        let bytes = used(at);
        if bytes >= LIMIT {
            hit_at = Some(at);
            break;
        }
        let found = predictor.observe(&Reading {
            timestamp_ns: 1_700_000_000_000_000_000 + tick * 100_000_000,
            used_bytes: Some(bytes as u64),
            limit_bytes: Some(LIMIT as u64),
            psi_some_avg10: psi,
            ..Reading::default()
        });
        events.extend(found.into_iter().map(|event| (at, event)));
    }
    Run { events, predictor, hit_at }
}

#[test]
fn slow_leak_is_forecast_with_the_right_time() {
    // 8 GiB left at 4 MiB/s: 2048 s.
    let run = run(4000.0, |at| 8192.0 * MIB + at * 4.0 * MIB, None);
    let (warned, hit) = (run.first(AlertKind::ForecastWarning).unwrap(), run.hit_at.unwrap());
    let left = run.events[0].1.metadata["seconds_to_limit"].as_f64().unwrap();
    assert!((left - (hit - warned)).abs() < 20.0, "said {left}, was {}", hit - warned);
    assert!(left > 500.0, "{left}");
    let critical = hit - run.first(AlertKind::ForecastCritical).unwrap();
    assert!((40.0..80.0).contains(&critical), "{critical}");
    assert_eq!(run.events.len(), 2, "one warning, one escalation: {:?}", run.events);
    assert!(
        run.events[0].1.context.starts_with("WARNING: Memory limit of 16.00 GiB will be reached in about ")
    );
}

#[test]
fn a_fast_leak_leaves_time_to_act() {
    // From 1 GiB at 512 MiB/s it takes 30 s.
    let run = run(60.0, |at| 1024.0 * MIB + at * 512.0 * MIB, None);
    let lead = run.hit_at.unwrap() - run.first(AlertKind::ForecastCritical).unwrap();
    assert!(lead > 10.0, "{lead}");
}

#[test]
fn leak_under_a_sawtooth_is_forecast_from_its_floor() {
    let mut noise = Noise(7);
    let run = run(
        4000.0,
        |at| 6144.0 * MIB + at * 3.0 * MIB + (at % 5.0) / 5.0 * 2048.0 * MIB + noise.next() * 30.0 * MIB,
        None,
    );
    let lead = run.hit_at.unwrap() - run.first(AlertKind::ForecastWarning).unwrap();
    assert!((200.0..900.0).contains(&lead), "{lead}");
}

#[test]
fn a_sawtooth_alone_is_not() {
    for period in [0.7, 5.0, 30.0, 120.0] {
        let mut noise = Noise(3);
        // 8 to 13 GiB; the first tooth is a climb like any other, so the warning may come once, never again.
        let run = run(
            period * 40.0,
            |at| 8192.0 * MIB + (at % period) / period * 5120.0 * MIB + noise.next() * 20.0 * MIB,
            None,
        );
        let late = run.events.iter().filter(|(at, event)| event.is_start() && *at > period * 1.5).count();
        assert_eq!(late, 0, "period {period}: {:?}", run.events);
        let starts = run.events.iter().filter(|(_, event)| event.is_start()).count();
        let ends = run.events.iter().filter(|(_, event)| event.event_type == RECOVERED).count();
        assert_eq!(starts, ends, "period {period}");
    }
}

#[test]
fn a_step_is_not() {
    let run = run(600.0, |at| if at < 200.0 { 6000.0 * MIB } else { 13_000.0 * MIB }, None);
    assert!(run.events.is_empty(), "{:?}", run.events);
}

#[test]
fn growth_that_saturates_below_the_limit_gives_no_forecast() {
    let run = run(3000.0, |at| 4096.0 * MIB + 10_240.0 * MIB * (1.0 - (-at / 300.0).exp()), None);
    let still_open = run.events.iter().filter(|(_, event)| event.is_start()).count() as i64
        - run.events.iter().filter(|(_, event)| !event.is_start()).count() as i64;
    assert_eq!(still_open, 0);
    assert_eq!(run.first(AlertKind::ForecastCritical), None, "{:?}", run.events);
}

#[test]
fn noise_is_not() {
    let mut noise = Noise(11);
    let run = run(2000.0, |_| 12_000.0 * MIB + noise.next() * 2000.0 * MIB, None);
    assert!(run.events.is_empty(), "{:?}", run.events);
}

#[test]
fn a_flat_line_is_not_even_under_pressure() {
    let run = run(300.0, |_| 15_900.0 * MIB, Some(90.0));
    assert!(run.events.is_empty());
    assert_eq!(run.predictor.forecast(), None);
}

#[test]
fn pressure_makes_it_more_certain() {
    let noisy = |psi| {
        let mut noise = Noise(5);
        let run = run(400.0, |at| 11_500.0 * MIB + at * 4.0 * MIB + noise.next() * 60.0 * MIB, psi);
        run.predictor.forecast().unwrap().confidence
    };
    assert!(noisy(Some(60.0)) > noisy(None));
    assert!(noisy(Some(f64::NAN)) <= 1.0);
}

#[test]
fn a_leak_that_is_plugged_ends_its_warning() {
    let run = run(1500.0, |at| 8192.0 * MIB + at.min(300.0) * 20.0 * MIB, None);
    let kinds: Vec<_> = run.events.iter().map(|(_, event)| event.event_type).collect();
    assert!(kinds.contains(&"warning"), "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| **kind == RECOVERED).count() * 2, kinds.len(), "{kinds:?}");
}

#[test]
fn page_cache_is_not_growth() {
    let mut predictor = Predictor::new(PredictConfig::default());
    for tick in 0..4000u64 {
        let cache = tick * 3 * MIB as u64;
        let events = predictor.observe(&Reading {
            timestamp_ns: tick * 100_000_000,
            used_bytes: Some(3000 * MIB as u64 + cache),
            reclaimable_bytes: Some(cache),
            limit_bytes: Some(LIMIT as u64),
            ..Reading::default()
        });
        assert!(events.is_empty());
    }
}

#[test]
fn unknown_readings_and_odd_clocks_are_survived() {
    let mut predictor = Predictor::new(PredictConfig { base_window_ns: 0, ..PredictConfig::default() });
    let mut noise = Noise(1);
    for _ in 0..20_000 {
        let mut maybe = |value: f64| (noise.next() > 0.3).then_some(value);
        let (used, limit, cache) = (maybe(1e18), maybe(1e19), maybe(1e19));
        let at = (noise.next() * u64::MAX as f64) as u64;
        predictor.observe(&Reading {
            timestamp_ns: at,
            used_bytes: used.map(|used| used as u64),
            limit_bytes: limit.map(|limit| limit as u64),
            reclaimable_bytes: cache.map(|cache| cache as u64),
            psi_some_avg10: Some(f64::INFINITY),
            psi_full_avg10: Some(-5.0),
        });
    }
}
