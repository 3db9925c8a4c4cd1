//! One job seen from all its ranks: missing ranks, clock offsets, and the rank whose memory jumped first.
//!
//! `first_sample` alignment, spikes, suspects, confidences and notes are 0.4.3's. It hides a true difference of start, so the
//! analysis is made a second time on wall clocks or shared markers where there are any, and says which. Page:
//! `docs/rules/cross_rank.md`.

use std::collections::BTreeMap;

use serde_json::Value;
use stormlog_model::Record;

use super::collective::RankView;
use crate::phases::PhaseAttribution;
use crate::sample::Sample;

const SPIKE_MIN_BYTES: u64 = 64 << 20;
const SKEW_INTERVALS: u64 = 5;

/// The ranks of one job.
#[derive(Debug)]
pub struct Job<'a> {
    /// Its name.
    pub job_id: Option<String>,
    /// What most events claim above 1; 1 when none does.
    pub declared_world_size: u64,
    /// By rank: samples with known device use, in time order.
    pub ranks: Vec<RankView<'a>>,
    /// The sampling interval most events state, for ranks of one sample.
    pub stated_interval_ns: u64,
    /// What was left out on the way here.
    pub notes: Vec<String>,
}

/// How the clocks of the ranks are brought together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alignment {
    /// Every rank begins at its own first sample.
    FirstSample,
    /// All on one machine: one clock.
    WallClock,
    /// The same collective markers, seen by every rank.
    SharedMarkers,
}

impl Alignment {
    /// The word in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Alignment::FirstSample => "first_sample",
            Alignment::WallClock => "wall_clock",
            Alignment::SharedMarkers => "shared_markers",
        }
    }
}

/// A rank that may have been first.
#[derive(Debug, Clone, PartialEq)]
pub struct Suspect {
    /// The rank.
    pub rank: u64,
    /// When its memory had jumped, by its own clock.
    pub first_spike_ns: u64,
    /// The same, aligned.
    pub aligned_ns: i128,
    /// By how much.
    pub peak_delta_bytes: u64,
    /// In how many samples.
    pub spike_samples: usize,
    /// How long before the second rank.
    pub lead_ns: i128,
    /// `low`, `medium` or `high`.
    pub confidence: &'static str,
    /// Ranks at or before the onset.
    pub supporting_ranks: usize,
    /// What it was doing.
    pub phase: Option<PhaseAttribution>,
}

/// Who jumped first, by one alignment.
#[derive(Debug, Clone, PartialEq)]
pub struct FirstCause {
    /// How clocks were aligned.
    pub alignment: Alignment,
    /// What is subtracted from each rank's clock.
    pub offsets_ns: BTreeMap<u64, i128>,
    /// When the second rank jumped.
    pub onset_ns: Option<i128>,
    /// The ranks at or before that, the first first.
    pub suspects: Vec<Suspect>,
    /// What limits it.
    pub notes: Vec<String>,
}

/// The job as one picture.
#[derive(Debug, Clone)]
pub struct CrossRank {
    /// Its name.
    pub job_id: Option<String>,
    /// How many ranks there should be.
    pub world_size: u64,
    /// Those that have samples.
    pub participating: Vec<u64>,
    /// Those that have none.
    pub missing: Vec<u64>,
    /// How many samples each has.
    pub sample_counts: BTreeMap<u64, usize>,
    /// By 0.4.3's alignment.
    pub first_cause: FirstCause,
    /// By the best alignment there is; `None` when that is `first_sample` as well.
    pub better: Option<FirstCause>,
    /// What was noticed, in order.
    pub notes: Vec<String>,
}

