//! `stormlog oom show --last`: the answer about the newest death, for the end of a job's script and for `ExecStopPost=`. What the scheduler itself reported is shown beside
//! it. Nothing to show is a sentence and exit 0: the hook of a service must not fail because its program did not.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stormlog_catalog::run::layout::OUTPUT_FILE;
use stormlog_catalog::run::{Death, deaths_at, finish_abandoned};
use stormlog_model::Launch;
use stormlog_model::text::inert_lines;
use stormlog_postmortem::bundle::Bundle;
use stormlog_postmortem::scheduler::{SchedulerReport, disagreement, slurm_reports, systemd_report};
use stormlog_story::{Story, findings_if_small};

use crate::default_path;
use crate::exit::{Exit, MissingInput};
use crate::table::moment;

/// What is read of a job's output: its end.
const MOST_OF_A_LOG: u64 = 4 << 20;

pub(crate) struct Options {
    pub(crate) path: Option<PathBuf>,
    /// The job's output.
    pub(crate) log: Option<PathBuf>,
    pub(crate) json: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let paths = default_path::of_bundles(options.path.as_deref())?;
    let mut found: Vec<Death> = Vec::new();
    for path in &paths {
        finish_abandoned(path);
        found.extend(deaths_at(path)?);
    }
    found.sort_by_key(|death| death.ended_at_ns);
    let caller = Launch::of(&variable).filter(|caller| {
        // A shell of a user service has the number of that service, too.
        variable("SERVICE_RESULT").is_some() || caller.invocation_id.is_none()
    });
    let is_of_caller = |death: &&Death| caller.as_ref().and_then(|caller| death.is_of(caller)) != Some(false);
    let death = found.iter().rev().find(is_of_caller);
    let mut reports: Vec<SchedulerReport> = variable("SERVICE_RESULT")
        .and_then(|result| {
            systemd_report(&result, variable("EXIT_CODE").as_deref(), variable("EXIT_STATUS").as_deref())
        })
        .into_iter()
        .collect();
    let job = death.and_then(|death| death.launch.as_ref()).or(caller.as_ref());
    let job = job.and_then(|launch| launch.job_id.as_deref());
    if let Some(log) = &options.log {
        let text = end_of(log).map_err(|error| MissingInput(format!("{}: {error}", log.display())))?;
        reports.extend(slurm_reports(&text, job));
    }
    let own_output = death.filter(|death| death.is_run).map(|death| end_of(&death.path.join(OUTPUT_FILE)));
    reports.extend(own_output.and_then(Result::ok).into_iter().flat_map(|text| slurm_reports(&text, job)));
    let note = disagreement(death.and_then(|death| death.cause), &reports).filter(|_| death.is_some());
    let headline = death.map(|death| story(death).headline).unwrap_or_default();
    let mut out = io::stdout().lock();
    if options.json {
        let value = death.map_or(Value::Null, |death| {
            json!({
                "path": death.path.display().to_string(), "ended_at": moment(death.ended_at_ns),
                "cause": death.cause.map(|cause| cause.as_str()), "launch": death.launch, "headline": headline,
                "scheduler": reports, "note": note,
            })
        });
        writeln!(out, "{value:#}")?;
        return Ok(Exit::Ok);
    }
    let mut page = headline;
    let mut line = |label: &str, text: &str| page.push(format!("  {label:<9} {text}"));
    for report in &reports {
        line(report.scheduler, &report.text);
    }
    if let Some(note) = &note {
        line("note", note);
    }
    match death {
        Some(death) => {
            let launch = death.launch.as_ref().map(Launch::words).filter(|words| !words.is_empty());
            let launch = launch.map(|words| format!(" · {words}")).unwrap_or_default();
            line("ended", &format!("{}{launch}", moment(death.ended_at_ns)));
            let more = if death.is_run { "stormlog report" } else { "stormlog oom show" };
            line("more", &format!("{more} {}", death.path.display()));
        }
        None => {
            let places: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            let whose = if found.is_empty() { "" } else { " of this job or service" };
            page.insert(0, format!("No death{whose} is recorded in {}.", places.join(", ")));
            if let Some(other) = found.last() {
                page.push(format!(
                    "  newest death ({}) belongs to another job or service: {}",
                    moment(other.ended_at_ns),
                    other.path.display()
                ));
            }
        }
    }
    for line in page {
        writeln!(out, "{}", inert_lines(&line))?;
    }
    Ok(Exit::Ok)
}

fn story(death: &Death) -> Story {
    match death.is_run {
        true => Story::of(std::slice::from_ref(&death.path), &findings_if_small(&death.path)),
        false => Bundle::read(&death.path)
            .map(|bundle| Story::of_bundle(&bundle, &findings_if_small))
            .unwrap_or_default(),
    }
}

/// The end of a file that may be large and may not be text.
fn end_of(path: &Path) -> io::Result<String> {
    let mut file = stormlog_files::open_regular(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MOST_OF_A_LOG)))?;
    let mut bytes = Vec::new();
    file.take(MOST_OF_A_LOG).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
