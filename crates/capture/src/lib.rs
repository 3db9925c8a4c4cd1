//! The heap capture on disk.
//!
//! While a program is recorded it writes into a *live file* (`heap.bin.live`): a header, a directory of slots and the slots, each
//! the latest chunk of one thread's record stream. A compactor — the supervisor of `stormlog run`, or a thread of the Python
//! package — moves full slots into the *finished file* (`heap.bin`) and hands them back. When the program has ended, the
//! rest is moved and the live file removed. A reader takes both files at any moment, so nothing depends on a clean end.
//!
//! [`layout`] and [`record`] need nothing but `core`, because the recorded program's own allocator links them; all else is
//! behind the feature `files`.
//! This crate must never trust what it reads from either file.

#![forbid(unsafe_code)]

pub mod layout;
pub mod record;

#[cfg(feature = "files")]
mod code_lines;
#[cfg(feature = "files")]
mod columns;
#[cfg(feature = "files")]
pub mod compact;
#[cfg(feature = "files")]
mod dictionary;
#[cfg(feature = "files")]
mod ending;
#[cfg(feature = "files")]
mod error;
#[cfg(feature = "files")]
pub mod file;
#[cfg(feature = "files")]
mod fold;
#[cfg(feature = "files")]
mod glibc;
#[cfg(feature = "files")]
pub mod lines;
#[cfg(feature = "files")]
pub mod live;
#[cfg(feature = "files")]
pub mod op;
#[cfg(feature = "files")]
mod pack;
#[cfg(feature = "files")]
mod predict;
#[cfg(feature = "files")]
mod repack;
#[cfg(feature = "files")]
mod samples;
#[cfg(feature = "files")]
pub mod source;
#[cfg(feature = "files")]
mod tree;
#[cfg(feature = "files")]
pub mod wire;

#[cfg(feature = "files")]
pub use columns::Columns;
#[cfg(feature = "files")]
pub use compact::{Compactor, Options};
#[cfg(feature = "files")]
#[doc(hidden)]
pub use dictionary::make as make_dictionary;
#[cfg(feature = "files")]
pub use error::CaptureError;
#[cfg(feature = "files")]
pub use fold::Fold;
#[cfg(feature = "files")]
#[doc(hidden)]
pub use repack::Aids;
