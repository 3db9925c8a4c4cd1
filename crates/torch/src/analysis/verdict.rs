//! One sentence that names the cause.

use serde::Serialize;
use stormlog_model::format_bytes as size;

use super::decompose::Decomposition;
use super::growth::Growth;
use super::oom::OomReport;
use super::peak::Peaks;
use super::request::OomCause;
use crate::program::{Op, Program};
use crate::settings::AllocatorSettings;

/// From this ratio of reserved to active memory at the peak on, fragmentation is the story.
const FRAGMENTED: f64 = 1.2;
/// A leak is worth naming from this part of the peak on, or from this many bytes.
const LEAK_SHARE: f64 = 0.01;
const LEAK_BYTES: u64 = 16 << 20;
/// Below this much, a high ratio only says that segments come in steps of 2 and 20 MiB.
const FRAGMENTED_BYTES: u64 = 128 << 20;

/// What kind of trouble, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictKind {
    /// A request failed although enough was free, in pieces.
    OomFragmentation,
    /// A request failed and there was nothing left to give.
    OomFull,
    /// A request failed for another reason; the sentence names it.
    OomOther,
    /// Blocks of one place pile up and none is ever given back.
    Leak,
    /// `empty_cache()` gives memory back that is taken again right away.
    EmptyCacheChurn,
    /// Much more was held at the peak than was in use.
    Fragmentation,
    /// Memory that is held grows with the run, though some of it is given back.
    Growth,
    /// Nothing of that.
    Healthy,
    /// No events to judge.
    NoTrace,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// What kind of trouble.
    pub kind: VerdictKind,
    /// In words.
    pub sentence: String,
}

/// What the judgement rests on.
pub(crate) struct Facts<'a> {
    pub(crate) events: usize,
    pub(crate) peaks: &'a Peaks,
    pub(crate) oom: Option<&'a OomReport>,
    pub(crate) growth: &'a [Growth],
    pub(crate) churn: Churn,
    /// Blocks taken and given back over the whole recording.
    pub(crate) taken: u64,
    pub(crate) freed: u64,
    /// Where the bytes were at the peak.
    pub(crate) at_peak: &'a Decomposition,
    pub(crate) settings: &'a AllocatorSettings,
}

/// What `empty_cache()` did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Churn {
    pub(crate) calls: u64,
    pub(crate) given_back: u64,
    pub(crate) taken_again: u64,
}

impl Churn {
    pub(crate) fn of(recording: &crate::recording::Recording<'_>, program: &Program) -> Self {
        use crate::trace::Action;
        let calls = program.ops.iter().filter(|op| matches!(op, Op::EmptyCache(_))).count() as u64;
        let mut churn = Churn { calls, ..Churn::default() };
        if calls == 0 {
            return churn;
        }
        for event in recording.snapshot.trace(recording.device) {
            match event.action {
                Action::SegmentFree | Action::SegmentUnmap => {
                    churn.given_back = churn.given_back.saturating_add(event.size)
                }
                Action::SegmentAlloc | Action::SegmentMap => {
                    // Only what follows a release was "taken again".
                    let room = churn.given_back - churn.taken_again;
                    churn.taken_again += event.size.min(room);
                }
                _ => {}
            }
        }
        churn
    }
}

/// The verdict, and what else is wrong.
pub(crate) fn judge(facts: &Facts<'_>) -> (Verdict, Vec<Verdict>) {
    if facts.events == 0 {
        let sentence = "no trace recorded: only the final state can be shown; switch recording on with \
                        torch.cuda.memory._record_memory_history()";
        return (Verdict { kind: VerdictKind::NoTrace, sentence: sentence.to_owned() }, Vec::new());
    }
    let leak = leak(facts);
    // What only grows is not said twice.
    let growth = if leak.is_none() { growth(facts) } else { None };
    let found = [oom(facts), leak, churn(facts), fragmentation(facts), growth];
    let mut found = found.into_iter().flatten();
    match found.next() {
        Some(worst) => (worst, found.collect()),
        None => (healthy(facts), Vec::new()),
    }
}

fn oom(facts: &Facts<'_>) -> Option<Verdict> {
    let oom = facts.oom?;
    let kind = match oom.cause {
        OomCause::Fragmentation => VerdictKind::OomFragmentation,
        OomCause::Full => VerdictKind::OomFull,
        _ => VerdictKind::OomOther,
    };
    Some(Verdict { kind, sentence: oom.sentence.clone() })
}

