//! One file of a table while it is written: rows in order, row groups as they fill, under a hidden name until it is whole.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::path::{Path, PathBuf};

use stormlog_files::{Directory, Draft};
use stormlog_parquet::{CellKind, ENGINE_GROUP_ROWS, GroupCell, GroupColumn, GroupWriter};

use crate::LakeError;
use crate::directories;
use crate::layout::{Partition, part_name};
use crate::marks::{self, Mark};
use crate::row::{Cell, Row};
use crate::schema::{Kind, SCHEMA_VERSION, Table};

/// The key of the version in the metadata of a file.
pub(crate) const VERSION_KEY: &str = "stormlog.schema_version";
/// Columns with a bloom filter: a question about one of them skips whole groups.
const BLOOMS: [&str; 2] = ["session_id", "job_id"];
/// `job_id`, `rank`, `device`, `ts`.
const SORTED_BY: [usize; 4] = [1, 2, 3, 0];

/// The order of rows in a file, whose job is one.
pub(crate) type SortKey = (Option<i64>, Option<i64>, i64);

/// The key of a row.
pub(crate) fn sort_key(row: &(impl Row + ?Sized)) -> SortKey {
    (row.process().rank, row.device(), row.at_ns())
}

/// A file that is being written.
pub(crate) struct PartWriter {
    path: PathBuf,
    draft: Draft,
    writer: GroupWriter<File>,
    pub(crate) rows: u64,
    /// By what they are of and the number of setbacks.
    pub(crate) marks: BTreeMap<(String, u32), Mark>,
    replaces: Vec<String>,
}

pub(crate) fn group_columns(table: Table) -> Vec<GroupColumn> {
    let kind = |kind: Kind| match kind {
        Kind::Integer => CellKind::Integer,
        Kind::Float => CellKind::Float,
        Kind::Text => CellKind::Text,
        Kind::Time => CellKind::Time,
        Kind::Boolean => CellKind::Boolean,
    };
    let columns = table.columns().iter().map(|column| GroupColumn {
        name: column.name,
        kind: kind(column.kind),
        is_optional: column.is_optional,
        has_bloom: BLOOMS.contains(&column.name),
    });
    columns.collect()
}

impl PartWriter {
    /// Begins a file in a partition.
    pub(crate) fn create(
        lake: &Path,
        table: Table,
        partition: &Partition,
        host: &str,
    ) -> Result<Self, LakeError> {
        let directory = directories::lake(lake)
            .and_then(|lake| directories::make_partition(&lake, table, partition))
            .map_err(|source| LakeError::Io {
                path: lake.join(table.name()).join(partition.path()),
                source,
            })?;
        Self::create_in(&directory, table, host)
    }

    /// Begins a file in a directory.
    pub(crate) fn create_in(directory: &Directory, table: Table, host: &str) -> Result<Self, LakeError> {
        let mut number = 0;
        let mut name = part_name(host, number);
        while directory.has(&name) {
            number += 1;
            name = part_name(host, number);
        }
        let path = directory.path().join(&name);
        let wrong = |source| LakeError::Io { path: path.clone(), source };
        let mut draft = directory.draft(&name).map_err(wrong)?;
        let file = draft.file().try_clone().map_err(wrong)?;
        let writer = GroupWriter::new(file, table.name(), &group_columns(table), &SORTED_BY);
        let writer = writer.map_err(|error| encoding(&path, &error))?;
        Ok(PartWriter { path, draft, writer, rows: 0, marks: BTreeMap::new(), replaces: Vec::new() })
    }

    /// Writes rows as one or more groups; they come after those written before.
    pub(crate) fn write<R: Row>(&mut self, rows: &[R]) -> Result<(), LakeError> {
        for group in rows.chunks(ENGINE_GROUP_ROWS) {
            let cell = |row: usize, column: usize| group_cell(group[row].cell(column));
            self.write_cells(group.len(), cell)?;
        }
        Ok(())
    }

    /// Writes one group.
    pub(crate) fn write_cells<'a>(
        &mut self,
        rows: usize,
        cell: impl Fn(usize, usize) -> GroupCell<'a>,
    ) -> Result<(), LakeError> {
        self.writer.write_group(rows, cell).map_err(|error| encoding(&self.path, &error))?;
        self.rows += rows as u64;
        Ok(())
    }

    /// Notes rows of a session, a process or a run. `setbacks`: how often its clock had been set back.
    pub(crate) fn mark(&mut self, of: &str, setbacks: u32, to_ns: i64, rows: u64) {
        match self.marks.entry((of.to_owned(), setbacks)) {
            Entry::Occupied(known) => {
                let mark = known.into_mut();
                mark.to_ns = mark.to_ns.max(to_ns);
                mark.rows += rows;
            }
            Entry::Vacant(empty) => {
                empty.insert(Mark { of: of.to_owned(), setbacks, to_ns, rows, ..Mark::default() });
            }
        }
    }

    /// States the files that this one replaces.
    pub(crate) fn replaces(&mut self, names: Vec<String>) {
        self.replaces = names;
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.writer.bytes()
    }

    /// Gives the file its name; it is whole and on disk then.
    pub(crate) fn finish(self) -> Result<(PathBuf, u64, u64), LakeError> {
        let marks: Vec<Mark> = self.marks.into_values().collect();
        let text = |value: Result<String, serde_json::Error>| value.unwrap_or_default();
        let mut metadata = vec![
            (VERSION_KEY, SCHEMA_VERSION.to_string()),
            (marks::KEY, text(serde_json::to_string(&marks))),
        ];
        if !self.replaces.is_empty() {
            metadata.push((REPLACES_KEY, text(serde_json::to_string(&self.replaces))));
        }
        let file = self.writer.finish(&metadata).map_err(|error| encoding(&self.path, &error))?;
        let wrong = |source| LakeError::Io { path: self.path.clone(), source };
        // Under its name it must be whole even after a power failure.
        file.sync_data().map_err(wrong)?;
        let bytes = file.metadata().map_err(wrong)?.len();
        // Its name is of this process and moment: another file has it only where another user put it there.
        match self.draft.place_new().map_err(wrong)? {
            Some(_) => {}
            None => return Err(wrong(std::io::ErrorKind::AlreadyExists.into())),
        }
        Ok((self.path, self.rows, bytes))
    }
}

/// The key of the names of files that a merged one replaces.
pub(crate) const REPLACES_KEY: &str = "stormlog.replaces";

fn group_cell(cell: Cell<'_>) -> GroupCell<'_> {
    match cell {
        Cell::Null => GroupCell::Null,
        Cell::Integer(value) => GroupCell::Integer(value),
        Cell::Float(value) => GroupCell::Float(value),
        Cell::Text(text) => GroupCell::Text(text),
        Cell::Boolean(value) => GroupCell::Boolean(value),
    }
}

fn encoding(path: &Path, error: &stormlog_parquet::ParquetError) -> LakeError {
    let text = error.to_string();
    // How the crate calls an error of the file below it: a full disk.
    let message = text.strip_prefix("External: ").map(str::to_owned).unwrap_or(text);
    LakeError::Encoding { path: path.to_owned(), message }
}
