//! What recordings mean: pure rules from events to findings.
//!
//! Events are handed in one by one; findings, reports and comparisons come out. This crate must never do I/O, read a clock,
//! print, or hold more of a recording than its rules need. The same events give the same findings.
#![forbid(unsafe_code)]

mod all_processes;
mod analysis;
pub mod calls;
pub mod compare;
pub mod gate;
mod jobs;
mod joined;
mod layers;
mod measure;
pub mod phases;
pub mod rank_diagnostics;
pub mod recording;
pub mod report;
pub mod rules;
mod sample;
pub mod series;
#[cfg(test)]
mod testing;
pub mod text;
pub mod timeline;

pub use analysis::{
    Analysis, AnalysisOptions, PlacedGap, SessionFacts, Unavailable, analyze, summary_metrics,
};
pub use layers::Layers;
pub use measure::{BaselineError, Measures};
pub use recording::Recording;
pub use sample::Sample;