fn leak(facts: &Facts<'_>) -> Option<Verdict> {
    let leaks: Vec<&Growth> = facts.growth.iter().filter(|growth| growth.never_freed).collect();
    let bytes = leaks.iter().fold(0, |sum: u64, leak| sum.saturating_add(leak.bytes));
    let first = leaks.first()?;
    // Where hardly anything is given back, keeping is not an exception: that is growth.
    if facts.freed < facts.taken / 2 {
        return None;
    }
    if bytes < LEAK_BYTES && (bytes as f64) < LEAK_SHARE * facts.peaks.totals.allocated as f64 {
        return None;
    }
    let more = match leaks.len() - 1 {
        0 => String::new(),
        1 => format!("; one more line leaks {}", size(bytes.saturating_sub(first.bytes))),
        more => format!("; {more} more lines leak {}", size(bytes.saturating_sub(first.bytes))),
    };
    let sentence = format!(
        "leak: {} blocks ({}) allocated at {} throughout the run were never freed{more}",
        first.count,
        size(first.bytes),
        first.site.as_deref().unwrap_or("an unknown place")
    );
    Some(Verdict { kind: VerdictKind::Leak, sentence })
}

fn churn(facts: &Facts<'_>) -> Option<Verdict> {
    let Churn { calls, given_back, taken_again } = facts.churn;
    if calls < 3 || taken_again < given_back / 2 {
        return None;
    }
    let sentence = format!(
        "empty_cache churn: empty_cache() ran {calls} times and gave {} back, of which {} were taken from the driver again; \
         call it between phases only",
        size(given_back),
        size(taken_again)
    );
    Some(Verdict { kind: VerdictKind::EmptyCacheChurn, sentence })
}

fn ratio(peaks: &Peaks) -> f64 {
    peaks.totals.reserved as f64 / peaks.totals.active.max(1) as f64
}

fn fragmentation(facts: &Facts<'_>) -> Option<Verdict> {
    let peaks = facts.peaks;
    let excess = peaks.totals.reserved.saturating_sub(peaks.totals.active);
    if peaks.totals.active == 0 || ratio(peaks) < FRAGMENTED || excess < FRAGMENTED_BYTES {
        return None;
    }
    let whole = facts.at_peak.releasable_bytes;
    let why = match facts.settings.max_split_size {
        Some(limit) if whole > excess / 2 => {
            format!(
                "max_split_size_mb:{} kept {} of whole free segments from being used again",
                limit >> 20,
                size(whole)
            )
        }
        _ => format!(
            "blocks of changing sizes did not fit the free ones, of which {} were beside live blocks",
            size(facts.at_peak.stranded_bytes)
        ),
    };
    let sentence = format!(
        "fragmentation: {} were held for at most {} in use ({:.2} ×); {why}",
        size(peaks.totals.reserved),
        size(peaks.totals.active),
        ratio(peaks)
    );
    Some(Verdict { kind: VerdictKind::Fragmentation, sentence })
}

fn growth(facts: &Facts<'_>) -> Option<Verdict> {
    let first = facts.growth.first()?;
    if first.bytes < LEAK_BYTES
        || first.count < first.of / 4
        || first.bytes < facts.peaks.totals.allocated / 10
    {
        return None;
    }
    let sentence = format!(
        "growth: {} of {} blocks taken at {} are still held ({}), from every part of the run",
        first.count,
        first.of,
        first.site.as_deref().unwrap_or("an unknown place"),
        size(first.bytes)
    );
    Some(Verdict { kind: VerdictKind::Growth, sentence })
}

fn healthy(facts: &Facts<'_>) -> Verdict {
    let peaks = facts.peaks;
    let cached = peaks.end.reserved.saturating_sub(peaks.end.active);
    let mut sentence = format!(
        "no problem found: {} held at the peak for {} in use ({:.2} ×)",
        size(peaks.totals.reserved),
        size(peaks.totals.active),
        ratio(peaks)
    );
    if cached > peaks.end.reserved / 2 {
        sentence.push_str(&format!("; the {} free at the end are cache, not fragmentation", size(cached)));
    }
    Verdict { kind: VerdictKind::Healthy, sentence }
}
