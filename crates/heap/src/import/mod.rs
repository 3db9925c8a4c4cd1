//! Captures of other profilers.

pub mod memray;
