//! The tables of a lake as rows of a fleet. Only the columns that the report needs are read, and only the partitions of the job and the days that were
//! asked for.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use stormlog_lake::Role;
use stormlog_lake::schema::Table;
use stormlog_lake::{PartFile, Partition};
use stormlog_store::{StoreError, TableColumn, TableFile};

use super::runs::place;
use super::{FleetError, Scope, in_parallel};
use crate::gather::Gathered;
use crate::report::Problems;
use crate::row::{DeathRow, FindingRow, HolderRow, Origin, ProcessRow, Sample};

/// Whose row it is: the same columns, in the same places, of every table.
const ORIGIN: [&str; 9] =
    ["ts", "job_id", "rank", "device", "world_size", "attempt", "host", "run_id", "pid"];
const OWN: usize = ORIGIN.len();

fn own_columns(table: Table) -> &'static [&'static str] {
    match table {
        Table::Samples => &[
            "session_id",
            "device_used_bytes",
            "process_device_used_bytes",
            "allocator_reserved_bytes",
            "allocator_allocated_bytes",
            "device_total_bytes",
            "phase",
            "step",
        ],
        Table::Processes => &["job_name", "job_version", "role", "ended_ts", "peak_host_bytes"],
        Table::Deaths => {
            &["cause", "signature", "what_happened", "holder_file", "holder_line", "holder_function"]
        }
        Table::Findings => &["kind", "severity", "title"],
        Table::HeapHolders | Table::GpuHolders => &["bytes", "file", "line", "function"],
    }
}

/// A file of a table.
struct Part {
    table: Table,
    file: PartFile,
}

/// Rows that are read together: `publish` writes groups of 122,880 rows, other writers of any size.
const BATCH: usize = 32_768;

/// Some rows of a row group: the columns that were requested.
struct Group<'a> {
    /// The job of its partition: other writers (a Delta tool's OPTIMIZE) leave the columns of the partition out of the file.
    job_id: &'a Arc<str>,
    rows: usize,
    columns: Vec<TableColumn>,
}

impl Group<'_> {
    fn number(&self, column: usize, row: usize) -> Option<i64> {
        self.columns.get(column)?.integer(row)
    }

    fn text(&self, column: usize, row: usize) -> Option<&str> {
        self.columns.get(column)?.text(row)
    }
}

/// Reads a lake.
pub(super) fn read(lake: &Path, scope: &Scope) -> Result<(Gathered, Problems), FleetError> {
    let job = scope.stored_job().map(|job| Partition::of(0, job).job);
    let first_day = scope.since_us.map(|since| Partition::of(since.saturating_mul(1000), "").day);
    let mut parts = Vec::new();
    let mut problems = Problems::default();
    for table in Table::ALL {
        // A table that may not be listed looks like one without files.
        let directory = lake.join(table.name());
        match std::fs::read_dir(&directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                problems.torn(StoreError::io(&directory, error).to_string());
                continue;
            }
            _ => {}
        }
        let mut files = stormlog_lake::read::table_files(lake, table)?;
        files.retain(|file| job.as_ref().is_none_or(|job| file.partition.job == *job));
        // A process is in the partition of its start, and may have ended on a later day.
        files.retain(|file| {
            table == Table::Processes || first_day.is_none_or(|day| file.partition.day >= day)
        });
        parts.extend(files.into_iter().map(|file| Part { table, file }));
    }
    // The largest first, so that no reader ends long after the others.
    parts.sort_by_key(|part| std::cmp::Reverse(part.file.bytes));
    let read = AtomicUsize::new(0);
    let (gathered, wrong) = in_parallel(&parts, scope.readers, |part, gathered, problems| {
        match read_part(part, scope, gathered) {
            Ok(()) => drop(read.fetch_add(1, Ordering::Relaxed)),
            Err(error) => problems.torn(error.to_string()),
        }
    });
    problems.merge(wrong);
    match problems.torn_files.first() {
        Some(first) if read.into_inner() == 0 => Err(FleetError::Unreadable(first.clone())),
        _ => Ok((gathered, problems)),
    }
}

