//! The `stormlog.report` envelope: verdict, findings, numbers and artifacts, for scripts and CI.
//!
//! Keys and their order are those of schema 1; a finding has `confidence` and `advice` on top. The verdict's word always goes with
//! its exit code.

use serde_json::Value;
use stormlog_model::{Finding, Record, Severity};

use super::recommendations;
use crate::Analysis;
use crate::text::counted;

/// A verdict: the word and the exit code that go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to complain about.
    Pass,
    /// Something was found.
    Findings,
    /// A budget was exceeded.
    GateFailed,
    /// An input is missing, unreadable or invalid.
    InvalidInput,
}

impl Verdict {
    /// The verdict on an analysis: damage first, then trouble.
    pub fn of(analysis: &Analysis) -> Self {
        let files = analysis.captures + analysis.snapshots;
        if analysis.is_damaged() || (analysis.event_count == 0 && files == 0) {
            Verdict::InvalidInput
        } else if analysis.has_trouble() {
            Verdict::Findings
        } else {
            Verdict::Pass
        }
    }

    /// The word.
    pub fn status(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Findings => "findings",
            Verdict::GateFailed => "gate_failed",
            Verdict::InvalidInput => "invalid_input",
        }
    }

    /// The exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Pass => 0,
            Verdict::Findings => 3,
            Verdict::GateFailed => 4,
            Verdict::InvalidInput => 5,
        }
    }
}

/// A file the report is about.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// `sink`, `telemetry_json`, …
    pub kind: String,
    /// Where.
    pub path: String,
}

/// What the envelope says besides the analysis.
#[derive(Debug, Clone)]
pub struct Envelope {
    /// `analyze`, `check`, `compare`.
    pub report_kind: &'static str,
    /// `stormlog`, `gpumemprof`, `tfmemprof`.
    pub tool_name: String,
    /// The tool's version.
    pub version: String,
    /// The arguments.
    pub argv: Vec<String>,
    /// `2026-11-15T06:11:32Z`.
    pub generated_at_utc: String,
    /// The verdict.
    pub verdict: Verdict,
    /// One sentence.
    pub summary: String,
    /// The session, when there is one.
    pub session_id: Option<String>,
    /// What was looked at.
    pub artifacts: Vec<Artifact>,
}

impl Envelope {
    /// The whole report.
    pub fn report(&self, findings: &[Finding], metrics: Record, payload: Record) -> Record {
        let mut record = Record::new();
        let mut put = |key: &str, value: Value| record.insert(key.to_owned(), value);
        put("schema_version", 1.into());
        put("format", "stormlog.report".into());
        put("report_kind", self.report_kind.into());
        put("generated_at_utc", self.generated_at_utc.as_str().into());
        put(
            "tool",
            object([
                ("name", self.tool_name.as_str().into()),
                ("command", self.report_kind.into()),
                ("version", self.version.as_str().into()),
                ("argv", self.argv.clone().into()),
            ]),
        );
        put(
            "verdict",
            object([
                ("status", self.verdict.status().into()),
                ("exit_code", self.verdict.exit_code().into()),
                ("summary", self.summary.as_str().into()),
            ]),
        );
        put("findings", findings.iter().map(|finding| Value::Object(finding.to_record())).collect());
        put("metrics", Value::Object(metrics));
        let artifact = |artifact: &Artifact| {
            object([("kind", artifact.kind.as_str().into()), ("path", artifact.path.as_str().into())])
        };
        put("artifacts", self.artifacts.iter().map(artifact).collect());
        put("recommendations", recommendations(findings).into());
        put("session_id", self.session_id.as_deref().into());
        put("run_id", Value::Null);
        put("payload", Value::Object(payload));
        record
    }
}

fn object<const N: usize>(pairs: [(&str, Value); N]) -> Value {
    Value::Object(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

/// `1 critical finding, 2 warnings in 3 sessions (1000 events)`.
pub fn verdict_sentence(analysis: &Analysis) -> String {
    let count = |severity| analysis.findings.iter().filter(|finding| finding.severity == severity).count();
    let some = |number: usize, one: &str| (number > 0).then(|| counted(number as u64, one));
    let found =
        [some(count(Severity::Critical), "critical finding"), some(count(Severity::Warning), "warning")];
    let found: Vec<String> = found.into_iter().flatten().collect();
    let sessions = some(analysis.sessions.len(), "session").unwrap_or("no session".into());
    let events = analysis.event_count;
    let places = [some(analysis.captures, "heap capture"), some(analysis.snapshots, "allocator snapshot")];
    let mut places: Vec<String> = places.into_iter().flatten().collect();
    if events > 0 || places.is_empty() {
        places.insert(0, format!("{sessions} ({})", counted(events, "event")));
    }
    let place = places.join(" and ");
    let undecided = analysis.findings.iter().filter(|finding| finding.undecided).count();
    match found.as_slice() {
        [] if undecided > 0 => {
            format!("undecided: memory grew in {place}, but the recording is too short to call it a leak")
        }
        [] => format!("nothing wrong in {place}"),
        found => format!("{} in {place}", found.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{finish, sample};
    use crate::{AnalysisOptions, analyze};

    #[test]
    fn the_word_goes_with_the_code_and_damage_comes_first() {
        for (verdict, word, code) in [
            (Verdict::Pass, "pass", 0),
            (Verdict::Findings, "findings", 3),
            (Verdict::GateFailed, "gate_failed", 4),
            (Verdict::InvalidInput, "invalid_input", 5),
        ] {
            assert_eq!((verdict.status(), verdict.exit_code()), (word, code));
        }
        let fine = analyze(finish([sample(1, 5)]), Vec::new(), &AnalysisOptions::default());
        assert_eq!(Verdict::of(&fine), Verdict::Pass);
        assert_eq!(verdict_sentence(&fine), "nothing wrong in 1 session (1 event)");
        let empty = analyze(finish([]), Vec::new(), &AnalysisOptions::default());
        assert_eq!(Verdict::of(&empty), Verdict::InvalidInput);
    }
}
