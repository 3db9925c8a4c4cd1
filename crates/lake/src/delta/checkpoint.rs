//! Checkpoints of a Delta log: the state of a table at a version as one Parquet file, so that a reader does not begin at version 0.
//!
//! What our logs do not have (table properties, transactions of other programs) a checkpoint has no place for: where they occur none is written. Of the files
//! that the log has given up, only those are kept that are still on disk.

use std::path::Path;

use serde_json::{Value, json};
use stormlog_files::Directory;
use stormlog_parquet::{Leaf, LeafValues, write_leaves};

use super::log::{Log, READER_VERSION, WRITER_VERSION};
use super::on_disk_path;
use crate::LakeError;
use crate::layout::Partition;

/// Versions from one checkpoint to the next, as Spark has it.
pub(super) const INTERVAL: u64 = 10;
pub(super) const SUFFIX: &str = ".checkpoint.parquet";
/// The `metaData` action as text, in the metadata of our own checkpoints: those of others are read, and not continued by one of ours.
pub(super) const METADATA_KEY: &str = "stormlog.metadata";
/// The columns that are read of a checkpoint.
pub(super) const READ: [&str; 9] = [
    "add.path",
    "add.size",
    "add.modificationTime",
    "add.stats",
    "remove.path",
    "metaData.schemaString",
    "protocol.minReaderVersion",
    "protocol.minWriterVersion",
    "metaData.id",
];
const LAST: &str = "_last_checkpoint";
const SCHEMA: &str = "
message checkpoint {
  optional group protocol { required int32 minReaderVersion; required int32 minWriterVersion; }
  optional group metaData {
    optional binary id (STRING);
    optional binary name (STRING);
    optional binary description (STRING);
    optional group format {
      optional binary provider (STRING);
      optional group options (MAP) { repeated group key_value { required binary key (STRING); optional binary value (STRING); } }
    }
    optional binary schemaString (STRING);
    optional group partitionColumns (LIST) { repeated group list { optional binary element (STRING); } }
    optional group configuration (MAP) { repeated group key_value { required binary key (STRING); optional binary value (STRING); } }
    optional int64 createdTime;
  }
  optional group add {
    optional binary path (STRING);
    optional group partitionValues (MAP) { repeated group key_value { required binary key (STRING); optional binary value (STRING); } }
    optional int64 size;
    optional int64 modificationTime;
    optional boolean dataChange;
    optional binary stats (STRING);
  }
  optional group remove { optional binary path (STRING); optional int64 deletionTimestamp; optional boolean dataChange; }
}";

/// Writes the checkpoint of a version that is committed. False where the log holds what a checkpoint of ours would lose.
pub(super) fn write(table: &Path, directory: &Directory, version: u64) -> Result<bool, LakeError> {
    let mut log = Log::read(directory.path(), Some(version))?;
    let Some(metadata) = log.metadata.take().filter(|_| !log.has_more && log.next == version + 1) else {
        return Ok(false);
    };
    log.given_up.retain(|path| table.join(on_disk_path(path)).exists());
    let name = format!("{version:020}{SUFFIX}");
    let path = directory.path().join(&name);
    let io = |source| LakeError::Io { path: path.clone(), source };
    if directory.has(&name) {
        return Ok(true);
    }
    let mut draft = directory.draft(&name).map_err(io)?;
    let file = draft.file().try_clone().map_err(io)?;
    let actions = 2 + log.active.len() + log.given_up.len();
    let texts = [(METADATA_KEY, metadata.to_string())];
    let file = write_leaves(file, SCHEMA, leaves(&log, &metadata), &texts)
        .map_err(|error| LakeError::Encoding { path: path.clone(), message: error.to_string() })?;
    file.sync_data().map_err(io)?;
    // Another process may have been first.
    draft.place_new().map_err(io)?;
    let last = format!("{}\n", json!({"version": version, "size": actions}));
    directory.replace(LAST, last.as_bytes()).map_err(io)?;
    Ok(true)
}

