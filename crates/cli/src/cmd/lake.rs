//! `stormlog publish`, `compact` and `lake`: arguments in, `stormlog-lake` called, a summary out.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stormlog_lake::read::table_info;
use stormlog_lake::rows::Problem;
use stormlog_lake::schema::{Kind, Table};
use stormlog_lake::{CompactReport, ExpireReport, PublishOptions, PublishReport, compact, expire, publish};
use stormlog_model::format_bytes;
use stormlog_model::text::{inert_lines, inert_text};

use crate::exit::Exit;
use crate::table;

/// Problems that are printed; `--json` has all that are kept.
const PRINTED: usize = 10;
const DAY_NS: i64 = 86_400_000_000_000;

pub(crate) struct Options {
    pub(crate) lake: PathBuf,
    pub(crate) action: Action,
    pub(crate) json: bool,
}

pub(crate) enum Action {
    Publish { paths: Vec<PathBuf>, is_delta: bool },
    Compact,
    Info { lists_files: bool },
    Expire { days: u32 },
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let lake = &options.lake;
    let mut problems = Vec::new();
    let (value, lines) = match &options.action {
        Action::Publish { paths, is_delta } => {
            for path in paths {
                // A run whose supervisor was killed is over once its end is judged.
                drop(stormlog_catalog::run::finish_abandoned(path));
            }
            let mut report =
                publish(&PublishOptions { paths: paths.clone(), lake: lake.clone(), is_delta: *is_delta })?;
            problems = std::mem::take(&mut report.problems);
            of_publish(&report, lake)
        }
        Action::Compact => {
            let mut report = compact(lake)?;
            problems = std::mem::take(&mut report.problems);
            of_compact(&report)
        }
        Action::Expire { days } => {
            let now_ns = i64::try_from(stormlog_store::wall_ns()).unwrap_or(i64::MAX);
            of_expire(&expire(lake, now_ns.saturating_sub(i64::from(*days).saturating_mul(DAY_NS)))?)
        }
        Action::Info { lists_files } => info(lake, *lists_files, &mut problems)?,
    };
    let mut out = io::stdout().lock();
    if options.json {
        let mut value = value;
        value["problems"] = problems.iter().map(problem_value).collect();
        writeln!(out, "{value:#}")?;
    } else {
        for line in lines {
            writeln!(out, "{}", inert_lines(&line))?;
        }
    }
    let mut complaints = io::stderr().lock();
    for problem in problems.iter().take(PRINTED) {
        let path = problem.path.display().to_string();
        writeln!(complaints, "Warning: {}: {}", inert_text(&path), inert_lines(&problem.sentence))?;
    }
    if let Some(more) = problems.len().checked_sub(PRINTED).filter(|more| *more > 0) {
        writeln!(complaints, "Warning: {more} more; --json lists them")?;
    }
    Ok(Exit::Ok)
}

fn problem_value(problem: &Problem) -> Value {
    json!({"path": problem.path.display().to_string(), "problem": problem.sentence, "lost": problem.lost})
}

fn of_publish(report: &PublishReport, lake: &Path) -> (Value, Vec<String>) {
    let rows = |table: Table| report.rows.get(&table).copied().unwrap_or(0);
    let by_table: serde_json::Map<String, Value> =
        Table::ALL.into_iter().map(|table| (table.name().to_owned(), rows(table).into())).collect();
    let files: Vec<String> = report.files.iter().map(|path| path.display().to_string()).collect();
    let copies: Vec<Value> = report
        .copies
        .iter()
        .map(|copy| json!({"path": copy.path.display().to_string(), "of": copy.of.display().to_string()}))
        .collect();
    let value = json!({
        "runs": report.runs, "claimed": report.claimed, "copies": copies, "rows": by_table, "files": files, "bytes": report.bytes,
        "timeless_rows": report.timeless, "problem_count": report.problem_count,
    });
    let mut lines = Vec::new();
    let words: Vec<String> = Table::ALL
        .into_iter()
        .filter(|table| rows(*table) > 0)
        .map(|table| format!("{} {}", table.name(), rows(table)))
        .collect();
    lines.push(match words.is_empty() {
        true => format!("{}: nothing new (runs read: {})", lake.display(), report.runs),
        false => format!(
            "{}: rows added: {} (runs {}, files {}, {})",
            lake.display(),
            words.join(", "),
            report.runs,
            report.files.len(),
            format_bytes(report.bytes)
        ),
    });
    if report.claimed > 0 {
        lines
            .push(format!("{} runs are being published by another process and were skipped", report.claimed));
    }
    if !report.copies.is_empty() {
        lines.push(format!("{} copies of these runs were not read; --json lists them", report.copies.len()));
    }
    if report.timeless > 0 {
        lines.push(format!(
            "{} rows have a time before 2000 or after 2200 and were left out",
            report.timeless
        ));
    }
    (value, lines)
}

