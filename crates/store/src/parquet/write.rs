//! Events into a Parquet file, a row group at a time.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};
use stormlog_model::{Event, FIELDS, Field, FieldValue, Problem, Schema};

use crate::json::event_text::MetadataText;

/// Rows a group: large enough to compress well, small enough that one group of wide metadata fits in memory.
const GROUP_ROWS: usize = 32_768;

fn is_text(field: Field) -> bool {
    matches!(
        field,
        Field::SessionId
            | Field::EventType
            | Field::Collector
            | Field::Host
            | Field::JobId
            | Field::Context
            | Field::Metadata
    )
}

/// Byte counters and times use all 64 bits.
fn is_unsigned(field: Field) -> bool {
    !matches!(field, Field::Pid | Field::DeviceId | Field::AllocatorChange)
}

fn schema_type(schema: Schema) -> Result<TypePtr, ParquetError> {
    let mut columns = Vec::new();
    for (field, name) in FIELDS.into_iter().filter(|(field, _)| field.is_known_in(schema)) {
        let builder = if is_text(field) {
            let kind = if field == Field::Metadata { ConvertedType::JSON } else { ConvertedType::UTF8 };
            Type::primitive_type_builder(name, Physical::BYTE_ARRAY).with_converted_type(kind)
        } else {
            let builder = Type::primitive_type_builder(name, Physical::INT64);
            if is_unsigned(field) { builder.with_converted_type(ConvertedType::UINT_64) } else { builder }
        };
        columns.push(Arc::new(builder.with_repetition(Repetition::OPTIONAL).build()?));
    }
    Ok(Arc::new(Type::group_type_builder("telemetry").with_fields(columns).build()?))
}

/// The cells of one column waiting for their row group.
#[derive(Default)]
struct Cells {
    numbers: Vec<i64>,
    texts: Vec<ByteArray>,
    /// 1 where there is a value, 0 where there is none.
    levels: Vec<i16>,
}

/// Writes events as Parquet.
pub struct ParquetWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    schema: Schema,
    columns: Vec<(Field, Cells)>,
    metadata: MetadataText,
    rows: usize,
}

impl<W: Write + Send> ParquetWriter<W> {
    /// Starts a file.
    pub fn new(out: W, schema: Schema) -> Result<Self, ParquetError> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::LZ4_RAW)
            .set_created_by(concat!("stormlog ", env!("CARGO_PKG_VERSION")).to_owned());
        let writer = SerializedFileWriter::new(out, schema_type(schema)?, Arc::new(properties.build()))?;
        let fields = FIELDS.into_iter().map(|(field, _)| field).filter(|field| field.is_known_in(schema));
        let columns = fields.map(|field| (field, Cells::default())).collect();
        Ok(ParquetWriter { writer, schema, columns, metadata: MetadataText::default(), rows: 0 })
    }

    /// Adds one row. An event the schema cannot express is a problem and is left out.
    pub fn write(&mut self, event: &Event) -> Result<Result<(), Problem>, ParquetError> {
        if let Err(problem) = event.expressible_in(self.schema) {
            return Ok(Err(problem));
        }
        for (field, cells) in &mut self.columns {
            let value = event.field(*field, self.schema);
            cells.levels.push(i16::from(!matches!(value, FieldValue::Null)));
            match value {
                FieldValue::Null => {}
                // Parquet keeps unsigned numbers as the same bits with a sign.
                FieldValue::Unsigned(number) => cells.numbers.push(number as i64),
                FieldValue::Signed(number) => cells.numbers.push(number),
                FieldValue::Text(text) => push_text(&mut cells.texts, text),
                FieldValue::Metadata(_) => {
                    push_text(&mut cells.texts, self.metadata.spell(event, self.schema))
                }
            }
        }
        self.rows += 1;
        if self.rows >= GROUP_ROWS {
            self.flush_group()?;
        }
        Ok(Ok(()))
    }

    /// Writes the footer.
    pub fn finish(mut self) -> Result<(), ParquetError> {
        self.flush_group()?;
        self.writer.close()?;
        Ok(())
    }

    fn flush_group(&mut self) -> Result<(), ParquetError> {
        if std::mem::take(&mut self.rows) == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for (_, cells) in &mut self.columns {
            let Some(mut column) = group.next_column()? else { break };
            match column.untyped() {
                ColumnWriter::Int64ColumnWriter(writer) => {
                    writer.write_batch(&cells.numbers, Some(&cells.levels), None)?;
                }
                ColumnWriter::ByteArrayColumnWriter(writer) => {
                    writer.write_batch(&cells.texts, Some(&cells.levels), None)?;
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

/// A text that repeats the one before it shares its bytes.
fn push_text(texts: &mut Vec<ByteArray>, text: &str) {
    let shared = texts.last().filter(|last| last.data() == text.as_bytes()).cloned();
    texts.push(shared.unwrap_or_else(|| text.into()));
}
