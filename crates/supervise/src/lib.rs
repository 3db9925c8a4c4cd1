//! The parent of `stormlog run`: starts a program, watches it and its children from outside, and keeps the evidence of
//! how each of them ended.
//!
//! The program runs unchanged: its streams, terminal, signals and exit status are its own. This crate must never print,
//! never write to the program's streams, never change what it returns, and never die of the program's troubles. What is
//! recorded lies in crash-safe files, so if the supervisor is killed too, `catalog::run` finishes the work later.
#![forbid(unsafe_code)]

mod attach;
mod child;
mod circumstances;
mod enter;
mod environ;
mod error;
mod evidence;
mod exits;
mod facts;
mod finish;
mod groups;
mod heap;
mod inject;
mod lineage;
mod maps;
mod naming;
mod notices;
mod orphans;
mod outcome;
mod question;
mod signals;
mod supervise;
mod termination;
mod watch;
mod watched;
mod why;

pub use attach::{Attached, Departure};
pub use enter::{Call, Door, EnterError, enter};
pub use error::RunError;
pub use heap::{HeapKeeper, HeapOptions, Unrecordable, Waiting, finish_captures, recording_library};
pub use inject::TorchHistory;
pub use outcome::{Ended, ProcessOutcome, Raised, RunOutcome};
pub use signals::{WITNESS, die_of, stand_by};
pub use supervise::{HeapFinish, RunOptions, Running, Streams, run};
pub use termination::TerminationLog;
pub use why::{ask_why, running_process};
