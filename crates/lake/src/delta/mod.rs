//! The Delta log of a table: which files it has, as plain JSON (`_delta_log/%020d.json`), so that Spark, Trino and others read the table by name.
//!
//! A version is committed by giving a whole file its name, which fails where another process was first; then the log is read again. The log is made to say
//! what is on disk: files of ours that it never had are added, files that are gone are removed, and a merged file and those it replaces change in one
//! version. Every tenth version has a checkpoint. Must never write into a version that exists, nor continue a log whose protocol it does not know.

mod checkpoint;
mod log;

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stormlog_files::Directory;
use stormlog_store::{StoreError, TableFile};

use crate::directories;
use crate::layout::{PartFile, is_directory, is_own_name, part_files, unescaped};
use crate::part_writer::{REPLACES_KEY, VERSION_KEY};
use crate::rows::Problem;
use crate::saved_marks::SavedMarks;
use crate::schema::{Kind, Table};
use crate::{LakeError, marks};
use log::Log;

const LOG_DIRECTORY: &str = "_delta_log";
/// Other processes that may be first in a row.
const TRIES: usize = 1_000;
/// Columns whose range is stated, so that engines skip files.
const RANGED: [&str; 3] = ["ts", "rank", "device"];

/// Whether a table has a Delta log.
#[must_use]
pub fn has_log(lake: &Path, table: Table) -> bool {
    is_directory(&lake.join(table.name())) && is_directory(&log_directory(lake, table))
}

fn log_directory(lake: &Path, table: Table) -> PathBuf {
    lake.join(table.name()).join(LOG_DIRECTORY)
}

/// The files that the log has, below the table; `None` where there is no log.
pub fn active_files(lake: &Path, table: Table) -> Result<Option<Vec<String>>, LakeError> {
    if !has_log(lake, table) {
        return Ok(None);
    }
    let log = Log::read(&log_directory(lake, table), None)?;
    Ok(Some(log.active.into_keys().map(|path| on_disk_path(&path)).collect()))
}

/// Makes the log of a table say what is on disk. Returns the files that cannot be read, which are left out.
pub fn sync(lake: &Path, table: Table) -> Result<Vec<Problem>, LakeError> {
    sync_without(lake, table, &|_| false)
}

/// The same, as if the files that are about to be removed were gone.
pub(crate) fn sync_without(
    lake: &Path,
    table: Table,
    is_leaving: &dyn Fn(&PartFile) -> bool,
) -> Result<Vec<Problem>, LakeError> {
    let directory = log_directory(lake, table);
    let opened = directories::lake(lake)
        .and_then(|lake| lake.directory(table.name())?.directory(LOG_DIRECTORY))
        .map_err(|source| LakeError::Io { path: directory.clone(), source })?;
    for _ in 0..TRIES {
        let log = Log::read(&directory, None)?;
        log.check_protocol(&directory)?;
        let (leaving, on_disk): (Vec<PartFile>, Vec<PartFile>) =
            part_files(lake, table, None).into_iter().partition(is_leaving);
        let leaving: BTreeSet<String> = leaving.iter().map(PartFile::relative).collect();
        let mut actions = Vec::new();
        if log.protocol.is_none() {
            actions.push(json!({"protocol": {"minReaderVersion": log::READER_VERSION, "minWriterVersion": log::WRITER_VERSION}}));
        }
        if log.columns < table.columns().len() {
            actions.push(metadata(table, &log));
        }
        let mut problems = Vec::new();
        // Programs escape paths differently: two that lead to the same file are one.
        let active: BTreeSet<String> = log.active.keys().map(|path| on_disk_path(path)).collect();
        let given_up: BTreeSet<String> = log.given_up.iter().map(|path| on_disk_path(path)).collect();
        let mut new = Vec::new();
        // A file that the log has given up is about to be deleted: it was merged into another, or has expired.
        let is_known = |path: &String| active.contains(path) || given_up.contains(path);
        for file in on_disk.iter().filter(|file| !is_known(&file.relative())) {
            match NewFile::of(file) {
                Ok(file) => new.extend(file),
                Err(error) => {
                    let problem = Problem::of_error(&file.path, &error);
                    problems.push(problem.with_advice("it is left out of the Delta log: remove the file"));
                }
            }
        }
        let marks = MarksOfTable::of(lake, table)?;
        marks.save(&new, &on_disk, &is_known)?;
        let replaced: BTreeSet<String> = new.iter().flat_map(|file| file.replaces.iter().cloned()).collect();
        // A merge of files that the log has changes no data: a reader that follows the log has seen these rows.
        let merges = new.iter().filter(|file| file.is_merge_of(&active));
        let merged: BTreeSet<&String> = merges.flat_map(|file| &file.replaces).collect();
        let visible = new.iter().filter(|file| !replaced.contains(&file.path));
        actions.extend(visible.map(|file| file.add(!file.is_merge_of(&active))));
        let table_directory = lake.join(table.name());
        // What another program wrote is its own to remove, unless its day expires.
        let is_gone = |path: &String| {
            let is_missing = || matches!(table_directory.join(path).symlink_metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound);
            replaced.contains(path) || leaving.contains(path) || (is_our_path(path) && is_missing())
        };
        marks.forget(&|path| active.contains(path) && is_gone(path))?;
        let now_ms = stormlog_store::wall_ns() / 1_000_000;
        for (path, on_disk) in log.active.keys().map(|path| (path, on_disk_path(path))) {
            if is_gone(&on_disk) {
                let is_change = !merged.contains(&on_disk);
                actions.push(
                    json!({"remove": {"path": path, "deletionTimestamp": now_ms, "dataChange": is_change}}),
                );
            }
        }
        if actions.is_empty() {
            return Ok(problems);
        }
        let operation = if merged.is_empty() { "WRITE" } else { "OPTIMIZE" };
        actions.push(json!({"commitInfo": {"timestamp": now_ms, "operation": operation, "engineInfo": concat!("stormlog ", env!("CARGO_PKG_VERSION"))}}));
        let text: String = actions.iter().map(|action| format!("{action}\n")).collect();
        let name = format!("{:020}.json", log.next);
        let committed = commit(&opened, &name, &text);
        if committed.map_err(|source| LakeError::Io { path: directory.join(&name), source })? {
            if log.next.is_multiple_of(checkpoint::INTERVAL) && log.next > 0 {
                // The version is committed; without a checkpoint a reader only has more versions to read.
                let _ = checkpoint::write(&table_directory, &opened, log.next);
            }
            return Ok(problems);
        }
    }
    let message = "other processes keep committing to the log; try again".to_owned();
    Err(LakeError::Delta { path: directory, message })
}