/// The rows: the protocol, the metadata, then a file each.
fn leaves(log: &Log, metadata: &Value) -> Vec<Leaf> {
    let (adds, removes) = (log.active.len(), log.given_up.len());
    let text = |key: &str| metadata.get(key).and_then(Value::as_str).map(str::to_owned);
    let provider = metadata.get("format").and_then(|format| format.get("provider")?.as_str());
    let columns = metadata.get("partitionColumns").and_then(Value::as_array).into_iter().flatten();
    let columns: Vec<String> = columns.filter_map(Value::as_str).map(str::to_owned).collect();
    let created = metadata.get("createdTime").and_then(Value::as_i64);
    // Rows of other actions before and after those of a column.
    let (of_protocol, of_metadata) = ((0, 1 + adds + removes), (1, adds + removes));
    let (of_add, of_remove) = ((2, removes), (2 + adds, 0));
    let metadata_text = |value: Option<String>| optional(of_metadata, vec![value], 2, LeafValues::Texts);
    let added = || log.active.values();
    let now_ms = i64::try_from(stormlog_store::wall_ns() / 1_000_000).unwrap_or(0);
    vec![
        optional(of_protocol, vec![i32::try_from(READER_VERSION).ok()], 1, LeafValues::Shorts),
        optional(of_protocol, vec![i32::try_from(WRITER_VERSION).ok()], 1, LeafValues::Shorts),
        metadata_text(text("id")),
        metadata_text(text("name")),
        metadata_text(text("description")),
        optional(of_metadata, vec![provider.map(str::to_owned)], 3, LeafValues::Texts),
        // Maps that are there and empty.
        repeated(of_metadata, vec![Vec::new()], (3, 4)),
        repeated(of_metadata, vec![Vec::new()], (3, 5)),
        metadata_text(text("schemaString")),
        repeated(of_metadata, vec![columns], (2, 4)),
        repeated(of_metadata, vec![Vec::new()], (2, 3)),
        repeated(of_metadata, vec![Vec::new()], (2, 4)),
        optional(of_metadata, vec![created], 2, LeafValues::Integers),
        optional(of_add, log.active.keys().cloned().map(Some).collect(), 2, LeafValues::Texts),
        repeated(of_add, added().map(|_| vec!["date".to_owned(), "job_id".to_owned()]).collect(), (2, 3)),
        repeated(of_add, log.active.keys().map(|path| partition_values(path)).collect(), (2, 4)),
        optional(of_add, added().map(|file| Some(file.bytes)).collect(), 2, LeafValues::Integers),
        optional(of_add, added().map(|file| Some(file.modified_ms)).collect(), 2, LeafValues::Integers),
        // A checkpoint changes no data.
        optional(of_add, vec![Some(false); adds], 2, LeafValues::Booleans),
        optional(of_add, added().map(|file| file.stats.clone()).collect(), 2, LeafValues::Texts),
        optional(of_remove, log.given_up.iter().cloned().map(Some).collect(), 2, LeafValues::Texts),
        optional(of_remove, vec![Some(now_ms); removes], 2, LeafValues::Integers),
        optional(of_remove, vec![Some(false); removes], 2, LeafValues::Booleans),
    ]
}

/// A field of a group: `most` is its level where it is known, one less where only its group is there.
fn optional<T>(
    (before, after): (usize, usize),
    values: Vec<Option<T>>,
    most: i16,
    kind: impl Fn(Vec<T>) -> LeafValues,
) -> Leaf {
    let known = values.iter().map(|value| most - i16::from(value.is_none()));
    let none = |count: usize| std::iter::repeat_n(0, count);
    let levels = none(before).chain(known).chain(none(after)).collect();
    Leaf { values: kind(values.into_iter().flatten().collect()), levels, repeats: None }
}

/// A list or a side of a map: levels of one that is empty, and of an element.
fn repeated((before, after): (usize, usize), values: Vec<Vec<String>>, (empty, most): (i16, i16)) -> Leaf {
    let (mut levels, mut repeats) = (vec![0; before], vec![0; before]);
    for list in &values {
        let count = list.len().max(1);
        levels.extend(std::iter::repeat_n(if list.is_empty() { empty } else { most }, count));
        repeats.extend((0..count).map(|at| i16::from(at > 0)));
    }
    levels.extend(std::iter::repeat_n(0, after));
    repeats.extend(std::iter::repeat_n(0, after));
    let texts = values.into_iter().flatten().collect();
    Leaf { values: LeafValues::Texts(texts), levels, repeats: Some(repeats) }
}

/// `date` and `job_id` of a path in the log.
fn partition_values(path: &str) -> Vec<String> {
    let path = on_disk_path(path);
    let value = |name: &str| path.split('/').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    let job = value("job_id").unwrap_or("").to_owned();
    let job_id = Partition { day: 0, job }.job_id();
    vec![value("date").unwrap_or("").to_owned(), job_id]
}
