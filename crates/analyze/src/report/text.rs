//! The page a tired engineer reads in a terminal: the worst first, why, and what to try.

use std::fmt::Write;

use stormlog_model::{Finding, Severity};

use super::{SessionLine, evidence_line, fullest, score, verdict_sentence};
use crate::Analysis;
use crate::text::counted;

/// Growth that is not a leak and less than this is in the report, not on the page.
const LEAST_PRINTED: f64 = 64.0 * 1_048_576.0;
/// Sessions that are listed; `stormlog sessions` has all of them.
const LISTED: usize = 4;
/// Pointers and sentences of advice shown per finding.
const SHOWN: usize = 3;

/// The page. Findings for information are one line each.
pub fn text(analysis: &Analysis) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    for line in &analysis.headline {
        let _ = writeln!(page, "{line}");
    }
    if !analysis.headline.is_empty() {
        page.push('\n');
    }
    for line in &analysis.layer_lines {
        let _ = writeln!(page, "{line}");
    }
    if !analysis.layer_lines.is_empty() {
        page.push('\n');
    }
    let _ = writeln!(page, "{}", verdict_sentence(analysis));
    for finding in analysis.findings.iter().filter(|finding| is_worth_a_line(finding)) {
        let _ = writeln!(page);
        add(&mut page, finding, SHOWN);
    }
    let _ = writeln!(page);
    let (sessions, rest) = fullest(analysis, LISTED);
    for SessionLine { id, events, span, peak } in sessions {
        let _ = writeln!(page, "session {id}: {} over {span}, peak {peak}", counted(events, "event"));
    }
    if rest > 0 {
        let _ = writeln!(page, "… and {rest} more, smaller ones: `stormlog sessions` lists them");
    }
    // What only an allocator knows is not expected of host memory.
    let unavailable = if analysis.has_devices { analysis.unavailable.as_slice() } else { &[] };
    for alike in unavailable.chunk_by(|a, b| a.reason == b.reason) {
        let names: Vec<String> = alike.iter().map(|missing| missing.what.replace('_', " ")).collect();
        let _ = writeln!(page, "skipped: {}: {}", names.join(", "), alike[0].reason);
    }
    // The score counts; beside trouble its kind words would mislead.
    let score = score(&analysis.findings);
    let _ = match analysis.worst() {
        Some(Severity::Critical) => Ok(()),
        Some(Severity::Warning) => writeln!(page, "score {} ({})", score.score, score.grade),
        _ => writeln!(page, "score {} ({}): {}", score.score, score.grade, score.description),
    };
    page
}

/// What an interpreter takes to start has levelled off in every recording, and is of no interest.
#[must_use]
pub fn is_worth_a_line(finding: &Finding) -> bool {
    let bytes = finding.metrics.get("growth_bytes").and_then(serde_json::Value::as_f64);
    finding.severity > Severity::Info || finding.undecided || bytes.is_none_or(|bytes| bytes >= LEAST_PRINTED)
}

/// One finding with everything that is known of it.
#[must_use]
pub fn finding_text(finding: &Finding) -> String {
    let mut page = String::new();
    add(&mut page, finding, usize::MAX);
    page
}

/// The largest number of pointers and of sentences of advice; those of a finding for information are in the whole text only.
fn add(page: &mut String, finding: &Finding, most: usize) {
    let severity = match finding.severity {
        Severity::Critical => "CRITICAL",
        Severity::Warning => "WARNING",
        Severity::Info => "info",
    };
    let _ = writeln!(
        page,
        "{severity:<9} {}  confidence {:.2}\n  {}",
        finding.kind.to_uppercase(),
        finding.confidence,
        finding.title
    );
    if let Some(message) = &finding.message {
        // What a program said may be a paragraph.
        let lines: Vec<&str> = message.lines().map(str::trim).collect();
        let _ = writeln!(page, "  {}", lines.join("\n  "));
    }
    if finding.severity == Severity::Info && !finding.undecided && most < usize::MAX {
        return;
    }
    for evidence in finding.evidence.iter().take(most) {
        let _ = writeln!(page, "  {:<9} {}", "evidence", evidence_line(evidence));
    }
    if finding.evidence.len() > most {
        let _ = writeln!(page, "  {:<9} … and {} more", "", finding.evidence.len() - most);
    }
    for sentence in finding.advice.iter().take(most) {
        let _ = writeln!(page, "  {:<9} {sentence}", "try");
    }
}
