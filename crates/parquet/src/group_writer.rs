//! Tables for engines: row groups written column by column out of rows that the caller holds, sorted, with statistics that engines prune by.
//!
//! Declares the sorting columns and writes a page index, bloom filters and zstd pages. Nothing but the column that is being written is held here, so that a
//! group of 122,880 rows (DuckDB's unit of work) costs no more memory than its rows.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};

/// Rows a group: DuckDB's default, and its unit of parallel work.
pub const GROUP_ROWS: usize = 122_880;

/// Rows a page at most: the page index then narrows a question about one rank and some minutes to a few pages.
const PAGE_ROWS: usize = 8_192;
/// Cells handed to the encoder at once.
const BATCH: usize = 4_096;

/// What the cells of a column are, in types that all engines share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellKind {
    /// Signed, 64 bits.
    Integer,
    /// Double precision.
    Float,
    /// Text.
    Text,
    /// Microseconds since 1970, UTC.
    Time,
    /// True or false.
    Boolean,
}

/// A column.
#[derive(Debug, Clone, Copy)]
pub struct GroupColumn {
    /// Its name.
    pub name: &'static str,
    /// What its cells are.
    pub kind: CellKind,
    /// Whether a cell may be unknown.
    pub is_optional: bool,
    /// Whether its groups have a bloom filter.
    pub has_bloom: bool,
}

/// One cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GroupCell<'a> {
    /// Not known.
    Null,
    /// An integer or a time.
    Integer(i64),
    /// A number.
    Float(f64),
    /// A text.
    Text(&'a str),
    /// True or false.
    Boolean(bool),
}

/// A file that is being written.
pub struct GroupWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    columns: Vec<GroupColumn>,
    scratch: Scratch,
}

#[derive(Default)]
struct Scratch {
    integers: Vec<i64>,
    floats: Vec<f64>,
    booleans: Vec<bool>,
    texts: Vec<ByteArray>,
    levels: Vec<i16>,
}

