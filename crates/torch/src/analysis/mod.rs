//! What the numbers mean: where the bytes were at the peak and at an error, what held them, and what went wrong.
//!
//! Everything is judged at the peak or at the out-of-memory event, never at the time of the dump.

pub(crate) mod categories;
pub(crate) mod decompose;
pub(crate) mod diff;
pub(crate) mod growth;
pub(crate) mod hints;
pub(crate) mod holders;
pub(crate) mod oom;
pub(crate) mod peak;
pub(crate) mod request;
pub(crate) mod snapshot_moment;
pub(crate) mod stacks;
pub(crate) mod text;
pub(crate) mod verdict;
