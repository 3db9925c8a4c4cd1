//! What an analysis found: one shape for every rule, every command and every output.
//!
//! A finding says what is wrong, how bad, how sure, why (evidence that points into the artifacts) and what to do. The object
//! form is the `findings[]` entry of the `stormlog.report` envelope.

use serde_json::Value;

use crate::Record;
use crate::memory::Memory;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; nothing to do.
    Info,
    /// Look at it.
    Warning,
    /// It ended the program, or will.
    Critical,
}

impl Severity {
    /// The word written to reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

/// A pointer to the data behind a finding. `None` is "not this kind of pointer".
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// `telemetry`, `session`, `oom_bundle`, `input`, …
    pub kind: String,
    /// The file or directory.
    pub path: Option<String>,
    /// A JSON pointer inside that file.
    pub pointer: Option<String>,
    /// The session.
    pub session_id: Option<String>,
    /// The record.
    pub record_id: Option<String>,
    /// From when.
    pub start_ns: Option<u64>,
    /// Until when.
    pub end_ns: Option<u64>,
    /// A sentence.
    pub description: Option<String>,
}

impl Evidence {
    /// The object form; what is not there is left out.
    pub fn to_record(&self) -> Record {
        let mut record = Record::new();
        record.insert("kind".to_owned(), self.kind.as_str().into());
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                record.insert(key.to_owned(), value);
            }
        };
        let text = |text: &Option<String>| text.as_deref().map(Value::from);
        put("path", text(&self.path));
        put("pointer", text(&self.pointer));
        put("session_id", text(&self.session_id));
        put("record_id", text(&self.record_id));
        put("start_ns", self.start_ns.map(Value::from));
        put("end_ns", self.end_ns.map(Value::from));
        put("description", text(&self.description));
        record
    }
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// `<rule>.<what>`, lower case: the same condition has the same id in every report.
    pub id: String,
    /// What kind of thing it is: `leak`, `growth`, `oom`, `hidden_gap`, …
    pub kind: String,
    /// How bad.
    pub severity: Severity,
    /// 0 to 1: how sure.
    pub confidence: f64,
    /// One line.
    pub title: String,
    /// The explanation, where one line is not enough.
    pub message: Option<String>,
    /// The numbers the rule decided by. Finite numbers and nulls only.
    pub metrics: Record,
    /// Where to look.
    pub evidence: Vec<Evidence>,
    /// What to do, the best first.
    pub advice: Vec<String>,
    /// Something was seen that cannot be judged yet; then the severity is information.
    pub undecided: bool,
    /// The process it is about.
    pub process: Option<i64>,
    /// The memory it is about.
    pub memory: Option<Memory>,
    /// The line that holds the memory, where that is known.
    pub holder: Option<Holder>,
}

/// A line of the program that holds memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holder {
    /// The file, as the capture names it.
    pub file: String,
    /// 0 where only the function is known.
    pub line: u32,
    /// The function.
    pub function: String,
}

/// Metrics that measure how large a condition is, the most telling first.
const SIZES: [&str; 9] = [
    "growth_bytes",
    "copied_bytes",
    "kept_bytes",
    "unknown_bytes",
    "outside_bytes",
    "peak_delta_bytes",
    "max_gap_bytes",
    "requested_bytes",
    "peak_bytes",
];

impl Finding {
    /// A finding of which nothing is known but what, how bad and a line; surely so.
    #[must_use]
    pub fn new(id: &str, kind: &str, severity: Severity, title: String) -> Self {
        Finding {
            id: id.to_owned(),
            kind: kind.to_owned(),
            severity,
            confidence: 1.0,
            title,
            message: None,
            metrics: Record::new(),
            evidence: Vec::new(),
            advice: Vec::new(),
            undecided: false,
            process: None,
            memory: None,
            holder: None,
        }
    }

    /// How many bytes it is about, by the metric that its rule decided by; `None` where it has no such metric.
    #[must_use]
    pub fn size_bytes(&self) -> Option<u64> {
        let size = |key: &&str| self.metrics.get(*key).and_then(Value::as_f64);
        SIZES.iter().find_map(size).map(|bytes| bytes.max(0.0) as u64)
    }

    /// Takes the measured values away: of a condition that this process shares with another, they are the other's.
    #[must_use]
    pub fn without_measurements(mut self) -> Self {
        self.metrics.clear();
        self.holder = None;
        self
    }

    /// The object form.
    pub fn to_record(&self) -> Record {
        let mut record = Record::new();
        let mut put = |key: &str, value: Value| record.insert(key.to_owned(), value);
        put("id", self.id.as_str().into());
        put("kind", self.kind.as_str().into());
        put("severity", self.severity.as_str().into());
        put("confidence", rounded(self.confidence).into());
        put("title", self.title.as_str().into());
        if let Some(message) = &self.message {
            put("message", message.as_str().into());
        }
        put("metrics", Value::Object(self.metrics.clone()));
        put("evidence", self.evidence.iter().map(|pointer| Value::Object(pointer.to_record())).collect());
        put("advice", self.advice.clone().into());
        if self.undecided {
            put("undecided", true.into());
        }
        if let Some(process) = self.process {
            put("process", process.into());
        }
        if let Some(memory) = self.memory {
            put("memory", memory.to_string().into());
        }
        if let Some(Holder { file, line, function }) = &self.holder {
            let pairs = [
                ("file", file.as_str().into()),
                ("line", (*line).into()),
                ("function", function.as_str().into()),
            ];
            put(
                "holder",
                Value::Object(
                    pairs.map(|(key, value): (&str, Value)| (key.to_owned(), value)).into_iter().collect(),
                ),
            );
        }
        record
    }
}

/// More digits of a confidence would claim more than a rule knows.
fn rounded(confidence: f64) -> f64 {
    (confidence.clamp(0.0, 1.0) * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_has_the_promised_keys_and_no_empty_pointers() {
        let finding = Finding {
            id: "growth.host".into(),
            kind: "leak".into(),
            severity: Severity::Critical,
            confidence: 0.97123,
            title: "host memory grows".into(),
            message: None,
            metrics: Record::new(),
            evidence: vec![Evidence {
                kind: "telemetry".into(),
                session_id: Some("s".into()),
                ..Default::default()
            }],
            advice: vec!["free it".into()],
            undecided: false,
            process: None,
            memory: None,
            holder: None,
        };
        let record = finding.to_record();
        let keys: Vec<&str> = record.keys().map(String::as_str).collect();
        assert_eq!(keys, ["id", "kind", "severity", "confidence", "title", "metrics", "evidence", "advice"]);
        assert_eq!(record["confidence"], 0.971);
        let holder = Some(Holder { file: "a.py".into(), line: 3, function: "f".into() });
        let of_process = (Some(7), Some(Memory::Host));
        let undecided =
            Finding { undecided: true, process: of_process.0, memory: of_process.1, holder, ..finding }
                .to_record();
        assert_eq!((&undecided["process"], &undecided["memory"]), (&Value::from(7), &Value::from("host")));
        assert_eq!(
            (&undecided["undecided"], &undecided["holder"]["line"]),
            (&Value::from(true), &Value::from(3))
        );
        assert_eq!(record["evidence"][0].as_object().map(Record::len), Some(2));
        assert!(Severity::Critical > Severity::Warning && Severity::Warning > Severity::Info);
    }
}
