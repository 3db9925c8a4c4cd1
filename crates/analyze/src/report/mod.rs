//! An analysis as others read it: the envelope for scripts, 0.4.3's report, text for a terminal, Markdown and HTML for an incident.

mod envelope;
mod html;
mod markdown;
mod optimization;
mod text;

pub use envelope::{Artifact, Envelope, Verdict, verdict_sentence};
pub use html::html;
pub use markdown::markdown;
pub use optimization::{Score, optimization_report, score};
pub use text::{finding_text, is_worth_a_line, text};

use stormlog_model::{Evidence, Finding, format_bytes};

use crate::text::duration;
use crate::{Analysis, SessionFacts};

/// Sessions on a page that is read in an incident.
const LISTED: usize = 20;

/// `session s-1, 2026-11-15 06:11:32Z to 06:40:02Z: why`.
pub fn evidence_line(evidence: &Evidence) -> String {
    let mut parts = Vec::new();
    parts.extend(evidence.path.clone());
    parts.extend(evidence.session_id.as_ref().map(|session| format!("session {session}")));
    match (evidence.start_ns, evidence.end_ns) {
        (Some(start), Some(end)) if start != end => {
            parts.push(format!("{} to {}", moment(start), moment(end)));
        }
        (Some(at), _) | (None, Some(at)) => parts.push(moment(at)),
        (None, None) => {}
    }
    parts.extend(evidence.description.clone());
    parts.join(", ")
}

fn moment(ns: u64) -> String {
    match jiff::Timestamp::from_nanosecond(ns.into()) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
        Err(_) => format!("{ns} ns"),
    }
}

/// A session in the list of a page.
struct SessionLine<'a> {
    id: &'a str,
    events: u64,
    span: String,
    peak: String,
}

/// Sessions with the highest peaks first, as many as a page lists, and how many are left.
fn fullest(analysis: &Analysis, most: usize) -> (impl Iterator<Item = SessionLine<'_>>, usize) {
    let mut sessions: Vec<&SessionFacts> = analysis.sessions.iter().collect();
    sessions.sort_by_key(|session| std::cmp::Reverse((peak_of(session), session.event_count)));
    sessions.truncate(most);
    let left = analysis.sessions.len() - sessions.len();
    (sessions.into_iter().map(SessionLine::of), left)
}

impl<'a> SessionLine<'a> {
    fn of(session: &'a SessionFacts) -> Self {
        SessionLine {
            id: &session.session_id,
            events: session.event_count,
            span: duration(session.span_ns.1.saturating_sub(session.span_ns.0) as f64 / 1e9),
            peak: peak_of(session).map_or_else(|| "-".to_owned(), format_bytes),
        }
    }
}

fn peak_of(session: &SessionFacts) -> Option<u64> {
    session.peaks[2].or(session.peaks[0])
}

/// Advice of all findings, each sentence once, the worst finding's first.
fn recommendations(findings: &[Finding]) -> Vec<String> {
    let mut sentences: Vec<String> = Vec::new();
    for sentence in findings.iter().flat_map(|finding| &finding.advice) {
        if !sentences.contains(sentence) {
            sentences.push(sentence.clone());
        }
    }
    sentences
}
