//! Telemetry as CSV: one column a field, in contract order, metadata as JSON.
//!
//! Reading also takes what 0.4.3 wrote — metadata as Python's `repr`, integers that pandas turned into `123.0` — and
//! the columns of older trackers. Writing loses nothing: a row reads back as the event it was made from.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde_json::Value;
use stormlog_model::text::inert_cell;
use stormlog_model::{
    Event, FIELDS, Field, FieldValue, Interner, Problem, Record, Schema, legacy_session_id,
};

use crate::json::event_text::MetadataText;
use crate::json::{MAX_RECORD, write};
use crate::quick::{Quick, RawFields};
use crate::{ReadOptions, SourcePosition, StoreError, file, python_literal};

/// Number columns of trackers from before the schemas.
const LEGACY_NUMBERS: [&str; 11] = [
    "timestamp",
    "memory_allocated",
    "memory_reserved",
    "memory_change",
    "memory_mb",
    "active_memory",
    "inactive_memory",
    "device_used",
    "device_free",
    "device_total",
    "total_memory",
];

/// Reads events from a CSV file.
pub struct CsvReader {
    path: PathBuf,
    reader: csv::Reader<Budget<File>>,
    budget: Rc<Cell<usize>>,
    columns: Vec<String>,
    fields: Vec<Option<Field>>,
    quick: Quick,
    row: csv::StringRecord,
    interner: Interner,
    default_session: String,
    options: ReadOptions,
    done: bool,
}

impl CsvReader {
    /// Opens a CSV file and reads its header.
    pub fn open(path: &Path, options: &ReadOptions) -> Result<Self, StoreError> {
        let budget = Rc::new(Cell::new(MAX_RECORD));
        let input = Budget { input: file::open_regular(path)?, left: Rc::clone(&budget) };
        let mut reader = csv::ReaderBuilder::new().from_reader(input);
        let header = reader.headers().map_err(|error| csv_error(path, &error, 1))?;
        let columns: Vec<String> =
            header.iter().map(|name| name.trim_start_matches('\u{feff}').trim().to_owned()).collect();
        let known = |name: &String| Field::of_name(name).is_some() || LEGACY_NUMBERS.contains(&name.as_str());
        if !columns.iter().any(known) {
            let message = "the header names no telemetry column (timestamp_ns, event_type, …)";
            return Err(StoreError::malformed(SourcePosition::line(path, 1), message));
        }
        if let Some(twice) = columns.iter().enumerate().find(|(index, name)| columns[..*index].contains(name))
        {
            let message = format!("the column {:?} occurs twice", twice.1);
            return Err(StoreError::malformed(SourcePosition::line(path, 1), message));
        }
        let resolved = file::resolved(path);
        let default_session = options
            .session_id
            .clone()
            .unwrap_or_else(|| legacy_session_id([resolved.to_string_lossy().as_ref(), "csv"]));
        Ok(CsvReader {
            path: path.to_owned(),
            reader,
            budget,
            fields: columns.iter().map(|name| Field::of_name(name)).collect(),
            quick: Quick::default(),
            columns,
            row: csv::StringRecord::new(),
            interner: Interner::default(),
            default_session,
            options: options.clone(),
            done: false,
        })
    }

    fn event(&mut self, position: SourcePosition) -> Result<Event, StoreError> {
        if let Some(event) = self.quickly() {
            return Ok(event);
        }
        let record = self.record().map_err(|problem| StoreError::record(position.clone(), problem))?;
        self.options.event(&record, position, &self.default_session, "legacy.csv", &mut self.interner)
    }

