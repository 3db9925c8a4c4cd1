//! Events into a Parquet file, a row group at a time.

use std::io::Write;

use parquet::errors::ParquetError;
use stormlog_model::{Event, FIELDS, Field, FieldValue, Problem, Schema};
use stormlog_parquet::{Column, Kind, TableWriter};

use crate::json::event_text::MetadataText;

fn kind(field: Field) -> Kind {
    match field {
        Field::Metadata => Kind::Json,
        Field::SessionId
        | Field::EventType
        | Field::Collector
        | Field::Host
        | Field::JobId
        | Field::Context => Kind::Text,
        Field::Pid | Field::DeviceId | Field::AllocatorChange => Kind::Signed,
        // Byte counters and times use all 64 bits.
        _ => Kind::Unsigned,
    }
}

/// Writes events as Parquet.
pub struct ParquetWriter<W: Write + Send> {
    table: TableWriter<W>,
    schema: Schema,
    fields: Vec<Field>,
    metadata: MetadataText,
}

impl<W: Write + Send> ParquetWriter<W> {
    /// Starts a file.
    pub fn new(out: W, schema: Schema) -> Result<Self, ParquetError> {
        let known = FIELDS.into_iter().filter(|(field, _)| field.is_known_in(schema));
        let (fields, columns): (Vec<Field>, Vec<Column>) =
            known.map(|(field, name)| (field, Column { name, kind: kind(field), is_optional: true })).unzip();
        let table = TableWriter::new(out, "telemetry", &columns)?;
        Ok(ParquetWriter { table, schema, fields, metadata: MetadataText::default() })
    }

    /// Adds one row. An event the schema cannot express is a problem and is left out.
    pub fn write(&mut self, event: &Event) -> Result<Result<(), Problem>, ParquetError> {
        if let Err(problem) = event.expressible_in(self.schema) {
            return Ok(Err(problem));
        }
        for (column, field) in self.fields.iter().enumerate() {
            match event.field(*field, self.schema) {
                FieldValue::Null if matches!(kind(*field), Kind::Text | Kind::Json) => {
                    self.table.text(column, None);
                }
                FieldValue::Null => self.table.number(column, None),
                FieldValue::Unsigned(number) => self.table.number(column, Some(number as i64)),
                FieldValue::Signed(number) => self.table.number(column, Some(number)),
                FieldValue::Text(text) => self.table.text(column, Some(text)),
                FieldValue::Metadata(_) => {
                    self.table.text(column, Some(self.metadata.spell(event, self.schema)));
                }
            }
        }
        self.table.end_row()?;
        Ok(Ok(()))
    }

    /// Writes the footer.
    pub fn finish(self) -> Result<(), ParquetError> {
        self.table.finish().map(drop)
    }
}
