//! The answer: at most eight lines with what happened, what held the memory, what to change, and how sure that is. Every view begins with them.
//!
//! The process that matters is chosen by [`crate::choice`]; where there are several ranks, its rank is named. Must never repeat a line, and must never show
//! an identifier that only a machine reads.

use std::path::Path;

use stormlog_model::memory::Memory;
use stormlog_model::{Finding, format_bytes};
use stormlog_postmortem::{Cause, Ended};

use crate::choice::{main_finding, main_process, matters};
use crate::holder::Holder;
use crate::process::ProcessStory;

/// Lines of the answer, at most.
pub const HEADLINE_LINES: usize = 8;
/// Pieces of advice.
const TRIES: usize = 2;
/// Other processes that are named.
const NAMED: usize = 3;

/// How long an answer may be.
#[derive(Debug, Clone, Copy)]
struct AnswerLimits {
    lines: usize,
    /// Holders that are named.
    holders: usize,
}

const SHORT: AnswerLimits = AnswerLimits { lines: HEADLINE_LINES, holders: 3 };
const LONG: AnswerLimits = AnswerLimits { lines: HEADLINE_LINES + 4, holders: 5 };

/// The lines about these processes, without a line end; the first is a sentence, the others begin with two spaces and a label. `others` are findings that
/// belong to no process.
#[must_use]
pub fn answer(processes: &[ProcessStory], others: &[Finding]) -> Vec<String> {
    lines(processes, others, SHORT)
}

/// The same with five holders, the limit and the place of the evidence, for a message that is read far from the run's directory.
#[must_use]
pub fn message(processes: &[ProcessStory], limit_bytes: Option<u64>, run: &Path) -> Vec<String> {
    let mut lines = lines(processes, &[], LONG);
    lines.extend(limit_bytes.map(|limit| labelled("limit", &format_bytes(limit))));
    lines.push(evidence_line(run));
    lines
}

/// Where the evidence is.
pub(crate) fn evidence_line(run: &Path) -> String {
    labelled("evidence", &format!("stormlog analyze {}", run.display()))
}

fn lines(processes: &[ProcessStory], others: &[Finding], room: AnswerLimits) -> Vec<String> {
    let Some(main) = main_process(processes).map(|at| &processes[at]) else { return of_findings(others) };
    let finding = main_finding(main, others);
    let mut lines = vec![first_line(main, finding)];
    let failed = main.failed_requests.first().filter(|_| main.is_out_of_memory());
    lines.extend(failed.map(|request| labelled("failed", request)));
    let raised = main.raised.as_ref().filter(|_| !main.is_out_of_memory() && main.ended == Ended::Failed);
    lines.extend(raised.map(|raised| labelled("raised", raised)));
    lines.extend(main.reason.as_ref().map(|reason| labelled("because", without_place(reason))));
    let is_held_shown = main.is_out_of_memory()
        || main.is_capture_only
        || finding.is_some()
        || main.ended == Ended::Failed && main.cause.is_some_and(|cause| cause != Cause::Exit);
    if is_held_shown {
        lines.extend(holders(&main.held, room.holders, main.held_moment()));
    }
    lines.extend(also(main, processes).map(|also| labelled("also", &also)));
    let sure = sure(main, finding).map(|sure| labelled("sure", &sure));
    let left = room.lines.saturating_sub(lines.len() + usize::from(sure.is_some())).min(TRIES);
    // Where it is known what keeps the memory, the general advice of the rule says less.
    let is_known = main.held.first().is_some_and(|holder| holder.kept_by.is_some());
    let of_rule = finding.filter(|_| !is_known).into_iter().flat_map(|finding| &finding.advice);
    let tries = main.advice.iter().chain(of_rule);
    let tries = tries.take(left).enumerate();
    lines.extend(tries.map(|(at, advice)| labelled(if at == 0 { "try" } else { "" }, advice)));
    lines.extend(sure);
    lines.truncate(room.lines);
    lines
}

fn first_line(main: &ProcessStory, finding: Option<&Finding>) -> String {
    let mut happened = with_rank(main.what_happened.trim_end_matches('.'), main);
    if let Some(during) = main.during.as_ref().filter(|during| !happened.contains(during.as_str())) {
        happened = format!("{happened} ({during})");
    }
    match finding.filter(|_| !main.is_out_of_memory()) {
        Some(finding) => format!("{happened}; {}.", as_clause(without_place(&finding.title))),
        None if matches!(main.ended, Ended::Completed | Ended::Running) => {
            let peak = main.peak_rss_bytes.map(|peak| format!(", peak {}", format_bytes(peak)));
            format!("{happened}; no problem found{}.", peak.unwrap_or_default())
        }
        None => format!("{happened}."),
    }
}

