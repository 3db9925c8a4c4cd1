//! The termination message of a container, kept written ahead of death: with `memory.oom.group=1` the supervisor is killed with its program and has no
//! moment to write anything.
//!
//! `log.rs` owns the file, `schedule.rs` decides what is written when. The words are `story`'s.

mod log;
mod schedule;

pub use log::TerminationLog;
pub(crate) use schedule::{MessageSchedule, Picture};
