//! Tables as Parquet files: cells in, row groups out. The one place that knows how our Parquet files are written; their schemas belong to the
//! crates whose rows they hold. Must never hold more than one row group, and must never read.
#![forbid(unsafe_code)]

mod group_writer;
mod leaves;

use std::io::Write;
use std::sync::Arc;

pub use group_writer::{CellKind, GROUP_ROWS as ENGINE_GROUP_ROWS, GroupCell, GroupColumn, GroupWriter};
pub use leaves::{Leaf, LeafValues, write_leaves};

use parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
pub use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

/// Rows a group: large enough to compress well, small enough that one group of wide texts fits in memory.
const GROUP_ROWS: usize = 32_768;

/// What the cells of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Text,
    /// Text that is JSON.
    Json,
    /// Numbers that use all 64 bits. Parquet keeps them as the same bits with a sign.
    Unsigned,
    /// Numbers with a sign.
    Signed,
}

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// What its cells are.
    pub kind: Kind,
    /// Whether a cell may be unknown.
    pub is_optional: bool,
}

/// The cells of one column that wait for their row group.
struct Cells {
    is_optional: bool,
    numbers: Vec<i64>,
    texts: Vec<ByteArray>,
    /// 1 where there is a value, 0 where there is none.
    levels: Vec<i16>,
}

/// Writes a table, row by row.
pub struct TableWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    columns: Vec<Cells>,
    rows: usize,
}

impl<W: Write + Send> TableWriter<W> {
    /// Starts a file with these columns.
    pub fn new(out: W, name: &str, columns: &[Column]) -> Result<Self, ParquetError> {
        let mut fields = Vec::new();
        for column in columns {
            let of = |physical| Type::primitive_type_builder(column.name, physical);
            let builder = match column.kind {
                Kind::Text => of(Physical::BYTE_ARRAY).with_converted_type(ConvertedType::UTF8),
                Kind::Json => of(Physical::BYTE_ARRAY).with_converted_type(ConvertedType::JSON),
                Kind::Unsigned => of(Physical::INT64).with_converted_type(ConvertedType::UINT_64),
                Kind::Signed => of(Physical::INT64),
            };
            let repetition = if column.is_optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
            fields.push(Arc::new(builder.with_repetition(repetition).build()?));
        }
        let schema = Arc::new(Type::group_type_builder(name).with_fields(fields).build()?);
        let properties = WriterProperties::builder()
            .set_compression(Compression::LZ4_RAW)
            .set_created_by(concat!("stormlog ", env!("CARGO_PKG_VERSION")).to_owned());
        let cells = |column: &Column| Cells {
            is_optional: column.is_optional,
            numbers: Vec::new(),
            texts: Vec::new(),
            levels: Vec::new(),
        };
        Ok(TableWriter {
            writer: SerializedFileWriter::new(out, schema, Arc::new(properties.build()))?,
            columns: columns.iter().map(cells).collect(),
            rows: 0,
        })
    }

    /// The next cell of a column of numbers. In a column that is not optional, unknown is 0.
    pub fn number(&mut self, column: usize, value: Option<i64>) {
        let Some(cells) = self.columns.get_mut(column) else { return };
        cells.levels.push(value.is_some().into());
        cells.numbers.extend(if cells.is_optional { value } else { Some(value.unwrap_or(0)) });
    }

    /// The next cell of a column of texts. In a column that is not optional, unknown is empty.
    pub fn text(&mut self, column: usize, value: Option<&str>) {
        let Some(cells) = self.columns.get_mut(column) else { return };
        cells.levels.push(value.is_some().into());
        if let Some(text) = if cells.is_optional { value } else { Some(value.unwrap_or("")) } {
            // A text that repeats the one before it shares its bytes.
            let shared = cells.texts.last().filter(|last| last.data() == text.as_bytes()).cloned();
            cells.texts.push(shared.unwrap_or_else(|| text.into()));
        }
    }

    /// Ends a row; every column has had a cell.
    pub fn end_row(&mut self) -> Result<(), ParquetError> {
        self.rows += 1;
        if self.rows >= GROUP_ROWS { self.flush_group() } else { Ok(()) }
    }

    /// Writes the footer and gives the output back.
    pub fn finish(mut self) -> Result<W, ParquetError> {
        self.flush_group()?;
        self.writer.into_inner()
    }

    fn flush_group(&mut self) -> Result<(), ParquetError> {
        if std::mem::take(&mut self.rows) == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for cells in &mut self.columns {
            let Some(mut column) = group.next_column()? else { break };
            let levels = cells.is_optional.then_some(cells.levels.as_slice());
            match column.untyped() {
                ColumnWriter::Int64ColumnWriter(writer) => {
                    writer.write_batch(&cells.numbers, levels, None)?;
                }
                ColumnWriter::ByteArrayColumnWriter(writer) => {
                    writer.write_batch(&cells.texts, levels, None)?;
                }
                _ => {}
            }
            column.close()?;
            cells.numbers.clear();
            cells.texts.clear();
            cells.levels.clear();
        }
        group.close()?;
        Ok(())
    }
}
