//! The program ran out of memory, and the recording says so. Page: `docs/rules/oom.md`.

use serde_json::Value;
use stormlog_model::{Event, Evidence, Finding, Severity, parse_bytes};

use super::{Rule, RuleContext, about, advice, metrics};
use crate::recording::Stream;

const SEEN: &str = "oom.seen";
/// Two reports of one death are this near.
const SAME_DEATH_NS: u64 = 60_000_000_000;

/// What was seen of out-of-memory errors.
#[derive(Debug, Default, Clone)]
pub struct OomMarks {
    /// How many.
    pub count: u64,
    /// The first of them.
    pub first: Option<OomMark>,
}

/// One out-of-memory error.
#[derive(Debug, Clone, PartialEq)]
pub struct OomMark {
    /// When.
    pub at_ns: u64,
    /// How it was recognised.
    pub reason: Option<String>,
    /// What the program said.
    pub context: Option<String>,
    /// Its bundle.
    pub bundle: Option<String>,
    /// What was requested, where the message says.
    pub requested_bytes: Option<u64>,
}

impl OomMarks {
    pub(crate) fn observe(&mut self, event: &Event) {
        if event.head.event_type != "error" {
            return;
        }
        let metadata = &event.metadata.map;
        let text = |key: &str| metadata.get(key).and_then(Value::as_str).map(str::to_owned);
        let context = event.context.as_deref();
        let is_named = context.is_some_and(|context| {
            let lower = context.to_lowercase();
            lower.starts_with("oom ") || lower.contains("out of memory")
        });
        if !(is_named || metadata.contains_key("oom_reason") || metadata.contains_key("oom_dump_path")) {
            return;
        }
        self.count += 1;
        if self.first.is_none() {
            let message = text("exception_message");
            let said = [message.as_deref(), context].into_iter().flatten();
            self.first = Some(OomMark {
                at_ns: event.timestamp_ns,
                reason: text("oom_reason"),
                context: context.map(str::to_owned),
                bundle: text("oom_dump_path"),
                requested_bytes: said.filter_map(requested).next(),
            });
        }
    }
}

/// `Tried to allocate 2.00 GiB.`
fn requested(message: &str) -> Option<u64> {
    let (_, after) = message.split_once("Tried to allocate ")?;
    let mut words = after.split_whitespace();
    let size = format!("{} {}", words.next()?, words.next()?.trim_end_matches(['.', ',']));
    parse_bytes(&size)
}

/// The rule: an error that the stream has marked.
#[derive(Debug, Default)]
pub struct OutOfMemory;

impl Rule for OutOfMemory {
    fn findings(&self, context: &RuleContext<'_>) -> Vec<Finding> {
        finding(context.stream).into_iter().collect()
    }
}

/// The finding, if there was an error.
fn finding(stream: &Stream) -> Option<Finding> {
    let watch = &stream.facts.oom;
    let mark = watch.first.as_ref()?;
    let title = match &mark.reason {
        Some(reason) => format!("out of memory: {reason}"),
        None => "out of memory".to_owned(),
    };
    let mut finding = about(stream, SEEN, "oom", Severity::Critical, 1.0, title);
    finding.message = mark.context.clone();
    finding
        .metrics
        .extend(metrics([("count", watch.count.into()), ("requested_bytes", mark.requested_bytes.into())]));
    if let Some(pointer) = finding.evidence.first_mut() {
        (pointer.start_ns, pointer.end_ns) = (Some(mark.at_ns), Some(mark.at_ns));
        pointer.path.clone_from(&mark.bundle);
    }
    finding.advice = advice([
        "`stormlog oom show` prints the bundle: what was requested and what was held.",
        "If another finding names a leak or fragmentation, fix that first: the failing allocation is only the last one.",
        "Otherwise reduce peak memory: smaller batches, activation checkpointing, a lower precision.",
    ]);
    Some(finding)
}

/// A supervisor and the program's own recorder both tell of one death, a moment apart: the device knows more than the host,
/// and what the host has to show goes with it.
pub fn merge_reports_of_one_death(findings: &mut Vec<Finding>) {
    let number = |finding: &Finding, key: &str| finding.metrics.get(key).and_then(Value::as_i64);
    let at = |finding: &Finding| finding.evidence.first().and_then(|pointer| pointer.start_ns);
    let is_oom = |finding: &Finding| finding.id == SEEN;
    let is_host = |finding: &Finding| number(finding, "device_id").is_some_and(|device| device < 0);
    let of_hosts: Vec<Finding> = findings.extract_if(.., |one| is_oom(one) && is_host(one)).collect();
    for host in of_hosts {
        let is_same = |other: &&mut Finding| {
            is_oom(other)
                && number(other, "pid") == number(&host, "pid")
                && at(other).zip(at(&host)).is_some_and(|(a, b)| a.abs_diff(b) <= SAME_DEATH_NS)
        };
        match findings.iter_mut().find(is_same) {
            Some(known) if number(&host, "pid").is_some_and(|pid| pid > 0) => {
                known.evidence.extend(host.evidence)
            }
            _ => findings.push(host),
        }
    }
}

