//! What a heap capture adds: the lines whose memory stays and grows, and the request that got none.
//!
//! The capture is read elsewhere; here is what it means. Growth of a process's memory that telemetry shows gets the line
//! that grew. Page: `docs/rules/heap.md`.

use stormlog_model::{Evidence, Finding, Severity, format_bytes};

use super::{advice, metrics};

/// A line that keeps less than this is housekeeping…
const LEAST_BYTES: u64 = 1 << 20;
/// …and so is one below this part of the peak.
const LEAST_SHARE: f64 = 0.05;
/// A line that came only in the last part of the time may just have been next.
const LATEST_START: f64 = 0.7;
/// Lines that are named.
const NAMED: usize = 3;

/// A line of the program whose memory stayed.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// `metrics.py:33 append`.
    pub place: String,
    /// The line that calls it.
    pub caller: Option<String>,
    /// Bytes that stayed.
    pub bytes: u64,
    /// Allocations they came in.
    pub count: u64,
    /// Whether it grew again and again, to the end.
    pub is_steady: bool,
    /// How fast.
    pub bytes_per_second: f64,
    /// When the first of it came.
    pub first_seconds: f64,
}

/// A capture, as its reader sums it up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Capture {
    /// The file.
    pub path: String,
    /// The process.
    pub pid: u32,
    /// How long it lasted.
    pub seconds: f64,
    /// The most it held.
    pub peak_bytes: u64,
    /// What stayed, the fastest first.
    pub kept: Vec<Kept>,
    /// The sentence about the last request that got no memory, and how many there were.
    pub failed: Option<(String, u64)>,
}

impl Kept {
    /// `metrics.py:33 append ← train.py:120 main`.
    pub(crate) fn words(&self) -> String {
        match &self.caller {
            Some(caller) => format!("{} ← {caller}", self.place),
            None => self.place.clone(),
        }
    }
}

impl Capture {
    /// The lines that grow and matter.
    fn growing(&self) -> Vec<&Kept> {
        let least = (self.peak_bytes as f64 * LEAST_SHARE).max(LEAST_BYTES as f64);
        let matters = |kept: &&Kept| {
            kept.is_steady && kept.bytes as f64 >= least && kept.first_seconds <= self.seconds * LATEST_START
        };
        self.kept.iter().filter(matters).collect()
    }
}

/// What a capture shows by itself.
pub fn findings(capture: &Capture) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some((sentence, count)) = &capture.failed {
        let mut found = about(capture, "heap.failed_request", "oom", Severity::Critical, 1.0);
        found.title = sentence.clone();
        found.metrics.insert("failed_requests".to_owned(), (*count).into());
        found.advice = advice([
            "`stormlog flamegraph` on the capture shows who held the memory at that moment.",
            "Raise the limit, or make the largest holder smaller.",
        ]);
        findings.push(found);
    }
    for kept in capture.growing().into_iter().take(NAMED) {
        let mut found = about(capture, "heap.growth", "leak", Severity::Warning, 0.8);
        found.title = format!(
            "{} keeps {} in {} allocations and grows by {}/s",
            kept.place,
            format_bytes(kept.bytes),
            kept.count,
            format_bytes(kept.bytes_per_second.max(0.0) as u64)
        );
        found.message = Some(format!("allocated by {}; none of it was freed until the end", kept.words()));
        found.metrics.extend(metrics([
            ("kept_bytes", kept.bytes.into()),
            ("allocations", kept.count.into()),
            ("bytes_per_second", kept.bytes_per_second.into()),
        ]));
        found.advice = advice([
            "Find what keeps a reference to what this line makes: a list, a cache, a logger.",
            "`stormlog leaks` lists every such line; `stormlog tree` shows the stacks.",
        ]);
        findings.push(found);
    }
    findings
}

