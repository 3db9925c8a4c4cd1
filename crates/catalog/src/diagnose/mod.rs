//! The bundle of `diagnose`: its files, its private directory, its report and its manifest.
//!
//! The command looks at a process or a device from outside, the Python package at its own process from inside; both write the same
//! files, whose names, keys and sentences are 0.4.3's and are here only. Must never write a secret or leave a directory that other
//! users can read.

mod directory;
mod environment;
mod report;
mod summary;

pub use directory::{DirectoryError, new_directory, obstacle};
pub use environment::environment;
pub use report::{Facts, Tool, manifest, report};
pub use summary::Summary;

/// The verdict, for scripts.
pub const REPORT: &str = "report.json";
/// What the bundle holds; written last.
pub const MANIFEST: &str = "manifest.json";
/// The numbers and the risks.
pub const SUMMARY: &str = "diagnostic_summary.json";
/// The machine.
pub const ENVIRONMENT: &str = "environment.json";
/// Memory over some seconds.
pub const TIMELINE: &str = "telemetry_timeline.json";
/// The version of the manifest.
pub const MANIFEST_VERSION: u32 = 2;

/// 0.4.3's: from this share on memory is nearly gone.
pub const HIGH_UTILIZATION: f64 = 0.85;
/// 0.4.3's: from this share on the allocator's memory is in pieces.
pub const FRAGMENTATION: f64 = 0.3;
