//! The ranks of one job side by side: what grew, what is missing, and the first anomaly.
//!
//! Rows, signals, severities and their order are 0.4.3's (`stormlog.tui.distributed_diagnostics`); the rules behind
//! them are the ones of `rules::gap` and `rules::collective`. Must never make a list as long as a world size that an
//! input claims: [`MAX_LISTED_RANKS`] bounds the ranks that are only expected.

mod anomalies;
mod filter;
mod phase_lookup;

use std::collections::{BTreeMap, BTreeSet};

use stormlog_model::{Counter, Event, Support};

pub use anomalies::{Anomaly, Indicator};
pub use filter::{RankFilterError, select_ranks};

use crate::sample::is_sample;
use phase_lookup::PhaseLookup;

/// Ranks that no event is of are listed below this number only.
pub const MAX_LISTED_RANKS: u64 = 1 << 17;

/// What is known of the ranks of a job.
#[derive(Debug, Default)]
pub struct RankDiagnostics {
    /// One row for each expected rank, in the order of ranks.
    pub rows: Vec<RankRow>,
    /// The earliest and the most severe anomaly; empty where there is none.
    pub indicators: Vec<Indicator>,
    /// Ranks there should be.
    pub expected_ranks: Vec<u64>,
    /// Ranks with events.
    pub present_ranks: Vec<u64>,
    /// Ranks without events.
    pub missing_ranks: Vec<u64>,
    /// The samples of each present rank.
    pub timelines: BTreeMap<u64, RankTimeline>,
    /// What limits the comparison.
    pub warnings: Vec<String>,
}

/// One rank: first against last sample, and its first anomaly.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RankRow {
    /// Its number.
    pub rank: u64,
    /// Whether it has events.
    pub is_present: bool,
    /// Its `sample` events.
    pub samples: usize,
    /// Growth of the allocator's bytes from the first to the last sample, where both know it.
    pub allocated_delta: Option<i128>,
    /// The same of the reserved bytes.
    pub reserved_delta: Option<i128>,
    /// The same of the bytes used on the device.
    pub device_used_delta: Option<i128>,
    /// Used minus reserved in the last sample that knows both.
    pub gap_latest: Option<i128>,
    /// The widest gap, whatever its sign.
    pub gap_peak: Option<i128>,
    /// Its earliest anomaly.
    pub first_anomaly: Option<Anomaly>,
}

/// The samples of one rank as series of one length.
#[derive(Debug, Clone, PartialEq)]
pub enum RankTimeline {
    /// Of a framework's allocator; an unknown counter is a hole.
    Allocator {
        /// When.
        timestamps_ns: Vec<u64>,
        /// Bytes handed out.
        allocated: Vec<Option<u64>>,
        /// Bytes held.
        reserved: Vec<Option<u64>>,
        /// Used on the device beyond that.
        gap: Vec<Option<i128>>,
    },
    /// Of the device alone.
    Device {
        /// When.
        timestamps_ns: Vec<u64>,
        /// Bytes used.
        device_used: Vec<u64>,
    },
}

/// The ranks of these events, or those of them that are selected.
pub fn diagnose_ranks(events: &[Event], selected: Option<&BTreeSet<u64>>) -> RankDiagnostics {
    if events.is_empty() {
        let warnings = vec!["No telemetry events loaded.".to_owned()];
        return RankDiagnostics { warnings, ..RankDiagnostics::default() };
    }
    let phases = PhaseLookup::of(events);
    let mut ordered: Vec<&Event> = events.iter().collect();
    ordered.sort_by_key(|event| event.timestamp_ns);
    let mut ranks: BTreeMap<u64, Vec<&Event>> = BTreeMap::new();
    let mut world_sizes = BTreeSet::new();
    for event in ordered {
        ranks.entry(event.head.identity.rank).or_default().push(event);
        world_sizes.insert(event.head.identity.world_size);
    }
    world_sizes.remove(&0);
    let mut warnings = Vec::new();
    if world_sizes.len() > 1 {
        warnings.push("Inconsistent world_size values detected; using max observed world_size.".to_owned());
    }
    let world_size = world_sizes.last().copied().unwrap_or(ranks.len() as u64);
    if world_size > MAX_LISTED_RANKS {
        let last = MAX_LISTED_RANKS - 1;
        warnings.push(format!(
            "world_size is {world_size}; ranks without events are listed up to rank {last} only."
        ));
    }
    warn_of_counters(&ranks, &mut warnings);
    let is_wanted = |rank: &u64| selected.is_none_or(|selected| selected.contains(rank));
    let mut expected: BTreeSet<u64> = (0..world_size.min(MAX_LISTED_RANKS)).filter(is_wanted).collect();
    expected.extend(ranks.keys().copied().filter(|rank| is_wanted(rank)));
    let present: Vec<u64> = ranks.keys().copied().filter(is_wanted).collect();
    let missing = expected.iter().copied().filter(|rank| !ranks.contains_key(rank)).collect();
    let mut collective = anomalies::collectives(events, &phases);
    let mut found = RankDiagnostics {
        expected_ranks: expected.iter().copied().collect(),
        present_ranks: present,
        missing_ranks: missing,
        warnings,
        ..RankDiagnostics::default()
    };
    let mut anomalies = Vec::new();
    for rank in expected {
        let Some(of_rank) = ranks.get(&rank) else {
            found.rows.push(RankRow { rank, ..RankRow::default() });
            continue;
        };
        let samples: Vec<&Event> =
            of_rank.iter().copied().filter(|event| is_sample(&event.head.event_type)).collect();
        let intervals = collective.remove(&rank).unwrap_or_default();
        let of_row = anomalies::of_rank(rank, of_rank, &samples, intervals, &phases);
        found.rows.push(row(rank, &samples, anomalies::earliest(&of_row)));
        found.timelines.insert(rank, RankTimeline::of(&samples));
        anomalies.extend(of_row);
    }
    found.indicators = anomalies::indicators(&anomalies);
    found
}

