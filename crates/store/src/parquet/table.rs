//! Any flat Parquet table, a row group and some of its columns at a time: what a lake is read with. The file is hostile input: sizes are checked before
//! they are believed, and a panic of the library is an error.

use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::column::reader::ColumnReader;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::statistics::Statistics;

use super::input::Input;
use super::pages;
use super::read::{MAX_GROUP_ROWS, guarded, wrong};
use crate::{SourcePosition, StoreError, file};

/// An open table.
pub struct TableFile {
    path: PathBuf,
    input: Input,
    reader: SerializedFileReader<Input>,
}

/// The cells of one column of a row group.
#[derive(Debug, Default)]
pub struct TableColumn {
    values: Values,
    /// For each row the number of its value plus one, 0 where it is unknown; empty where every row has a value.
    at: Vec<u32>,
}

#[derive(Debug, Default)]
enum Values {
    /// A column that the file does not have: unknown in every row.
    #[default]
    None,
    Integers(Vec<i64>),
    Floats(Vec<f64>),
    Booleans(Vec<bool>),
    Texts(Vec<ByteArray>),
}

impl TableColumn {
    fn place(&self, row: usize) -> Option<usize> {
        match self.at.is_empty() {
            true => Some(row),
            false => self.at.get(row)?.checked_sub(1).map(|at| at as usize),
        }
    }

    /// The integer or time of a row.
    #[must_use]
    pub fn integer(&self, row: usize) -> Option<i64> {
        match &self.values {
            Values::Integers(values) => values.get(self.place(row)?).copied(),
            _ => None,
        }
    }

    /// The number of a row.
    #[must_use]
    pub fn float(&self, row: usize) -> Option<f64> {
        match &self.values {
            Values::Floats(values) => values.get(self.place(row)?).copied(),
            Values::Integers(values) => values.get(self.place(row)?).map(|value| *value as f64),
            _ => None,
        }
    }

    /// The truth value of a row.
    #[must_use]
    pub fn boolean(&self, row: usize) -> Option<bool> {
        match &self.values {
            Values::Booleans(values) => values.get(self.place(row)?).copied(),
            _ => None,
        }
    }

    /// The text of a row.
    #[must_use]
    pub fn text(&self, row: usize) -> Option<&str> {
        match &self.values {
            Values::Texts(values) => values.get(self.place(row)?)?.as_utf8().ok(),
            _ => None,
        }
    }
}

impl TableFile {
    /// Opens a table and reads its footer.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::of_file(file::open_regular(path)?, path)
    }

    /// Of an open file.
    pub fn of_file(file: File, path: &Path) -> Result<Self, StoreError> {
        let input = Input::new(file).map_err(|error| StoreError::io(path, error))?;
        let reader =
            guarded(|| SerializedFileReader::new(input.clone())).map_err(|error| wrong(path, &error))?;
        Ok(TableFile { path: path.to_owned(), input, reader })
    }

    /// A text of the file's own metadata.
    #[must_use]
    pub fn metadata(&self, key: &str) -> Option<&str> {
        let all = self.reader.metadata().file_metadata().key_value_metadata()?;
        all.iter().find(|one| one.key == key)?.value.as_deref()
    }

    /// Rows of the whole file.
    #[must_use]
    pub fn rows(&self) -> u64 {
        u64::try_from(self.reader.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    /// Row groups.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.reader.num_row_groups()
    }

    /// Rows of a group.
    #[must_use]
    pub fn group_rows(&self, group: usize) -> usize {
        let rows = self.reader.metadata().row_groups().get(group).map_or(0, |group| group.num_rows());
        usize::try_from(rows).unwrap_or(0)
    }

    /// The lowest and highest integer of a column in a group, by its statistics.
    #[must_use]
    pub fn range(&self, group: usize, column: &str) -> Option<(i64, i64)> {
        let chunk = self.reader.metadata().row_groups().get(group)?.columns().iter();
        match chunk.into_iter().find(|chunk| chunk.column_descr().name() == column)?.statistics()? {
            Statistics::Int64(range) => Some((*range.min_opt()?, *range.max_opt()?)),
            _ => None,
        }
    }

    /// Whether a column may have unknown cells in a group, by its statistics.
    #[must_use]
    pub fn has_unknown(&self, group: usize, column: &str) -> bool {
        let chunks = self.reader.metadata().row_groups().get(group).map(|group| group.columns());
        let chunk = chunks.into_iter().flatten().find(|chunk| chunk.column_descr().name() == column);
        chunk.and_then(|chunk| chunk.statistics()?.null_count_opt()) != Some(0)
    }

    /// The columns of a group by name (`add.path` is the field of a group), in the order asked for; one that the file does not have is unknown in every row.
    pub fn read_group(&self, group: usize, columns: &[&str]) -> Result<Vec<TableColumn>, StoreError> {
        let rows = self.group_rows(group);
        self.batches(group, columns)?.read(rows)
    }

    /// The same, for a caller that takes some rows at a time: other writers make groups of any size, and one of them need not fit into memory.
    pub fn batches(&self, group: usize, columns: &[&str]) -> Result<TableBatches<'_>, StoreError> {
        let metadata = self.reader.metadata();
        let count = metadata.row_groups().get(group).map_or(0, |group| group.num_rows());
        if !(0..=MAX_GROUP_ROWS).contains(&count) {
            let message = format!("a row group of {count} rows; at most {MAX_GROUP_ROWS} are read");
            return Err(StoreError::malformed(SourcePosition::file(&self.path), message));
        }
        let open = || {
            let mut budget = pages::Budget::of_group();
            let reader = self.reader.get_row_group(group)?;
            let chunks = metadata.row_group(group).columns();
            let mut found = Vec::new();
            for wanted in columns {
                let index = chunks.iter().position(|chunk| chunk.column_descr().path().string() == *wanted);
                found.push(match index {
                    Some(index) => {
                        pages::check(&self.input, &chunks[index], &mut budget)?;
                        Some(OpenColumn::new(reader.as_ref(), index)?)
                    }
                    None => None,
                });
            }
            Ok(found)
        };
        let columns = guarded(open).map_err(|error| wrong(&self.path, &error))?;
        Ok(TableBatches { path: &self.path, columns, left: count as usize })
    }
}

