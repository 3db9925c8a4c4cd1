//! The report as a page of one file.

use serde_json::Value;
use stormlog_model::text::grouped;
use stormlog_render::fleet::{FleetPage, Section};
use stormlog_render::table::{Column, Kind};

use crate::answer::counted;
use crate::report::{JobReport, Report};

/// Rows of a table of the page; JSON has all.
const MOST_ROWS: usize = 20_000;

/// The page.
#[must_use]
pub fn page(report: &Report) -> String {
    let totals = &report.totals;
    let fact = |name: &str, count: u64| (name.to_owned(), grouped(count));
    let span = match (&totals.first_at, &totals.last_at) {
        (Some(first), Some(last)) => format!("{first} to {last}"),
        _ => String::new(),
    };
    let sections =
        [jobs, outlier_ranks, outlier_hosts, causes, signatures, first_deaths, missing, trends, findings];
    let sections = sections.into_iter().map(|make| make(report)).filter(|section| !section.rows.is_empty());
    let bounded = |mut section: Section| {
        section.rows.truncate(MOST_ROWS);
        section
    };
    let page = FleetPage {
        title: "Fleet report".to_owned(),
        subtitle: span,
        notes: notes(report),
        facts: vec![
            fact("jobs", totals.jobs),
            fact("ranks", totals.ranks),
            fact("machines", totals.hosts),
            fact("processes", totals.processes),
            fact("samples", totals.samples),
            fact("deaths", totals.deaths),
        ],
        answer: report.headline.clone(),
        sections: sections.map(bounded).collect(),
    };
    stormlog_render::fleet::page(&page)
}

fn notes(report: &Report) -> Vec<String> {
    let problems = &report.problems;
    let mut notes = Vec::new();
    if problems.torn_count > 0 {
        let count = counted(problems.torn_count, "input");
        notes.push(format!("{count} could not be read in full: {}", problems.torn_files.join(" · ")));
    }
    if problems.copy_count > 0 {
        notes.push(format!("Copies, counted once: {}", problems.copies.join(" · ")));
    }
    notes.extend(problems.notes.iter().cloned());
    notes
}

