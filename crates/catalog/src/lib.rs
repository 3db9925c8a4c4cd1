//! The owner of the run directory and of everything that is found at a path: runs, processes, sessions, attachments, issues, bundles.
//!
//! What belongs together in a run directory is known here and nowhere else; its names are in `stormlog_model::layout`, because crates below this one write
//! single files of it. Commands and Python modules read what was recorded through this crate. It must never print, know clap or PyO3, follow a link below a run directory, or hold more than a bounded part of a recording in memory.
#![forbid(unsafe_code)]

pub mod bundles;
pub mod captures;
pub mod cuda_oom;
pub mod diagnose;
pub mod frameworks;
pub mod query;
pub mod rank_artifacts;
pub mod recording;
pub mod report_check;
pub mod request;
pub mod retained;
pub mod run;
pub mod sessions;
