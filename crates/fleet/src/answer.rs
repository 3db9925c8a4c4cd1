//! The answer: at most eight lines, the worst thing in the fleet first. What ended jobs comes before what may end them, and that before what costs
//! money.

use std::collections::BTreeSet;

use stormlog_model::format_bytes;
use stormlog_model::text::short_name;

use crate::report::{FirstDeath, JobReport, OutlierHost, OutlierRank, Report, SignatureReport};

/// Lines of the answer, at most.
pub const HEADLINE_LINES: usize = 8;
/// Waste below this share of what a job may use is not worth a line.
const LEAST_WASTE: f64 = 0.25;

/// The lines.
#[must_use]
pub fn headline(report: &Report) -> Vec<String> {
    let mut lines: Vec<(&'static str, String)> = Vec::new();
    lines.extend(memory_deaths(report).map(|line| ("died", line)));
    lines.extend(report.first_deaths.first().and_then(first_death_words).map(|line| ("first", line)));
    lines.extend(regression(report).map(|line| ("grew", line)));
    lines.extend(outlier(report).map(|line| ("differs", line)));
    lines.extend(report.outlier_hosts.first().map(|one| ("machine", host_words(one))));
    lines.extend(missing(report).map(|line| ("missing", line)));
    lines.extend(other_deaths(report).map(|line| ("died", line)));
    lines.extend(waste(report).map(|line| ("unused", line)));
    let read = unread(report).map(|line| format!("  {:<9} {line}", "read"));
    let room = HEADLINE_LINES - usize::from(read.is_some());
    if lines.is_empty() {
        lines.push(("", nothing(report)));
    }
    let mut out: Vec<String> = lines
        .into_iter()
        .take(room)
        .enumerate()
        .map(|(at, (label, line))| if at == 0 { line } else { format!("  {label:<9} {line}") })
        .collect();
    out.extend(read);
    out
}

fn nothing(report: &Report) -> String {
    match report.jobs.first().and_then(|job| Some((job, job.main_memory()?))) {
        Some((job, (memory, peak))) => format!(
            "Nothing wrong was found in {}; the highest peak is {} of {memory} memory, in {}.",
            counted(report.totals.jobs, "job"),
            format_bytes(peak.peak_bytes),
            job_words(job)
        ),
        None => "No samples were found.".to_owned(),
    }
}

fn memory_deaths(report: &Report) -> Option<String> {
    let causes = || report.deaths_by_cause.iter().filter(|cause| cause.is_memory);
    let count: u64 = causes().map(|cause| cause.count).sum();
    let worst = causes().next()?;
    let same = report.deaths_by_signature.iter().find(|one| crate::deaths::is_memory(&one.cause));
    let alike = same.filter(|one| one.count > 1).map(alike).unwrap_or_default();
    Some(format!(
        "{} of {} ran out of memory and died ({}){alike}.",
        counted(count, "process"),
        counted(report.totals.memory_death_jobs, "job"),
        worst.cause
    ))
}

fn alike(one: &SignatureReport) -> String {
    let line = one.line.as_ref().map(|line| format!(" at {line}")).unwrap_or_default();
    format!(", {} in the same way{line}", one.count)
}

/// `8841 attempt 0: rank 12 on node-07 died first (oom_exception)`.
#[must_use]
pub fn first_death_words(first: &FirstDeath) -> Option<String> {
    let death = first.candidates.first()?;
    let rank = death.rank.map_or_else(|| "the launcher".to_owned(), |rank| format!("rank {rank}"));
    let attempt = first.attempt.map(|attempt| format!(" attempt {attempt}")).unwrap_or_default();
    let job = short_name(&first.job_id);
    let doubt = match first.candidates.len() {
        _ if first.is_certain => String::new(),
        count => {
            let others = counted(count as u64 - 1, "process");
            format!("; {others} on other machines died within 5 s of it, and clocks may differ by that")
        }
    };
    Some(format!("{job}{attempt}: {rank} on {} died first ({}){doubt}", death.host, death.cause))
}

fn other_deaths(report: &Report) -> Option<String> {
    let causes = || report.deaths_by_cause.iter().filter(|cause| !cause.is_memory);
    let words: Vec<String> =
        causes().take(3).map(|cause| format!("{} × {}", cause.count, cause.cause)).collect();
    let count: u64 = causes().map(|cause| cause.count).sum();
    (count > 0).then(|| format!("{} for other reasons: {}", counted(count, "process"), words.join(", ")))
}

fn regression(report: &Report) -> Option<String> {
    let trend = report.trends.iter().find(|trend| trend.is_regression)?;
    let last = trend.points.last()?;
    let version = last.version.as_ref().map(|version| format!(" in version {version}")).unwrap_or_default();
    Some(format!(
        "{} peaks {} higher{version} than before ({} against {} of {} memory)",
        trend.name,
        format_bytes(trend.increase()),
        format_bytes(last.peak_bytes),
        format_bytes(last.before_bytes?),
        trend.memory
    ))
}

/// `rank 3 of train (host-7) peaks 11.0 GiB above the others, in phase backward; +10.9 GiB at moe.py:77 dispatch`.
#[must_use]
pub fn outlier_words(one: &OutlierRank) -> String {
    let side = if one.difference_bytes >= 0 { "above" } else { "below" };
    let host = one.host.as_ref().map(|host| format!(" ({host})")).unwrap_or_default();
    let phase = one.phase.as_ref().map(|phase| format!(", in phase {phase}")).unwrap_or_default();
    let usual = match (&one.phase, &one.usual_phase) {
        (Some(own), Some(usual)) if own != usual => format!(" (the others in {usual})"),
        _ => String::new(),
    };
    let line = match (&one.line, one.line_more_bytes) {
        (Some(line), Some(more)) => format!("; it keeps {} more at {line}", format_bytes(more)),
        _ => String::new(),
    };
    // A rank may differ in each attempt: without the number the lines would be the same.
    let attempt = one.attempt.filter(|attempt| *attempt > 0);
    let attempt = attempt.map(|attempt| format!(" attempt {attempt}")).unwrap_or_default();
    format!(
        "rank {}{host} of {}{attempt} peaks {} {side} the median of {} memory{phase}{usual}{line}",
        one.rank,
        short_name(&one.job_id),
        format_bytes(one.difference_bytes.unsigned_abs()),
        one.memory,
    )
}

fn outlier(report: &Report) -> Option<String> {
    let words = outlier_words(report.outlier_ranks.first()?);
    let ranks: BTreeSet<(&str, i64)> =
        report.outlier_ranks.iter().map(|one| (one.job_id.as_str(), one.rank)).collect();
    Some(match ranks.len() - 1 {
        0 => words,
        1 => format!("{words}; 1 more rank differs"),
        more => format!("{words}; {more} more ranks differ"),
    })
}

/// `the 8 ranks of 8841 on node-07 take 3.00 GiB more device memory than on the other machines`.
#[must_use]
pub fn host_words(one: &OutlierHost) -> String {
    let side = if one.difference_bytes >= 0 { "more" } else { "less" };
    format!(
        "the {} of {} on {} take {} {side} {} memory than on the other machines",
        counted(one.ranks, "rank"),
        short_name(&one.job_id),
        one.host,
        format_bytes(one.difference_bytes.unsigned_abs()),
        one.memory
    )
}

fn missing(report: &Report) -> Option<String> {
    let jobs = || report.jobs.iter().filter(|job| job.missing_count > 0);
    let job = jobs().max_by_key(|job| job.missing_count)?;
    let ranks: Vec<String> = job.missing_ranks.iter().take(5).map(u64::to_string).collect();
    let more = if job.missing_count > 5 { ", …" } else { "" };
    let others = match jobs().count() - 1 {
        0 => String::new(),
        others => format!("; {} more have missing ranks", counted(others as u64, "job")),
    };
    Some(format!(
        "{} of {} of {} left no recording: {}{more}{others}",
        job.missing_count,
        counted(job.world_size, "rank"),
        job_words(job),
        ranks.join(", ")
    ))
}

fn waste(report: &Report) -> Option<String> {
    let of = |job: &JobReport| {
        let memories = [("device", job.device_memory.as_ref()), ("host", job.host_memory.as_ref())];
        let known = memories.into_iter().filter_map(|(name, memory)| {
            let memory = memory?;
            Some((name, memory.waste_bytes?, memory.limit_bytes?))
        });
        known.filter(|(_, waste, limit)| *waste as f64 >= LEAST_WASTE * *limit as f64).max_by_key(|one| one.1)
    };
    let (job, (memory, waste, limit)) =
        report.jobs.iter().filter_map(|job| Some((job, of(job)?))).max_by_key(|(_, one)| one.1)?;
    Some(format!(
        "{} leaves {} of {} of {memory} memory unused",
        job_words(job),
        format_bytes(waste),
        format_bytes(limit)
    ))
}

fn unread(report: &Report) -> Option<String> {
    let problems = &report.problems;
    let mut parts = Vec::new();
    if problems.torn_count > 0 {
        let named = problems.torn_files.first().map(|file| format!(": {file}")).unwrap_or_default();
        parts.push(format!("{} could not be read in full{named}", counted(problems.torn_count, "input")));
    }
    if problems.copy_count > 0 {
        let (are, a) = if problems.copy_count == 1 { ("is", "a copy") } else { ("are", "copies") };
        parts.push(format!("{} {are} {a} and counted once", counted(problems.copy_count, "run")));
    }
    let duplicated: usize = report.jobs.iter().map(|job| job.duplicated_ranks.len()).sum();
    if duplicated > 0 {
        parts.push(format!("{} were recorded twice at one time", counted(duplicated as u64, "rank")));
    }
    parts.extend(problems.notes.first().cloned());
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// `train.py (job 42)`.
#[must_use]
pub fn job_words(job: &JobReport) -> String {
    let id = short_name(&job.job_id);
    match &job.name {
        Some(name) if *name != job.job_id => format!("{} ({id})", short_name(name)),
        _ => id,
    }
}

/// `1 job`, `2 processes`.
#[must_use]
pub fn counted(count: u64, noun: &str) -> String {
    let plural = if noun.ends_with('s') { "es" } else { "s" };
    let end = if count == 1 { "" } else { plural };
    format!("{} {noun}{end}", stormlog_model::text::grouped(count))
}
