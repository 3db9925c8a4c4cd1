//! The owner of the run directory and of everything that is found at a path: runs, processes, sessions, attachments, issues, bundles.
//!
//! The names and the layout of a run directory appear here and nowhere else. Every command and every Python module reads what was recorded through
//! this crate. It must never print, know clap or PyO3, follow a link below a run directory, or hold more than a bounded part of a recording in memory.
#![forbid(unsafe_code)]

pub mod cuda_oom;
pub mod diagnose;
pub mod query;
pub mod recording;
pub mod run;
