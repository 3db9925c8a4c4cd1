//! `stormlog oom list|show|export`: the bundles programs left when they died, whatever wrote them. `oom explain`: a log, in `explain`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;
use stormlog_catalog::bundles::bundles;
use stormlog_catalog::cuda_oom::CudaOom;
use stormlog_catalog::run::Process;
use stormlog_model::text::inert_lines;
use stormlog_model::{Event, Schema};
use stormlog_postmortem::bundle::{Bundle, Listing};
use stormlog_store::json::write;
use stormlog_store::{Format, Output, StoreError};
use stormlog_story::{ProcessStory, Story, bundle_page, findings_if_small};

use crate::cmd::atomic_write;
use crate::cmd::crash::{explain, last};
use crate::default_path;
use crate::exit::{Exit, UsageError};
use crate::table::Table;

pub(crate) enum Options {
    List { path: Option<PathBuf>, json: bool },
    Show { bundle: Option<PathBuf>, json: bool },
    Last(last::Options),
    Explain { log: PathBuf, json: bool },
    Export { bundle: PathBuf, output: PathBuf },
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    match options {
        Options::List { path, json } => run_list(&default_path::of_bundles(path.as_deref())?, *json),
        Options::Last(options) => last::run(options),
        Options::Explain { log, json } => explain::run(log, *json),
        Options::Show { bundle, json } => {
            let bundle = Bundle::read(&newest(&default_path::of_bundles(bundle.as_deref())?)?)?;
            let story = Story::of_bundle(&bundle, &findings_if_small);
            let mut out = io::stdout().lock();
            if *json {
                let mut record = bundle.to_record();
                record.insert("headline".to_owned(), story.headline.clone().into());
                let held: Vec<Value> = story.processes.iter().flat_map(ProcessStory::held_values).collect();
                record.insert("held".to_owned(), held.into());
                let layers: Vec<_> = story.processes.iter().flat_map(|process| &process.residuals).collect();
                record.insert("residuals".to_owned(), serde_json::to_value(layers).unwrap_or_default());
                record.extend(CudaOom::of(&bundle).map(|found| ("cuda".to_owned(), found.to_value())));
                // What else was recorded about the process: its samples, its heap, other bundles.
                record.extend(
                    Process::of_part(&bundle.path).map(|found| ("process".to_owned(), found.to_value())),
                );
                writeln!(out, "{:#}", Value::Object(record))?;
            } else {
                out.write_all(bundle_page(&bundle, &story).as_bytes())?;
            }
            Ok(Exit::Ok)
        }
        Options::Export { bundle, output } => {
            export(&Bundle::read(&newest(std::slice::from_ref(bundle))?)?, output)
        }
    }
}

fn find(paths: &[PathBuf]) -> Result<Listing, StoreError> {
    let found = bundles(paths)?;
    // Only the owner of a run may write its bundles; others are shown what they would say.
    for sentence in &found.unwritten {
        let sentence = inert_lines(sentence);
        // A standard error that is closed has no reader.
        let _ = writeln!(
            io::stderr(),
            "{sentence} Run this command as the owner of the run to write its bundle."
        );
    }
    Ok(found.listing)
}

/// The bundle at a path, or the newest one below it.
fn newest(paths: &[PathBuf]) -> Result<PathBuf, StoreError> {
    let listing = find(paths)?;
    match listing.bundles.last() {
        Some(bundle) => Ok(bundle.path.clone()),
        None => Err(listing.problems.into_iter().chain(listing.skipped).next().unwrap_or_else(|| {
            StoreError::Unrecognised {
                path: paths.first().cloned().unwrap_or_default(),
                message: "no OOM bundle here; a program that exits 0 leaves none".to_owned(),
            }
        })),
    }
}

fn run_list(paths: &[PathBuf], json: bool) -> anyhow::Result<Exit> {
    let mut listing = find(paths)?;
    if listing.bundles.is_empty() {
        // They are all there is: nothing else can be shown instead.
        listing.problems.append(&mut listing.skipped);
    }
    let mut out = io::stdout().lock();
    let newest_first = listing.bundles.iter().rev();
    if json {
        let rows: Vec<Value> = newest_first.map(|row| Value::Object(row.to_record())).collect();
        writeln!(out, "{:#}", Value::Array(rows))?;
    } else if listing.bundles.is_empty() {
        writeln!(out, "No bundles.")?;
    } else {
        let mut table = Table::new(&["CREATED", "CAUSE", "BACKEND", "SESSION", "BUNDLE"], &[]);
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        for row in newest_first {
            table.row([
                or_dash(&row.created_at_utc),
                row.cause.as_str().to_owned(),
                or_dash(&row.backend),
                or_dash(&row.session_id),
                row.path.display().to_string(),
            ]);
        }
        table.lines().iter().try_for_each(|line| writeln!(out, "{}", inert_lines(line)))?;
    }
    for skipped in &listing.skipped {
        writeln!(io::stderr(), "Skipped: {skipped}")?;
    }
    for problem in &listing.problems {
        writeln!(io::stderr(), "Error: {problem}")?;
    }
    if listing.incomplete {
        let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        writeln!(
            io::stderr(),
            "Error: {}: too large to search completely; name a directory inside it",
            paths.join(", ")
        )?;
    }
    Ok(if listing.problems.is_empty() && !listing.incomplete { Exit::Ok } else { Exit::InvalidInput })
}

fn export(bundle: &Bundle, output: &Path) -> anyhow::Result<Exit> {
    let extension = output.extension().and_then(|extension| extension.to_str()).unwrap_or("");
    let events = bundle.events();
    if extension == "json" {
        let mut record = bundle.to_record();
        let as_record = |event: &Event| stormlog_model::to_record(event, Schema::V4).map(Value::Object);
        record.insert("events".into(), events.iter().filter_map(|event| as_record(event).ok()).collect());
        let mut text = Vec::new();
        write::write_indented(&mut text, &record, 0)?;
        text.push(b'\n');
        atomic_write::write(output, text)?;
    } else {
        let format = Format::of_path(output).ok_or_else(|| {
            UsageError(format!("{}: use .json, .jsonl, .csv or .parquet", output.display()))
        })?;
        let mut file = Output::create(output, format, Schema::V4)?;
        for event in &events {
            // Schema 4 can express every event.
            let _ = file.write(event)?;
        }
        file.finish()?;
    }
    let what = if extension == "json" { "events and the evidence" } else { "events" };
    writeln!(io::stderr(), "{} {what} written to {}", events.len(), output.display())?;
    Ok(Exit::Ok)
}
