//! Compaction: the small files of a partition become files of 64 to 512 MB, sorted as before.
//!
//! With a Delta log the merged files and those they replace change in one version of the log. Without one, the partition is built again in a directory beside the
//! tables, which then changes places with it in one step; publishers are kept out meanwhile. Must never show a row twice or not at all, and never lose a
//! file that another program wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use stormlog_files::Directory;

use crate::directories::{self, make_partition, remove_part};
use crate::layout::{OWN_DIRECTORY, PartFile, Partition, part_files, sweep_unfinished};
use crate::lock::{LakeLock, check_version};
use crate::merge::{MergeInput, Unfit, buckets, merge};
use crate::read::table_files;
use crate::rows::Problem;
use crate::saved_marks::SavedMarks;
use crate::schema::Table;
use crate::{LakeError, delta};

/// Files below this size are merged.
const SMALL: u64 = 64 << 20;
/// Times that the files of a partition are merged again; up to 256 become one each time.
const PASSES: usize = 4;
/// Merged bytes that one version of a Delta log brings in: until then they are on disk twice.
const COMMIT_BYTES: u64 = 1 << 30;
const WORK_DIRECTORY: &str = "compact";

/// What was merged.
#[derive(Debug, Default)]
pub struct CompactReport {
    /// Partitions that were changed.
    pub partitions: u64,
    /// Files before, in those partitions.
    pub files_before: u64,
    /// Files after.
    pub files_after: u64,
    /// Bytes before.
    pub bytes_before: u64,
    /// Bytes after.
    pub bytes_after: u64,
    /// Files that could not be merged, and stay as they are.
    pub problems: Vec<Problem>,
}

impl CompactReport {
    fn problem(&mut self, path: &Path, sentence: String) {
        self.problems.push(Problem { path: path.to_owned(), sentence, lost: 0 });
    }
}

/// Merges the small files of a lake. Refused while runs are being published.
pub fn compact(lake: &Path) -> Result<CompactReport, LakeError> {
    let lake = &directories::named_by_user(lake);
    check_version(lake)?;
    let _lock = LakeLock::alone(lake)?;
    let opened = directories::lake(lake).map_err(io(lake))?;
    // By its handle first: nothing is removed through a link.
    let work = opened.existing(OWN_DIRECTORY).map_err(io(lake))?.path().join(WORK_DIRECTORY);
    remove_all(&work)?;
    let mut report = CompactReport::default();
    for table in Table::ALL {
        sweep_unfinished(&opened, table, None);
        let is_delta = delta::has_log(lake, table);
        if is_delta {
            // What an interrupted publication or merge left is brought in first.
            finish_replacements(lake, &opened, table, &mut report)?;
        }
        let mut partitions: BTreeMap<Partition, Vec<PartFile>> = BTreeMap::new();
        for file in table_files(lake, table)? {
            partitions.entry(file.partition.clone()).or_default().push(file);
        }
        let mut pending = Vec::new();
        for (partition, files) in partitions {
            let files_before = files.len() as u64;
            let bytes_before: u64 = files.iter().map(|file| file.bytes).sum();
            let Some(merged) = merge_partition(lake, &opened, table, &partition, files, &mut report)? else {
                continue;
            };
            report.partitions += 1;
            report.files_before += files_before;
            report.bytes_before += bytes_before;
            report.files_after += files_before + merged.new.len() as u64 - merged.replaced.len() as u64;
            report.bytes_after += bytes_before + size(&merged.new) - size(&merged.replaced);
            if is_delta {
                pending.push(merged);
                if pending.iter().map(|merged| size(&merged.new)).sum::<u64>() >= COMMIT_BYTES {
                    place_by_log(lake, &opened, table, std::mem::take(&mut pending))?;
                }
            } else {
                exchange(&opened, table, &partition, &merged)?;
            }
        }
        place_by_log(lake, &opened, table, pending)?;
    }
    remove_all(&work)?;
    Ok(report)
}

fn size(files: &[PartFile]) -> u64 {
    files.iter().map(|file| file.bytes).sum()
}

/// A partition whose merged files are ready and not in place yet.
struct MergedPartition {
    /// Its directory.
    target: PathBuf,
    /// Where the merged files are.
    scratch: Directory,
    new: Vec<PartFile>,
    replaced: Vec<PartFile>,
}

