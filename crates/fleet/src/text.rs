//! The report for a terminal: the answer, then a table for each question. Every text of a recording is made inert.

use stormlog_model::format_bytes;
use stormlog_model::text::{Table, inert_text, short_name};

use crate::answer::{counted, first_death_words, host_words, outlier_words};
use crate::report::{JobReport, Report};

/// Rows of a table; the rest are counted.
const ROWS: usize = 15;
/// Letters of a name in a table, and how many of a longer one are kept at its start and its end.
const LONGEST_CELL: usize = 64;
const CELL_START: usize = 44;
const CELL_END: usize = 19;

/// The text.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    for line in &report.headline {
        push(&mut out, line);
    }
    let totals = &report.totals;
    let span = match (&totals.first_at, &totals.last_at) {
        (Some(first), Some(last)) => format!(" · {first} to {last}"),
        _ => String::new(),
    };
    let counts = [
        counted(totals.jobs, "job"),
        counted(totals.runs, "run"),
        format!("{} on {}", counted(totals.ranks, "rank"), counted(totals.hosts, "machine")),
        counted(totals.processes, "process"),
        counted(totals.samples, "sample"),
        counted(totals.deaths, "death"),
    ];
    let counts = format!("\n{}{span}", counts.join(" · "));
    out.push_str(&counts);
    out.push('\n');
    jobs(&mut out, report);
    let outliers: Vec<String> = report.outlier_ranks.iter().map(outlier_words).collect();
    list(&mut out, "Outlier ranks", &outliers);
    let machines: Vec<String> = report.outlier_hosts.iter().map(host_words).collect();
    list(&mut out, "Outlier machines", &machines);
    deaths(&mut out, report);
    trends(&mut out, report);
    let finding = |one: &crate::report::FindingReport| {
        let count = format!("{} × {} ({})", one.count, one.kind, one.severity);
        format!("{count} in {}: {}", counted(one.jobs, "job"), one.title)
    };
    list(&mut out, "Findings", &report.findings.iter().map(finding).collect::<Vec<String>>());
    problems(&mut out, report);
    out
}

fn push(out: &mut String, line: &str) {
    out.push_str(&inert_text(line));
    out.push('\n');
}

fn head(out: &mut String, title: &str) {
    out.push('\n');
    out.push_str(title);
    out.push('\n');
}

fn list(out: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    head(out, title);
    for line in lines.iter().take(ROWS) {
        push(out, &format!("  {line}"));
    }
    more(out, lines.len());
}

fn more(out: &mut String, rows: usize) {
    if rows > ROWS {
        out.push_str(&format!("  {} more (--json has all)\n", rows - ROWS));
    }
}

fn table(out: &mut String, title: &str, table: &Table, rows: usize) {
    if rows == 0 {
        return;
    }
    head(out, title);
    for line in table.lines() {
        push(out, &format!("  {line}"));
    }
    more(out, rows);
}

fn size(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "–".to_owned(), format_bytes)
}

fn jobs(out: &mut String, report: &Report) {
    let columns =
        ["job", "name", "version", "ranks", "peak", "of", "rank", "median", "unused", "restarts", "deaths"];
    let mut shown = Table::new(&columns, &[3, 4, 6, 7, 8, 9, 10]);
    for job in report.jobs.iter().take(ROWS) {
        shown.row(job_cells(job));
    }
    table(out, "Jobs by peak", &shown, report.jobs.len());
}

fn job_cells(job: &JobReport) -> Vec<String> {
    let (kind, memory) = match job.main_memory() {
        Some((kind, memory)) => (kind, Some(memory)),
        None => ("–", None),
    };
    let optional = |text: &Option<String>| text.as_deref().map_or_else(|| "–".to_owned(), cell_name);
    let waste = memory.and_then(|memory| memory.waste_bytes);
    vec![
        cell_name(&job.job_id),
        optional(&job.name),
        optional(&job.version),
        format!("{}/{}", job.ranks_seen, job.world_size),
        size(memory.map(|memory| memory.peak_bytes)),
        kind.to_owned(),
        memory.and_then(|memory| memory.peak_rank).map_or_else(|| "–".to_owned(), |rank| rank.to_string()),
        size(memory.map(|memory| memory.median_peak_bytes)),
        size(waste),
        job.restarts.to_string(),
        job.deaths.to_string(),
    ]
}