fn row(rank: u64, samples: &[&Event], first_anomaly: Option<&Anomaly>) -> RankRow {
    let delta = |counter| {
        let at = |event: &&Event| event.counter(counter).map(i128::from);
        Some(at(samples.last()?)? - at(samples.first()?)?)
    };
    let gaps: Vec<i128> = samples.iter().filter_map(|event| gap_of(event)).collect();
    RankRow {
        rank,
        is_present: true,
        samples: samples.len(),
        allocated_delta: delta(Counter::Allocated),
        reserved_delta: delta(Counter::Reserved),
        device_used_delta: delta(Counter::Used),
        gap_latest: gaps.last().copied(),
        gap_peak: gaps.iter().map(|gap| gap.abs()).max(),
        first_anomaly: first_anomaly.cloned(),
    }
}

/// Used on the device minus what the allocator holds.
fn gap_of(event: &Event) -> Option<i128> {
    Some(i128::from(event.counter(Counter::Used)?) - i128::from(event.counter(Counter::Reserved)?))
}

fn warn_of_counters(ranks: &BTreeMap<u64, Vec<&Event>>, warnings: &mut Vec<String>) {
    let samples = || ranks.values().flatten().filter(|event| is_sample(&event.head.event_type));
    let has = |event: &&&Event, counter| event.counter(counter).is_some();
    let mut allocator =
        samples().filter(|event| has(event, Counter::Allocated) && has(event, Counter::Reserved)).peekable();
    if allocator.peek().is_some() {
        if !allocator.any(|event| event.metadata.capabilities.supports(Support::FragmentationAnalysis)) {
            warnings.push("Collector capabilities disable fragmentation analysis.".to_owned());
        }
    } else if samples().next().is_some() {
        let shown = if samples().any(|event| event.counter(Counter::Allocated).is_some()) {
            "available allocator memory counters."
        } else {
            "device memory usage only."
        };
        warnings.push(format!("Allocator-native diagnostics are unavailable; showing {shown}"));
    }
}

impl RankTimeline {
    fn of(samples: &[&Event]) -> Self {
        let series = |counter| samples.iter().map(|event| event.counter(counter)).collect();
        if samples.iter().any(|event| event.counter(Counter::Allocated).is_some()) {
            return RankTimeline::Allocator {
                timestamps_ns: samples.iter().map(|event| event.timestamp_ns).collect(),
                allocated: series(Counter::Allocated),
                reserved: series(Counter::Reserved),
                gap: samples.iter().map(|event| gap_of(event)).collect(),
            };
        }
        let used =
            samples.iter().filter_map(|event| Some((event.timestamp_ns, event.counter(Counter::Used)?)));
        let (timestamps_ns, device_used) = used.unzip();
        RankTimeline::Device { timestamps_ns, device_used }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{gpu, sample, with};
    use std::sync::Arc;
    use stormlog_model::Head;

    const GIB: u64 = 1 << 30;

    fn of_rank(event: Event, rank: u64, world_size: u64) -> Event {
        let mut head = Head::clone(&event.head);
        (head.identity.rank, head.identity.world_size) = (rank, world_size);
        Event { head: Arc::new(head), ..event }
    }

    #[test]
    fn ranks_without_events_are_missing_and_growth_is_first_against_last() {
        let events: Vec<Event> =
            (0..4).map(|at| of_rank(gpu(at, GIB + at, 2 * GIB, 2 * GIB + 5 * at, 80 * GIB), 2, 4)).collect();
        let found = diagnose_ranks(&events, None);
        assert_eq!(found.missing_ranks, [0, 1, 3]);
        let row = &found.rows[2];
        assert_eq!((row.samples, row.allocated_delta, row.device_used_delta), (4, Some(3), Some(15)));
        assert_eq!((row.gap_latest, row.gap_peak, &row.first_anomaly), (Some(15), Some(15), &None));
        assert!(found.indicators.is_empty());
    }

    #[test]
    fn a_claimed_world_of_any_size_makes_a_bounded_list() {
        let events = [of_rank(sample(1, 5), u64::MAX - 1, u64::MAX)];
        let found = diagnose_ranks(&events, None);
        assert_eq!(found.expected_ranks.len() as u64, MAX_LISTED_RANKS + 1);
        assert!(found.warnings[0].starts_with("world_size is 18446744073709551615;"), "{:?}", found.warnings);
        let selected = BTreeSet::from([3, u64::MAX - 1]);
        let found = diagnose_ranks(&events, Some(&selected));
        assert_eq!(found.expected_ranks, [3, u64::MAX - 1]);
    }

    #[test]
    fn the_earliest_and_the_most_severe_anomaly_are_indicated() {
        let alert = |at, rank, kind, context| of_rank(with(sample(at, 5), kind, context), rank, 2);
        let events = [
            of_rank(sample(1, 5), 0, 2),
            alert(9, 1, "critical", "95 %"),
            alert(7, 0, "warning", ""),
            alert(8, 1, "error", "lost"),
        ];
        let found = diagnose_ranks(&events, None);
        let shown: Vec<_> = found
            .indicators
            .iter()
            .map(|it| (it.kind, it.anomaly.rank, it.anomaly.signal.as_str(), it.anomaly.details.as_str()))
            .collect();
        assert_eq!(
            shown,
            [("earliest", 0, "alert:warning", "Alert event"), ("most_severe", 1, "alert:error", "lost")]
        );
        assert_eq!(found.rows[1].first_anomaly.as_ref().unwrap().timestamp_ns, 8);
    }
}