/// The name of the process in a sentence about it, with its rank where it is one of several.
fn with_rank(sentence: &str, main: &ProcessStory) -> String {
    match main.pid.map(|pid| format!("(pid {pid})")) {
        Some(plain) => sentence.replacen(&plain, &format!("({})", main.number()), 1),
        None => sentence.to_owned(),
    }
}

/// The other processes with the same trouble.
fn also(main: &ProcessStory, processes: &[ProcessStory]) -> Option<String> {
    let others = || processes.iter().filter(|other| !std::ptr::eq(*other, main));
    if main.ended == Ended::Failed {
        let failed = others().filter(|other| other.ended == Ended::Failed).count();
        return (failed > 0).then(|| format!("{failed} more of its processes failed"));
    }
    let kind = |process: &ProcessStory| {
        process.findings.iter().find(|finding| matters(finding)).map(|finding| finding.kind.clone())
    };
    let own = kind(main)?;
    let alike: Vec<String> = others()
        .filter(|other| kind(other).as_ref() == Some(&own))
        .map(|other| match (other.is_of_several(), other.rank, other.pid) {
            (true, Some(rank), Some(pid)) => format!("rank {rank} (pid {pid})"),
            _ => other.name(),
        })
        .collect();
    let named = alike.iter().take(NAMED).cloned().collect::<Vec<String>>().join(", ");
    match alike.len().saturating_sub(NAMED) {
        _ if alike.is_empty() => None,
        0 => Some(format!("like it: {named}")),
        more => Some(format!("like it: {named} and {more} more")),
    }
}

/// A finding's title names its stream in parentheses; the line names the process already.
fn without_place(title: &str) -> &str {
    match title.rsplit_once(" (") {
        Some((title, place)) if place.contains("pid ") => title,
        _ => title.trim_end_matches('.'),
    }
}

/// The first sentence of a title, to follow a semicolon; the rest is evidence, which is shown below.
fn as_clause(title: &str) -> String {
    let first = title.split_once(". ").map_or(title, |(first, _)| first);
    let (start, rest) = first.split_at(first.chars().next().map_or(0, char::len_utf8));
    let is_word = rest.starts_with(|next: char| next == ' ' || next.is_lowercase());
    if is_word { format!("{}{rest}", start.to_lowercase()) } else { first.to_owned() }
}

/// Findings without a process: the worst is what happened.
fn of_findings(findings: &[Finding]) -> Vec<String> {
    let Some(worst) = findings.iter().find(|finding| matters(finding)) else {
        return Vec::new();
    };
    let mut lines = vec![format!("{}.", worst.title.trim_end_matches('.'))];
    lines.extend(worst.advice.iter().take(1).map(|advice| labelled("try", advice)));
    lines.push(labelled("sure", &format!("{:.0} %", worst.confidence * 100.0)));
    lines
}

