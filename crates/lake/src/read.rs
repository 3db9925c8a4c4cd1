//! Reading a lake: the files of a table as they are visible now, and batches of some of its columns. Must never read a column that is not asked for.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use stormlog_store::{TableColumn, TableFile};

use crate::layout::{PartFile, part_files};
use crate::lock::check_version;
use crate::rows::{Problem, Stop};
use crate::schema::Table;
use crate::{LakeError, delta};

/// One row group of some columns.
pub struct Batch<'a> {
    /// The file it is of.
    pub file: &'a PartFile,
    /// Its rows.
    pub rows: usize,
    /// The columns in the order asked for.
    pub columns: &'a [TableColumn],
}

/// The files of a table: those of its Delta log where it has one.
pub fn table_files(lake: &Path, table: Table) -> Result<Vec<PartFile>, LakeError> {
    check_version(lake)?;
    let mut files = part_files(lake, table, None);
    if let Some(active) = delta::active_files(lake, table)? {
        let active: BTreeSet<String> = active.into_iter().collect();
        files.retain(|file| active.contains(&file.relative()));
    }
    Ok(files)
}

/// Reads some columns of a table, a row group at a time, in the order of days, jobs and files. Files that are damaged are reported and left out.
pub fn scan(
    lake: &Path,
    table: Table,
    columns: &[&str],
    visit: &mut dyn FnMut(&Batch<'_>) -> Result<(), Stop>,
) -> Result<Vec<Problem>, LakeError> {
    let mut problems = Vec::new();
    for file in table_files(lake, table)? {
        let open = match TableFile::open(&file.path) {
            Ok(open) => open,
            Err(error) => {
                problems.push(Problem::of_error(&file.path, &error));
                continue;
            }
        };
        for group in 0..open.groups() {
            match open.read_group(group, columns) {
                Ok(read) => {
                    let batch = Batch { file: &file, rows: open.group_rows(group), columns: &read };
                    if visit(&batch) == Err(Stop) {
                        return Ok(problems);
                    }
                }
                Err(error) => {
                    let lost = open.group_rows(group) as u64;
                    problems.push(Problem { lost, ..Problem::of_error(&file.path, &error) });
                }
            }
        }
    }
    Ok(problems)
}

/// What a table holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableInfo {
    /// Files that can be read.
    pub paths: Vec<PathBuf>,
    /// Files.
    pub files: u64,
    /// Their size.
    pub bytes: u64,
    /// Their rows.
    pub rows: u64,
    /// Jobs.
    pub jobs: u64,
    /// First and last day.
    pub dates: Option<(String, String)>,
    /// Files that cannot be read.
    pub damaged: Vec<Problem>,
    /// Whether it has a Delta log.
    pub is_delta: bool,
}

/// What a table of a lake holds, by the footers of its files.
pub fn table_info(lake: &Path, table: Table) -> Result<TableInfo, LakeError> {
    let files = table_files(lake, table)?;
    let jobs = files.iter().map(|file| file.partition.job.as_str()).collect::<BTreeSet<&str>>().len();
    let mut info = TableInfo {
        files: files.len() as u64,
        bytes: files.iter().map(|file| file.bytes).sum(),
        jobs: jobs as u64,
        dates: files.first().zip(files.last()).map(|(a, b)| (a.partition.date(), b.partition.date())),
        is_delta: delta::has_log(lake, table),
        ..TableInfo::default()
    };
    for file in files {
        match TableFile::open(&file.path) {
            Ok(open) => {
                info.rows += open.rows();
                info.paths.push(file.path);
            }
            Err(error) => info.damaged.push(Problem::of_error(&file.path, &error)),
        }
    }
    Ok(info)
}
