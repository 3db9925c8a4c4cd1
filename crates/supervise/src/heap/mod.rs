//! The heap of a run: the captures its processes write, and what they say about an end.

mod captures;
mod digest;
mod keeper;

pub(crate) use captures::Captures;
pub use digest::HeapDigest;
pub use keeper::{HeapKeeper, HeapOptions};

/// Where the recording library lies on this machine; it is put there where it is not yet.
pub fn recording_library() -> Result<std::path::PathBuf, crate::RunError> {
    Ok(stormlog_hook_image::install()?)
}
