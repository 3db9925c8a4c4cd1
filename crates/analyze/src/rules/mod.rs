//! One rule a file: what it watches for, when it speaks, and what it advises. Each has a page under `docs/rules/`.
//!
//! A rule implements [`Rule`] and has one line in `registry.rs`. Rules about several ranks (`collective`, `outliers`, `ranks`) see jobs instead of streams,
//! and `copy_on_write` sees a process with those that were forked from it.

pub mod collective;
pub mod collective_ranks;
pub mod collector;
pub(crate) mod copy_on_write;
pub(crate) mod findings;
pub mod fragmentation;
pub mod gap;
pub mod growth;
pub mod heap;
pub mod hidden;
pub mod inputs;
pub mod limit;
mod observation;
pub mod oom;
pub mod outliers;
pub mod pressure;
pub mod ranks;
mod registry;
pub mod resident;
pub mod retries;
pub mod shared_pages;
pub mod start;

pub use registry::{MakeRule, Observed, Rule, RuleContext, Rules};
use serde_json::Value;
use stormlog_model::{Evidence, Finding, Record, Severity};

use crate::recording::Stream;

/// The metrics of a finding.
pub(crate) fn metrics<const N: usize>(pairs: [(&str, Value); N]) -> Record {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// A finding about a stream, with the stream itself as evidence.
pub fn about(
    stream: &Stream,
    id: &str,
    kind: &str,
    severity: Severity,
    confidence: f64,
    title: String,
) -> Finding {
    let head = &stream.head;
    Finding {
        id: id.to_owned(),
        kind: kind.to_owned(),
        severity,
        confidence,
        title: format!("{title} ({})", place(stream)),
        message: None,
        metrics: metrics([
            ("rank", head.identity.rank.into()),
            ("device_id", head.device_id.into()),
            ("pid", head.pid.into()),
        ]),
        evidence: vec![Evidence {
            kind: "telemetry".to_owned(),
            session_id: Some(head.session_id.clone()),
            ..Evidence::default()
        }],
        advice: Vec::new(),
        undecided: false,
        process: (head.pid > 0).then_some(head.pid),
        memory: stream.memory,
        holder: None,
    }
}

/// `rank 3, GPU 0, pid 4711`: only what tells this stream from others.
fn place(stream: &Stream) -> String {
    let head = &stream.head;
    let mut parts = Vec::new();
    if head.identity.world_size > 1 {
        parts.push(format!("rank {}", head.identity.rank));
    }
    parts.push(if head.device_id < 0 { "host".to_owned() } else { format!("device {}", head.device_id) });
    if head.pid > 0 {
        parts.push(format!("pid {}", head.pid));
    }
    parts.join(", ")
}

pub(crate) fn advice<const N: usize>(sentences: [&str; N]) -> Vec<String> {
    sentences.into_iter().map(str::to_owned).collect()
}