fn section(
    title: &'static str,
    explanation: &'static str,
    columns: &[(&'static str, Kind)],
    sort_column: usize,
    rows: Vec<Vec<Value>>,
) -> Section {
    let columns = columns.iter().map(|(name, kind)| Column { name, kind: *kind }).collect();
    Section { title, explanation, columns, sort_column, rows }
}

/// An optional text as a cell.
fn text(text: &Option<String>) -> Value {
    text.as_deref().unwrap_or("").into()
}

fn jobs(report: &Report) -> Section {
    let has_devices = report.jobs.iter().any(|job| job.device_memory.is_some());
    let of_devices: &[(&'static str, Kind)] =
        if has_devices { &[("Device peak", Kind::Bytes), ("Device unused", Kind::Bytes)] } else { &[] };
    let columns: Vec<(&'static str, Kind)> =
        [("Job", Kind::Text), ("Name", Kind::Text), ("Version", Kind::Text), ("Start", Kind::Text)]
            .into_iter()
            .chain(of_devices.iter().copied())
            .chain([
                ("Host peak", Kind::Bytes),
                ("Host unused", Kind::Bytes),
                ("Highest", Kind::Text),
                ("Ranks", Kind::Count),
                ("Missing", Kind::Count),
                ("Restarts", Kind::Count),
                ("Deaths", Kind::Count),
            ])
            .collect();
    let row = |job: &JobReport| {
        let (device, host) = (job.device_memory.as_ref(), job.host_memory.as_ref());
        let mut cells =
            vec![job.job_id.clone().into(), text(&job.name), text(&job.version), text(&job.started_at)];
        for memory in [device, host].into_iter().skip(usize::from(!has_devices)) {
            cells.push(memory.map(|memory| memory.peak_bytes).into());
            cells.push(memory.and_then(|memory| memory.waste_bytes).into());
        }
        cells.push(highest(job).into());
        cells.extend([job.ranks_seen, job.missing_count, job.restarts, job.deaths].map(Value::from));
        cells
    };
    let explanation = "The peak is the highest of a rank. Unused device memory was reserved by the allocator and never handed out; unused host memory is the limit of the machines less the peaks of their ranks.";
    let rows = report.jobs.iter().map(row).collect();
    section("Jobs", explanation, &columns, 4, rows)
}

/// Which rank has the peak that its job is listed by: `rank 3 on node-1`.
fn highest(job: &JobReport) -> String {
    let Some((_, memory)) = job.main_memory() else { return String::new() };
    let rank = memory.peak_rank.map_or_else(|| "the launcher".to_owned(), |rank| format!("rank {rank}"));
    memory.peak_host.as_ref().map_or_else(|| rank.clone(), |host| format!("{rank} on {host}"))
}

fn outlier_ranks(report: &Report) -> Section {
    let columns = [
        ("Job", Kind::Text),
        ("Attempt", Kind::Count),
        ("Rank", Kind::Count),
        ("Machine", Kind::Text),
        ("Memory", Kind::Text),
        ("Peak", Kind::Bytes),
        ("Difference", Kind::Bytes),
        ("Phase", Kind::Text),
        ("Others' phase", Kind::Text),
        ("Line", Kind::Text),
        ("More there", Kind::Bytes),
    ];
    let rows = report.outlier_ranks.iter().map(|one| {
        vec![
            one.job_id.clone().into(),
            one.attempt.into(),
            one.rank.into(),
            text(&one.host),
            one.memory.into(),
            one.peak_bytes.into(),
            one.difference_bytes.into(),
            text(&one.phase),
            text(&one.usual_phase),
            text(&one.line),
            one.line_more_bytes.into(),
        ]
    });
    let explanation = "Ranks with a peak more than six deviations, 256 MiB and 5 % from the median of their attempt, if at most a quarter of the ranks are.";
    section("Outlier ranks", explanation, &columns, 6, rows.collect())
}

fn outlier_hosts(report: &Report) -> Section {
    let columns = [
        ("Job", Kind::Text),
        ("Attempt", Kind::Count),
        ("Machine", Kind::Text),
        ("Memory", Kind::Text),
        ("Ranks", Kind::Count),
        ("Median peak", Kind::Bytes),
        ("Difference", Kind::Bytes),
    ];
    let rows = report.outlier_hosts.iter().map(|one| {
        vec![
            one.job_id.clone().into(),
            one.attempt.into(),
            one.host.clone().into(),
            one.memory.into(),
            one.ranks.into(),
            one.median_bytes.into(),
            one.difference_bytes.into(),
        ]
    });
    let explanation = "Machines with a median of their ranks that differs from that of the other machines, by the same rule.";
    section("Outlier machines", explanation, &columns, 6, rows.collect())
}

fn causes(report: &Report) -> Section {
    let columns = [
        ("Cause", Kind::Text),
        ("Deaths", Kind::Count),
        ("Jobs", Kind::Count),
        ("Machines", Kind::Count),
        ("Last", Kind::Text),
    ];
    let rows = report.deaths_by_cause.iter().map(|one| {
        vec![
            one.cause.clone().into(),
            one.count.into(),
            one.jobs.into(),
            one.hosts.into(),
            text(&one.last_at),
        ]
    });
    section("Deaths by cause", "Processes that failed, by cause.", &columns, 1, rows.collect())
}

fn signatures(report: &Report) -> Section {
    let columns = [
        ("Deaths", Kind::Count),
        ("Jobs", Kind::Count),
        ("Cause", Kind::Text),
        ("What happened", Kind::Text),
        ("Line", Kind::Text),
        ("First", Kind::Text),
        ("Last", Kind::Text),
        ("Signature", Kind::Text),
    ];
    let rows = report.deaths_by_signature.iter().map(|one| {
        vec![
            one.count.into(),
            one.job_count.into(),
            one.cause.clone().into(),
            text(&one.sentence),
            text(&one.line),
            text(&one.first_at),
            text(&one.last_at),
            one.signature.clone().into(),
        ]
    });
    let explanation = "The same failure has the same signature in every job.";
    section("Deaths by signature", explanation, &columns, 0, rows.collect())
}

fn first_deaths(report: &Report) -> Section {
    let columns = [
        ("At", Kind::Text),
        ("Job", Kind::Text),
        ("Attempt", Kind::Count),
        ("Rank", Kind::Count),
        ("Machine", Kind::Text),
        ("Cause", Kind::Text),
        ("What happened", Kind::Text),
        ("Certain", Kind::Text),
    ];
    let rows = report.first_deaths.iter().flat_map(|first| {
        first.candidates.iter().map(|death| {
            vec![
                text(&death.at),
                first.job_id.clone().into(),
                first.attempt.into(),
                death.rank.into(),
                death.host.clone().into(),
                death.cause.clone().into(),
                text(&death.sentence),
                if first.is_certain { "yes" } else { "no: clocks may differ" }.into(),
            ]
        })
    });
    let explanation =
        "The first death of each attempt. Deaths on other machines within 5 s may have been before it.";
    section("First to die", explanation, &columns, 0, rows.collect())
}

fn missing(report: &Report) -> Section {
    let columns = [
        ("Job", Kind::Text),
        ("Ranks", Kind::Count),
        ("Recorded", Kind::Count),
        ("Missing", Kind::Count),
        ("Which", Kind::Text),
        ("Recorded twice", Kind::Text),
    ];
    let list = |ranks: Vec<String>| ranks.join(", ");
    let is_shown = |job: &&JobReport| job.missing_count > 0 || !job.duplicated_ranks.is_empty();
    let rows = report.jobs.iter().filter(is_shown).map(|job| {
        let rest = if job.missing_count > job.missing_ranks.len() as u64 { ", …" } else { "" };
        let which = list(job.missing_ranks.iter().map(u64::to_string).collect()) + rest;
        vec![
            job.job_id.clone().into(),
            job.world_size.into(),
            job.ranks_seen.into(),
            job.missing_count.into(),
            which.into(),
            list(job.duplicated_ranks.iter().map(i64::to_string).collect()).into(),
        ]
    });
    let explanation = "Ranks that the launcher counted and no recording has, and ranks that two recordings claim at one time.";
    section("Missing and duplicated ranks", explanation, &columns, 3, rows.collect())
}

fn trends(report: &Report) -> Section {
    let columns = [
        ("Name", Kind::Text),
        ("Ranks", Kind::Count),
        ("Memory", Kind::Text),
        ("Start", Kind::Text),
        ("Version", Kind::Text),
        ("Job", Kind::Text),
        ("Peak", Kind::Bytes),
        ("Before", Kind::Bytes),
        ("Regression", Kind::Text),
    ];
    let rows = report.trends.iter().flat_map(|trend| {
        trend.points.iter().map(|point| {
            vec![
                trend.name.clone().into(),
                trend.world_size.into(),
                trend.memory.into(),
                text(&point.started_at),
                text(&point.version),
                point.job_id.clone().into(),
                point.peak_bytes.into(),
                point.before_bytes.into(),
                if point.is_regression { "yes" } else { "" }.into(),
            ]
        })
    });
    let explanation = "Jobs of one name and number of ranks over time. Before is the median of the five jobs before; 5 % and 64 MiB more is a regression.";
    section("Peak by version", explanation, &columns, 3, rows.collect())
}

fn findings(report: &Report) -> Section {
    let columns = [
        ("Count", Kind::Count),
        ("Kind", Kind::Text),
        ("Severity", Kind::Text),
        ("Jobs", Kind::Count),
        ("Ranks", Kind::Count),
        ("For example", Kind::Text),
    ];
    let rows = report.findings.iter().map(|one| {
        vec![
            one.count.into(),
            one.kind.clone().into(),
            one.severity.clone().into(),
            one.jobs.into(),
            one.ranks.into(),
            one.title.clone().into(),
        ]
    });
    let explanation = "What the rules of `stormlog analyze` found in runs that are over.";
    section("Findings", explanation, &columns, 0, rows.collect())
}
