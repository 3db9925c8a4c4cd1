//! The live side's evidence: what an exception means, when to warn, what was open, what ended the program, and the
//! bundle that keeps all of it.
//!
//! Rules here are pure: clocks, readings and wait statuses are handed in, so that the same facts always give the same
//! alert, forecast and verdict. Only `bundle` touches files. This crate must never print, start a thread, read another
//! process, or turn an unknown number into 0.
#![forbid(unsafe_code)]

pub mod alerts;
pub mod bundle;
mod cause;
pub mod classify;
mod latch;
pub mod phases;
pub mod predict;
mod text;
pub mod verdict;

pub use cause::{Cause, signal_name};
