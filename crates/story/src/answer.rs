//! The answer: at most eight lines with what happened, what held the memory, what to change, and how sure that is. Every view begins with them.
//!
//! The process that matters is chosen here: one that failed before one that did not, the program itself before its children, then the one with the worst
//! finding. Must never repeat a line, and must never show an identifier that only a machine reads.

use stormlog_model::Severity;

use stormlog_postmortem::Ended;

use crate::process::ProcessStory;

/// Lines of the answer, at most.
pub const HEADLINE_LINES: usize = 8;
/// Holders that are named.
const HOLDERS: usize = 3;

/// The lines about these processes, without a line end; the first is a sentence, the others begin with two spaces and a label.
#[must_use]
pub fn answer(processes: &[ProcessStory]) -> Vec<String> {
    let Some(main) = processes.iter().min_by_key(|process| rank(process)) else { return Vec::new() };
    let mut lines = vec![main.what_happened.clone()];
    lines.extend(main.failed_requests.first().map(|request| labelled("failed", request)));
    let has_devices = main.held.iter().any(|holder| holder.memory.is_device());
    for (index, holder) in main.held.iter().take(HOLDERS).enumerate() {
        let label = if index == 0 { "held by" } else { "" };
        let memory = if has_devices { format!("{:<7} ", holder.memory.to_string()) } else { String::new() };
        lines.push(labelled(label, &format!("{:>10}  {memory}{}", holder.size(), holder.words())));
    }
    lines.extend(main.advice.iter().take(2).map(|advice| labelled("try", advice)));
    lines.truncate(HEADLINE_LINES);
    lines
}

/// The smaller, the more it matters.
fn rank(process: &ProcessStory) -> (bool, bool, bool, u8) {
    let worst = process.findings.iter().map(|finding| finding.severity).max();
    let worst = match worst {
        Some(Severity::Critical) => 0,
        Some(Severity::Warning) => 1,
        Some(Severity::Info) | None => 2,
    };
    let is_failed = process.ended == Ended::Failed;
    let is_memory = process.cause.is_some_and(stormlog_postmortem::Cause::is_memory);
    (!is_failed, !is_memory, !process.is_root, worst)
}

/// The place of the process that the answer is about.
pub(crate) fn main_process(processes: &[ProcessStory]) -> Option<usize> {
    (0..processes.len()).min_by_key(|at| rank(&processes[*at]))
}

fn labelled(label: &str, text: &str) -> String {
    format!("  {label:<9} {text}").trim_end().to_owned()
}