/// Writes a version; false where another process was first.
fn commit(directory: &Directory, name: &str, text: &str) -> io::Result<bool> {
    let mut draft = directory.draft(name)?;
    draft.file().write_all(text.as_bytes())?;
    // A version that is empty after a power failure would end the log.
    draft.file().sync_data()?;
    Ok(draft.place_new()?.is_some())
}

/// The marks beside a table, while its log is brought up to date.
struct MarksOfTable {
    table: Table,
    saved: SavedMarks,
    files: Vec<PartFile>,
}

impl MarksOfTable {
    fn of(lake: &Path, table: Table) -> Result<Self, LakeError> {
        let saved = SavedMarks::of(lake)?;
        let files = saved.files(table, None);
        Ok(MarksOfTable { table, saved, files })
    }

    /// Saves the marks of the files of ours that are new to the log, and of those that it has or had and whose marks are not saved yet: an earlier release
    /// did not, and a file that another program has given up may be deleted at any time.
    fn save(
        &self,
        new: &[NewFile<'_>],
        on_disk: &[PartFile],
        is_known: &dyn Fn(&String) -> bool,
    ) -> Result<(), LakeError> {
        let saved: BTreeSet<String> = self.files.iter().map(PartFile::relative).collect();
        for file in new.iter().filter(|file| !saved.contains(&file.path)) {
            self.saved.save(self.table, file.file, &file.marks)?;
        }
        for file in on_disk.iter().filter(|file| is_own_name(&file.name())) {
            let path = file.relative();
            // One that cannot be read has no marks to save.
            if is_known(&path)
                && !saved.contains(&path)
                && let Ok(Some(file)) = NewFile::of(file)
            {
                self.saved.save(self.table, file.file, &file.marks)?;
            }
        }
        Ok(())
    }

    /// Removes the saved marks of files that the log has and that are gone, replaced or about to expire. One that is gone was removed by hand: its rows are
    /// published again.
    fn forget(&self, is_gone: &dyn Fn(&String) -> bool) -> Result<(), LakeError> {
        let mut gone = self.files.iter().filter(|file| is_gone(&file.relative()));
        gone.try_for_each(|file| self.saved.remove(self.table, file))
    }
}

/// The path below the table of a path in the log, which is a URI. An absolute one stays absolute.
fn on_disk_path(path: &str) -> String {
    unescaped(path)
}

/// Whether a path below the table is one of a file that stormlog writes: of a partition, with a name that no other program gives.
fn is_our_path(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let [date, job, name] = parts[..] else { return false };
    date.starts_with("date=") && job.starts_with("job_id=") && is_own_name(name)
}

/// The files that a file was merged from, below the table; none where it cannot be read.
pub(crate) fn replaced_by(file: &PartFile) -> Vec<String> {
    TableFile::open(&file.path).map(|open| replaces(file, &open)).unwrap_or_default()
}

fn replaces(file: &PartFile, open: &TableFile) -> Vec<String> {
    let names = open.metadata(REPLACES_KEY).and_then(|names| serde_json::from_str(names).ok());
    let names: Vec<String> = names.unwrap_or_default();
    let path = file.relative();
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    names.iter().map(|name| format!("{directory}/{name}")).collect()
}

/// A file of ours that the log does not have.
struct NewFile<'a> {
    file: &'a PartFile,
    /// Below the table.
    path: String,
    stats: String,
    marks: String,
    /// The files that it was merged from, below the table.
    replaces: Vec<String>,
}

