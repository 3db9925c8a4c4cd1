//! Telemetry as Parquet: one typed column a field, metadata as JSON text, nulls where a counter is unknown.
//!
//! Written in row groups of bounded size through the column API (no Arrow), so that DuckDB, Spark, pandas and polars
//! read the tables as they are.

mod input;
mod pages;
mod read;
mod table;
mod write;

pub use read::ParquetReader;
pub use table::{TableBatches, TableColumn, TableFile};
pub use write::ParquetWriter;