fn of_compact(report: &CompactReport) -> (Value, Vec<String>) {
    let CompactReport { partitions, files_before, files_after, bytes_before, bytes_after, .. } = report;
    let value = json!({
        "partitions": partitions, "files_before": files_before, "files_after": files_after,
        "bytes_before": bytes_before, "bytes_after": bytes_after,
    });
    let line = match partitions {
        0 => "nothing to merge: no partition has two files below 64 MiB".to_owned(),
        _ => format!(
            "{partitions} partitions: {files_before} files ({}) became {files_after} ({})",
            format_bytes(*bytes_before),
            format_bytes(*bytes_after)
        ),
    };
    (value, vec![line])
}

fn of_expire(report: &ExpireReport) -> (Value, Vec<String>) {
    let ExpireReport { first_date, files, bytes } = report;
    let line = format!("{files} files ({}) removed; the first day is {first_date}", format_bytes(*bytes));
    (json!({"first_date": first_date, "files": files, "bytes": bytes}), vec![line])
}

fn info(lake: &Path, lists_files: bool, problems: &mut Vec<Problem>) -> anyhow::Result<(Value, Vec<String>)> {
    let mut value = serde_json::Map::new();
    let mut rows =
        table::Table::new(&["TABLE", "ROWS", "FILES", "SIZE", "JOBS", "DAYS", "DELTA"], &[1, 2, 3, 4]);
    for table in Table::ALL {
        let info = table_info(lake, table)?;
        value.insert(
            table.name().to_owned(),
            json!({
                "rows": info.rows, "files": info.files, "bytes": info.bytes, "jobs": info.jobs, "dates": info.dates,
                "damaged_files": info.damaged.len(), "is_delta": info.is_delta, "columns": columns(table),
            }),
        );
        if lists_files {
            let files: Vec<String> = info.paths.iter().map(|path| path.display().to_string()).collect();
            value[table.name()]["paths"] = files.into();
        }
        problems.extend(info.damaged);
        let days = info.dates.map_or_else(|| "-".to_owned(), |(first, last)| format!("{first} to {last}"));
        rows.row(vec![
            table.name().to_owned(),
            info.rows.to_string(),
            info.files.to_string(),
            format_bytes(info.bytes),
            info.jobs.to_string(),
            days,
            if info.is_delta { "yes" } else { "no" }.to_owned(),
        ]);
    }
    Ok((json!({"tables": value}), rows.lines().into_iter().collect()))
}

/// Names and types of a table's columns, as SQL has them; `date` is the partition's.
fn columns(table: Table) -> Vec<Value> {
    let kind = |kind: Kind| match kind {
        Kind::Integer => "BIGINT",
        Kind::Float => "DOUBLE",
        Kind::Text => "VARCHAR",
        Kind::Time => "TIMESTAMP WITH TIME ZONE",
        Kind::Boolean => "BOOLEAN",
    };
    let all = table.columns().iter().map(|column| (column.name, kind(column.kind)));
    all.chain([("date", "DATE")]).map(|(name, kind)| json!({"name": name, "type": kind})).collect()
}
