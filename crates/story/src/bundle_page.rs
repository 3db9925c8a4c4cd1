//! The page of a bundle: the answer, then the evidence that the answer does not have. `stormlog oom show` and the terminal show the same text.
//!
//! Text of the program that died is made inert here. Must never judge: that is in the bundle and in the story.

use std::fmt::Write;

use serde_json::Value;
use stormlog_catalog::cuda_oom::{CudaOom, Line};
use stormlog_model::text::{inert_lines, nanoseconds_in_words, sparkline};
use stormlog_model::{Counter, Event, format_bytes};
use stormlog_postmortem::bundle::Bundle;
use stormlog_postmortem::verdict::without_message;

use crate::Story;
use crate::moment::clock;

/// Events shown on the page.
const LAST_EVENTS: usize = 6;
/// Holders that the answer names.
const SHOWN_HOLDERS: usize = 3;
/// Mappings looked at.
const SHOWN_MAPPINGS: usize = 12;
/// Smaller mappings are not shown.
const LEAST_MAPPED: u64 = 1 << 20;
/// Characters of the chart.
const CHART: usize = 60;

/// The page, each line ended.
#[must_use]
pub fn bundle_page(bundle: &Bundle, story: &Story) -> String {
    let mut page = Page { headline: &story.headline, text: String::new() };
    for line in &story.headline {
        page.raw(line);
    }
    page.raw("");
    page.end(bundle);
    for failed in story.processes.iter().flat_map(|process| &process.failed_requests) {
        page.line("failed", failed);
    }
    let events = bundle.events();
    page.memory(bundle, &events);
    page.holders(bundle, story);
    page.advice(bundle);
    page.last_events(&events);
    page.line("session", &session(bundle));
    page.line("bundle", &bundle.path.display().to_string());
    inert_lines(&page.text).into_owned()
}

/// The evidence below an answer: what the answer has is not repeated.
struct Page<'a> {
    headline: &'a [String],
    text: String,
}