    /// The row by the quick path, which knows rows as we write them.
    fn quickly(&mut self) -> Option<Event> {
        let mut fields = RawFields::default();
        for (field, cell) in self.fields.iter().zip(self.row.iter()) {
            match (*field)? {
                Field::Context if cell.starts_with('"') => return None,
                field if cell.is_empty() && !is_identity(field) => fields.null(field),
                _ if cell.is_empty() => {}
                Field::Metadata => fields.metadata(cell.starts_with("{\"").then_some(cell.as_bytes())?),
                field if is_text(field) => fields.text(field, cell),
                field => fields.number(field, cell.parse().ok()?),
            }
        }
        self.quick.event(&fields, &self.default_session, &mut self.interner)
    }

    fn record(&self) -> Result<Record, Problem> {
        let mut record = Record::new();
        let metadata =
            self.columns.iter().position(|name| name == "metadata").and_then(|at| self.row.get(at));
        let ours = metadata.is_some_and(|text| text.starts_with("{\""));
        for (name, cell) in self.columns.iter().zip(self.row.iter()) {
            let value = match Field::of_name(name) {
                Some(Field::Metadata) => metadata_cell(cell)?,
                Some(Field::Context) if ours && cell.starts_with('"') => {
                    serde_json::from_str(cell).unwrap_or_else(|_| cell.into())
                }
                // An empty identity cell is an absent one; rank and world size then take their defaults.
                Some(Field::Rank | Field::LocalRank | Field::WorldSize | Field::SessionId)
                    if cell.is_empty() =>
                {
                    continue;
                }
                _ if cell.is_empty() => Value::Null,
                Some(field) if is_text(field) => cell.into(),
                Some(_) => number(cell),
                None if LEGACY_NUMBERS.contains(&name.as_str()) => number(cell),
                None if name.starts_with("metadata_") => {
                    python_literal::parse(cell).unwrap_or_else(|_| cell.into())
                }
                None => cell.into(),
            };
            record.insert(name.clone(), value);
        }
        Ok(record)
    }
}

impl Iterator for CsvReader {
    type Item = Result<Event, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        self.budget.set(MAX_RECORD);
        let line = self.reader.position().line();
        match self.reader.read_record(&mut self.row) {
            Ok(false) => {
                self.done = true;
                None
            }
            Ok(true) => {
                let line = self.row.position().map_or(line, csv::Position::line);
                Some(self.event(SourcePosition::line(&self.path, line)))
            }
            Err(error) => {
                // A row of another width is that row's problem; anything else may have lost the reader its place.
                self.done = !matches!(
                    error.kind(),
                    csv::ErrorKind::UnequalLengths { .. } | csv::ErrorKind::Utf8 { .. }
                );
                Some(Err(csv_error(&self.path, &error, line)))
            }
        }
    }
}

fn is_text(field: Field) -> bool {
    use Field::{Collector, Context, EventType, Host, JobId, SessionId};
    matches!(field, SessionId | EventType | Collector | Host | JobId | Context)
}

fn is_identity(field: Field) -> bool {
    matches!(field, Field::Rank | Field::LocalRank | Field::WorldSize | Field::SessionId)
}

/// An integer, also when pandas made `123.0` of it; else the text, for the rules to complain about.
fn number(cell: &str) -> Value {
    let cell = cell.trim();
    if let Ok(integer) = cell.parse::<i64>() {
        return integer.into();
    }
    if let Ok(integer) = cell.parse::<u64>() {
        return integer.into();
    }
    match cell.parse::<f64>() {
        Ok(float) if float.fract() == 0.0 && float.abs() < 9e15 => (float as i64).into(),
        Ok(float) => serde_json::Number::from_f64(float).map_or_else(|| cell.into(), Value::Number),
        Err(_) => cell.into(),
    }
}

fn metadata_cell(cell: &str) -> Result<Value, Problem> {
    if cell.is_empty() {
        return Ok(Value::Object(Record::new()));
    }
    if let Ok(value) = serde_json::from_str(cell) {
        return Ok(value);
    }
    python_literal::parse(cell).map_err(|error| Problem {
        field: Some("metadata".into()),
        message: format!(
            "metadata must be a JSON object or a Python dict: expected {} at character {}",
            error.expected,
            error.at + 1
        ),
    })
}

