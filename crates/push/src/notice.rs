//! What is reported: one JSON object an event, documented in docs/alerts.md. Every text in it is scrubbed of secrets here.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stormlog_model::scrub;

/// Version of the payload; it changes when a key changes its meaning.
const VERSION: u32 = 1;
/// Lines and characters of them: an answer has eight.
const MOST_LINES: usize = 16;
const MOST_CHARACTERS: usize = 1000;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// A limit is foreseen, or nearly reached.
    Alert,
    /// It no longer is.
    Resolved,
    /// A process died. Ends that were meant are not deaths.
    Death,
}

impl Event {
    /// The word in the payload.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Event::Alert => "alert",
            Event::Resolved => "resolved",
            Event::Death => "death",
        }
    }
}

/// One event of a run.
#[derive(Debug, Clone)]
pub struct Notice {
    /// What happened.
    pub event: Event,
    /// When, nanoseconds since 1970.
    pub at_ns: u64,
    /// The run's directory.
    pub run: PathBuf,
    /// What the user would call the program.
    pub program: String,
    /// The process.
    pub pid: u32,
    /// Machine.
    pub host: String,
    /// Job and rank, where they are known.
    pub job_id: Option<String>,
    /// Its rank.
    pub rank: Option<u64>,
    /// What happened, the first line a sentence. Empty: the run's answer.
    pub headline: Vec<String>,
    /// What is known of it: the alert's numbers, or cause and bundle of a death.
    pub details: Value,
}

impl Notice {
    /// The payload.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let line = |line: &String| -> String { scrub::text(line).chars().take(MOST_CHARACTERS).collect() };
        let headline: Vec<String> = self.headline.iter().take(MOST_LINES).map(line).collect();
        let at = i128::from(self.at_ns);
        let time = jiff::Timestamp::from_nanosecond(at).map(|time| format!("{time:.3}")).ok();
        json!({
            "version": VERSION, "event": self.event.as_str(), "time": time,
            "headline": headline, "program": scrub::text(&self.program), "pid": self.pid,
            "host": self.host, "job_id": self.job_id, "rank": self.rank,
            "run": self.run.display().to_string(), "details": scrubbed(&self.details),
        })
    }
}

/// Every text in a value.
fn scrubbed(value: &Value) -> Value {
    match value {
        Value::String(text) => scrub::text(text).into(),
        Value::Array(list) => list.iter().map(scrubbed).collect(),
        Value::Object(map) => {
            Value::Object(map.iter().map(|(key, value)| (key.clone(), scrubbed(value))).collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_has_no_secret_and_is_bounded() {
        let notice = Notice {
            event: Event::Death,
            at_ns: 1_700_000_000_123_456_789,
            run: "/runs/a".into(),
            program: "train.py".to_owned(),
            pid: 7,
            host: "n1".to_owned(),
            job_id: Some("42".to_owned()),
            rank: Some(3),
            headline: vec!["failed: --password=hunter2hunter2".to_owned(), "x".repeat(5000)],
            details: json!({"cause": "exit", "exception": "token=ghp_0123456789abcdefghijABCDEFGHIJ012345"}),
        };
        let text = notice.to_value().to_string();
        assert!(!text.contains("hunter2") && !text.contains("ghp_0123456789"), "{text}");
        assert!(text.len() < 2000);
        assert!(text.contains("\"time\":\"2023-11-14T22:13:20.123Z\""), "{text}");
    }
}
