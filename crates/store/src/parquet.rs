//! Telemetry as Parquet: one typed column a field, metadata as JSON text, nulls where a counter is unknown.
//!
//! Written in row groups of bounded size through the column API (no Arrow), so that DuckDB, Spark, pandas and polars
//! read the tables as they are.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical};
use parquet::column::reader::ColumnReader;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};
use serde_json::Value;
use stormlog_event::{
    Event, FIELDS, Field, FieldValue, Interner, Problem, Record, Schema, legacy_session_id,
};

use crate::json::event_text::MetadataText;
use crate::quick::{Quick, RawFields};
use crate::{Place, ReadOptions, StoreError, file};

/// Rows a group: large enough to compress well, small enough that one group of wide metadata fits in memory.
const GROUP_ROWS: usize = 32_768;
/// Rows of a foreign file's group we are willing to hold.
const MAX_GROUP_ROWS: i64 = 4 << 20;

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

/// A column of a row group as read.
struct Column {
    name: String,
    field: Option<Field>,
    values: Values,
    /// One a row: the position of its value, or `None` where there is none.
    at: Vec<Option<u32>>,
}

enum Values {
    Signed(Vec<i64>),
    Unsigned(Vec<u64>),
    Texts(Vec<ByteArray>),
}

/// Reads events from a Parquet file with the columns of the contract.
pub struct ParquetReader {
    path: PathBuf,
    reader: SerializedFileReader<File>,
    group: usize,
    columns: Vec<Column>,
    row_in_group: usize,
    rows_in_group: usize,
    row: u64,
    quick: Quick,
    interner: Interner,
    default_session: String,
    options: ReadOptions,
    done: bool,
}

impl ParquetReader {
    /// Opens a file and reads its footer.
    pub fn open(path: &Path, options: &ReadOptions) -> Result<Self, StoreError> {
        let input = file::open_regular(path)?;
        let reader = SerializedFileReader::new(input).map_err(|error| wrong(path, &error))?;
        let resolved = file::resolved(path);
        let default_session = options
            .session_id
            .clone()
            .unwrap_or_else(|| legacy_session_id([resolved.to_string_lossy().as_ref(), "parquet"]));
        Ok(ParquetReader {
            path: path.to_owned(),
            reader,
            group: 0,
            columns: Vec::new(),
            row_in_group: 0,
            rows_in_group: 0,
            row: 0,
            quick: Quick::default(),
            interner: Interner::default(),
            default_session,
            options: options.clone(),
            done: false,
        })
    }

    fn next_group(&mut self) -> Result<bool, StoreError> {
        if self.group >= self.reader.num_row_groups() {
            return Ok(false);
        }
        let group = self.reader.get_row_group(self.group).map_err(|error| wrong(&self.path, &error))?;
        self.group += 1;
        let count = group.metadata().num_rows();
        if !(0..=MAX_GROUP_ROWS).contains(&count) {
            let message = format!("a row group of {count} rows; at most {MAX_GROUP_ROWS} are read");
            return Err(StoreError::malformed(Place::file(&self.path), message));
        }
        let columns =
            read_group(group.as_ref(), count as usize).map_err(|error| wrong(&self.path, &error))?;
        (self.columns, self.row_in_group, self.rows_in_group) = (columns, 0, count as usize);
        Ok(true)
    }

    fn event(&mut self, row: usize) -> Result<Event, StoreError> {
        self.row += 1;
        let place = Place::line(&self.path, self.row);
        let quickly = quick_fields(&self.columns, row)
            .and_then(|fields| self.quick.event(&fields, &self.default_session, &mut self.interner));
        if let Some(event) = quickly {
            return Ok(event);
        }
        let record =
            record(&self.columns, row).map_err(|problem| StoreError::record(place.clone(), problem))?;
        self.options.event(&record, place, &self.default_session, "legacy.unknown", &mut self.interner)
    }
}

