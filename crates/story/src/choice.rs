//! Which process the answer is about, and which of its findings: the worst, never the first one of a list.
//!
//! A process that ran out of memory comes before one that failed otherwise, the one that failed first before those that it took with it, and one whose
//! memory grows before the program itself. Must not look at anything but the values of the stories.

use stormlog_model::{Finding, Severity};
use stormlog_postmortem::{Cause, Ended};

use crate::process::ProcessStory;

/// The place of the process that the answer is about.
pub(crate) fn main_process(processes: &[ProcessStory]) -> Option<usize> {
    (0..processes.len()).min_by(|a, b| order(&processes[*a]).cmp(&order(&processes[*b])))
}

/// The finding that the answer names: the worst of the process, or one that belongs to no process where that is worse.
pub(crate) fn main_finding<'a>(main: &'a ProcessStory, others: &'a [Finding]) -> Option<&'a Finding> {
    // The end of a process that failed is what happened.
    let is_end = |finding: &Finding| {
        matches!(finding.kind.as_str(), "oom" | "crash" | "end") && main.ended == Ended::Failed
    };
    let shown = |findings: &'a [Finding]| {
        // The first of the worst: findings come in the order of every view.
        findings
            .iter()
            .filter(|finding| matters(finding) && !is_end(finding))
            .rev()
            .max_by_key(|finding| finding.severity)
    };
    match (shown(&main.findings), shown(others)) {
        (Some(own), Some(other)) if other.severity > own.severity => Some(other),
        (own, other) => own.or(other),
    }
}

/// Whether a finding belongs into the answer.
pub(crate) fn matters(finding: &Finding) -> bool {
    finding.severity >= Severity::Warning || finding.undecided
}

/// The smaller, the more it matters: how it failed, when, what is wrong with it, by how much, and whether it is the program itself.
fn order(process: &ProcessStory) -> (u8, i64, u8, std::cmp::Reverse<u64>, bool) {
    let is_failed = process.ended == Ended::Failed;
    let has_own_cause = process.raised.is_some() || process.cause.is_some_and(|cause| cause != Cause::Exit);
    let failure = match (is_failed, process.is_out_of_memory()) {
        (true, true) => 0,
        (true, false) if has_own_cause => 1,
        // A launcher that reports the failure of its workers by its exit status.
        (true, false) => 2,
        (false, _) => 3,
    };
    // Of several that failed alike, the first took the others with it; the program itself before its children.
    let when = match (is_failed, process.is_root) {
        (true, true) => i64::MIN,
        (true, false) => process.ended_at_ns.unwrap_or(i64::MAX),
        (false, _) => 0,
    };
    let worst = process.findings.iter().filter(|finding| matters(finding)).map(weight).max();
    let (severity, bytes) = worst.unwrap_or((0, 0));
    (failure, when, u8::MAX - severity, std::cmp::Reverse(bytes), !process.is_root)
}

/// How bad a finding is, then the bytes it is about.
fn weight(finding: &Finding) -> (u8, u64) {
    let severity = match finding.severity {
        Severity::Critical => 3,
        Severity::Warning => 2,
        Severity::Info => 1,
    };
    (severity, finding.size_bytes().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::answer::answer;

    fn leak(pid: i64, bytes: u64, severity: Severity) -> Finding {
        let mut finding =
            Finding::new("growth.host", "leak", severity, format!("host memory grows: {bytes} B"));
        finding.process = Some(pid);
        finding.metrics.insert("growth_bytes".to_owned(), json!(bytes));
        finding
    }

    fn of_rank(rank: u64, findings: Vec<Finding>) -> ProcessStory {
        let mut story =
            ProcessStory::new(Ended::Completed, format!("train.py (pid {}) exited 0.", 10 + rank));
        (story.pid, story.rank, story.world_size) = (u32::try_from(10 + rank).ok(), Some(rank), Some(4));
        story.findings = findings;
        story
    }

    #[test]
    fn answer_is_about_the_rank_with_the_worst_and_largest_finding() {
        let mut ranks: Vec<ProcessStory> = (0..4).map(|rank| of_rank(rank, Vec::new())).collect();
        ranks[0].is_root = true;
        ranks[0].findings = vec![leak(10, 5, Severity::Warning)];
        ranks[1].findings = vec![leak(11, 900, Severity::Warning)];
        ranks[3].findings = vec![leak(13, 7, Severity::Warning)];
        let lines = answer(&ranks, &[]);
        assert_eq!(lines[0], "train.py (rank 1, pid 11) exited 0; host memory grows: 900 B.");
        assert!(
            lines.contains(&"  also      like it: rank 0 (pid 10), rank 3 (pid 13)".to_owned()),
            "{lines:#?}"
        );
        ranks[3].findings = vec![leak(13, 7, Severity::Critical)];
        assert!(answer(&ranks, &[])[0].starts_with("train.py (rank 3, pid 13)"));
    }

    #[test]
    fn first_failure_is_the_cause_and_a_launcher_only_reports_it() {
        let mut launcher = of_rank(0, Vec::new());
        (launcher.is_root, launcher.ended, launcher.cause) = (true, Ended::Failed, Some(Cause::Exit));
        let mut late = of_rank(1, Vec::new());
        (late.ended, late.cause, late.raised) =
            (Ended::Failed, Some(Cause::Exit), Some("RuntimeError".to_owned()));
        late.ended_at_ns = Some(20);
        let mut early = late.clone();
        (early.pid, early.ended_at_ns) = (Some(12), Some(10));
        assert_eq!(main_process(&[launcher.clone(), late.clone(), early.clone()]), Some(2));
        (late.cause, late.ended_at_ns) = (Some(Cause::MemoryError), Some(30));
        assert_eq!(main_process(&[launcher, late, early]), Some(1), "memory that failed comes first");
    }

    #[test]
    fn finding_of_no_process_is_named_where_it_is_worse() {
        let main = of_rank(0, vec![leak(10, 5, Severity::Warning)]);
        let others = [leak(0, 9, Severity::Critical)];
        assert_eq!(main_finding(&main, &others).map(|found| found.severity), Some(Severity::Critical));
        assert_eq!(main_finding(&main, &[]).and_then(|found| found.process), Some(10));
    }
}
