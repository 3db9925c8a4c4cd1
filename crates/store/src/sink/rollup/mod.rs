//! Rollups: what a sink's records come to, per session, rank and window, beside the manifest in `rollups.json`.
//!
//! Derived and replaceable: a reader that cannot read them, or finds that they do not cover the segments, reads
//! the records. Field for field what 0.4.3 computes; fields are in the order of the file, which is alphabetical.

mod build;
mod file;
mod observe;
mod parse;
mod session;

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use stormlog_model::SessionSummary;

pub use build::rollup_sink;
pub use file::{read_rollups, rollup_path, write_rollup_text, write_rollups};
pub use observe::Observation;
pub use session::RollupBuilder;

use super::SinkSegment;

/// The greatest value of a counter, and where it was seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are those of the file's keys")]
pub struct PeakValue {
    pub device_id: Option<i128>,
    pub rank: Option<u64>,
    pub timestamp_ns: Option<u64>,
    pub value: Option<i128>,
}

/// The peaks of the three counters that matter most.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are those of the file's keys")]
pub struct CounterSummary {
    pub allocator_allocated_bytes: PeakValue,
    pub allocator_reserved_bytes: PeakValue,
    pub device_used_bytes: PeakValue,
}

/// Alerts by severity and by type.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are those of the file's keys")]
pub struct AlertSummary {
    pub event_type_counts: BTreeMap<String, u64>,
    pub severity_counts: BTreeMap<String, u64>,
    pub total_count: u64,
}

/// How the collector fared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are those of the file's keys")]
pub struct CollectorHealth {
    pub degraded_count: u64,
    pub degraded_time_ns: u64,
    pub last_status: Option<String>,
    pub recovered_count: u64,
    pub transition_count: u64,
}

/// Out-of-memory events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are those of the file's keys")]
pub struct OomSummary {
    pub bundle_path_count: u64,
    pub event_count: u64,
    pub marker_count: u64,
}

/// Which records a rollup was made from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are those of the file's keys")]
pub struct RollupCoverage {
    pub pruned_bytes: Option<u64>,
    pub pruned_segment_count: Option<u64>,
    pub retained_bytes: u64,
    pub retained_event_count: u64,
    pub retained_segment_count: u64,
    pub retained_segment_filenames: Vec<String>,
}

impl RollupCoverage {
    /// The coverage of some segments.
    pub fn of<'a>(
        segments: impl IntoIterator<Item = &'a SinkSegment>,
        pruned_segment_count: Option<u64>,
        pruned_bytes: Option<u64>,
    ) -> Self {
        let mut coverage = RollupCoverage { pruned_segment_count, pruned_bytes, ..Self::default() };
        for segment in segments {
            coverage.retained_segment_filenames.push(segment.filename.clone());
            coverage.retained_segment_count += 1;
            coverage.retained_event_count = coverage.retained_event_count.saturating_add(segment.event_count);
            coverage.retained_bytes = coverage.retained_bytes.saturating_add(segment.size_bytes);
        }
        coverage
    }
}

/// One rank of a session. The hidden gap is what the device uses beyond what the allocator reserved.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are those of the file's keys")]
pub struct RankRollup {
    pub counters: CounterSummary,
    pub event_count: u64,
    pub first_timestamp_ns: Option<u64>,
    pub hidden_gap_delta_bytes: Option<i128>,
    pub hidden_gap_drift_bytes_per_second: Option<f64>,
    pub hidden_gap_first_bytes: Option<i128>,
    pub hidden_gap_latest_bytes: Option<i128>,
    pub hidden_gap_peak_bytes: Option<i128>,
    pub last_timestamp_ns: Option<u64>,
    pub local_rank: u64,
    pub rank: u64,
    pub sample_count: u64,
    pub world_size: u64,
}

/// A stretch of a session of fixed length; stretches without events are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are those of the file's keys")]
pub struct WindowRollup {
    pub alert_count: u64,
    pub collector_transition_count: u64,
    pub counters: CounterSummary,
    pub end_ns: i128,
    pub event_count: u64,
    pub index: u64,
    pub oom_count: u64,
    pub rank_count: u64,
    pub sample_count: u64,
    pub start_ns: i128,
}

/// One session.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are those of the file's keys")]
pub struct SessionRollup {
    pub alerts: AlertSummary,
    pub collector_health: CollectorHealth,
    pub counters: CounterSummary,
    pub event_count: u64,
    pub first_timestamp_ns: Option<u64>,
    pub last_timestamp_ns: Option<u64>,
    pub oom: OomSummary,
    pub ranks: Vec<RankRollup>,
    pub sample_count: u64,
    #[serde(serialize_with = "sorted_summary")]
    pub session: SessionSummary,
    pub source_count: u64,
    pub sources_loaded: Vec<String>,
    pub warnings: Vec<String>,
    pub windows: Vec<WindowRollup>,
}

/// The whole file.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are those of the file's keys")]
pub struct RollupFile {
    pub coverage: RollupCoverage,
    pub format: String,
    pub generated_at_ns: u64,
    pub schema_version: u64,
    pub sessions: Vec<SessionRollup>,
    pub source_manifest: Option<String>,
    pub source_manifest_schema_version: Option<u64>,
    pub window_duration_ns: u64,
}

fn sorted_summary<S: Serializer>(summary: &SessionSummary, serializer: S) -> Result<S::Ok, S::Error> {
    let mut record = summary.to_record();
    record.sort_keys();
    record.serialize(serializer)
}
