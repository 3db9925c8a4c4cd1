//! The parent of `stormlog run`: starts a program, watches it and its children from outside, and keeps the evidence of
//! how each of them ended.
//!
//! The program runs unchanged: its streams, terminal, signals and exit status are its own. This crate must never print,
//! never write to the program's streams, never change what it returns, and never die of the program's troubles. What is
//! recorded is in crash-safe files, so if the supervisor is killed too, `catalog::run` finishes the work later.
#![forbid(unsafe_code)]

mod attach;
mod child;
mod circumstances;
mod environ;
mod error;
mod evidence;
mod exits;
mod facts;
mod finish;
mod foreign_process;
mod groups;
mod heap;
mod lineage;
mod maps;
mod naming;
mod notices;
mod orphans;
mod outcome;
mod requests;
mod retention_requests;
mod sampler;
mod shipping;
mod signals;
mod sitecustomize;
mod supervise;
mod termination;
mod tracked_process;
mod why;

pub use attach::{AttachError, AttachMethod, Call, attach};
pub use error::RunError;
pub use foreign_process::{Attached, Departure};
pub use heap::{HeapKeeper, HeapOptions, Unrecordable, WaitPhase, finish_captures, recording_library};
pub use outcome::{Ended, ProcessOutcome, Raised, RunOutcome};
pub use requests::{answer_requests, recorded_at, snapshot_from_outside};
pub use shipping::{Shipper, Shipping};
pub use signals::{WITNESS, die_of, stand_by};
pub use sitecustomize::TorchHistory;
pub use stormlog_pidfd::signal_number;
pub use supervise::{HeapFinish, RunOptions, Running, Streams, run};
pub use termination::TerminationLog;
pub use why::{ask_why, running_process};
