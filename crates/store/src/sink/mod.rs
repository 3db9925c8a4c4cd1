//! The append-only telemetry sink: a directory of JSONL segments, a manifest and rollups, shared with 0.4.3.
//!
//! Either package may write it, die in it, and re-open what the other left. A sink must never lose a record it said
//! was flushed, leave a half-written line in front of a later one, or follow a name out of its own directory.

mod config;
mod disk;
mod error;
mod failures;
mod manifest;
mod open;
mod paths;
mod rollup;
mod segment;
mod state;
mod writer;

pub use config::SinkConfig;
pub use error::SinkError;
pub use failures::FailureDiagnostics;
pub use manifest::{SinkManifest, read_manifest};
pub use paths::{is_segment_name, manifest_path, segment_paths};
pub use rollup::{
    AlertSummary, CollectorHealth, CounterSummary, Observation, OomSummary, PeakValue, RankRollup,
    RollupBuilder, RollupCoverage, RollupFile, SessionRollup, WindowRollup, read_rollups, rollup_path,
    rollup_sink, write_rollup_text, write_rollups,
};
pub use segment::SinkSegment;
pub use state::Diagnostics;
pub use writer::Sink;

/// The manifest's name in a sink directory.
pub const MANIFEST_FILENAME: &str = "manifest.json";
/// What every segment's name starts with.
pub const SEGMENT_PREFIX: &str = "segment-";
/// What every segment's name ends with.
pub const SEGMENT_SUFFIX: &str = ".jsonl";
/// The manifest's schema as we write it.
pub const SINK_SCHEMA_VERSION: u64 = 2;
/// The manifest's format as we write it.
pub const SINK_FORMAT: &str = "stormlog.append_only_telemetry_sink";
/// The rollups' name in a sink directory.
pub const ROLLUP_FILENAME: &str = "rollups.json";
/// The rollups' schema, and the only one understood.
pub const ROLLUP_SCHEMA_VERSION: u64 = 1;
/// The rollups' format.
pub const ROLLUP_FORMAT: &str = "stormlog.telemetry_rollups";
