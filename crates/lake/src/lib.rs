//! The lake: recorded runs as Parquet tables in a directory, in the shape that DuckDB, Spark, Trino, ClickHouse and Polars want.
//!
//! ```text
//! run directories ─► rows (one pass, bounded) ─► publish ─► LAKE/samples/date=…/job_id=…/part-….parquet ─► engines, `stormlog fleet`
//! ```
//!
//! Owner of the tables' schema and of the lake's layout. Must never change a run directory, print, or hold more than a bounded part of a recording.
#![forbid(unsafe_code)]

#[cfg(feature = "parquet")]
mod compact;
mod copies;
#[cfg(feature = "parquet")]
mod delta;
#[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "what writes tables uses the rest"))]
mod directories;
mod end_rows;
mod error;
#[cfg(feature = "parquet")]
mod expire;
mod judged;
#[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "what writes tables uses the rest"))]
mod layout;
#[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "what writes tables uses the rest"))]
mod lock;
#[cfg(feature = "parquet")]
mod marks;
#[cfg(feature = "parquet")]
mod merge;
#[cfg(feature = "parquet")]
mod part_writer;
mod phase;
mod processes;
#[cfg(feature = "parquet")]
mod progress;
#[cfg(feature = "parquet")]
mod publish;
#[cfg(feature = "parquet")]
pub mod read;
mod row;
pub mod rows;
mod sample_facts;
#[cfg(feature = "parquet")]
mod saved_marks;
pub mod schema;

#[cfg(feature = "parquet")]
pub use compact::{CompactReport, compact};
#[cfg(feature = "parquet")]
pub use expire::{ExpireReport, expire};
#[cfg(feature = "parquet")]
pub use publish::{PublishOptions, PublishReport, publish};

pub use copies::{RunCopy, without_copies};
pub use end_rows::{DeathRow, FindingRow, HolderRow, Peaks, ProcessRow};
pub use error::LakeError;
pub use layout::{PartFile, Partition, is_lake, part_files};
pub use row::{Cell, ProcessFacts, Role, Row, SampleRow, SessionFacts};
pub use sample_facts::SampleFacts;
