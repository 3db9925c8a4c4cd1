//! What is wrong with a rank: its alerts, the gap beyond the allocator, and collectives, in this order.

use std::collections::BTreeMap;

use stormlog_model::{Counter, Event, Severity};

use super::gap_of;
use super::phase_lookup::PhaseLookup;
use crate::phases::PhaseAttribution;
use crate::rules::collective::{CollectiveConfig, CollectiveInterval};
use crate::rules::collective_ranks::CollectiveRanks;
use crate::rules::gap::{GapThresholds, hidden_gaps_of};

/// Something wrong with one rank at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Anomaly {
    /// The rank.
    pub rank: u64,
    /// How bad.
    pub severity: Severity,
    /// When.
    pub timestamp_ns: u64,
    /// `alert:<type>`, `gap_ratio_breach`, `gap:<class>` or `collective:<class>`.
    pub signal: String,
    /// The sentence.
    pub details: String,
    /// Of a collective only: 0 to 1.
    pub confidence: Option<f64>,
    /// Of a collective only: why, sorted.
    pub reasons: Vec<&'static str>,
    /// The phase it happened in.
    pub phase_path: Option<String>,
}

/// An anomaly that stands for all of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Indicator {
    /// `earliest` or `most_severe`.
    pub kind: &'static str,
    /// The anomaly; its sentence names the phase.
    pub anomaly: Anomaly,
}

/// A collective interval with the phase of its spikes.
pub(super) type Interval = (CollectiveInterval, Option<PhaseAttribution>);

/// The collective intervals of each rank, of the events whose counters are all known.
pub(super) fn collectives(events: &[Event], phases: &PhaseLookup<'_>) -> BTreeMap<u64, Vec<Interval>> {
    let mut ranks = CollectiveRanks::default();
    for event in events.iter().filter(|event| is_complete(event)) {
        ranks.observe(event);
    }
    let mut found: BTreeMap<u64, Vec<Interval>> = BTreeMap::new();
    for interval in ranks.attribute(&CollectiveConfig::default()) {
        let at = |at_ns: &u64| {
            let session = ranks.session_at(interval.rank, *at_ns)?;
            phases.at(session, interval.rank, *at_ns)
        };
        let phase = interval.spikes_ns.iter().map(at).fold(None, PhaseAttribution::merged);
        found.entry(interval.rank).or_default().push((interval, phase));
    }
    found
}

fn is_complete(event: &Event) -> bool {
    [Counter::Allocated, Counter::Reserved, Counter::Used]
        .iter()
        .all(|counter| event.counter(*counter).is_some())
}

/// Everything wrong with a rank; its events and samples are in the order of time.
pub(super) fn of_rank(
    rank: u64,
    events: &[&Event],
    samples: &[&Event],
    intervals: Vec<Interval>,
    phases: &PhaseLookup<'_>,
) -> Vec<Anomaly> {
    let path = |event: &Event| phases.of_event(event).as_ref().and_then(PhaseAttribution::label);
    let anomaly = |severity, event: &Event, signal: String, details| Anomaly {
        rank,
        severity,
        timestamp_ns: event.timestamp_ns,
        signal,
        details,
        confidence: None,
        reasons: Vec::new(),
        phase_path: path(event),
    };
    let mut found = Vec::new();
    for event in events {
        let severity = match event.head.event_type.as_str() {
            "warning" => Severity::Warning,
            "critical" | "error" => Severity::Critical,
            _ => continue,
        };
        let context = event.context.as_deref().filter(|context| !context.is_empty());
        let signal = format!("alert:{}", event.head.event_type);
        found.push(anomaly(severity, event, signal, context.unwrap_or("Alert event").to_owned()));
    }
    let thresholds = GapThresholds::default();
    let mut breach_ns = None;
    for event in samples {
        let total = event.counter(Counter::Total).filter(|total| *total > 0);
        let (Some(total), Some(gap)) = (total, gap_of(event)) else { continue };
        let ratio = gap.unsigned_abs() as f64 / total as f64;
        if ratio >= thresholds.ratio {
            breach_ns.get_or_insert(event.timestamp_ns);
            let details = format!("gap ratio {:.1}% exceeded threshold", ratio * 100.0);
            found.push(anomaly(Severity::Warning, event, "gap_ratio_breach".to_owned(), details));
        }
    }
    let Some(first_ns) = samples.first().or(events.first()).map(|event| event.timestamp_ns) else {
        return found;
    };
    let complete: Vec<Event> = events.iter().filter(|event| is_complete(event)).copied().cloned().collect();
    for (gap, place) in hidden_gaps_of(&complete, &thresholds) {
        let shown = &complete[place];
        let signal = format!("gap:{}", gap.class.as_str());
        let mut found_gap = anomaly(gap.severity, shown, signal, gap.description);
        if found_gap.timestamp_ns == 0 {
            found_gap.timestamp_ns = breach_ns.filter(|at| *at != 0).unwrap_or(first_ns);
        }
        found.push(found_gap);
    }
    for (interval, phase) in intervals {
        let reasons: Vec<&'static str> = interval.reasons.iter().copied().collect();
        let listed = if reasons.is_empty() { "no reason codes".to_owned() } else { reasons.join(", ") };
        let confidence = interval.confidence;
        found.push(Anomaly {
            rank,
            severity: match confidence {
                high if high >= 0.8 => Severity::Critical,
                likely if likely >= 0.6 => Severity::Warning,
                _ => Severity::Info,
            },
            timestamp_ns: interval.start_ns.max(first_ns),
            signal: format!("collective:{}", interval.classification()),
            details: format!(
                "Communication-attributed hidden-memory spike (confidence {confidence:.2}; reasons: {listed})."
            ),
            confidence: Some(confidence),
            reasons,
            phase_path: phase.as_ref().and_then(PhaseAttribution::label),
        });
    }
    found
}

/// The first of the earliest.
pub(super) fn earliest(anomalies: &[Anomaly]) -> Option<&Anomaly> {
    anomalies.iter().min_by_key(|anomaly| anomaly.timestamp_ns)
}

/// The earliest anomaly of all ranks, and the earliest of the worst.
pub(super) fn indicators(anomalies: &[Anomaly]) -> Vec<Indicator> {
    let worst =
        anomalies.iter().min_by_key(|anomaly| (std::cmp::Reverse(anomaly.severity), anomaly.timestamp_ns));
    let shown = |kind, anomaly: &Anomaly| {
        let mut anomaly = anomaly.clone();
        if let Some(phase) = anomaly.phase_path.as_deref().filter(|phase| !phase.is_empty()) {
            anomaly.details = format!("{} Phase: {phase}.", anomaly.details);
        }
        Indicator { kind, anomaly }
    };
    let both = [("earliest", earliest(anomalies)), ("most_severe", worst)];
    both.into_iter().filter_map(|(kind, anomaly)| Some(shown(kind, anomaly?))).collect()
}
