//! Marks beside the tables: `_stormlog/marks/TABLE/date=…/job_id=…/PART.json`, for each file of ours that a Delta log has or had.
//!
//! The footer of a file states what it has; but another program that rewrites a Delta table (OPTIMIZE) copies no footers, and deletes the old files later
//! (VACUUM). Without these copies their rows would be published again. A copy is removed when Stormlog itself replaces or expires the file, or finds that a
//! file is gone that the log still has.

use std::io::{self, Read as _, Write as _};
use std::path::Path;

use stormlog_files::Directory;

use crate::LakeError;
use crate::directories::{make_partition, own, partition, remove_part};
use crate::layout::{OWN_DIRECTORY, PartFile, files_below, is_part_name};
use crate::schema::Table;

const DIRECTORY: &str = "marks";
const SUFFIX: &str = ".json";
/// A merged file has at most some hundred thousand sessions.
const MOST_BYTES: u64 = 256 << 20;

/// The saved marks of a lake.
pub(crate) struct SavedMarks {
    directory: Directory,
}

impl SavedMarks {
    /// Those of a lake, which may be none.
    pub(crate) fn of(lake: &Path) -> Result<Self, LakeError> {
        let opened = own(lake).and_then(|own| own.directory(DIRECTORY));
        match opened {
            Ok(directory) => Ok(SavedMarks { directory }),
            Err(source) => Err(LakeError::Io { path: lake.join(OWN_DIRECTORY).join(DIRECTORY), source }),
        }
    }

    /// Saves the marks of a file, whole and on disk.
    pub(crate) fn save(&self, table: Table, file: &PartFile, marks: &str) -> Result<(), LakeError> {
        let saved = make_partition(&self.directory, table, &file.partition).and_then(|directory| {
            let mut draft = directory.draft(saved_name(file))?;
            draft.file().write_all(marks.as_bytes())?;
            draft.file().sync_data()?;
            draft.place().map(drop)
        });
        saved.map_err(|source| self.wrong(source))
    }

    /// The files whose marks are saved; their paths are those of the saved marks. `job`: of one job only, as it is in the path.
    pub(crate) fn files(&self, table: Table, job: Option<&str>) -> Vec<PartFile> {
        let is_saved = |name: &str| name.strip_suffix(SUFFIX).is_some_and(is_part_name);
        let saved = files_below(self.directory.path(), table, job, &is_saved);
        // Without the suffix a path has the name of the file.
        saved.into_iter().map(|file| PartFile { path: file.path.with_extension(""), ..file }).collect()
    }

    /// The saved marks of a file.
    pub(crate) fn read(&self, table: Table, file: &PartFile) -> io::Result<String> {
        let mut text = String::new();
        let open = partition(&self.directory, table, &file.partition)?.open_to_read(saved_name(file))?;
        open.take(MOST_BYTES).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Removes the saved marks of a file. Before the file itself is removed: an interruption then leaves a file that states them.
    pub(crate) fn remove(&self, table: Table, file: &PartFile) -> Result<(), LakeError> {
        let saved = PartFile { path: file.path.with_file_name(saved_name(file)), ..file.clone() };
        remove_part(&self.directory, table, &saved).map_err(|source| self.wrong(source))
    }

    fn wrong(&self, source: io::Error) -> LakeError {
        LakeError::Io { path: self.directory.path().to_owned(), source }
    }
}

fn saved_name(file: &PartFile) -> String {
    format!("{}{SUFFIX}", file.name())
}
