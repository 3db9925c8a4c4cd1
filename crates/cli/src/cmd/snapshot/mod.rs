//! Commands on PyTorch allocator snapshots.

pub(crate) mod analyze;
pub(crate) mod diff;
pub(crate) mod live;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod timeline;
