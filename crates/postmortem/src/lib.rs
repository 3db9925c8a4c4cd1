//! Judges a death: what an exception means, what ended the program, and the bundle that keeps the evidence.
//!
//! Rules here are pure: clocks, readings and wait statuses are handed in, so that the same facts always give the same
//! verdict. Only `bundle` and `elastic` touch files. This crate must never print, start a thread, read another
//! process, or turn an unknown number into 0.
#![forbid(unsafe_code)]

pub mod bundle;
mod bundle_policy;
mod cause;
pub mod classify;
pub mod elastic;
mod ended;
pub mod scheduler;
pub mod verdict;

pub use bundle_policy::BundlePolicy;
pub use cause::{Cause, signal_name};
pub use ended::Ended;
