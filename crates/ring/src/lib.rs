//! Crash-safe memory-mapped files of opaque records: a bounded [`Ring`] that keeps the newest, and a growing [`Log`].
//!
//! Many threads and processes may write one file, and any process may read it at any time. What this crate promises:
//!
//! - An append that returned `Ok` is read back complete and in its writer's order, whatever then happens to the process: it goes
//!   straight to pages the kernel keeps, and is marked when it is whole.
//! - Nothing is read that was not appended exactly so.
//! - Whatever others do to the files (truncate, delete, fill the disk), the writing program continues; what is lost
//!   meanwhile is counted, and where possible written down in the file.
//!
//! It promises nothing about power failure: the kernel writes the pages back in its own time.
//!
//! ```
//! # #[cfg(not(loom))] fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use stormlog_ring::{Definition, Log, LogConfig, LogReader};
//!
//! # let dir = tempfile::tempdir()?;
//! let log = Log::create(dir.path(), LogConfig::default())?;
//! let mut writer = log.writer()?; // one for each thread
//! let line = Definition::new(b"train.py:17"); // written once, referred to by id
//! writer.append(1, &line.id().0.to_le_bytes(), &[&line])?;
//!
//! let mut reader = LogReader::open(dir.path())?; // from any process, at any time
//! while let Some(record) = reader.next() {
//!     assert_eq!(record.definitions.get(line.id()), Some(&b"train.py:17"[..]));
//! }
//! # Ok(())
//! # }
//! # #[cfg(loom)] fn main() {}
//! ```
//!
//! The file format is described in `layout.rs`. Must never trust what it reads, and never stop the program it watches.

#[cfg(loom)]
pub mod frames;
#[cfg(loom)]
pub mod slots;

#[cfg(not(loom))]
mod archive;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod file;
#[cfg(not(loom))]
mod frames;
#[cfg(not(loom))]
mod guard;
#[cfg(not(loom))]
mod handle;
#[cfg(not(loom))]
mod header;
#[cfg(not(loom))]
mod keeper;
mod layout;
#[cfg(not(loom))]
mod log;
#[cfg(not(loom))]
mod log_reader;
#[cfg(not(loom))]
mod map;
#[cfg(not(loom))]
mod process;
#[cfg(not(loom))]
mod record;
#[cfg(not(loom))]
mod ring;
#[cfg(not(loom))]
mod ring_reader;
#[cfg(not(loom))]
mod slots;
mod sync;

#[cfg(not(loom))]
pub use crate::{
    archive::Archive,
    error::{AppendError, Error},
    layout::MAGIC_BYTES,
    log::{Log, LogConfig, LogWriter},
    log_reader::LogReader,
    process::wall_ns,
    record::{DefId, Definition, Definitions, Loss, LossReason, ReadStats, Record, Status},
    ring::{Ring, RingConfig, RingWriter},
    ring_reader::{RingReader, RingRecords},
};
