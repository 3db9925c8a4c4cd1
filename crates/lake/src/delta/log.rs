//! A Delta log as it is: the newest checkpoint that can be read, and the versions after it. Must never write.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::Path;

use serde_json::Value;
use stormlog_files::Directory;
use stormlog_store::TableFile;

use super::checkpoint;
use crate::LakeError;

/// The protocol of the logs that we write.
pub(super) const READER_VERSION: u64 = 1;
pub(super) const WRITER_VERSION: u64 = 2;

/// Spark writes a few hundred bytes a file into a version.
const MOST_VERSION_BYTES: u64 = 256 << 20;

/// A file that the log has.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Added {
    pub(super) bytes: i64,
    pub(super) modified_ms: i64,
    pub(super) stats: Option<String>,
}

/// The log up to a version.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The next version.
    pub(super) next: u64,
    /// Files of the table, as the log writes their paths.
    pub(super) active: BTreeMap<String, Added>,
    /// Files that it had, as far as they are remembered.
    pub(super) given_up: BTreeSet<String>,
    /// Columns of the table.
    pub(super) columns: usize,
    /// The last `metaData` action.
    pub(super) metadata: Option<Value>,
    /// The id of the table.
    pub(super) id: Option<String>,
    /// What other programs state in a log and our checkpoints have no place for.
    pub(super) has_more: bool,
    /// The versions for readers and writers that it states.
    pub(super) protocol: Option<(u64, u64)>,
}

impl Log {
    /// Reads the log in a directory, up to a version where one is given.
    pub(super) fn read(directory: &Path, up_to: Option<u64>) -> Result<Self, LakeError> {
        let (mut versions, mut checkpoints) = (Vec::new(), Vec::new());
        let wrong = |source| LakeError::Io { path: directory.to_owned(), source };
        let opened = Directory::open(directory).map_err(wrong)?;
        let is_wanted = |version: &u64| up_to.is_none_or(|last| *version <= last);
        for entry in std::fs::read_dir(directory).map_err(wrong)? {
            let name = entry.map_err(wrong)?.file_name();
            let Some(name) = name.to_str() else { continue };
            let number = |suffix: &str| name.strip_suffix(suffix)?.parse::<u64>().ok().filter(is_wanted);
            versions.extend(number(".json"));
            checkpoints.extend(number(checkpoint::SUFFIX));
        }
        versions.sort_unstable();
        checkpoints.sort_unstable();
        let newest = checkpoints.into_iter().rev();
        let mut log = newest.into_iter().find_map(|at| Log::of_checkpoint(&opened, at)).unwrap_or_default();
        for version in versions {
            if version < log.next {
                continue;
            }
            if version != log.next {
                let message = format!(
                    "version {} is missing from the Delta log, and no checkpoint that stormlog reads has it: remove {} and publish again with --delta",
                    log.next,
                    directory.display()
                );
                return Err(LakeError::Delta { path: directory.to_owned(), message });
            }
            log.next += 1;
            log.take_version(&opened, version)?;
        }
        Ok(log)
    }

    /// A log whose protocol is newer than ours is read only by its active files; it is not continued.
    pub(super) fn check_protocol(&self, directory: &Path) -> Result<(), LakeError> {
        let (reader, writer) = self.protocol.unwrap_or_default();
        if reader <= READER_VERSION && writer <= WRITER_VERSION {
            return Ok(());
        }
        let message = format!(
            "another program raised the protocol of the Delta log to reader {reader} and writer {writer}; stormlog writes {READER_VERSION} and {WRITER_VERSION}: publish to another lake"
        );
        Err(LakeError::Delta { path: directory.to_owned(), message })
    }

