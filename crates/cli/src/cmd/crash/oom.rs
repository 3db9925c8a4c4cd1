//! `stormlog oom list|show|export`: the bundles programs left when they died, whoever wrote them.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;
use stormlog_catalog::cuda_oom::{CudaOom, Line};
use stormlog_catalog::run::Process;
use stormlog_model::text::{inert_lines, nanoseconds_in_words};
use stormlog_model::{Counter, Event, Schema, format_bytes};
use stormlog_postmortem::bundle::{Bundle, Listing, list};
use stormlog_store::json::write;
use stormlog_store::{Format, Output, ReadOptions, Source, StoreError};
use stormlog_story::{ProcessStory, Story};

use crate::chart::sparkline;
use crate::cmd::crash::last;
use crate::cmd::record::run_story;
use crate::cmd::whole_file;
use crate::exit::{Exit, Wrong};
use crate::place;
use crate::table::{Table, moment};

/// Events shown on the page.
const LAST_EVENTS: usize = 6;
/// Holders that the answer names.
const SHOWN_HOLDERS: usize = 3;
/// Characters of the chart.
const CHART: usize = 60;

pub(crate) enum Options {
    List { path: Option<PathBuf>, json: bool },
    Show { bundle: Option<PathBuf>, json: bool },
    Last(last::Options),
    Export { bundle: PathBuf, output: PathBuf },
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    match options {
        Options::List { path, json } => run_list(&place::of_bundles(path.as_deref())?, *json),
        Options::Last(options) => last::run(options),
        Options::Show { bundle, json } => {
            let bundle = Bundle::read(&newest(&place::of_bundles(bundle.as_deref())?)?)?;
            let story = Story::of_bundle(&bundle, &run_story::findings);
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
                let mut page = Vec::new();
                show(&mut page, &bundle, &story)?;
                out.write_all(inert_lines(&String::from_utf8_lossy(&page)).as_bytes())?;
            }
            Ok(Exit::Ok)
        }
        Options::Export { bundle, output } => {
            export(&Bundle::read(&newest(std::slice::from_ref(bundle))?)?, output)
        }
    }
}

fn find(paths: &[PathBuf]) -> Result<Listing, StoreError> {
    let mut all = Listing::default();
    for path in paths {
        let finished = stormlog_catalog::run::finish_abandoned(path);
        // Only the owner of a run may write its bundles; others are shown what they would say.
        for session in finished.iter().filter(|run| !run.is_written).flat_map(|run| &run.sessions) {
            let sentence = inert_lines(&session.verdict.sentence);
            // A standard error that is closed has no reader.
            let _ = writeln!(
                io::stderr(),
                "{sentence} Its bundle is written when the run's owner runs this command."
            );
        }
        all.append(list(path)?);
    }
    Ok(all)
}

