//! Commands for after a crash: bundles and what to send along with a report.

pub(crate) mod diagnose;
mod explain;
pub(crate) mod last;
pub(crate) mod oom;
pub(crate) mod why;