fn csv_error(path: &Path, error: &csv::Error, line: u64) -> StoreError {
    let line = error.position().map_or(line, csv::Position::line);
    let position = SourcePosition::line(path, line.max(1));
    match error.kind() {
        csv::ErrorKind::Io(inner) if inner.kind() == io::ErrorKind::FileTooLarge => {
            StoreError::TooLarge { position, limit: MAX_RECORD }
        }
        csv::ErrorKind::Io(inner) => StoreError::io(path, io::Error::new(inner.kind(), inner.to_string())),
        csv::ErrorKind::Utf8 { .. } => {
            StoreError::malformed(position, "not a CSV file: the text is not UTF-8")
        }
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => StoreError::malformed(
            position,
            format!("the row has {len} cells where the header has {expected_len}"),
        ),
        _ => StoreError::malformed(position, format!("not a CSV file: {error}")),
    }
}

/// Lets one record read a bounded number of bytes, so that an endless row is an error and not all of memory.
struct Budget<R> {
    input: R,
    left: Rc<Cell<usize>>,
}

impl<R: Read> Read for Budget<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.get();
        if left == 0 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let count = self.input.read(buffer)?;
        self.left.set(left.saturating_sub(count));
        Ok(count)
    }
}

/// Writes events as CSV.
pub struct CsvWriter<W: Write> {
    writer: csv::Writer<W>,
    schema: Schema,
    metadata: MetadataText,
    /// Whether texts that a spreadsheet would take for a formula are marked as text.
    is_safe: bool,
}

impl<W: Write> CsvWriter<W> {
    /// Starts a file with its header.
    pub fn new(out: W, schema: Schema) -> io::Result<Self> {
        let mut writer = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(out);
        let names = FIELDS.iter().filter(|(field, _)| field.is_known_in(schema)).map(|(_, name)| name);
        writer.write_record(names)?;
        Ok(CsvWriter { writer, schema, metadata: MetadataText::default(), is_safe: false })
    }

    /// From now on a text that begins like a formula gets an apostrophe before it, as spreadsheets expect. Numbers stay numbers.
    pub fn guard_formulas(&mut self) {
        self.is_safe = true;
    }

    /// Writes one row. An event the schema cannot express is a problem and nothing is written.
    pub fn write(&mut self, event: &Event) -> io::Result<Result<(), Problem>> {
        if let Err(problem) = event.expressible_in(self.schema) {
            return Ok(Err(problem));
        }
        for (field, _) in FIELDS.iter().filter(|(field, _)| field.is_known_in(self.schema)) {
            let cell = match event.field(*field, self.schema) {
                FieldValue::Null => String::new(),
                FieldValue::Unsigned(number) => number.to_string(),
                FieldValue::Signed(number) => number.to_string(),
                FieldValue::Text(text)
                    if *field == Field::Context && (text.is_empty() || text.starts_with('"')) =>
                {
                    // Empty and absent would look alike; such a context is spelt as JSON.
                    write::dumps(&text)
                }
                FieldValue::Text(text) => {
                    let text = if self.is_safe { inert_cell(text) } else { text.into() };
                    self.writer.write_field(text.as_ref())?;
                    continue;
                }
                FieldValue::Metadata(_) => {
                    let spelt = self.metadata.spell(event, self.schema);
                    self.writer.write_field(spelt)?;
                    continue;
                }
            };
            self.writer.write_field(cell)?;
        }
        self.writer.write_record(None::<&[u8]>)?;
        Ok(Ok(()))
    }

    /// Writes what is buffered.
    pub fn finish(mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pandas_integers_are_integers() {
        assert_eq!(number("123.0"), 123);
        assert_eq!(number("-5"), -5);
        assert_eq!(number("18446744073709551615"), u64::MAX);
        assert_eq!(number("1.5"), 1.5);
        assert_eq!(number("abc"), "abc");
        assert_eq!(number("nan"), "nan");
    }
}
