//! The heap of a run: the captures its processes write, and what they say about an end.

mod captures;
mod finisher;
mod keeper;
mod options;
mod pace;
mod recordable;
mod survivors;
mod trivial;
mod wait_report;

pub(crate) use captures::{Captures, capture_bytes, newest_capture};
pub use finisher::finish_captures;
pub(crate) use finisher::{complete_all, is_small, stand_by, wait_for_ended};
pub use keeper::HeapKeeper;
pub use options::HeapOptions;
pub use recordable::Unrecordable;
pub use wait_report::WaitPhase;
pub(crate) use wait_report::WaitReporter;

/// Where the recording library is on this machine; it is put there where it is not yet.
pub fn recording_library() -> Result<std::path::PathBuf, crate::RunError> {
    Ok(stormlog_hook_image::install()?)
}