/// The rows of a group that are still to be read.
pub struct TableBatches<'a> {
    path: &'a Path,
    columns: Vec<Option<OpenColumn>>,
    left: usize,
}

impl TableBatches<'_> {
    /// Rows that are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left
    }

    /// The next `rows` rows, or those that are left.
    pub fn read(&mut self, rows: usize) -> Result<Vec<TableColumn>, StoreError> {
        let rows = rows.min(self.left);
        self.left -= rows;
        let read = |column: &mut Option<OpenColumn>| match column {
            Some(column) => column.read(rows),
            None => Ok(TableColumn { values: Values::None, at: vec![0; rows] }),
        };
        guarded(|| self.columns.iter_mut().map(read).collect()).map_err(|error| wrong(self.path, &error))
    }
}

struct OpenColumn {
    reader: ColumnReader,
    name: String,
    /// The level of a cell that has a value; 0 where all have.
    most: i16,
}

impl OpenColumn {
    fn new(group: &dyn RowGroupReader, index: usize) -> Result<Self, ParquetError> {
        let descriptor = group.metadata().column(index).column_descr_ptr();
        let name = descriptor.name().to_owned();
        if descriptor.max_rep_level() > 0 {
            return Err(ParquetError::General(format!("the column {name:?} holds lists")));
        }
        Ok(OpenColumn { reader: group.get_column_reader(index)?, name, most: descriptor.max_def_level() })
    }

    fn read(&mut self, count: usize) -> Result<TableColumn, ParquetError> {
        let mut levels = Vec::new();
        macro_rules! read {
            ($reader:expr) => {{
                let mut values = Vec::new();
                // A call may end with a page.
                let mut done = 0;
                while done < count {
                    let (records, _, _) =
                        $reader.read_records(count - done, Some(&mut levels), None, &mut values)?;
                    if records == 0 {
                        break;
                    }
                    done += records;
                }
                values
            }};
        }
        let values = match &mut self.reader {
            ColumnReader::Int64ColumnReader(reader) => Values::Integers(read!(reader)),
            ColumnReader::Int32ColumnReader(reader) => {
                Values::Integers(read!(reader).into_iter().map(i64::from).collect())
            }
            ColumnReader::DoubleColumnReader(reader) => Values::Floats(read!(reader)),
            ColumnReader::BoolColumnReader(reader) => Values::Booleans(read!(reader)),
            ColumnReader::ByteArrayColumnReader(reader) => Values::Texts(read!(reader)),
            _ => {
                let message = format!("the column {:?} has a type that cannot be read", self.name);
                return Err(ParquetError::General(message));
            }
        };
        if self.most == 0 {
            return Ok(TableColumn { values, at: Vec::new() });
        }
        let mut next = 0;
        let at = (0..count).map(|row| {
            let is_known = levels.get(row) == Some(&self.most);
            next += u32::from(is_known);
            if is_known { next } else { 0 }
        });
        Ok(TableColumn { at: at.collect(), values })
    }
}
