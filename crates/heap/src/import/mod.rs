//! Captures of other profilers.

pub(crate) mod foreign;
pub mod memray;
