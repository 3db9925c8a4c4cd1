//! The heap of a run: the captures its processes write, and what they say about an end.

mod captures;
mod finisher;
mod keeper;
mod patience;

pub(crate) use captures::Captures;
pub use finisher::finish_captures;
pub(crate) use finisher::{complete_all, start as start_finisher, unfinished};
pub use keeper::{HeapKeeper, HeapOptions};
pub(crate) use patience::Patience;
pub use patience::Waiting;

/// Where the recording library lies on this machine; it is put there where it is not yet.
pub fn recording_library() -> Result<std::path::PathBuf, crate::RunError> {
    Ok(stormlog_hook_image::install()?)
}