impl<'a> NewFile<'a> {
    /// `None` where another program wrote it, which commits its files itself.
    fn of(file: &'a PartFile) -> Result<Option<Self>, StoreError> {
        let open = TableFile::open(&file.path)?;
        if open.metadata(VERSION_KEY).is_none() {
            return Ok(None);
        }
        let (mut lowest, mut highest) = (serde_json::Map::new(), serde_json::Map::new());
        for column in RANGED {
            let ranges: Option<Vec<(i64, i64)>> =
                (0..open.groups()).map(|group| open.range(group, column)).collect();
            let Some(range) =
                ranges.and_then(|ranges| ranges.into_iter().reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))))
            else {
                continue;
            };
            lowest.insert(column.to_owned(), bound(column, range.0));
            highest.insert(column.to_owned(), bound(column, range.1));
        }
        let stats = json!({"numRecords": open.rows(), "minValues": lowest, "maxValues": highest}).to_string();
        let marks = open.metadata(marks::KEY).unwrap_or("[]").to_owned();
        let (path, replaces) = (file.relative(), replaces(file, &open));
        Ok(Some(NewFile { file, stats, marks, replaces, path }))
    }

    fn is_merge_of(&self, active: &BTreeSet<String>) -> bool {
        !self.replaces.is_empty() && self.replaces.iter().all(|path| active.contains(path))
    }

    /// The action that adds it.
    fn add(&self, is_change: bool) -> Value {
        let modified = std::fs::metadata(&self.file.path).ok().and_then(|metadata| metadata.modified().ok());
        let modified = modified.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        json!({"add": {
            // A URI: the escapes of our own names are escaped.
            "path": self.path.replace('%', "%25"),
            "partitionValues": {"date": self.file.partition.date(), "job_id": self.file.partition.job_id()},
            "size": self.file.bytes,
            "modificationTime": modified.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0)),
            "dataChange": is_change,
            "stats": self.stats,
        }})
    }
}

/// A bound in the statistics; times are cut to milliseconds, as the protocol has it.
fn bound(column: &str, value: i64) -> Value {
    if column != "ts" {
        return value.into();
    }
    let moment = jiff::Timestamp::from_microsecond(value).unwrap_or_default();
    moment.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string().into()
}

/// The action that states the schema. What a table has besides it (its id, properties that another program set) stays as it is.
fn metadata(table: Table, log: &Log) -> Value {
    let field =
        |name: &str, kind: &str| json!({"name": name, "type": kind, "nullable": true, "metadata": {}});
    let kind = |kind: Kind| match kind {
        Kind::Integer => "long",
        Kind::Float => "double",
        Kind::Text => "string",
        Kind::Time => "timestamp",
        Kind::Boolean => "boolean",
    };
    let mut fields: Vec<Value> =
        table.columns().iter().map(|column| field(column.name, kind(column.kind))).collect();
    fields.push(field("date", "date"));
    let schema = json!({"type": "struct", "fields": fields});
    let mut content = json!({
        // Of two processes that begin a log, one commits; a stream that is given the table of another lake notices it by the id.
        "id": log.id.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string()),
        "name": table.name(),
        "format": {"provider": "parquet", "options": {}},
        "partitionColumns": ["date", "job_id"],
        "configuration": {},
        "createdTime": stormlog_store::wall_ns() / 1_000_000,
    });
    if let (Some(known), Some(content)) =
        (log.metadata.as_ref().and_then(Value::as_object), content.as_object_mut())
    {
        content.extend(known.clone());
    }
    content["schemaString"] = schema.to_string().into();
    json!({"metaData": content})
}
