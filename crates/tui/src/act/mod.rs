//! What the terminal does on the user's word: starts commands of ours in the background, and signals processes. A thread does it, so that the screen
//! never waits for a process or a disk.
//!
//! Commands are started by their words, without a shell, and stay when the screen is left. Must never start what a recorded program owns, signal a
//! process that is not held by a descriptor, or write over a file.

mod job;
mod target;
mod worker;

pub(crate) use target::Target;
pub(crate) use worker::{MOST_RUNNING, Worker};
