//! The atomics every protocol in this crate is written against: the standard library's, or loom's under
//! `--cfg loom`, so that the code which is model-checked is the code which runs.
//!
//! Nothing else in the crate may name an atomic type that lives in a mapped file.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