impl Page<'_> {
    fn has(&self, text: &str) -> bool {
        let text = text.trim().trim_end_matches('.');
        !text.is_empty() && self.headline.iter().any(|line| line.contains(text))
    }

    fn line(&mut self, label: &str, text: &str) {
        if !self.has(text) {
            self.raw(&format!("  {label:<9} {}", text.trim_end()));
        }
    }

    fn raw(&mut self, line: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }

    /// How the program ended.
    fn end(&mut self, bundle: &Bundle) {
        let metadata =
            |key: &str| bundle.metadata.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        if let Some(ended) = bundle.evidence.get("verdict").and_then(Value::as_str) {
            // The message has a line of its own.
            self.line("program", &without_message(ended, metadata("exception_message").unwrap_or_default()));
        }
        let when = bundle.created_at_utc.as_deref().unwrap_or("unknown");
        let backend = bundle.backend.as_deref().unwrap_or("unknown");
        self.line("cause", &format!("{} · {when} · {backend}", bundle.cause));
        if let Some(kind) = metadata("exception_type") {
            let message = metadata("exception_message").map(first_line).unwrap_or_default();
            // The first line of the answer quotes the message.
            let message = if self.has(message) { "" } else { message };
            self.line("raised", format!("{kind}: {message}").trim_end_matches(": "));
        }
        if let Some(sentence) = allocator_sentence(&bundle.metadata) {
            self.line("allocator", sentence);
        }
        if let Some(frame) = innermost(&bundle.metadata) {
            self.line("at", &frame);
        }
    }

    /// What the allocator reported, the sizes, and the last minutes.
    fn memory(&mut self, bundle: &Bundle, events: &[Event]) {
        let cuda = CudaOom::of(bundle);
        // Lines that hold memory are in the story, whichever recorder saw them; so is what the answer is made of.
        let is_new = |found: &Line| !matches!(found.label, "held by" | "asked" | "verdict" | "try");
        for found in cuda.iter().flat_map(CudaOom::lines).filter(is_new) {
            self.line(found.label, &found.text);
        }
        let source = bundle.evidence.get("limit_source").and_then(Value::as_str);
        let mut sizes = Vec::new();
        sizes.extend(bundle.peak_rss_bytes.map(|peak| format!("peak {}", format_bytes(peak))));
        sizes.extend(bundle.limit_bytes.map(|limit| format!("limit {}", format_bytes(limit))));
        sizes.extend(source.map(|source| format!("({source})")));
        if !sizes.is_empty() {
            self.line(if cuda.is_some() { "host" } else { "memory" }, &sizes.join(" "));
        }
        let points: Vec<(u64, u64)> =
            events.iter().filter_map(|event| Some((event.timestamp_ns, memory_of(event)?))).collect();
        if let (Some(first), Some(last)) = (points.first(), points.last()) {
            let most = points.iter().map(|(_, value)| *value).max().unwrap_or(0);
            let took = nanoseconds_in_words(last.0.saturating_sub(first.0));
            let chart = sparkline(&points, CHART, most);
            self.raw(&format!("  last {took:<9}{chart}  {}", format_bytes(last.1)));
        }
    }

    fn holders(&mut self, bundle: &Bundle, story: &Story) {
        for process in &story.processes {
            for (at, holder) in process.held.iter().enumerate().skip(SHOWN_HOLDERS) {
                let words = holder.words(&process.held[..at]);
                let memory = holder.memory.to_string();
                self.line("held by", &format!("{:>10}  {memory:<7} {words}", holder.size()));
            }
            for residual in &process.residuals {
                self.line("layers", &residual.words());
            }
        }
        let rows = |key: &str| bundle.evidence.get(key).and_then(Value::as_array).into_iter().flatten();
        for row in rows("held_by") {
            let place = row.get("place").and_then(Value::as_str).unwrap_or("unknown");
            // Other processes: lines of this one and kinds of memory are above.
            if place.contains("(pid ") {
                let bytes = row.get("bytes").and_then(Value::as_u64).map_or_else(String::new, format_bytes);
                self.line("held by", &format!("{bytes:>10}  {place}"));
            }
        }
        for row in rows("memory_map").take(SHOWN_MAPPINGS) {
            let name = row.get("name").and_then(Value::as_str).unwrap_or("unknown");
            let bytes = row.get("rss_bytes").and_then(Value::as_u64).filter(|bytes| *bytes >= LEAST_MAPPED);
            // Kinds of memory are the layers above.
            if let Some(bytes) = bytes.filter(|_| !name.starts_with('[')) {
                self.line("mapped", &format!("{:>10}  {name}", format_bytes(bytes)));
            }
        }
    }

    fn advice(&mut self, bundle: &Bundle) {
        let texts = |key: &str| {
            let found = bundle.evidence.get(key).and_then(Value::as_array);
            found.into_iter().flatten().filter_map(Value::as_str)
        };
        for advice in texts("try").filter(|advice| !advice.starts_with("cap what")) {
            self.line("try", advice);
        }
        for note in texts("notes").chain(bundle.notes.iter().map(String::as_str)) {
            self.line("note", note);
        }
    }

    fn last_events(&mut self, events: &[Event]) {
        for event in events.iter().skip(events.len().saturating_sub(LAST_EVENTS)) {
            let time = clock(event.timestamp_ns.into()).unwrap_or_default();
            let memory = memory_of(event).map_or_else(|| "-".to_owned(), format_bytes);
            let context = event.context.as_deref().map(first_line);
            let context = context.filter(|context| !self.has(context)).unwrap_or_default();
            let row = format!("  event     {time}  {:<8} {memory:>10}  {context}", event.head.event_type);
            self.raw(row.trim_end());
        }
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

/// What the framework's allocator reported of the failure.
fn allocator_sentence(metadata: &stormlog_model::Record) -> Option<&str> {
    metadata.get("custom_metadata")?.get("allocator_failure")?.get("sentence")?.as_str()
}

/// The line that raised the exception, where the program reported it: the innermost of the program's own code.
fn innermost(metadata: &stormlog_model::Record) -> Option<String> {
    let frames = metadata.get("custom_metadata")?.get("traceback")?.as_array()?;
    let is_own = |frame: &&Value| {
        frame
            .get("file")
            .and_then(Value::as_str)
            .is_some_and(|file| !stormlog_model::stacks::is_library(file))
    };
    let frame = frames.iter().rev().find(is_own).or(frames.last())?;
    let text = |key: &str| frame.get(key).and_then(Value::as_str).unwrap_or("?");
    Some(format!("{}:{} {}", text("file"), frame.get("line")?, text("function")))
}

fn memory_of(event: &Event) -> Option<u64> {
    event.counter(Counter::Used).or_else(|| event.counter(Counter::Allocated))
}