impl Iterator for ParquetReader {
    type Item = Result<Event, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.done {
            if self.row_in_group < self.rows_in_group {
                self.row_in_group += 1;
                return Some(self.event(self.row_in_group - 1));
            }
            match self.next_group() {
                Ok(true) => {}
                Ok(false) => self.done = true,
                Err(error) => {
                    self.done = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

fn read_group(group: &dyn RowGroupReader, count: usize) -> Result<Vec<Column>, ParquetError> {
    let mut columns = Vec::new();
    for index in 0..group.num_columns() {
        let descriptor = group.metadata().column(index).column_descr_ptr();
        let name = descriptor.name().to_owned();
        if descriptor.max_rep_level() > 0 {
            return Err(ParquetError::General(format!("the column {name:?} holds lists")));
        }
        let mut levels = Vec::new();
        let values = match group.get_column_reader(index)? {
            ColumnReader::Int64ColumnReader(mut reader) => {
                let mut values = Vec::new();
                reader.read_records(count, Some(&mut levels), None, &mut values)?;
                match descriptor.converted_type() {
                    ConvertedType::UINT_64 => {
                        Values::Unsigned(values.into_iter().map(|bits| bits as u64).collect())
                    }
                    _ => Values::Signed(values),
                }
            }
            ColumnReader::Int32ColumnReader(mut reader) => {
                let mut values = Vec::new();
                reader.read_records(count, Some(&mut levels), None, &mut values)?;
                Values::Signed(values.into_iter().map(i64::from).collect())
            }
            ColumnReader::ByteArrayColumnReader(mut reader) => {
                let mut values = Vec::new();
                reader.read_records(count, Some(&mut levels), None, &mut values)?;
                for text in &values {
                    text.as_utf8()?;
                }
                Values::Texts(values)
            }
            _ => {
                return Err(ParquetError::General(format!(
                    "the column {name:?} is neither text nor integer"
                )));
            }
        };
        let most = descriptor.max_def_level();
        let mut next = 0;
        let at = (0..count).map(|row| {
            let present = most == 0 || levels.get(row) == Some(&most);
            next += u32::from(present);
            present.then(|| next - 1)
        });
        let at = at.collect();
        columns.push(Column { field: Field::of_name(&name), name, values, at });
    }
    Ok(columns)
}

/// One cell: a number or a text.
enum Cell<'a> {
    Null,
    Number(i128),
    Text(&'a str),
}

impl Column {
    fn cell(&self, row: usize) -> Cell<'_> {
        let Some(at) = self.at.get(row).copied().flatten() else { return Cell::Null };
        let at = at as usize;
        match &self.values {
            Values::Signed(values) => {
                values.get(at).map_or(Cell::Null, |value| Cell::Number((*value).into()))
            }
            Values::Unsigned(values) => {
                values.get(at).map_or(Cell::Null, |value| Cell::Number((*value).into()))
            }
            Values::Texts(values) => {
                values.get(at).and_then(|text| text.as_utf8().ok()).map_or(Cell::Null, Cell::Text)
            }
        }
    }
}

fn quick_fields(columns: &[Column], row: usize) -> Option<RawFields<'_>> {
    let mut fields = RawFields::default();
    for column in columns {
        let field = column.field?;
        match column.cell(row) {
            Cell::Null => fields.null(field),
            Cell::Number(number) => fields.number(field, number),
            Cell::Text(text) if field == Field::Metadata => fields.metadata(text.as_bytes()),
            Cell::Text(text) => fields.text(field, text),
        }
    }
    Some(fields)
}

fn record(columns: &[Column], row: usize) -> Result<Record, Problem> {
    let mut record = Record::new();
    for column in columns {
        let value = match column.cell(row) {
            Cell::Null => Value::Null,
            Cell::Number(number) => match i64::try_from(number) {
                Ok(signed) => signed.into(),
                Err(_) => u64::try_from(number).map_or(Value::Null, Value::from),
            },
            Cell::Text(text) if column.field == Some(Field::Metadata) => {
                serde_json::from_str(text).map_err(|error| Problem {
                    field: Some("metadata".into()),
                    message: format!("metadata is not JSON: {error}"),
                })?
            }
            Cell::Text(text) => text.into(),
        };
        record.insert(column.name.clone(), value);
    }
    Ok(record)
}

fn wrong(path: &Path, error: &ParquetError) -> StoreError {
    StoreError::malformed(Place::file(path), format!("not a Parquet file of telemetry: {error}"))
}
