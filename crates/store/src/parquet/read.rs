//! Events out of a Parquet file with the columns of the contract, a row group at a time.

use std::path::{Path, PathBuf};

use parquet::basic::ConvertedType;
use parquet::column::reader::ColumnReader;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use serde_json::Value;
use stormlog_model::{Event, Field, Interner, Problem, Record, legacy_session_id};

use super::input::Input;
use super::pages;
use crate::quick::{Quick, RawFields};
use crate::{ReadOptions, SourcePosition, StoreError, file};

/// Rows of a foreign file's group we are willing to hold.
pub(super) const MAX_GROUP_ROWS: i64 = 4 << 20;

/// Whole numbers up to this one are exact as floats.
const EXACT: f64 = 9_007_199_254_740_992.0;

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
    /// Of a tool that has no integers with gaps: whole numbers, and NaN for none.
    Reals(Vec<f64>),
    Texts(Vec<ByteArray>),
}

/// Reads events from a Parquet file with the columns of the contract.
pub struct ParquetReader {
    path: PathBuf,
    input: Input,
    reader: SerializedFileReader<Input>,
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
        let input = Input::new(file::open_regular(path)?).map_err(|error| StoreError::io(path, error))?;
        let reader =
            guarded(|| SerializedFileReader::new(input.clone())).map_err(|error| wrong(path, &error))?;
        let resolved = file::resolved(path);
        let default_session = options
            .session_id
            .clone()
            .unwrap_or_else(|| legacy_session_id([resolved.to_string_lossy().as_ref(), "parquet"]));
        Ok(ParquetReader {
            path: path.to_owned(),
            input,
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
        let at = self.group;
        self.group += 1;
        let count = self.reader.metadata().row_group(at).num_rows();
        if !(0..=MAX_GROUP_ROWS).contains(&count) {
            let message = format!("a row group of {count} rows; at most {MAX_GROUP_ROWS} are read");
            return Err(StoreError::malformed(SourcePosition::file(&self.path), message));
        }
        let chunks = self.reader.metadata().row_group(at).columns();
        let mut budget = pages::Budget::of_group();
        let sound = chunks.iter().try_for_each(|chunk| pages::check(&self.input, chunk, &mut budget));
        sound.map_err(|error| wrong(&self.path, &error))?;
        let columns = guarded(|| read_group(self.reader.get_row_group(at)?.as_ref(), count as usize));
        let columns = columns.map_err(|error| wrong(&self.path, &error))?;
        (self.columns, self.row_in_group, self.rows_in_group) = (columns, 0, count as usize);
        Ok(true)
    }

    fn event(&mut self, row: usize) -> Result<Event, StoreError> {
        self.row += 1;
        let position = SourcePosition::line(&self.path, self.row);
        let quickly = quick_fields(&self.columns, row)
            .and_then(|fields| self.quick.event(&fields, &self.default_session, &mut self.interner));
        if let Some(event) = quickly {
            return Ok(event);
        }
        let record =
            record(&self.columns, row).map_err(|problem| StoreError::record(position.clone(), problem))?;
        self.options.event(&record, position, &self.default_session, "legacy.unknown", &mut self.interner)
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
            ColumnReader::DoubleColumnReader(mut reader) => {
                let mut values = Vec::new();
                reader.read_records(count, Some(&mut levels), None, &mut values)?;
                Values::Reals(values)
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

/// Turns a panic of the library on damaged input into the error it should have been.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    // What `work` touches is dropped or re-made after an error, so nothing half-changed is seen again.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(ParquetError::General("the file is damaged".into())))
}

/// One cell: a number or a text.
enum Cell<'a> {
    Null,
    Number(i128),
    Real(f64),
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
            Values::Reals(values) => match values.get(at) {
                Some(value) if value.is_nan() => Cell::Null,
                Some(value) if value.fract() == 0.0 && value.abs() <= EXACT => Cell::Number(*value as i128),
                Some(value) => Cell::Real(*value),
                None => Cell::Null,
            },
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
            Cell::Real(_) => return None,
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
            Cell::Real(real) => real.into(),
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

pub(super) fn wrong(path: &Path, error: &ParquetError) -> StoreError {
    let disabled = error.to_string();
    if disabled.contains("Disabled feature at compile time") {
        let message = format!(
            "its codec is not one of snappy, gzip, zstd and lz4 ({disabled}); write it with one of them"
        );
        return StoreError::malformed(SourcePosition::file(path), message);
    }
    StoreError::malformed(SourcePosition::file(path), format!("not a Parquet file of telemetry: {error}"))
}