/// The bundle at a path, or the newest one below it.
fn newest(paths: &[PathBuf]) -> Result<PathBuf, StoreError> {
    let listing = find(paths)?;
    match listing.bundles.last() {
        Some(bundle) => Ok(bundle.path.clone()),
        None => Err(listing.problems.into_iter().chain(listing.skipped).next().unwrap_or_else(|| {
            StoreError::Unrecognised {
                path: paths.first().cloned().unwrap_or_default(),
                message: "no OOM bundle here; a program that ended well leaves none".to_owned(),
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
        writeln!(io::stderr(), "Error: {}: too large to search to its end", paths.join(", "))?;
    }
    Ok(if listing.problems.is_empty() && !listing.incomplete { Exit::Ok } else { Exit::InvalidInput })
}

fn show(out: &mut impl Write, bundle: &Bundle, story: &Story) -> io::Result<()> {
    let page = Page { headline: &story.headline };
    story.headline.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    writeln!(out)?;
    let evidence = |key: &str| bundle.evidence.get(key);
    let texts =
        |key: &str| evidence(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let metadata =
        |key: &str| bundle.metadata.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    if let Some(ended) = evidence("verdict").and_then(Value::as_str) {
        page.line(out, "program", ended)?;
    }
    let when = bundle.created_at_utc.as_deref().unwrap_or("unknown");
    let backend = bundle.backend.as_deref().unwrap_or("unknown");
    page.line(out, "cause", &format!("{} · {when} · {backend}", bundle.cause))?;
    if let Some(kind) = metadata("exception_type") {
        let message = metadata("exception_message").map(first_line).unwrap_or_default();
        // The first line of the answer quotes the message.
        let message = if page.has(message) { "" } else { message };
        page.line(out, "raised", format!("{kind}: {message}").trim_end_matches(": "))?;
    }
    if let Some(frame) = innermost(&bundle.metadata) {
        page.line(out, "at", &frame)?;
    }
    for process in &story.processes {
        for failed in &process.failed_requests {
            page.line(out, "failed", failed)?;
        }
    }
    let cuda = CudaOom::of(bundle);
    // Lines that hold memory are in the story, whichever recorder saw them; so is what the answer is made of.
    let is_new = |found: &Line| !matches!(found.label, "held by" | "asked" | "verdict" | "try");
    for found in cuda.iter().flat_map(CudaOom::lines).filter(is_new) {
        page.line(out, found.label, &found.text)?;
    }
    let mut sizes = Vec::new();
    sizes.extend(bundle.peak_rss_bytes.map(|peak| format!("peak {}", format_bytes(peak))));
    sizes.extend(bundle.limit_bytes.map(|limit| format!("limit {}", format_bytes(limit))));
    sizes.extend(evidence("limit_source").and_then(Value::as_str).map(|source| format!("({source})")));
    if !sizes.is_empty() {
        page.line(out, if cuda.is_some() { "host" } else { "memory" }, &sizes.join(" "))?;
    }
    let events = events_of(bundle);
    chart(out, &events)?;
    for process in &story.processes {
        for (at, holder) in process.held.iter().enumerate().skip(SHOWN_HOLDERS) {
            let words = holder.words(&process.held[..at]);
            page.line(
                out,
                "held by",
                &format!("{:>10}  {:<7} {}", holder.size(), holder.memory.to_string(), words),
            )?;
        }
        for residual in &process.residuals {
            page.line(out, "layers", &residual.words())?;
        }
    }
    let rows = evidence("held_by").and_then(Value::as_array).into_iter().flatten();
    for row in rows {
        let place = row.get("place").and_then(Value::as_str).unwrap_or("unknown");
        // Other processes: lines of this one and kinds of memory are above.
        if place.contains("(pid ") {
            let bytes = row.get("bytes").and_then(Value::as_u64).map_or_else(String::new, format_bytes);
            page.line(out, "held by", &format!("{bytes:>10}  {place}"))?;
        }
    }
    for row in evidence("memory_map").and_then(Value::as_array).into_iter().flatten().take(12) {
        let name = row.get("name").and_then(Value::as_str).unwrap_or("unknown");
        let bytes = row.get("rss_bytes").and_then(Value::as_u64).filter(|bytes| *bytes >= 1 << 20);
        // Kinds of memory are the layers above.
        if let Some(bytes) = bytes.filter(|_| !name.starts_with('[')) {
            page.line(out, "mapped", &format!("{:>10}  {name}", format_bytes(bytes)))?;
        }
    }
    for advice in texts("try").filter(|advice| !advice.starts_with("cap what")) {
        page.line(out, "try", advice)?;
    }
    for note in texts("notes").chain(bundle.notes.iter().map(String::as_str)) {
        page.line(out, "note", note)?;
    }
    last_events(out, &events, &page)?;
    page.line(out, "session", &session(bundle))?;
    page.line(out, "bundle", &bundle.path.display().to_string())
}

/// The evidence below an answer: what the answer has is not repeated.
struct Page<'a> {
    headline: &'a [String],
}

impl Page<'_> {
    fn has(&self, text: &str) -> bool {
        let text = text.trim().trim_end_matches('.');
        !text.is_empty() && self.headline.iter().any(|line| line.contains(text))
    }

    fn line(&self, out: &mut impl Write, label: &str, text: &str) -> io::Result<()> {
        if self.has(text) {
            return Ok(());
        }
        writeln!(out, "  {label:<9} {}", text.trim_end())
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn session(bundle: &Bundle) -> String {
    let id = bundle.session_id.as_deref().unwrap_or("unknown");
    let status = bundle.session_status.as_deref().unwrap_or("unknown");
    match &bundle.session {
        Some(session) => format!(
            "{id} ({status}) · {} pid {} · rank {}/{}{}",
            session.host,
            session.pid,
            session.rank,
            session.world_size,
            session.attempt.map(|attempt| format!(" · attempt {attempt}")).unwrap_or_default()
        ),
        None => format!("{id} ({status})"),
    }
}

/// The line that raised the exception, where the program reported it.
fn innermost(metadata: &stormlog_model::Record) -> Option<String> {
    let frames = metadata.get("custom_metadata")?.get("traceback")?.as_array()?;
    let frame = frames.last()?;
    let text = |key: &str| frame.get(key).and_then(Value::as_str).unwrap_or("?");
    Some(format!("{}:{} {}", text("file"), frame.get("line")?, text("function")))
}

fn events_of(bundle: &Bundle) -> Vec<Event> {
    let events = Source::OomBundle(bundle.path.clone()).events(&ReadOptions::default());
    events.into_iter().flatten().filter_map(Result::ok).collect()
}

fn memory_of(event: &Event) -> Option<u64> {
    event.counter(Counter::Used).or_else(|| event.counter(Counter::Allocated))
}

fn chart(out: &mut impl Write, events: &[Event]) -> io::Result<()> {
    let points: Vec<(u64, u64)> =
        events.iter().filter_map(|event| Some((event.timestamp_ns, memory_of(event)?))).collect();
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return Ok(()) };
    let most = points.iter().map(|(_, value)| *value).max().unwrap_or(0);
    let took = nanoseconds_in_words(last.0.saturating_sub(first.0));
    writeln!(out, "  last {took:<9}{}  {}", sparkline(&points, CHART, most), format_bytes(last.1))
}

fn last_events(out: &mut impl Write, events: &[Event], page: &Page<'_>) -> io::Result<()> {
    for event in events.iter().skip(events.len().saturating_sub(LAST_EVENTS)) {
        let time = i64::try_from(event.timestamp_ns).map(moment).unwrap_or_default();
        let memory = memory_of(event).map_or_else(|| "-".to_owned(), format_bytes);
        let context =
            event.context.as_deref().map(first_line).filter(|context| !page.has(context)).unwrap_or_default();
        let row = format!("  event     {time}  {:<8} {memory:>10}  {context}", event.head.event_type);
        writeln!(out, "{}", row.trim_end())?;
    }
    Ok(())
}

fn export(bundle: &Bundle, output: &Path) -> anyhow::Result<Exit> {
    let extension = output.extension().and_then(|extension| extension.to_str()).unwrap_or("");
    let events = events_of(bundle);
    if extension == "json" {
        let mut record = bundle.to_record();
        let as_record = |event: &Event| stormlog_model::to_record(event, Schema::V4).map(Value::Object);
        record.insert("events".into(), events.iter().filter_map(|event| as_record(event).ok()).collect());
        let mut text = Vec::new();
        write::write_indented(&mut text, &record, 0)?;
        text.push(b'\n');
        whole_file::write(output, text)?;
    } else {
        let format = Format::of_path(output)
            .ok_or_else(|| Wrong(format!("{}: use .json, .jsonl, .csv or .parquet", output.display())))?;
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
