//! Accumulators fed event by event, in any order of time, that end up as if the events had come sorted.
//!
//! That is what lets a rollup be made in one pass: where 0.4.3 sorts a session and takes the first of equals, these
//! compare timestamps and, for equal ones, keep the order of the file.

use stormlog_model::classify::has_oom_mark;
use stormlog_model::{Counter, Event};

use super::{CounterSummary, PeakValue, RankRollup, WindowRollup};

/// What a rollup needs to know of an event.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "the names are those of the file's keys")]
pub struct Observation<'a> {
    pub timestamp_ns: u64,
    pub event_type: &'a str,
    pub rank: u64,
    pub local_rank: u64,
    pub world_size: u64,
    pub device_id: i64,
    pub allocated: Option<u64>,
    pub reserved: Option<u64>,
    pub used: Option<u64>,
    /// The metadata's `severity`, if text.
    pub severity: Option<&'a str>,
    /// The metadata's `collector_health_status`, if text.
    pub health_status: Option<&'a str>,
    /// Whether the metadata has `oom_reason` or `oom_dump_path`.
    pub has_oom_mark: bool,
    /// The metadata's `oom_dump_path`, if text.
    pub oom_dump_path: Option<&'a str>,
}

impl<'a> From<&'a Event> for Observation<'a> {
    fn from(event: &'a Event) -> Self {
        let (head, metadata) = (&event.head, &event.metadata.map);
        let text = |key: &str| metadata.get(key).and_then(serde_json::Value::as_str);
        Observation {
            timestamp_ns: event.timestamp_ns,
            event_type: &head.event_type,
            rank: head.identity.rank,
            local_rank: head.identity.local_rank,
            world_size: head.identity.world_size,
            device_id: head.device_id,
            allocated: event.counter(Counter::Allocated),
            reserved: event.counter(Counter::Reserved),
            used: event.counter(Counter::Used),
            severity: text("severity"),
            health_status: text("collector_health_status"),
            has_oom_mark: has_oom_mark(metadata),
            oom_dump_path: text("oom_dump_path"),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Peak {
    value: u64,
    timestamp_ns: u64,
    rank: u64,
    device_id: i64,
}

/// The peaks of the three counters: of allocated, reserved and used bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Peaks([Option<Peak>; 3]);

impl Peaks {
    pub(super) fn observe(&mut self, event: &Observation<'_>) {
        let values = [event.allocated, event.reserved, event.used];
        for (slot, value) in self.0.iter_mut().zip(values) {
            let Some(value) = value else { continue };
            let higher = |peak: Peak| {
                value > peak.value || (value == peak.value && event.timestamp_ns < peak.timestamp_ns)
            };
            if slot.is_none_or(higher) {
                *slot = Some(Peak {
                    value,
                    timestamp_ns: event.timestamp_ns,
                    rank: event.rank,
                    device_id: event.device_id,
                });
            }
        }
    }

    pub(super) fn summary(&self) -> CounterSummary {
        let [allocated, reserved, used] = self.0.map(|peak| PeakValue {
            value: peak.map(|peak| peak.value.into()),
            timestamp_ns: peak.map(|peak| peak.timestamp_ns),
            rank: peak.map(|peak| peak.rank),
            device_id: peak.map(|peak| peak.device_id.into()),
        });
        CounterSummary {
            allocator_allocated_bytes: allocated,
            allocator_reserved_bytes: reserved,
            device_used_bytes: used,
        }
    }
}

/// The first and last time something happened.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Span(pub(super) Option<(u64, u64)>);

impl Span {
    pub(super) fn observe(&mut self, at: u64) {
        self.0 = Some(self.0.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
    }

    pub(super) fn first(self) -> Option<u64> {
        self.0.map(|(first, _)| first)
    }

    pub(super) fn last(self) -> Option<u64> {
        self.0.map(|(_, last)| last)
    }
}

/// The gap at one time.
type Gap = (u64, i128);

#[derive(Debug)]
pub(super) struct RankState {
    /// Local rank and world size of the earliest event.
    identity: (u64, u64),
    events: u64,
    samples: u64,
    span: Span,
    peaks: Peaks,
    /// First, latest and greatest gap.
    gaps: Option<(Gap, Gap, i128)>,
}

impl RankState {
    pub(super) fn new(event: &Observation<'_>) -> Self {
        RankState {
            identity: (event.local_rank, event.world_size),
            events: 0,
            samples: 0,
            span: Span::default(),
            peaks: Peaks::default(),
            gaps: None,
        }
    }

    pub(super) fn observe(&mut self, event: &Observation<'_>) {
        let at = event.timestamp_ns;
        if self.span.first().is_some_and(|first| at < first) {
            self.identity = (event.local_rank, event.world_size);
        }
        self.events += 1;
        self.span.observe(at);
        self.peaks.observe(event);
        if event.event_type != "sample" {
            return;
        }
        self.samples += 1;
        let (Some(used), Some(reserved)) = (event.used, event.reserved) else { return };
        let gap = i128::from(used) - i128::from(reserved);
        let (first, latest, peak) = self.gaps.get_or_insert(((at, gap), (at, gap), gap));
        if at < first.0 {
            *first = (at, gap);
        }
        if at >= latest.0 {
            *latest = (at, gap);
        }
        *peak = gap.max(*peak);
    }

    pub(super) fn finish(&self, rank: u64) -> RankRollup {
        RankRollup {
            rank,
            local_rank: self.identity.0,
            world_size: self.identity.1,
            event_count: self.events,
            sample_count: self.samples,
            first_timestamp_ns: self.span.first(),
            last_timestamp_ns: self.span.last(),
            counters: self.peaks.summary(),
            hidden_gap_first_bytes: self.gaps.map(|(first, _, _)| first.1),
            hidden_gap_latest_bytes: self.gaps.map(|(_, latest, _)| latest.1),
            hidden_gap_peak_bytes: self.gaps.map(|(_, _, peak)| peak),
            hidden_gap_delta_bytes: self.gaps.map(|(first, latest, _)| latest.1 - first.1),
            hidden_gap_drift_bytes_per_second: self.gaps.and_then(|(first, latest, _)| drift(first, latest)),
        }
    }
}

/// Bytes per second from one gap to another, to six decimals.
fn drift(first: Gap, latest: Gap) -> Option<f64> {
    let elapsed = latest.0.checked_sub(first.0).filter(|elapsed| *elapsed > 0)?;
    // By way of decimal text, which rounds once and to even as Python's division and `round` do.
    let seconds: f64 = format!("{}.{:09}", elapsed / 1_000_000_000, elapsed % 1_000_000_000).parse().ok()?;
    format!("{:.6}", (latest.1 - first.1) as f64 / seconds).parse().ok()
}

/// One window; which one, its owner knows.
#[derive(Debug, Default)]
pub(super) struct WindowState {
    pub(super) events: u64,
    pub(super) samples: u64,
    pub(super) alerts: u64,
    pub(super) transitions: u64,
    pub(super) ooms: u64,
    peaks: Peaks,
    /// Sorted. Nearly always one.
    ranks: Vec<u64>,
}

impl WindowState {
    /// True when the event's rank is new here.
    pub(super) fn observe(&mut self, event: &Observation<'_>) -> bool {
        self.events += 1;
        self.samples += u64::from(event.event_type == "sample");
        self.peaks.observe(event);
        match self.ranks.binary_search(&event.rank) {
            Ok(_) => false,
            Err(at) => {
                self.ranks.insert(at, event.rank);
                true
            }
        }
    }

    pub(super) fn finish(&self, index: u64, session_start: i64, length: u64) -> WindowRollup {
        let start_ns = i128::from(session_start) + i128::from(index) * i128::from(length);
        WindowRollup {
            index,
            start_ns,
            end_ns: start_ns + i128::from(length),
            event_count: self.events,
            sample_count: self.samples,
            rank_count: self.ranks.len() as u64,
            counters: self.peaks.summary(),
            alert_count: self.alerts,
            collector_transition_count: self.transitions,
            oom_count: self.ooms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_is_rounded_like_python() {
        // round(1 / 128, 6) is a tie in binary and goes to even.
        assert_eq!(drift((0, 0), (128_000_000_000, 1)), Some(0.007812));
        assert_eq!(drift((0, 0), (3_000_000_000, -1)), Some(-0.333333));
        assert_eq!(drift((5, 0), (5, 10)), None);
        assert!(drift((0, 0), (u64::MAX, i128::from(u64::MAX))).is_some());
    }
}
