//! The page a tired engineer reads in a terminal: the worst first, why, and what to try.

use std::fmt::Write;

use stormlog_event::{Finding, Severity, format_bytes};

use super::{evidence_line, score, verdict_sentence};
use crate::Analysis;
use crate::text::duration;

/// Pointers and sentences of advice shown per finding.
const SHOWN: usize = 3;

/// The page. Findings for information are one line each.
pub fn text(analysis: &Analysis) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(page, "{}", verdict_sentence(analysis));
    for finding in &analysis.findings {
        let _ = writeln!(page);
        add(&mut page, finding);
    }
    let _ = writeln!(page);
    let mut sessions: Vec<_> = analysis.sessions.iter().collect();
    sessions.sort_by_key(|session| std::cmp::Reverse(session.event_count));
    for session in sessions.into_iter().take(8) {
        let span = session.span_ns.1.saturating_sub(session.span_ns.0) as f64 / 1e9;
        let peak = session.peaks[2].or(session.peaks[0]).map_or_else(|| "-".to_owned(), format_bytes);
        let _ = writeln!(
            page,
            "session {}: {} events over {}, peak {peak}",
            session.session_id,
            session.event_count,
            duration(span)
        );
    }
    if analysis.sessions.len() > 8 {
        let _ = writeln!(page, "… and {} more sessions", analysis.sessions.len() - 8);
    }
    for alike in analysis.unavailable.chunk_by(|a, b| a.reason == b.reason) {
        let names: Vec<String> = alike.iter().map(|missing| missing.what.replace('_', " ")).collect();
        let _ = writeln!(page, "not asked: {}: {}", names.join(", "), alike[0].reason);
    }
    // The score counts; beside something critical its kind words would mislead.
    if analysis.worst() < Some(Severity::Critical) {
        let score = score(&analysis.findings);
        let _ = writeln!(page, "score {} ({}): {}", score.score, score.grade, score.description);
    }
    page
}

fn add(page: &mut String, finding: &Finding) {
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
        let _ = writeln!(page, "  {message}");
    }
    if finding.severity == Severity::Info {
        return;
    }
    for evidence in finding.evidence.iter().take(SHOWN) {
        let _ = writeln!(page, "  {:<9} {}", "evidence", evidence_line(evidence));
    }
    if finding.evidence.len() > SHOWN {
        let _ = writeln!(page, "  {:<9} … and {} more", "", finding.evidence.len() - SHOWN);
    }
    for sentence in finding.advice.iter().take(SHOWN) {
        let _ = writeln!(page, "  {:<9} {sentence}", "try");
    }
}