    /// Takes in a version. The directory may be another user's: only a regular file is read, and a bounded part of it.
    fn take_version(&mut self, directory: &Directory, version: u64) -> Result<(), LakeError> {
        let name = format!("{version:020}.json");
        let path = directory.path().join(&name);
        let wrong = |source| LakeError::Io { path: path.clone(), source };
        let damaged = |what: String| {
            let message = format!(
                "{what}: restore it, or remove {} and publish again with --delta",
                directory.path().display()
            );
            LakeError::Delta { path: path.clone(), message }
        };
        let file = directory.open_to_read(&name).map_err(wrong)?;
        let mut bytes = Vec::new();
        file.take(MOST_VERSION_BYTES + 1).read_to_end(&mut bytes).map_err(wrong)?;
        if bytes.len() as u64 > MOST_VERSION_BYTES {
            return Err(damaged(format!("a version of more than {MOST_VERSION_BYTES} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|error| damaged(error.to_string()))?;
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let action = serde_json::from_str(line)
                .map_err(|error| damaged(format!("line {} is not a Delta action ({error})", number + 1)))?;
            self.take(action);
        }
        Ok(())
    }

    fn take(&mut self, action: serde_json::Map<String, Value>) {
        for (kind, content) in action {
            let path = || content.get("path").and_then(Value::as_str).map(str::to_owned);
            match kind.as_str() {
                "add" => {
                    let Some(path) = path() else { continue };
                    let integer = |key: &str| content.get(key).and_then(Value::as_i64).unwrap_or(0);
                    let stats = content.get("stats").and_then(Value::as_str).map(str::to_owned);
                    self.given_up.remove(&path);
                    let (bytes, modified_ms) = (integer("size"), integer("modificationTime"));
                    self.active.insert(path, Added { bytes, modified_ms, stats });
                }
                "remove" => {
                    let Some(path) = path() else { continue };
                    self.active.remove(&path);
                    self.given_up.insert(path);
                }
                "protocol" => {
                    let version = |key: &str| content.get(key).and_then(Value::as_u64).unwrap_or(0);
                    self.protocol = Some((version("minReaderVersion"), version("minWriterVersion")));
                }
                "metaData" => {
                    let configuration = content.get("configuration").and_then(Value::as_object);
                    self.has_more |= configuration.is_some_and(|all| !all.is_empty());
                    self.take_schema(content.get("schemaString").and_then(Value::as_str).unwrap_or(""));
                    self.id = content.get("id").and_then(Value::as_str).map(str::to_owned);
                    self.metadata = Some(content);
                }
                "commitInfo" => {}
                _ => self.has_more = true,
            }
        }
    }

    fn take_schema(&mut self, schema: &str) {
        let schema: Value = serde_json::from_str(schema).unwrap_or_default();
        if let Some(fields) = schema.get("fields").and_then(Value::as_array) {
            // The partitions' date is not a column of the files.
            self.columns = fields.len().saturating_sub(1);
        }
    }

    /// The state at a checkpoint; `None` where it cannot be read.
    fn of_checkpoint(directory: &Directory, version: u64) -> Option<Self> {
        let name = format!("{version:020}{}", checkpoint::SUFFIX);
        let file = directory.open_to_read(&name).ok()?;
        let open = TableFile::of_file(file, &directory.path().join(name)).ok()?;
        let mut log = Log { next: version + 1, ..Log::default() };
        log.metadata =
            open.metadata(checkpoint::METADATA_KEY).and_then(|text| serde_json::from_str(text).ok());
        log.has_more = log.metadata.is_none();
        for group in 0..open.groups() {
            let columns = open.read_group(group, &checkpoint::READ).ok()?;
            for row in 0..open.group_rows(group) {
                let text = |at: usize| columns[at].text(row);
                let integer = |at: usize| columns[at].integer(row);
                if let Some(path) = text(0) {
                    let stats = text(3).map(str::to_owned);
                    let added =
                        Added { bytes: integer(1).unwrap_or(0), modified_ms: integer(2).unwrap_or(0), stats };
                    log.active.insert(path.to_owned(), added);
                }
                log.given_up.extend(text(4).map(str::to_owned));
                if let Some(schema) = text(5) {
                    log.take_schema(schema);
                }
                if let Some(id) = text(8) {
                    log.id = Some(id.to_owned());
                }
                if let Some((reader, writer)) = integer(6).zip(integer(7)) {
                    let version = |value: i64| u64::try_from(value).unwrap_or(u64::MAX);
                    log.protocol = Some((version(reader), version(writer)));
                }
            }
        }
        Some(log)
    }
}