/// Looks at a job. `same_clock` says that all ranks ran on one machine.
pub fn cross_rank(job: &Job<'_>, same_clock: bool) -> CrossRank {
    let mut notes = job.notes.clone();
    let ranks: Vec<&RankView<'_>> = job.ranks.iter().filter(|rank| !rank.samples.is_empty()).collect();
    let participating: Vec<u64> = ranks.iter().map(|rank| rank.rank).collect();
    let highest = participating.iter().max().map_or(0, |rank| rank + 1);
    let world_size = if ranks.is_empty() { 0 } else { job.declared_world_size.max(highest) };
    let missing = missing_ranks(&participating, world_size);
    if !missing.is_empty() {
        let list: Vec<String> = missing.iter().map(u64::to_string).collect();
        notes.push(format!("Missing rank data for ranks: {}.", list.join(", ")));
    }
    let interval = median_interval(&ranks, job.stated_interval_ns);
    let offsets = first_sample_offsets(&ranks);
    for (rank, offset) in &offsets {
        if interval > 0 && offset.unsigned_abs() > u128::from(SKEW_INTERVALS) * u128::from(interval) {
            notes.push(format!(
                "Rank {rank} starts {offset} ns from the anchor; first-sample alignment may be approximate."
            ));
        }
    }
    let sparse = !missing.is_empty();
    let first_cause = first_cause(&ranks, Alignment::FirstSample, offsets, interval, sparse);
    let better = better_offsets(&ranks, same_clock)
        .map(|(alignment, offsets)| self::first_cause(&ranks, alignment, offsets, interval, sparse));
    for note in &first_cause.notes {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
    CrossRank {
        job_id: job.job_id.clone(),
        world_size,
        sample_counts: ranks.iter().map(|rank| (rank.rank, rank.samples.len())).collect(),
        participating,
        missing,
        first_cause,
        better,
        notes,
    }
}

/// The ranks of a world that are not among these, which are in order.
#[must_use]
pub fn missing_ranks(participating: &[u64], world_size: u64) -> Vec<u64> {
    // A world claimed larger than any cluster is a wrong record; its absent ranks are not listed one by one.
    (0..world_size.min(1 << 16)).filter(|rank| participating.binary_search(rank).is_err()).collect()
}

fn first_sample_offsets(ranks: &[&RankView<'_>]) -> BTreeMap<u64, i128> {
    let first = |rank: &RankView<'_>| rank.samples.first().map_or(0, |sample| i128::from(sample.at_ns));
    let anchor = ranks.iter().find(|rank| rank.rank == 0).or(ranks.first()).map_or(0, |rank| first(rank));
    ranks.iter().map(|rank| (rank.rank, first(rank) - anchor)).collect()
}

/// One machine has one clock; else markers that all ranks saw as often tell the clocks apart.
fn better_offsets(ranks: &[&RankView<'_>], same_clock: bool) -> Option<(Alignment, BTreeMap<u64, i128>)> {
    if same_clock {
        return Some((Alignment::WallClock, ranks.iter().map(|rank| (rank.rank, 0)).collect()));
    }
    let anchor = ranks.first()?;
    let count = anchor.markers.len();
    if count < 3 || ranks.iter().any(|rank| rank.markers.len() != count) {
        return None;
    }
    let offset = |rank: &RankView<'_>| {
        let mut differences: Vec<i128> =
            rank.markers.iter().zip(anchor.markers).map(|(a, b)| i128::from(*a) - i128::from(*b)).collect();
        *differences.select_nth_unstable(count / 2).1
    };
    Some((Alignment::SharedMarkers, ranks.iter().map(|rank| (rank.rank, offset(rank))).collect()))
}

fn median_interval(ranks: &[&RankView<'_>], stated_ns: u64) -> u64 {
    let mut intervals: Vec<u64> = Vec::new();
    for rank in ranks {
        let steps = rank.samples.windows(2).map(|pair| pair[1].at_ns.saturating_sub(pair[0].at_ns));
        intervals.extend(steps.filter(|step| *step > 0));
    }
    if intervals.is_empty() {
        return stated_ns;
    }
    let is_even = intervals.len().is_multiple_of(2);
    let middle = intervals.len() / 2;
    let (below, upper, _) = intervals.select_nth_unstable(middle);
    let upper = *upper;
    match below.iter().max() {
        Some(lower) if is_even => {
            // As Python: the mean of both, cut to an integer.
            ((u128::from(*lower) + u128::from(upper)) / 2) as u64
        }
        _ => upper,
    }
}

struct Candidate {
    rank: usize,
    aligned_ns: i128,
    at_ns: u64,
    delta: u64,
    samples: usize,
}

/// The first run of rising samples that gains a tenth of the rank's peak, and at least 64 MiB.
fn candidate(samples: &[Sample]) -> Option<(u64, u64, usize)> {
    let used = |sample: &Sample| sample.used().unwrap_or(0);
    let peak = samples.iter().map(used).max()?;
    let threshold = SPIKE_MIN_BYTES.max((peak as f64 * 0.10) as u64);
    let (mut gained, mut count) = (0_u64, 0);
    for pair in samples.windows(2) {
        match used(&pair[1]).checked_sub(used(&pair[0])).filter(|step| *step > 0) {
            None => (gained, count) = (0, 0),
            Some(step) => {
                gained += step;
                count += 1;
                if gained >= threshold {
                    return Some((pair[1].at_ns, gained, count));
                }
            }
        }
    }
    None
}

fn first_cause(
    ranks: &[&RankView<'_>],
    alignment: Alignment,
    offsets_ns: BTreeMap<u64, i128>,
    interval_ns: u64,
    is_incomplete: bool,
) -> FirstCause {
    let mut result =
        FirstCause { alignment, offsets_ns, onset_ns: None, suspects: Vec::new(), notes: Vec::new() };
    if ranks.len() < 2 {
        result.notes.push(match ranks.len() {
            0 => "No sample telemetry events were available for distributed analysis.".to_owned(),
            _ => "At least two ranks are required for cross-rank first-cause analysis.".to_owned(),
        });
        return result;
    }
    let short: Vec<String> =
        ranks.iter().filter(|rank| rank.samples.len() < 2).map(|rank| rank.rank.to_string()).collect();
    if !short.is_empty() {
        result.notes.push(format!(
            "Some ranks have fewer than two samples and cannot contribute to spike detection: {}.",
            short.join(", ")
        ));
    }
    let mut candidates: Vec<Candidate> = Vec::new();
    for (index, rank) in ranks.iter().enumerate() {
        let Some((at_ns, delta, samples)) = candidate(rank.samples) else { continue };
        let offset = result.offsets_ns.get(&rank.rank).copied().unwrap_or(0);
        candidates.push(Candidate {
            rank: index,
            aligned_ns: i128::from(at_ns) - offset,
            at_ns,
            delta,
            samples,
        });
    }
    candidates
        .sort_by_key(|found| (found.aligned_ns, std::cmp::Reverse(found.delta), ranks[found.rank].rank));
    let Some(first) = candidates.first() else {
        result.notes.push("No qualifying cross-rank spikes were detected.".to_owned());
        return result;
    };
    let earliest = first.aligned_ns;
    result.onset_ns = candidates.get(1).map(|second| second.aligned_ns);
    if result.onset_ns.is_none() {
        result.notes.push("Only one rank produced a qualifying spike; confidence is limited.".to_owned());
    }
    let cutoff = result.onset_ns.unwrap_or(earliest);
    let before: Vec<&Candidate> = candidates.iter().filter(|found| found.aligned_ns <= cutoff).collect();
    let at_first = before.iter().filter(|found| found.aligned_ns == earliest).count();
    let is_sparse = is_incomplete || !short.is_empty();
    result.suspects = before
        .iter()
        .map(|found| {
            let lead_ns = result.onset_ns.map_or(0, |onset| onset - found.aligned_ns);
            let is_first = found.aligned_ns == earliest;
            let confidence = if candidates.len() < 2 || is_sparse || !is_first {
                "low"
            } else if at_first == 1 && (interval_ns == 0 || lead_ns >= i128::from(interval_ns)) {
                "high"
            } else {
                "medium"
            };
            let rank = ranks[found.rank];
            Suspect {
                rank: rank.rank,
                first_spike_ns: found.at_ns,
                aligned_ns: found.aligned_ns,
                peak_delta_bytes: found.delta,
                spike_samples: found.samples,
                lead_ns,
                confidence,
                supporting_ranks: before.len(),
                phase: rank.phases.and_then(|phases| phases.resolve(found.at_ns)),
            }
        })
        .collect();
    result
}

/// Nanoseconds fit; a clock that does not is shown as the nearest number.
fn number(ns: i128) -> Value {
    i64::try_from(ns).map_or_else(|_| Value::from(ns as f64), Value::from)
}

impl FirstCause {
    fn suspects_value(&self) -> Value {
        let one = |suspect: &Suspect| {
            let mut record = Record::new();
            let mut put = |key: &str, value: Value| record.insert(key.to_owned(), value);
            put("rank", suspect.rank.into());
            put("first_spike_timestamp_ns", suspect.first_spike_ns.into());
            put("aligned_first_spike_timestamp_ns", number(suspect.aligned_ns));
            put("peak_delta_bytes", suspect.peak_delta_bytes.into());
            put("spike_window_samples", suspect.spike_samples.into());
            put("lead_over_cluster_onset_ns", number(suspect.lead_ns));
            put("confidence", suspect.confidence.into());
            let evidence = [
                ("device_used_delta_bytes", Value::from(suspect.peak_delta_bytes)),
                ("supporting_ranks_at_or_before_onset", suspect.supporting_ranks.into()),
            ];
            let evidence = evidence.map(|(key, value)| (key.to_owned(), value));
            put("evidence", Value::Object(evidence.into_iter().collect()));
            let phase = suspect.phase.as_ref().map_or(Value::Null, |phase| phase.to_record().into());
            put("phase_attribution", phase);
            Value::Object(record)
        };
        self.suspects.iter().map(one).collect()
    }

    fn offsets_value(&self) -> Value {
        let offsets = self.offsets_ns.iter().map(|(rank, offset)| (rank.to_string(), number(*offset)));
        Value::Object(offsets.collect())
    }
}

impl CrossRank {
    /// The suspect to name: by the best alignment there is.
    pub fn best(&self) -> &FirstCause {
        self.better.as_ref().unwrap_or(&self.first_cause)
    }

    /// The object form: 0.4.3's keys, then `alignment`, which says what clocks were trusted and what that changes.
    pub fn to_record(&self) -> Record {
        let mut record = Record::new();
        let mut put = |key: &str, value: Value| record.insert(key.to_owned(), value);
        put("job_id", self.job_id.as_deref().into());
        put("world_size", self.world_size.into());
        put("participating_ranks", self.participating.clone().into());
        put("missing_ranks", self.missing.clone().into());
        let counts = self.sample_counts.iter().map(|(rank, count)| (rank.to_string(), Value::from(*count)));
        put("rank_sample_counts", Value::Object(counts.collect()));
        put("alignment_offsets_ns", self.first_cause.offsets_value());
        put("cluster_onset_timestamp_ns", self.first_cause.onset_ns.map_or(Value::Null, number));
        put("first_cause_suspects", self.first_cause.suspects_value());
        put("notes", self.notes.clone().into());
        let best = self.best();
        let mut alignment = Record::new();
        let mut add = |key: &str, value: Value| alignment.insert(key.to_owned(), value);
        add("method", best.alignment.as_str().into());
        add("offsets_ns", best.offsets_value());
        add("cluster_onset_timestamp_ns", best.onset_ns.map_or(Value::Null, number));
        add("first_cause_suspects", best.suspects_value());
        put("alignment", Value::Object(alignment));
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const MS: u64 = 1_000_000;

    fn samples(start: u64, jump_at: u64) -> Vec<Sample> {
        (0..50)
            .map(|i| {
                let used = if i >= jump_at { 14 * GIB } else { 10 * GIB };
                Sample::new(start + i * 100 * MS, Some(used), Some(8 * GIB), None)
            })
            .collect()
    }

    fn job<'a>(all: &'a [Vec<Sample>], markers: &'a [Vec<u64>], world: u64) -> Job<'a> {
        let view = |(rank, samples): (usize, &'a Vec<Sample>)| RankView {
            rank: rank as u64,
            samples,
            markers: markers.get(rank).map_or(&[], Vec::as_slice),
            phases: None,
        };
        Job {
            job_id: Some("j".into()),
            declared_world_size: world,
            ranks: all.iter().enumerate().map(view).collect(),
            stated_interval_ns: 0,
            notes: Vec::new(),
        }
    }

    #[test]
    fn the_first_to_jump_is_named() {
        let all = [samples(1000, 30), samples(1000, 20), samples(1000, 31)];
        let found = cross_rank(&job(&all, &[], 3), true);
        assert_eq!(found.first_cause.suspects[0].rank, 1);
        assert_eq!(found.first_cause.suspects[0].confidence, "high");
        assert_eq!(found.first_cause.suspects[0].lead_ns, i128::from(1000 * MS));
        assert!(found.missing.is_empty());
    }

    #[test]
    fn a_late_start_is_hidden_by_first_samples_and_seen_by_the_clock() {
        // Rank 1 started two seconds later and jumped, by the wall clock, after rank 0.
        let all = [samples(0, 20), samples(2000 * MS, 10)];
        let found = cross_rank(&job(&all, &[], 2), true);
        assert_eq!(found.first_cause.suspects[0].rank, 1);
        assert_eq!(found.best().suspects[0].rank, 0);
        assert_eq!(found.best().alignment, Alignment::WallClock);
        assert!(found.notes.iter().any(|note| note.contains("Rank 1 starts")));
    }

    #[test]
    fn markers_detect_different_clocks() {
        let all = [samples(0, 20), samples(7_000_000_000, 30)];
        let markers = [vec![5, 10, 15], vec![7_000_000_005, 7_000_000_010, 7_000_000_015]];
        let found = cross_rank(&job(&all, &markers, 2), false);
        assert_eq!(found.best().alignment, Alignment::SharedMarkers);
        assert_eq!(found.best().offsets_ns[&1], 7_000_000_000);
        assert_eq!(cross_rank(&job(&all, &[], 2), false).best().alignment, Alignment::FirstSample);
    }

    #[test]
    fn missing_ranks_and_a_lone_rank_are_reported() {
        let all = [samples(0, 20)];
        let found = cross_rank(&job(&all, &[], 4), true);
        assert_eq!(found.missing, [1, 2, 3]);
        assert_eq!(found.notes[0], "Missing rank data for ranks: 1, 2, 3.");
        assert!(found.notes[1].starts_with("At least two ranks"));
        let huge = cross_rank(&job(&all, &[], u64::MAX), true);
        assert!(huge.missing.len() <= 1 << 16);
    }
}
