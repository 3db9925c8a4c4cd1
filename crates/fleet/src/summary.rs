//! From what was gathered to the report.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::gather::Gathered;
use crate::moment::moment;
use crate::report::{FindingReport, JobReport, MOST_NAMED, Problems, Report, SCHEMA_VERSION, Totals};
use crate::{answer, deaths, outliers, trend};

/// The report over everything that was read.
#[must_use]
pub fn summarise(mut all: Gathered, mut problems: Problems) -> Report {
    all.settle();
    all.join_meetings();
    problems.bound(MOST_NAMED);
    let mut jobs: Vec<JobReport> = all.jobs.iter().map(|(key, job)| job.report(key)).collect();
    let peak = |job: &JobReport| job.main_memory().map_or(0, |(_, memory)| memory.peak_bytes);
    jobs.sort_by(|a, b| peak(b).cmp(&peak(a)).then_with(|| a.job_id.cmp(&b.job_id)));
    let mut outlier_ranks: Vec<_> =
        all.jobs.iter().flat_map(|(key, job)| outliers::ranks(key, job)).collect();
    outlier_ranks.sort_by_key(|one| std::cmp::Reverse(one.difference_bytes.unsigned_abs()));
    let mut outlier_hosts: Vec<_> =
        all.jobs.iter().flat_map(|(key, job)| outliers::hosts(key, job)).collect();
    outlier_hosts.sort_by_key(|one| std::cmp::Reverse(one.difference_bytes.unsigned_abs()));
    let mut first_deaths: Vec<_> = all.jobs.iter().flat_map(|(key, job)| deaths::first(key, job)).collect();
    first_deaths.sort_by(|a, b| {
        let at = |one: &crate::report::FirstDeath| one.candidates.first().and_then(|death| death.at.clone());
        at(b).cmp(&at(a))
    });
    let mut report = Report {
        format: "stormlog.fleet",
        schema_version: SCHEMA_VERSION,
        headline: Vec::new(),
        totals: totals(&all, &jobs),
        trends: trend::trends(&jobs),
        jobs,
        outlier_ranks,
        outlier_hosts,
        deaths_by_cause: deaths::by_cause(&all),
        deaths_by_signature: deaths::by_signature(&all),
        first_deaths,
        findings: findings(&all),
        problems,
    };
    report.headline = answer::headline(&report);
    report
}

fn totals(all: &Gathered, jobs: &[JobReport]) -> Totals {
    let spans = || all.jobs.values().filter_map(|job| job.span);
    let hosts: BTreeSet<&Arc<str>> = all.jobs.values().flat_map(|job| job.hosts()).collect();
    Totals {
        jobs: jobs.len() as u64,
        runs: jobs.iter().map(|job| job.runs).sum(),
        ranks: jobs.iter().map(|job| job.ranks_seen).sum(),
        hosts: hosts.len() as u64,
        processes: all.jobs.values().map(|job| job.processes).sum(),
        samples: all.samples,
        deaths: jobs.iter().map(|job| job.deaths).sum(),
        memory_death_jobs: deaths::memory_jobs(all),
        first_at: spans().map(|(first, _)| first).min().and_then(moment),
        last_at: spans().map(|(_, last)| last).max().and_then(moment),
    }
}

fn findings(all: &Gathered) -> Vec<FindingReport> {
    let mut kinds: BTreeMap<(&str, &str), FindingReport> = BTreeMap::new();
    for job in all.jobs.values() {
        for ((kind, severity), (title, ranks, count)) in &job.findings {
            let row = kinds.entry((kind, severity)).or_default();
            row.count += count;
            row.jobs += 1;
            row.ranks += ranks.len() as u64;
            if row.title.is_empty() || *title < row.title {
                row.title.clone_from(title);
            }
        }
    }
    let named = |((kind, severity), row): ((&str, &str), FindingReport)| FindingReport {
        kind: kind.to_owned(),
        severity: severity.to_owned(),
        ..row
    };
    let mut rows: Vec<FindingReport> = kinds.into_iter().map(named).collect();
    let weight = |row: &FindingReport| match row.severity.as_str() {
        "critical" => 2,
        "warning" => 1,
        _ => 0,
    };
    rows.sort_by_key(|row| std::cmp::Reverse((weight(row), row.count)));
    rows
}