impl<W: Write + Send> GroupWriter<W> {
    /// Starts a file whose rows are sorted by the columns of these numbers, unknown cells first.
    pub fn new(
        out: W,
        name: &str,
        columns: &[GroupColumn],
        sorted_by: &[usize],
    ) -> Result<Self, ParquetError> {
        let mut fields = Vec::new();
        for column in columns {
            let (physical, logical) = match column.kind {
                CellKind::Integer => (Physical::INT64, None),
                CellKind::Float => (Physical::DOUBLE, None),
                CellKind::Boolean => (Physical::BOOLEAN, None),
                CellKind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
                CellKind::Time => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MICROS))),
            };
            let repetition = if column.is_optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
            let builder = Type::primitive_type_builder(column.name, physical);
            let field = builder.with_logical_type(logical).with_repetition(repetition).build()?;
            fields.push(Arc::new(field));
        }
        let schema = Arc::new(Type::group_type_builder(name).with_fields(fields).build()?);
        let sorting = sorted_by
            .iter()
            .filter_map(|at| i32::try_from(*at).ok())
            .map(|column_idx| SortingColumn { column_idx, descending: false, nulls_first: true });
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
            .set_created_by(concat!("stormlog ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_sorting_columns(Some(sorting.collect()))
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_data_page_row_count_limit(PAGE_ROWS)
            .set_write_batch_size(BATCH)
            .set_max_row_group_row_count(Some(GROUP_ROWS));
        for column in columns.iter().filter(|column| column.has_bloom) {
            let path = ColumnPath::from(column.name);
            // A group has a few thousand sessions at most.
            properties = properties
                .set_column_bloom_filter_enabled(path.clone(), true)
                .set_column_bloom_filter_max_ndv(path, 4_096);
        }
        Ok(GroupWriter {
            writer: SerializedFileWriter::new(out, schema, Arc::new(properties.build()))?,
            columns: columns.to_vec(),
            scratch: Scratch::default(),
        })
    }

    /// Writes one group of this many rows; `cell` gives the cell of a row and a column.
    pub fn write_group<'a>(
        &mut self,
        rows: usize,
        cell: impl Fn(usize, usize) -> GroupCell<'a>,
    ) -> Result<(), ParquetError> {
        if rows == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for (at, column) in self.columns.iter().enumerate() {
            let Some(mut writer) = group.next_column()? else { break };
            let mut last: Option<(*const u8, usize, ByteArray)> = None;
            for start in (0..rows).step_by(BATCH) {
                let batch = start..(start + BATCH).min(rows);
                let scratch = &mut self.scratch;
                scratch.clear();
                for row in batch {
                    scratch.push(cell(row, at), column, &mut last);
                }
                let levels = column.is_optional.then_some(scratch.levels.as_slice());
                match writer.untyped() {
                    ColumnWriter::Int64ColumnWriter(writer) => {
                        writer.write_batch(&scratch.integers, levels, None)?;
                    }
                    ColumnWriter::DoubleColumnWriter(writer) => {
                        writer.write_batch(&scratch.floats, levels, None)?;
                    }
                    ColumnWriter::BoolColumnWriter(writer) => {
                        writer.write_batch(&scratch.booleans, levels, None)?;
                    }
                    ColumnWriter::ByteArrayColumnWriter(writer) => {
                        writer.write_batch(&scratch.texts, levels, None)?;
                    }
                    _ => {}
                }
            }
            writer.close()?;
        }
        group.close()?;
        Ok(())
    }

    /// Bytes that were written so far.
    pub fn bytes(&self) -> u64 {
        self.writer.bytes_written() as u64
    }

    /// Writes the footer with these keys and values, and gives the output back.
    pub fn finish(mut self, metadata: &[(&str, String)]) -> Result<W, ParquetError> {
        for (key, value) in metadata {
            self.writer.append_key_value_metadata(KeyValue::new((*key).to_owned(), value.clone()));
        }
        self.writer.into_inner()
    }
}

impl Scratch {
    fn clear(&mut self) {
        self.integers.clear();
        self.floats.clear();
        self.booleans.clear();
        self.texts.clear();
        self.levels.clear();
    }

    /// A cell of another kind than its column's is unknown; where it must not be, it is empty.
    fn push(
        &mut self,
        cell: GroupCell<'_>,
        column: &GroupColumn,
        last: &mut Option<(*const u8, usize, ByteArray)>,
    ) {
        let is_required = !column.is_optional;
        let is_known = match (column.kind, cell) {
            (CellKind::Integer | CellKind::Time, GroupCell::Integer(value)) => {
                self.integers.push(value);
                true
            }
            (CellKind::Float, GroupCell::Float(value)) => {
                self.floats.push(value);
                true
            }
            (CellKind::Boolean, GroupCell::Boolean(value)) => {
                self.booleans.push(value);
                true
            }
            (CellKind::Text, GroupCell::Text(text)) => {
                // Rows in order repeat the text above them: mostly the same bytes in memory, which is seen without a comparison.
                let bytes = match last {
                    Some((place, length, bytes))
                        if (*place == text.as_ptr() && *length == text.len())
                            || bytes.data() == text.as_bytes() =>
                    {
                        bytes.clone()
                    }
                    _ => {
                        let bytes = ByteArray::from(text);
                        *last = Some((text.as_ptr(), text.len(), bytes.clone()));
                        bytes
                    }
                };
                self.texts.push(bytes);
                true
            }
            _ => false,
        };
        if !is_known && is_required {
            match column.kind {
                CellKind::Integer | CellKind::Time => self.integers.push(0),
                CellKind::Float => self.floats.push(0.0),
                CellKind::Boolean => self.booleans.push(false),
                CellKind::Text => self.texts.push(ByteArray::from("")),
            }
        }
        self.levels.push(is_known.into());
    }
}
