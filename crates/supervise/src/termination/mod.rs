//! The termination message of a container, kept written ahead of death: with `memory.oom.group=1` the supervisor is killed with its program and has no
//! moment to write anything.
//!
//! `log.rs` owns the file, `ahead.rs` decides what is written when. The words are `story`'s.

mod ahead;
mod log;

pub(crate) use ahead::{Ahead, Picture};
pub use log::TerminationLog;