/// Names the line behind the growth of a process's memory. True when it did.
pub fn explain(finding: &mut Finding, capture: &Capture) -> bool {
    let is_growth = matches!(finding.kind.as_str(), "leak" | "growth");
    let number = |key: &str| finding.metrics.get(key).and_then(serde_json::Value::as_i64);
    let is_host = number("device_id") == Some(-1);
    if !is_growth || !is_host || number("pid") != Some(i64::from(capture.pid)) {
        return false;
    }
    let growing = capture.growing();
    let Some(most) = growing.iter().max_by_key(|kept| kept.bytes) else { return false };
    let all: u64 = growing.iter().map(|kept| kept.bytes).sum();
    let share = 100.0 * most.bytes as f64 / all.max(1) as f64;
    let line = format!("{share:.0} % of what grows: {} ({} allocations alive)", most.words(), most.count);
    finding.message = Some(match finding.message.take() {
        Some(message) => format!("{message}; {line}"),
        None => line.clone(),
    });
    finding.evidence.push(Evidence {
        kind: "heap_capture".to_owned(),
        path: Some(capture.path.clone()),
        description: Some(line),
        ..Evidence::default()
    });
    true
}

fn about(capture: &Capture, id: &str, kind: &str, severity: Severity, confidence: f64) -> Finding {
    Finding {
        id: id.to_owned(),
        kind: kind.to_owned(),
        severity,
        confidence,
        title: String::new(),
        message: None,
        metrics: metrics([("pid", capture.pid.into())]),
        evidence: vec![Evidence {
            kind: "heap_capture".to_owned(),
            path: Some(capture.path.clone()),
            ..Evidence::default()
        }],
        advice: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{finish, sample};
    use crate::{AnalysisOptions, analyze};

    fn kept(bytes: u64, is_steady: bool, first_seconds: f64) -> Kept {
        Kept {
            place: "metrics.py:33 append".into(),
            caller: Some("train.py:120 main".into()),
            bytes,
            count: 12,
            is_steady,
            bytes_per_second: 1000.0,
            first_seconds,
        }
    }

    fn capture(kept: Vec<Kept>) -> Capture {
        Capture { pid: 7, seconds: 100.0, peak_bytes: 100 << 20, kept, ..Capture::default() }
    }

    #[test]
    fn only_what_grows_and_matters_is_named() {
        assert!(findings(&capture(vec![kept(50 << 20, false, 1.0)])).is_empty());
        assert!(findings(&capture(vec![kept(1 << 20, true, 1.0)])).is_empty());
        assert!(findings(&capture(vec![kept(50 << 20, true, 90.0)])).is_empty());
        let found = findings(&capture(vec![kept(50 << 20, true, 1.0)]));
        assert_eq!(found.len(), 1);
        assert!(
            found[0].title.starts_with("metrics.py:33 append keeps 50.00 MiB in 12 allocations"),
            "{}",
            found[0].title
        );
    }

    #[test]
    fn a_failed_request_is_critical() {
        let failed =
            Capture { failed: Some(("malloc of 4 GiB got no memory".into(), 2)), ..Capture::default() };
        let found = findings(&failed);
        assert_eq!((found[0].severity, found[0].kind.as_str()), (Severity::Critical, "oom"));
    }

    #[test]
    fn the_growth_of_a_process_gets_its_line() {
        let leak = (0..100).map(|i| sample(i * 1_000_000_000, (1 << 30) + i * (200 << 20)));
        let mut analysis = analyze(finish(leak), Vec::new(), &AnalysisOptions::default());
        let found = analysis.findings.iter_mut().find(|found| found.kind == "leak").unwrap();
        let pid = u32::try_from(found.metrics["pid"].as_i64().unwrap()).unwrap();
        found.metrics.insert("device_id".into(), (-1).into());
        let capture = Capture { pid, ..capture(vec![kept(50 << 20, true, 1.0), kept(50 << 20, true, 2.0)]) };
        assert!(explain(found, &capture));
        assert!(
            found
                .message
                .as_ref()
                .unwrap()
                .contains("50 % of what grows: metrics.py:33 append ← train.py:120")
        );
        assert!(!explain(found, &Capture { pid: pid + 1, ..capture }));
    }
}
