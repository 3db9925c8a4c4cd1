//! What to change in the program, and what that would win. Settings of the allocator are another matter: those are
//! replayed, not guessed.

use stormlog_model::format_bytes as size;

use super::growth::Growth;
use super::holders::CategoryShare;
use super::oom::OomReport;
use super::request::{CHANGING_SIZES, remedy};
use super::verdict::{Churn, Verdict, VerdictKind};
use stormlog_model::gpu_category::Category;

/// What the hints rest on.
pub(crate) struct HintFacts<'a> {
    /// Everything that is wrong, the worst first.
    pub(crate) verdicts: &'a [&'a Verdict],
    pub(crate) oom: Option<&'a OomReport>,
    /// What was held at the error, or else at the peak.
    pub(crate) categories: &'a [CategoryShare],
    pub(crate) growth: &'a [Growth],
    pub(crate) churn: Churn,
    /// `max_split_size_mb` was set.
    pub(crate) splits_are_limited: bool,
    /// The peak as recorded, and as it would have been without `empty_cache()`.
    pub(crate) peak_reserved: u64,
    pub(crate) peak_without_churn: Option<u64>,
    /// How long the recording lasted.
    pub(crate) seconds: Option<f64>,
}

/// Sentences, the most useful first.
pub(crate) fn hints(clues: &HintFacts<'_>) -> Vec<String> {
    let mut hints = Vec::new();
    for verdict in clues.verdicts {
        match verdict.kind {
            VerdictKind::OomFragmentation => hints.push(CHANGING_SIZES.to_owned()),
            VerdictKind::OomFull => hints.extend(full(clues)),
            VerdictKind::OomOther => hints.extend(other(clues)),
            VerdictKind::Leak => hints.extend(leak(clues)),
            VerdictKind::EmptyCacheChurn => hints.push(churn(clues)),
            VerdictKind::Fragmentation if clues.splits_are_limited => hints.push(
                "drop max_split_size_mb: larger blocks are never split, so they serve only requests of their own size".to_owned(),
            ),
            VerdictKind::Fragmentation => hints.push(CHANGING_SIZES.to_owned()),
            VerdictKind::Growth => hints.extend(growth(clues)),
            VerdictKind::Healthy | VerdictKind::NoTrace => {}
        }
    }
    hints.dedup();
    hints
}

/// Parts of the memory in use from which on a category is worth a sentence.
const WORTH: f64 = 0.2;

fn full(clues: &HintFacts<'_>) -> Vec<String> {
    let mut hints = Vec::new();
    if let Some(oom) = clues.oom
        && let Some(free) = oom.device_free_bytes.filter(|&free| free >= oom.segment_bytes)
    {
        hints.push(format!(
            "the device had {} free: raise the limit of this process (set_per_process_memory_fraction); at most {} more would have been enough for this request",
            size(free),
            size(oom.segment_bytes)
        ));
    }
    let worth = clues.categories.iter().filter(|share| share.share >= WORTH);
    hints.extend(worth.filter_map(|share| {
        let all = size(share.bytes);
        Some(match share.category {
            Category::Activations => format!(
                "activations are {all}: half the batch would free about {}, checkpointing (torch.utils.checkpoint) most of it",
                size(share.bytes / 2)
            ),
            Category::OptimizerState => format!(
                "optimizer state is {all}: kept in 8 bits it would free about {}, sharded (ZeRO, FSDP) all but this rank's part",
                size(share.bytes / 4 * 3)
            ),
            Category::Gradients => {
                format!("gradients are {all}: zero_grad(set_to_none=True) before the forward pass frees them for it")
            }
            Category::Parameters => {
                format!("parameters are {all}: half the precision would free {}", size(share.bytes / 2))
            }
            _ => return None,
        })
    }));
    hints
}

fn other(clues: &HintFacts<'_>) -> Option<String> {
    remedy(clues.oom?.cause, clues.splits_are_limited).map(str::to_owned)
}

fn leak(clues: &HintFacts<'_>) -> Option<String> {
    let leaks = || clues.growth.iter().filter(|growth| growth.never_freed);
    let first = leaks().next()?;
    let bytes = leaks().fold(0, |sum: u64, leak| sum.saturating_add(leak.bytes));
    let rate = clues
        .seconds
        .filter(|&seconds| seconds >= 1.0)
        .map(|seconds| {
            format!(", {} for every minute the run continues", size((bytes as f64 / seconds * 60.0) as u64))
        })
        .unwrap_or_default();
    Some(format!(
        "something that outlives the step keeps what is made at {}: a list, a cache, a logger; keep numbers (.item()) or detached \
         copies instead. That would free {}{rate}",
        first.site.as_deref().unwrap_or("that line"),
        size(bytes)
    ))
}

fn growth(clues: &HintFacts<'_>) -> Option<String> {
    let first = clues.growth.first()?;
    Some(format!(
        "if {} is intended to grow (a KV cache, a replay buffer), give it a bound: {} at the end of this recording",
        first.site.as_deref().unwrap_or("that line"),
        size(first.bytes)
    ))
}

fn churn(clues: &HintFacts<'_>) -> String {
    let peak = match clues.peak_without_churn {
        Some(peak) if peak == clues.peak_reserved => format!(", at the same peak of {}", size(peak)),
        Some(peak) => format!(", at a peak of {} instead of {}", size(peak), size(clues.peak_reserved)),
        None => String::new(),
    };
    format!(
        "remove the {} empty_cache() calls: {} less is requested from the driver{peak}",
        clues.churn.calls,
        size(clues.churn.taken_again)
    )
}