/// Merges the files of a partition; `None` where there is nothing to merge.
fn merge_partition(
    lake: &Path,
    opened: &Directory,
    table: Table,
    partition: &Partition,
    files: Vec<PartFile>,
    report: &mut CompactReport,
) -> Result<Option<MergedPartition>, LakeError> {
    let target = lake.join(table.name()).join(partition.path());
    let is_delta = delta::has_log(lake, table);
    let small = files.into_iter().filter(|file| file.bytes < SMALL);
    let mut inputs = Vec::new();
    for found in small.map(MergeInput::of) {
        match found {
            Ok(input) => inputs.push(input),
            Err(unfit) => report.problems.push(why_left(&unfit.0.path, &unfit.1)),
        }
    }
    if inputs.len() < 2 {
        return Ok(None);
    }
    if let Some(other) = if is_delta { None } else { not_a_file(&target)? } {
        let sentence = "neither a file of the lake nor another regular file: the partition is not merged; move it elsewhere";
        report.problem(&other, sentence.to_owned());
        return Ok(None);
    }
    let before: BTreeSet<PathBuf> = inputs.iter().map(|input| input.file.path.clone()).collect();
    let mut replaced: Vec<PartFile> = inputs.iter().map(|input| input.file.clone()).collect();
    let work = opened.existing(OWN_DIRECTORY).and_then(|own| own.directory(WORK_DIRECTORY));
    let scratch = work.and_then(|work| make_partition(&work, table, partition));
    let scratch = scratch.map_err(io(&target))?;
    // What an earlier pass made is in the scratch directory only.
    for _ in 0..PASSES {
        let groups = buckets(inputs);
        let is_done = groups.iter().all(|group| group.len() < 2);
        inputs = Vec::new();
        for mut group in groups {
            if group.len() < 2 {
                inputs.append(&mut group);
                continue;
            }
            inputs.push(merge(table, &group, partition, is_delta, &scratch)?);
            let made = group.iter().filter(|input| !before.contains(&input.file.path));
            for file in made.map(|input| &input.file) {
                scratch.remove(file.name()).map_err(io(&file.path))?;
            }
        }
        if is_done {
            break;
        }
    }
    let (kept, new): (Vec<PartFile>, Vec<PartFile>) =
        inputs.into_iter().map(|input| input.file).partition(|file| before.contains(&file.path));
    let kept: BTreeSet<PathBuf> = kept.into_iter().map(|file| file.path).collect();
    replaced.retain(|file| !kept.contains(&file.path));
    Ok((!new.is_empty()).then_some(MergedPartition { target, scratch, new, replaced }))
}

fn why_left(path: &Path, unfit: &Unfit) -> Problem {
    let error: &dyn std::fmt::Display = match unfit {
        Unfit::Foreign => &"not written by stormlog: it is left as it is",
        Unfit::Later(version) => &format!(
            "schema version {version}, which a later release wrote: it is left as it is; update stormlog"
        ),
        Unfit::Damaged(error) => error,
    };
    Problem::of_error(path, error)
}

