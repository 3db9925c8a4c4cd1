//! The values of a story and of findings as the page shows them.

use stormlog_analyze::report::evidence_line;
use stormlog_model::{Finding as Found, format_bytes};
use stormlog_render::report::{Finding, Held, Parts, Process};

use crate::lanes::Clock;
use crate::{Holder, ProcessStory, Residual};

pub(super) fn process(story: &ProcessStory) -> Process {
    Process {
        name: story.program.clone().unwrap_or_else(|| super::UNNAMED.to_owned()),
        pid: story.pid,
        // Known from its samples: every process outside a job calls itself rank 0.
        rank: None,
        ended: story.ended.as_str().to_owned(),
        what_happened: story.what_happened.clone(),
        peak_bytes: story.peak_rss_bytes,
        devices: Vec::new(),
        held: story.held.iter().take(5).map(held).collect(),
        outlier: String::new(),
        parts: story.residuals.iter().map(parts).collect(),
    }
}

fn held(holder: &Holder) -> Held {
    Held { memory: holder.memory.to_string(), bytes: holder.bytes, words: holder.words(&[]) }
}

/// `RSS 1.2 GiB` and what it consists of, with what no part explains.
fn parts(residual: &Residual) -> (String, Parts) {
    let known = residual.parts.iter().map(|part| (part.name.to_owned(), part.bytes));
    let rest = std::iter::once(("unknown".to_owned(), residual.unknown_bytes));
    let name = format!("{} {}", residual.memory, format_bytes(residual.total_bytes));
    (name, known.chain(rest.filter(|(_, bytes)| bytes.is_some())).collect())
}

pub(super) fn finding(found: &Found, clock: Clock) -> Finding {
    let spans = || found.evidence.iter();
    let from = spans().filter_map(|evidence| evidence.start_ns).min();
    let to = spans().filter_map(|evidence| evidence.end_ns).max();
    Finding {
        severity: found.severity.as_str().to_owned(),
        kind: found.kind.clone(),
        title: found.title.clone(),
        message: found.message.clone().unwrap_or_default(),
        confidence: found.confidence,
        undecided: found.undecided,
        place: place_words(found),
        holder: found.holder.as_ref().map(holder_words).unwrap_or_default(),
        evidence: found.evidence.iter().take(20).map(evidence_line).collect(),
        advice: found.advice.clone(),
        span: from.zip(to).filter(|(from, to)| from < to).map(|(from, to)| (clock.ms(from), clock.ms(to))),
    }
}

/// `cuda:0, pid 7`.
fn place_words(found: &Found) -> String {
    let memory = found.memory.map(|memory| memory.to_string());
    let process = found.process.map(|pid| format!("pid {pid}"));
    let words: Vec<String> = memory.into_iter().chain(process).collect();
    words.join(", ")
}

fn holder_words(holder: &stormlog_model::Holder) -> String {
    let file = holder.file.rsplit('/').next().unwrap_or(&holder.file);
    match holder.line {
        0 => format!("{} ({file})", holder.function),
        line => format!("{file}:{line} {}", holder.function),
    }
}
