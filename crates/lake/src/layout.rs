//! Where things are in a lake: `TABLE/date=YYYY-MM-DD/job_id=…/part-HOST-SEQ.parquet`, and `_stormlog/` for locks. Names with a leading `_` or `.` are
//! ignored by the engines that list directories. Must never follow a link below a lake.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use stormlog_files::{DRAFT_SUFFIX, Directory};

use crate::directories;
use crate::schema::Table;

/// The directory of locks, in the lake.
pub(crate) const OWN_DIRECTORY: &str = "_stormlog";
/// Nanoseconds of a day.
pub(crate) const DAY_NS: i64 = 86_400_000_000_000;
const PART_PREFIX: &str = "part-";
const PART_SUFFIX: &str = ".parquet";
/// A name may have 255 bytes.
const LONGEST_JOB: usize = 200;
const LONGEST_HOST: usize = 64;
/// Time, process and number in a name, in hexadecimal.
const NUMBER_DIGITS: usize = 16 + 8 + 4;

/// A partition of a table: a day and a job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    /// Days since 1970, UTC.
    pub day: i32,
    /// The job id as it is in the path.
    pub job: String,
}

impl Partition {
    /// The partition of a row.
    #[must_use]
    pub fn of(at_ns: i64, job_id: &str) -> Self {
        Partition { day: day_of(at_ns), job: escaped_job(job_id) }
    }

    /// `2026-11-16`.
    #[must_use]
    pub fn date(&self) -> String {
        date_of(self.day)
    }

    /// `date=2026-11-16/job_id=42`.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.names().iter().collect()
    }

    /// `date=2026-11-16` and `job_id=42`.
    pub(crate) fn names(&self) -> [String; 2] {
        [format!("date={}", self.date()), format!("job_id={}", self.job)]
    }

    /// The job id itself.
    #[must_use]
    pub fn job_id(&self) -> String {
        unescaped(&self.job)
    }
}

/// A file of a table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartFile {
    /// Its partition.
    pub partition: Partition,
    /// Where it is.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

impl PartFile {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Its path below the table, with slashes.
    #[must_use]
    pub fn relative(&self) -> String {
        format!("date={}/job_id={}/{}", self.partition.date(), self.partition.job, self.name())
    }
}

/// Whether a directory is a lake.
#[must_use]
pub fn is_lake(path: &Path) -> bool {
    path.join(OWN_DIRECTORY).join(crate::lock::LAKE_FILE).is_file()
}

/// The files of a table, by partition and name. `job`: of one job only, as it is in the path.
#[must_use]
pub fn part_files(lake: &Path, table: Table, job: Option<&str>) -> Vec<PartFile> {
    files_below(lake, table, job, &is_part_name)
}

/// The files with certain names in the partitions of a table below `root`.
pub(crate) fn files_below(
    root: &Path,
    table: Table,
    job: Option<&str>,
    is_wanted: &dyn Fn(&str) -> bool,
) -> Vec<PartFile> {
    let mut found = Vec::new();
    for (date, name) in directories_in(&root.join(table.name())) {
        let Some(day) = name.strip_prefix("date=").and_then(day_of_date) else { continue };
        let jobs = match job {
            Some(job) => {
                let name = format!("job_id={job}");
                let path = date.join(&name);
                is_directory(&path).then_some((path, name)).into_iter().collect()
            }
            None => directories_in(&date),
        };
        for (directory, name) in jobs {
            let Some(job) = name.strip_prefix("job_id=") else { continue };
            let partition = Partition { day, job: job.to_owned() };
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                let name = entry.file_name();
                if !name.to_str().is_some_and(is_wanted) {
                    continue;
                }
                if let Some(metadata) = entry.metadata().ok().filter(fs::Metadata::is_file) {
                    found.push(PartFile {
                        partition: partition.clone(),
                        path: entry.path(),
                        bytes: metadata.len(),
                    });
                }
            }
        }
    }
    found.sort();
    found
}

/// Whether a file of this name belongs to a table.
pub(crate) fn is_part_name(name: &str) -> bool {
    name.starts_with(PART_PREFIX) && name.ends_with(PART_SUFFIX)
}