/// A line each for the first `most`. `failed`: the memory whose request failed, and when what is held of it was held.
pub(crate) fn holders(
    held: &[Holder],
    most: usize,
    failed: Option<(Memory, &'static str)>,
) -> impl Iterator<Item = String> {
    let shown = &held[..held.len().min(most)];
    let has_devices = shown.iter().any(|holder| holder.memory.is_device());
    let width = shown.iter().map(|holder| holder.size().chars().count()).max().unwrap_or(0);
    shown.iter().enumerate().map(move |(index, holder)| {
        let label = if index == 0 { "held by" } else { "" };
        let memory = if has_devices { format!("{:<7} ", holder.memory.to_string()) } else { String::new() };
        let when = failed.filter(|(memory, _)| index == 0 && *memory == holder.memory);
        let when = when.map(|(_, when)| format!(" · {when}")).unwrap_or_default();
        let words = holder.words(&shown[..index]);
        labelled(label, &format!("{:>width$}  {memory}{words}{when}", holder.size()))
    })
}

/// How sure, and by what.
fn sure(main: &ProcessStory, finding: Option<&Finding>) -> Option<String> {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    if main.ended == Ended::Failed || main.is_out_of_memory() {
        let confidence = main.confidence?;
        let by = match main.cause? {
            Cause::CgroupOomKill | Cause::GlobalOomKill if confidence > 0.95 => {
                "the kernel's log names the process"
            }
            Cause::CgroupOomKill | Cause::GlobalOomKill if confidence >= 0.75 => {
                "the kernel's counters of OOM kills rose"
            }
            Cause::CgroupOomKill | Cause::GlobalOomKill => {
                "inferred from the memory in use; no counter could be read"
            }
            Cause::MemoryError | Cause::OomException if confidence < 1.0 => {
                "an allocation failed just before it exited"
            }
            Cause::MemoryError | Cause::OomException => "the program reported the exception",
            Cause::SigKill => {
                "the supervisor saw the signal; neither the kernel log nor the counters show an OOM kill"
            }
            Cause::Signal => "the supervisor saw the signal",
            Cause::Exit | Cause::Unknown => return None,
        };
        return Some(format!("{}: {by}", percent(confidence)));
    }
    let finding = finding?;
    if finding.undecided {
        return Some("undecided: the recording is too short to tell a leak from a start".to_owned());
    }
    let by = match finding.holder.is_some() {
        true if matches!(finding.kind.as_str(), "leak" | "growth") => {
            "the process and this line grow together"
        }
        true => "by the samples of the process and its heap",
        false => "by the samples of the process",
    };
    Some(format!("{}: {by}", percent(finding.confidence)))
}

pub(crate) fn labelled(label: &str, text: &str) -> String {
    let text = text.lines().next().unwrap_or_default();
    format!("  {label:<9} {text}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn died() -> ProcessStory {
        let mut story = ProcessStory::new(Ended::Failed, "train.py (pid 7) ran out of memory.".to_owned());
        (story.pid, story.is_root) = (Some(7), true);
        (story.cause, story.confidence) = (Some(Cause::OomException), Some(1.0));
        story.failed_memory = "cuda:0".parse().ok();
        story.failed_requests = vec!["cuda:0: a request for 2.00 GiB at model.py:9 forward".to_owned()];
        story.reason = Some("fragmentation".to_owned());
        let gpu: Memory = "cuda:0".parse().unwrap();
        story.held =
            (1..6).map(|number| Holder::of_place(gpu, number << 30, "model.py:16 forward")).collect();
        story.advice = (0..5).map(|number| format!("advice {number}")).collect();
        story
    }

    #[test]
    fn answer_has_at_most_eight_lines_and_leads_with_what_failed() {
        let lines = answer(&[died(), ProcessStory::new(Ended::Completed, "w exited 0.".to_owned())], &[]);
        assert_eq!(lines.len(), HEADLINE_LINES, "{lines:#?}");
        assert_eq!(lines[0], "train.py (pid 7) ran out of memory.");
        assert!(lines[1].starts_with("  failed    cuda:0: a request for 2.00 GiB"), "{lines:#?}");
        assert!(lines[3].contains("cuda:0  model.py:16 forward"), "{lines:#?}");
        assert_eq!(lines[6], "  try       advice 0");
        assert_eq!(lines[7], "  sure      100 %: the program reported the exception");
        let in_step = ProcessStory { during: Some("epoch 1, step 5".to_owned()), ..died() };
        assert_eq!(answer(&[in_step], &[])[0], "train.py (pid 7) ran out of memory (epoch 1, step 5).");
    }

    #[test]
    fn message_has_five_holders_the_limit_and_the_evidence() {
        let lines = message(&[died()], Some(80 << 30), Path::new("/data/run"));
        assert_eq!(lines[0], "train.py (pid 7) ran out of memory.");
        assert_eq!(lines.iter().filter(|line| line.contains("model.py:16 forward")).count(), 5);
        assert_eq!(
            lines[lines.len() - 2..],
            ["  limit     80.00 GiB", "  evidence  stormlog analyze /data/run"]
        );
    }

    #[test]
    fn title_becomes_a_clause_of_one_sentence() {
        let title = "A request for 1 MiB got no memory: mmap by main (/v/m.py:16). The limit was 300 MiB.";
        assert_eq!(as_clause(title), "a request for 1 MiB got no memory: mmap by main (/v/m.py:16)");
        assert_eq!(as_clause("GPU 0 is full"), "GPU 0 is full");
        assert_eq!(as_clause("host memory grows: 2.50 MiB in 3.0 s"), "host memory grows: 2.50 MiB in 3.0 s");
    }

    #[test]
    fn process_that_failed_is_chosen_before_the_program_that_completed() {
        let mut root = ProcessStory::new(Ended::Completed, "main.py (pid 1) exited 0.".to_owned());
        root.is_root = true;
        let mut worker = died();
        worker.is_root = false;
        assert_eq!(answer(&[root.clone(), worker], &[])[0], "train.py (pid 7) ran out of memory.");
        let lines = answer(&[root], &[]);
        assert_eq!(lines, ["main.py (pid 1) exited 0; no problem found."]);
    }
}