fn read_part(part: &Part, scope: &Scope, gathered: &mut Gathered) -> Result<(), StoreError> {
    let names: Vec<&str> = ORIGIN.iter().chain(own_columns(part.table)).copied().collect();
    let file = TableFile::open(&part.file.path)?;
    // The path of a long job id has its hash: where one job was requested, only its partitions are read.
    let job_id: Arc<str> = scope.stored_job().map_or_else(|| part.file.partition.job_id().into(), Arc::from);
    for number in 0..file.groups() {
        let mut batches = file.batches(number, &names)?;
        while batches.left() > 0 {
            let rows = batches.left().min(BATCH);
            let group = Group { job_id: &job_id, rows, columns: batches.read(rows)? };
            match part.table {
                Table::Samples => samples(&group, scope, gathered),
                _ => self::rows(part.table, &group, scope, gathered),
            }
        }
    }
    Ok(())
}

fn origin(group: &Group<'_>, row: usize) -> Origin {
    let text = |column: usize| Arc::from(group.text(column, row).unwrap_or(""));
    Origin {
        job_id: group.text(1, row).map_or_else(|| Arc::clone(group.job_id), Arc::from),
        rank: group.number(2, row),
        world_size: group.number(4, row).unwrap_or(1),
        attempt: group.number(5, row),
        host: text(6),
        run_id: text(7),
        pid: group.number(8, row).unwrap_or(-1),
    }
}

/// Rows are sorted: those of one session and device follow each other, and their process is looked up once.
fn samples(group: &Group<'_>, scope: &Scope, gathered: &mut Gathered) {
    let mut first = 0;
    while first < group.rows {
        let device = group.number(3, first).unwrap_or(-1);
        let is_same = |row: &usize| {
            group.text(OWN, first) == group.text(OWN, *row) && group.number(3, *row).unwrap_or(-1) == device
        };
        let end = (first + 1..group.rows).find(|row| !is_same(row)).unwrap_or(group.rows);
        let own = origin(group, first);
        if scope.wants_job(&own.job_id) {
            let stream = gathered.stream(&own);
            let taken = (first..end).map(|row| sample(group, device, row));
            gathered.samples(&own, stream, device, taken.filter(|sample| scope.wants_time(sample.at_us)));
        }
        first = end;
    }
}

fn sample<'a>(group: &'a Group<'_>, device: i64, row: usize) -> Sample<'a> {
    let number = |column: usize| group.number(OWN + column, row);
    let (reserved, allocated) = (number(3), number(4));
    Sample {
        at_us: group.number(0, row).unwrap_or(0),
        held: Sample::held_of(device, number(1), number(2), reserved, allocated),
        allocated,
        reserved,
        total: number(5),
        phase: group.text(OWN + 6, row),
        step: number(7),
    }
}

fn rows(table: Table, group: &Group<'_>, scope: &Scope, gathered: &mut Gathered) {
    for row in 0..group.rows {
        let origin = origin(group, row);
        if !scope.wants_job(&origin.job_id) {
            continue;
        }
        let at_us = group.number(0, row).unwrap_or(0);
        let number = |column: usize| group.number(OWN + column, row);
        let text = |column: usize| group.text(OWN + column, row).map(str::to_owned);
        let word = |column: usize| group.text(OWN + column, row).unwrap_or("");
        if table == Table::Processes {
            let ended_us = number(3);
            if scope.wants_time(ended_us.unwrap_or(i64::MAX)) {
                gathered.process(ProcessRow {
                    origin,
                    job_name: text(0),
                    job_version: text(1),
                    is_main: [Role::Rank, Role::Root].iter().any(|role| role.as_str() == word(2)),
                    started_us: Some(at_us),
                    ended_us,
                    peak_host: number(4),
                });
            }
            continue;
        }
        if !scope.wants_time(at_us) {
            continue;
        }
        match table {
            Table::Samples | Table::Processes => {}
            Table::Deaths => {
                let line = text(3).or_else(|| text(5)).is_some();
                let line = line.then(|| place(word(3), number(4).unwrap_or(0), word(5)));
                gathered.death(DeathRow {
                    origin,
                    at_us,
                    cause: word(0).to_owned(),
                    signature: text(1).filter(|signature| !signature.is_empty()),
                    sentence: text(2).filter(|sentence| !sentence.is_empty()),
                    line,
                });
            }
            Table::Findings => gathered.finding(FindingRow {
                origin,
                kind: word(0).to_owned(),
                severity: word(1).to_owned(),
                title: word(2).to_owned(),
            }),
            Table::HeapHolders | Table::GpuHolders => gathered.holder(HolderRow {
                origin,
                is_of_device: table == Table::GpuHolders,
                place: place(word(1), number(2).unwrap_or(0), word(3)),
                bytes: number(0).unwrap_or(0),
            }),
        }
    }
}
