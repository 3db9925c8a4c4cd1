//! Expiry: days that are too old leave a lake, and are not published again.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use stormlog_store::TableFile;

use crate::directories::{self, remove_part};
use crate::layout::{DAY_NS, OWN_DIRECTORY, PartFile, Partition, day_of, day_of_date, part_files};
use crate::lock::{LakeLock, check_version};
use crate::saved_marks::SavedMarks;
use crate::schema::Table;
use crate::{LakeError, delta};

const EXPIRED_FILE: &str = "expired.json";

/// What was removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExpireReport {
    /// The first day that is kept: `2026-10-17`.
    pub first_date: String,
    /// Files that were removed.
    pub files: u64,
    /// Their size.
    pub bytes: u64,
}

/// The first day that is published; days before it have expired.
pub(crate) fn first_day(lake: &Path) -> Result<i32, LakeError> {
    let path = lake.join(OWN_DIRECTORY).join(EXPIRED_FILE);
    if !path.exists() {
        return Ok(i32::MIN);
    }
    let value = stormlog_store::json::read_value(&path)?;
    Ok(value.get("before").and_then(Value::as_str).and_then(day_of_date).unwrap_or(i32::MIN))
}

/// The last day that a file has something of: a process may have started long before it ended.
fn last_day(table: Table, file: &PartFile) -> i32 {
    const DAY_US: i64 = DAY_NS / 1_000;
    let day = file.partition.day;
    if table != Table::Processes {
        return day;
    }
    let Ok(open) = TableFile::open(&file.path) else { return day };
    let ended =
        (0..open.groups()).filter_map(|group| open.range(group, "ended_ts")).map(|(_, last)| last).max();
    ended.and_then(|last_us| i32::try_from(last_us.div_euclid(DAY_US)).ok()).unwrap_or(day).max(day)
}

/// Removes the days that ended before `before_ns`, in all tables. Refused while runs are being published.
pub fn expire(lake: &Path, before_ns: i64) -> Result<ExpireReport, LakeError> {
    let lake = &directories::named_by_user(lake);
    check_version(lake)?;
    let _lock = LakeLock::alone(lake)?;
    let first = day_of(before_ns).max(first_day(lake)?);
    let first_date = Partition { day: first, job: String::new() }.date();
    let wrong = |source| LakeError::Io { path: lake.join(OWN_DIRECTORY), source };
    let opened = directories::lake(lake).map_err(wrong)?;
    let text = format!("{}\n", json!({"before": first_date}));
    // First of all: what is removed must not be published again.
    let own = opened.existing(OWN_DIRECTORY);
    own.and_then(|own| own.replace(EXPIRED_FILE, text.as_bytes())).map_err(wrong)?;
    let mut report = ExpireReport { first_date, ..ExpireReport::default() };
    for table in Table::ALL {
        let files = part_files(lake, table, None).into_iter();
        let expired: BTreeSet<PartFile> =
            files.filter(|file| file.partition.day < first && last_day(table, file) < first).collect();
        if delta::has_log(lake, table) {
            delta::sync_without(lake, table, &|file| expired.contains(file))?;
        }
        let saved = SavedMarks::of(lake)?;
        // Those of processes whose files another program rewrote are kept: only the files state when they ended.
        let is_old = |file: &&PartFile| file.partition.day < first && table != Table::Processes;
        for file in saved.files(table, None).iter().filter(is_old) {
            saved.remove(table, file)?;
        }
        for file in expired {
            saved.remove(table, &file)?;
            remove_part(&opened, table, &file)
                .map_err(|source| LakeError::Io { path: file.path.clone(), source })?;
            report.files += 1;
            report.bytes += file.bytes;
        }
    }
    Ok(report)
}