/// A bundle that a program left when it died, as its reader found it.
#[derive(Debug, Clone, Default)]
pub struct Death {
    /// The bundle.
    pub path: String,
    /// `memory_error`, `cgroup_oom_kill`, `signal`, …
    pub cause: String,
    /// Whether memory is what ended it.
    pub is_memory: bool,
    /// Whether its end was a failure; one that was meant, or may have been, is not a crash.
    pub is_failure: bool,
    /// The sentence in the bundle.
    pub verdict: Option<String>,
    /// The session.
    pub session_id: Option<String>,
    /// Its last event.
    pub at_ns: Option<u64>,
    /// The process.
    pub process: Option<i64>,
}

/// The finding about a bundle.
pub fn of_bundle(death: &Death) -> Finding {
    let kind = match (death.is_memory, death.is_failure) {
        (true, _) => "oom",
        (false, true) => "crash",
        (false, false) => "end",
    };
    // A helper process that exits with 1 is its caller's business; a signal is worth a look; memory is why we are here.
    let severity = match (death.is_memory, death.cause.as_str()) {
        (true, _) => Severity::Critical,
        (false, "exit") => Severity::Info,
        (false, _) if !death.is_failure => Severity::Info,
        (false, _) => Severity::Warning,
    };
    let fallback = || format!("the program died: {}", death.cause.replace('_', " "));
    Finding {
        id: format!("{kind}.bundle"),
        kind: kind.to_owned(),
        severity,
        confidence: 1.0,
        title: death.verdict.clone().unwrap_or_else(fallback),
        message: Some(format!("cause: {}", death.cause)),
        metrics: metrics([]),
        evidence: vec![Evidence {
            kind: "oom_bundle".to_owned(),
            path: Some(death.path.clone()),
            session_id: death.session_id.clone(),
            end_ns: death.at_ns,
            ..Evidence::default()
        }],
        advice: advice([
            "`stormlog oom show` prints the bundle: what was held, what was requested, the last events.",
        ]),
        undecided: false,
        process: death.process,
        memory: None,
        holder: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{finish, sample, with};

    #[test]
    fn a_marked_error_is_an_oom_and_others_are_not() {
        let oom = with(sample(5, 10), "error", "OOM detected (message_pattern:out of memory)");
        let recording = finish([sample(0, 10), oom]);
        let found = finding(&recording.sessions[0].ranks[0].streams[0]).unwrap();
        assert_eq!((found.id.as_str(), found.severity), ("oom.seen", Severity::Critical));
        assert_eq!(found.evidence[0].start_ns, Some(5));
        let other = finish([with(sample(5, 10), "error", "file not found")]);
        assert_eq!(finding(&other.sessions[0].ranks[0].streams[0]), None);
    }

    #[test]
    fn one_death_is_reported_once() {
        let second = 1_000_000_000;
        let on = |pid: i64, device: i64, at: u64| {
            let oom = with(sample(at, 10), "error", "CUDA out of memory");
            let mut found = finding(&finish([oom]).sessions[0].ranks[0].streams[0]).unwrap();
            found.metrics.extend(metrics([("pid", pid.into()), ("device_id", device.into())]));
            found
        };
        let mut twice = vec![on(7, -1, 3 * second), on(7, 0, 2 * second), on(8, -1, 2 * second)];
        merge_reports_of_one_death(&mut twice);
        let who: Vec<_> = twice.iter().map(|one| (&one.metrics["pid"], one.evidence.len())).collect();
        assert_eq!(who, [(&7.into(), 2), (&8.into(), 1)]);
        let mut later = vec![on(7, -1, 300 * second), on(7, 0, second)];
        merge_reports_of_one_death(&mut later);
        assert_eq!(later.len(), 2, "another one");
    }

    #[test]
    fn a_bundle_is_as_bad_as_its_cause() {
        let of = |cause: &str, is_memory| {
            let found =
                of_bundle(&Death { cause: cause.into(), is_memory, is_failure: true, ..Death::default() });
            (found.kind, found.severity)
        };
        assert_eq!(of("cgroup_oom_kill", true), ("oom".to_owned(), Severity::Critical));
        assert_eq!(of("sigkill", false), ("crash".to_owned(), Severity::Warning));
        assert_eq!(of("exit", false), ("crash".to_owned(), Severity::Info));
    }

    #[test]
    fn the_size_of_the_request_is_read() {
        assert_eq!(
            requested("CUDA out of memory. Tried to allocate 1000.00 MiB. GPU 0 has"),
            Some(1000 << 20)
        );
        assert_eq!(requested("Tried to allocate a lot"), None);
        assert_eq!(requested("nothing"), None);
    }
}
