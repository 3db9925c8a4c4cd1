//! Every format Stormlog reads and writes, behind one loader.
//!
//! A path goes in, events and sessions come out, whatever wrote them and however old they are. Inputs are hostile:
//! nothing here may panic on one, hold more than a bounded window of one in memory, follow it out of its directory,
//! or print. Errors carry file, position and what was expected.
#![forbid(unsafe_code)]

mod bundle;
mod csv;
mod error;
mod file;
pub mod json;
mod load;
mod options;
mod output;
#[cfg(feature = "parquet")]
mod parquet;
mod python_literal;
mod quick;
pub mod recording;
pub mod run_record;
pub mod sink;
mod source;

pub use error::{SourcePosition, StoreError};
pub use load::{LoadOptions, LoadedSession, load_sessions};
pub use options::ReadOptions;
pub use output::{Format, Output};
#[cfg(feature = "parquet")]
pub use parquet::{TableBatches, TableColumn, TableFile};
pub use source::{Events, Source, Sources};
pub use stormlog_ring::wall_ns;