/// A name in a table, where one of hundreds of letters would push all other columns off the screen.
fn cell_name(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    match letters.len().checked_sub(LONGEST_CELL) {
        None | Some(0) => short_name(name),
        Some(_) => {
            let (first, last) = (&letters[..CELL_START], &letters[letters.len() - CELL_END..]);
            short_name(&first.iter().chain(&['…']).chain(last).collect::<String>())
        }
    }
}

fn deaths(out: &mut String, report: &Report) {
    let mut causes = Table::new(&["cause", "deaths", "jobs", "machines", "last"], &[1, 2, 3]);
    for cause in &report.deaths_by_cause {
        let last = cause.last_at.clone().unwrap_or_default();
        let counts = [cause.count, cause.jobs, cause.hosts].map(|count| count.to_string());
        causes.row([cause.cause.clone()].into_iter().chain(counts).chain([last]));
    }
    table(out, "Deaths by cause", &causes, report.deaths_by_cause.len());
    let signature = |one: &crate::report::SignatureReport| {
        let line = one.line.as_ref().map(|line| format!(" · {line}")).unwrap_or_default();
        let sentence = one.sentence.clone().unwrap_or_else(|| one.cause.clone());
        format!("{} × in {} · {sentence}{line} · {}", one.count, counted(one.job_count, "job"), one.signature)
    };
    let signatures: Vec<String> = report.deaths_by_signature.iter().map(signature).collect();
    list(out, "Deaths by signature", &signatures);
    let first: Vec<String> = report.first_deaths.iter().filter_map(first_death_words).collect();
    list(out, "First to die", &first);
}

fn trends(out: &mut String, report: &Report) {
    let mut lines = Vec::new();
    for trend in &report.trends {
        let points: Vec<String> = trend
            .points
            .iter()
            .rev()
            .take(6)
            .rev()
            .map(|point| {
                let label = point.version.as_deref().unwrap_or(&point.job_id);
                let mark = if point.is_regression { " (+)" } else { "" };
                format!("{} {}{mark}", short_name(label), format_bytes(point.peak_bytes))
            })
            .collect();
        lines.push(format!(
            "{} · {} · {}: {}",
            trend.name,
            counted(trend.world_size, "rank"),
            trend.memory,
            points.join(" → ")
        ));
    }
    list(out, "Peak by version, oldest first", &lines);
}

fn problems(out: &mut String, report: &Report) {
    let problems = &report.problems;
    let missing = report.jobs.iter().filter(|job| job.missing_count > 0).map(|job| {
        let ranks: Vec<String> = job.missing_ranks.iter().map(u64::to_string).collect();
        let rest = if job.missing_count > job.missing_ranks.len() as u64 { ", …" } else { "" };
        format!(
            "{}: {} of {} ({}{rest})",
            cell_name(&job.job_id),
            job.missing_count,
            job.world_size,
            ranks.join(", ")
        )
    });
    list(out, "Missing ranks", &missing.collect::<Vec<String>>());
    let twice = report.jobs.iter().filter(|job| !job.duplicated_ranks.is_empty()).map(|job| {
        let ranks: Vec<String> = job.duplicated_ranks.iter().take(ROWS).map(i64::to_string).collect();
        format!("{}: {} ({})", cell_name(&job.job_id), job.duplicated_ranks.len(), ranks.join(", "))
    });
    list(out, "Ranks recorded twice at one time", &twice.collect::<Vec<String>>());
    let mut unread: Vec<String> =
        problems.torn_files.iter().map(|file| format!("not read in full: {file}")).collect();
    unread.extend(problems.copies.iter().map(|copy| format!("copy: {copy}")));
    unread.extend(problems.notes.iter().cloned());
    list(out, "Skipped or duplicate inputs", &unread);
}