/// Something in a directory that is not a regular file.
fn not_a_file(directory: &Path) -> Result<Option<PathBuf>, LakeError> {
    for entry in std::fs::read_dir(directory).map_err(io(directory))? {
        let entry = entry.map_err(io(directory))?;
        if !entry.file_type().map_err(io(&entry.path()))?.is_file() {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

/// Without a Delta log: the partition is built beside the tables of the files that stay (also those of other writers) and the new ones; then both directories change
/// places.
fn exchange(
    opened: &Directory,
    table: Table,
    partition: &Partition,
    merged: &MergedPartition,
) -> Result<(), LakeError> {
    let [date, job] = partition.names();
    let scratch = opened.existing(OWN_DIRECTORY).and_then(|own| own.existing(WORK_DIRECTORY));
    let scratch = scratch.and_then(|work| work.directory("new")).map_err(io(&merged.target))?;
    let finished = scratch.directory(&job).map_err(io(&merged.target))?.path().to_owned();
    let replaced: BTreeSet<OsString> =
        merged.replaced.iter().filter_map(|file| file.path.file_name().map(OsString::from)).collect();
    keep_access(&merged.target, &finished).map_err(io(&merged.target))?;
    link_others(&merged.target, &finished, &replaced)?;
    for file in &merged.new {
        std::fs::hard_link(&file.path, finished.join(file.name())).map_err(io(&file.path))?;
    }
    let parent = opened.existing(table.name()).and_then(|table| table.existing(date));
    parent.and_then(|parent| scratch.exchange(&job, &parent, &job)).map_err(|error| {
        let reason = "this file system cannot exchange two directories in one step; publish with --delta to merge files through its log";
        let source = std::io::Error::new(error.kind(), format!("{error}: {reason}"));
        LakeError::Io { path: merged.target.clone(), source }
    })?;
    // What another program wrote meanwhile.
    link_others(&finished, &merged.target, &replaced)?;
    remove_all(&finished)?;
    remove_all(merged.scratch.path())
}

/// Gives a directory the group and the mode of the one whose place it takes.
fn keep_access(from: &Path, to: &Path) -> std::io::Result<()> {
    let there = std::fs::metadata(from)?;
    // Only a member of the group may. Before the mode: it takes the set-group-ID bit off.
    let _ = std::os::unix::fs::chown(to, None, Some(there.gid()));
    std::fs::set_permissions(to, there.permissions())
}

/// Gives the files of a directory a second name in another, but for some. One that is there already is the same.
fn link_others(from: &Path, to: &Path, but: &BTreeSet<OsString>) -> Result<(), LakeError> {
    for entry in std::fs::read_dir(from).map_err(io(from))? {
        let entry = entry.map_err(io(from))?;
        if but.contains(&entry.file_name()) {
            continue;
        }
        match std::fs::hard_link(entry.path(), to.join(entry.file_name())) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(LakeError::Io { path: entry.path(), source: error });
            }
            _ => {}
        }
    }
    Ok(())
}

/// With a Delta log: the new files state what they replace, one version changes both, then the old ones go.
fn place_by_log(
    lake: &Path,
    opened: &Directory,
    table: Table,
    partitions: Vec<MergedPartition>,
) -> Result<(), LakeError> {
    if partitions.is_empty() {
        return Ok(());
    }
    for merged in &partitions {
        for file in &merged.new {
            let place = directories::partition(opened, table, &file.partition);
            let placed = place.and_then(|place| merged.scratch.rename(file.name(), &place, file.name()));
            placed.map_err(io(&merged.target))?;
        }
    }
    delta::sync(lake, table)?;
    for merged in &partitions {
        for file in &merged.replaced {
            remove_part(opened, table, file).map_err(io(&file.path))?;
        }
        remove_all(merged.scratch.path())?;
    }
    Ok(())
}

/// Brings the log up to date, and removes the files that a merged one replaces: an earlier merge was killed before it could. Other files that the log has
/// given up are of the program that gave them up: it may return to a version that has them, and deletes them itself.
fn finish_replacements(
    lake: &Path,
    opened: &Directory,
    table: Table,
    report: &mut CompactReport,
) -> Result<(), LakeError> {
    report.problems.extend(delta::sync(lake, table)?);
    let active: BTreeSet<String> =
        delta::active_files(lake, table)?.unwrap_or_default().into_iter().collect();
    let (files, given_up): (Vec<PartFile>, Vec<PartFile>) =
        part_files(lake, table, None).into_iter().partition(|file| active.contains(&file.relative()));
    let partitions: BTreeSet<&Partition> = given_up.iter().map(|file| &file.partition).collect();
    let mut replaced = BTreeSet::new();
    for file in files.iter().filter(|file| partitions.contains(&file.partition)) {
        replaced.extend(delta::replaced_by(file));
    }
    let saved = SavedMarks::of(lake)?;
    for file in given_up.iter().filter(|file| replaced.contains(&file.relative())) {
        saved.remove(table, file)?;
        remove_part(opened, table, file).map_err(io(&file.path))?;
    }
    Ok(())
}

fn remove_all(path: &Path) -> Result<(), LakeError> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io(path)(error)),
        _ => Ok(()),
    }
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> LakeError {
    let path = path.to_owned();
    move |source| LakeError::Io { path, source }
}