/// Whether a name is one that [`part_name`] gives. Others call their files `part-…` too: Spark `part-00000-UUID.c000.snappy.parquet`.
pub(crate) fn is_own_name(name: &str) -> bool {
    let inner = name.strip_prefix(PART_PREFIX).and_then(|name| name.strip_suffix(PART_SUFFIX));
    let number = inner.and_then(|inner| inner.rsplit_once('-')).map_or("", |(_, number)| number);
    number.len() >= NUMBER_DIGITS && number.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Removes what killed publishers left of a table, or of one job in it: files that never got their name. Only while no publisher is active.
pub(crate) fn sweep_unfinished(lake: &Directory, table: Table, job: Option<&str>) {
    let is_draft = |name: &str| name.starts_with('.') && name.ends_with(DRAFT_SUFFIX);
    for draft in files_below(lake.path(), table, job, &is_draft) {
        // Left behind, it is ignored by every engine.
        let _ = directories::remove_part(lake, table, &draft);
    }
}

/// The directories in a directory; links are not followed, the path itself included.
fn directories_in(path: &Path) -> Vec<(PathBuf, String)> {
    if !is_directory(path) {
        return Vec::new();
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.filter_map(|entry| Some((entry.path(), entry.file_name().into_string().ok()?))).collect()
}

/// Whether it is a directory, and not a link to one.
pub(crate) fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|there| there.is_dir())
}

/// A name for a new file, unique by host, time, process and number.
pub(crate) fn part_name(host: &str, number: u64) -> String {
    let host: String = escaped(host).replace('%', "_").chars().take(LONGEST_HOST).collect();
    let host = if host.is_empty() { "host".to_owned() } else { host };
    let now_ns = stormlog_store::wall_ns();
    format!("{PART_PREFIX}{host}-{now_ns:016x}{:08x}{number:04x}{PART_SUFFIX}", std::process::id())
}

/// The day of a moment.
#[must_use]
pub fn day_of(at_ns: i64) -> i32 {
    i32::try_from(at_ns.div_euclid(DAY_NS)).unwrap_or(i32::MAX)
}

fn date_of(day: i32) -> String {
    let moment = jiff::Timestamp::from_second(i64::from(day) * 86_400).unwrap_or_default();
    moment.strftime("%Y-%m-%d").to_string()
}

/// The day of `2026-11-16`.
pub(crate) fn day_of_date(date: &str) -> Option<i32> {
    let date: jiff::civil::Date = date.parse().ok()?;
    let start = date.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    i32::try_from(start.timestamp().as_second().div_euclid(86_400)).ok()
}

/// A job id as a part of a path: everything but letters, digits, `_`, `.` and `-` is escaped as in URLs.
pub(crate) fn escaped_job(job_id: &str) -> String {
    let text = escaped(job_id);
    match text.len() {
        0 => "_".to_owned(),
        1..=LONGEST_JOB => text,
        _ => {
            // Longer ones are distinguished by their hash; the column has all of it.
            format!("{}-{:016x}", text[..LONGEST_JOB - 20].trim_end_matches('%'), fnv1a(job_id))
        }
    }
}

/// FNV-1a of 64 bits: a path must be the same in every release, which the hashes of libraries do not promise.
fn fnv1a(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' => escaped.push(byte.into()),
            _ => drop(write!(escaped, "%{byte:02X}")),
        }
    }
    escaped
}

/// Text whose escapes, as in URLs, are undone.
pub(crate) fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_ids_of_any_text_are_one_part_of_a_path_and_come_back() {
        for id in ["42", "a/b c=d", "../..", "été", "%41", "."] {
            let partition = Partition::of(0, id);
            assert_eq!(partition.job_id(), id);
            assert!(!partition.job.contains('/') && partition.path().components().count() == 2, "{id}");
        }
        assert!(escaped_job(&"ü".repeat(400)).len() <= LONGEST_JOB);
        // Published vectors of FNV-1a: the path of a job is the same in every release.
        assert_eq!((fnv1a("a"), fnv1a("foobar")), (0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8));
        assert!(
            escaped_job(&"foobar".repeat(40)).ends_with(&format!("-{:016x}", fnv1a(&"foobar".repeat(40))))
        );
        assert_eq!(Partition::of(0, "").job, "_");
    }

    #[test]
    fn own_file_names_are_distinguished_from_foreign_ones() {
        for host in ["node17", "", "a-b.c", "ü"] {
            assert!(is_own_name(&part_name(host, 3)), "{host}");
        }
        for other in [
            "part-00000-5c1a4a12-4d0b-4a41-8f0e-1d7f9e0ab5cd.c000.snappy.parquet",
            "part-00001-5c1a4a12-4d0b-4a41-8f0e-1d7f9e0ab5cd-c000.snappy.parquet",
            "part-0.parquet",
            "data_0.parquet",
        ] {
            assert!(!is_own_name(other), "{other}");
        }
    }

    #[test]
    fn dates_are_days_in_utc() {
        assert_eq!(Partition::of(-1, "j").date(), "1969-12-31");
        assert_eq!(day_of_date("2026-11-16").map(date_of).as_deref(), Some("2026-11-16"));
        assert_eq!(day_of_date("2026-13-16"), None);
    }
}
