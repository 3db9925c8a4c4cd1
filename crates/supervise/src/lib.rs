//! The parent of `stormlog run`: starts a program, watches it and its children from outside, and keeps the evidence of
//! how each of them ended.
//!
//! The program runs unchanged: its streams, terminal, signals and exit status are its own. This crate must never print,
//! never write to the program's streams, never change what it returns, and never die of the program's troubles. What is
//! recorded lies in crash-safe files, so if the supervisor is killed too, [`resume`] finishes the work later.
#![forbid(unsafe_code)]

mod attach;
mod bundle_policy;
mod child;
mod enter;
mod error;
mod exceptions;
mod exits;
mod facts;
mod finish;
mod forecast;
mod gpus;
mod groups;
mod heap;
mod inject;
mod maps;
mod naming;
mod orphans;
mod outcome;
mod resume;
mod resume_write;
mod run_dir;
mod run_life;
mod signals;
mod supervise;
mod watch;
mod watched;

pub use attach::{Attached, Departure};
pub use bundle_policy::BundlePolicy;
pub use enter::{Door, EnterError, enter};
pub use error::RunError;
pub use heap::{HeapDigest, HeapKeeper, HeapOptions, Waiting, finish_captures, recording_library};
pub use outcome::{Ended, ProcessOutcome, Raised, RunOutcome};
pub use resume::{FinishedRun, FinishedSession, resume};
pub use run_dir::{RUN_FILE, RunDirectory};
pub use run_life::session_life;
pub use signals::{WITNESS, die_of, stand_by};
pub use supervise::{HeapFinish, RunOptions, Running, Streams, run};
