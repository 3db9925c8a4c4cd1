//! Spikes of hidden memory that belong to collective communication (NCCL and friends).
//!
//! A spike counts by three kinds of evidence: how far it stands out, whether something nearby names a collective, and whether
//! other ranks spike at the same time. Presets, formula and rounding are 0.4.3's; the work is linear in samples instead of
//! quadratic. Page: `docs/rules/collective.md`.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use serde_json::Value;
use stormlog_model::Record;

use crate::phases::{PhaseAttribution, PhaseIndex};
use crate::sample::Sample;
use crate::series::{mad, mean, median, round_to, sample_deviation};

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;

/// The knobs, with 0.4.3's names.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectiveConfig {
    /// `low`, `medium` or `high`: how sensitive.
    pub preset: &'static str,
    /// Ranks with fewer samples are not judged.
    pub min_samples_per_rank: usize,
    /// Least gap in bytes…
    pub min_gap_bytes: u64,
    /// …or as a share of the device.
    pub min_gap_ratio: f64,
    /// How far out a spike must be.
    pub robust_zscore_threshold: f64,
    /// How near a marker must be.
    pub marker_window_ns: u64,
    /// Added at both ends of an interval.
    pub interval_padding_ns: u64,
    /// How near in time ranks count as synchronous.
    pub synchrony_window_ns: u64,
    /// The share of other ranks that makes it synchronous.
    pub min_synchrony_ratio: f64,
    /// Results below this are dropped.
    pub min_confidence: f64,
}

impl Default for CollectiveConfig {
    fn default() -> Self {
        CollectiveConfig {
            preset: "medium",
            min_samples_per_rank: 6,
            min_gap_bytes: 128 * MIB,
            min_gap_ratio: 0.04,
            robust_zscore_threshold: 2.5,
            marker_window_ns: 150 * MS,
            interval_padding_ns: 120 * MS,
            synchrony_window_ns: 120 * MS,
            min_synchrony_ratio: 0.5,
            min_confidence: 0.5,
        }
    }
}

impl CollectiveConfig {
    /// The preset of that name.
    pub fn preset(name: &str) -> Option<Self> {
        Some(match name.trim().to_lowercase().as_str() {
            "medium" | "" => CollectiveConfig::default(),
            "low" => CollectiveConfig {
                preset: "low",
                min_samples_per_rank: 8,
                min_gap_bytes: 256 * MIB,
                min_gap_ratio: 0.06,
                robust_zscore_threshold: 3.0,
                marker_window_ns: 120 * MS,
                interval_padding_ns: 100 * MS,
                synchrony_window_ns: 100 * MS,
                min_synchrony_ratio: 0.6,
                min_confidence: 0.7,
            },
            "high" => CollectiveConfig {
                preset: "high",
                min_samples_per_rank: 5,
                min_gap_bytes: 64 * MIB,
                min_gap_ratio: 0.025,
                robust_zscore_threshold: 1.8,
                marker_window_ns: 180 * MS,
                interval_padding_ns: 160 * MS,
                synchrony_window_ns: 180 * MS,
                min_synchrony_ratio: 0.34,
                min_confidence: 0.35,
            },
            _ => return None,
        })
    }
}

/// One rank of a job, as the rule sees it.
#[derive(Debug, Clone, Copy)]
pub struct RankView<'a> {
    /// Its number.
    pub rank: u64,
    /// Its samples in time order.
    pub samples: &'a [Sample],
    /// The moments that name a collective, in time order.
    pub markers: &'a [u64],
    /// Its phases.
    pub phases: Option<&'a PhaseIndex>,
}

/// A stretch of one rank's time.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectiveInterval {
    /// The rank.
    pub rank: u64,
    /// From.
    pub start_ns: u64,
    /// Until.
    pub end_ns: u64,
    /// 0 to 1, three decimals.
    pub confidence: f64,
    /// Why, sorted.
    pub reasons: BTreeSet<&'static str>,
    /// The numbers.
    pub evidence: CollectiveEvidence,
    /// The phase.
    pub phase: Option<PhaseAttribution>,
    /// The spikes it is made of.
    pub spikes_ns: Vec<u64>,
    class: Class,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Suspect,
    Likely,
    Confident,
}

/// What an interval rests on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CollectiveEvidence {
    /// Markers near the spike.
    pub marker_hits: usize,
    /// Ranks that spike together, this one included.
    pub synchronized_ranks: usize,
    /// Ranks there should be.
    pub expected_world_size: u64,
    /// Share of the others.
    pub synchrony_ratio: f64,
    /// The gap.
    pub peak_gap_bytes: u64,
    /// As a share of the device.
    pub peak_gap_ratio: Option<f64>,
    /// How far out.
    pub robust_zscore: f64,
}

impl CollectiveInterval {
    /// `collective_confident`, `collective_likely` or `collective_suspect`.
    pub fn classification(&self) -> &'static str {
        match self.class {
            Class::Confident => "collective_confident",
            Class::Likely => "collective_likely",
            Class::Suspect => "collective_suspect",
        }
    }

    /// The object form.
    pub fn to_record(&self) -> Record {
        let mut record = Record::new();
        let mut put = |key: &str, value: Value| record.insert(key.to_owned(), value);
        put("rank", self.rank.into());
        put("interval_start_ns", self.start_ns.into());
        put("interval_end_ns", self.end_ns.into());
        put("classification", self.classification().into());
        put("confidence", self.confidence.into());
        put("reason_codes", self.reasons.iter().map(|code| Value::from(*code)).collect());
        let mut evidence = Record::new();
        let mut add = |key: &str, value: Value| evidence.insert(key.to_owned(), value);
        let found = &self.evidence;
        add("marker_hits", found.marker_hits.into());
        add("synchronized_ranks", found.synchronized_ranks.into());
        add("expected_world_size", found.expected_world_size.into());
        add("synchrony_ratio", found.synchrony_ratio.into());
        add("peak_gap_bytes", found.peak_gap_bytes.into());
        add("peak_gap_ratio", found.peak_gap_ratio.into());
        add("robust_zscore", found.robust_zscore.into());
        put("evidence", Value::Object(evidence));
        put("phase_attribution", self.phase.as_ref().map_or(Value::Null, |phase| phase.to_record().into()));
        record
    }

    fn merge(&mut self, other: CollectiveInterval) {
        self.start_ns = self.start_ns.min(other.start_ns);
        self.end_ns = self.end_ns.max(other.end_ns);
        self.confidence = self.confidence.max(other.confidence);
        self.class = self.class.max(other.class);
        self.reasons.extend(other.reasons);
        self.spikes_ns.extend(other.spikes_ns);
        self.phase = PhaseAttribution::merged(self.phase.take(), other.phase);
        let (ours, theirs) = (&mut self.evidence, &other.evidence);
        ours.marker_hits = ours.marker_hits.max(theirs.marker_hits);
        ours.synchronized_ranks = ours.synchronized_ranks.max(theirs.synchronized_ranks);
        ours.expected_world_size = ours.expected_world_size.max(theirs.expected_world_size);
        ours.synchrony_ratio = ours.synchrony_ratio.max(theirs.synchrony_ratio);
        ours.peak_gap_bytes = ours.peak_gap_bytes.max(theirs.peak_gap_bytes);
        ours.robust_zscore = ours.robust_zscore.max(theirs.robust_zscore);
        ours.peak_gap_ratio = match (ours.peak_gap_ratio, theirs.peak_gap_ratio) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
    }
}

/// A sample that stands out.
struct Spike {
    at_ns: u64,
    gap: u64,
    ratio: Option<f64>,
    zscore: f64,
}

/// The intervals of all ranks. `world_size` is the largest any event claims, `trace_start_ns` the first event of all.
pub fn attribute(
    ranks: &[RankView<'_>],
    world_size: u64,
    trace_start_ns: u64,
    config: &CollectiveConfig,
) -> Vec<CollectiveInterval> {
    let spikes: Vec<Vec<Spike>> = ranks.iter().map(|rank| spikes_of(rank.samples, config)).collect();
    let together = synchrony(&spikes, config.synchrony_window_ns);
    let mut order: Vec<usize> = (0..ranks.len()).collect();
    order.sort_by_key(|index| ranks[*index].rank);
    let mut found: Vec<CollectiveInterval> = Vec::new();
    for index in order {
        let rank = &ranks[index];
        for (spike, ranks_together) in spikes[index].iter().zip(&together[index]) {
            let judged = judge(rank, spike, *ranks_together as usize, world_size, trace_start_ns, config);
            let Some(mut interval) = judged else { continue };
            interval.phase = rank.phases.and_then(|phases| phases.resolve(spike.at_ns));
            match found.last_mut() {
                Some(last) if last.rank == interval.rank && interval.start_ns <= last.end_ns => {
                    last.merge(interval);
                }
                _ => found.push(interval),
            }
        }
    }
    found
}

fn spikes_of(samples: &[Sample], config: &CollectiveConfig) -> Vec<Spike> {
    let positive = |sample: &Sample| sample.gap().map(|gap| gap.max(0) as u64);
    let mut gaps: Vec<f64> = samples.iter().filter_map(positive).map(|gap| gap as f64).collect();
    if gaps.len() < config.min_samples_per_rank {
        return Vec::new();
    }
    let average = mean(&gaps);
    let deviation = sample_deviation(&gaps, average);
    let centre = median(&mut gaps);
    let spread = mad(&gaps, centre);
    drop(gaps);
    let zscore = |gap: f64| {
        if spread > 0.0 {
            (0.6745 * (gap - centre) / spread).max(0.0)
        } else if deviation > 0.0 {
            ((gap - average) / deviation).max(0.0)
        } else {
            0.0
        }
    };
    let spike = |sample: &Sample| {
        let gap = positive(sample)?;
        let ratio = sample.total().map(|total| gap as f64 / total as f64);
        let is_large =
            ratio.is_some_and(|ratio| ratio >= config.min_gap_ratio) || gap >= config.min_gap_bytes;
        let far = zscore(gap as f64);
        (is_large && far >= config.robust_zscore_threshold).then(|| Spike {
            at_ns: sample.at_ns,
            gap,
            ratio,
            zscore: round_to(far, 4),
        })
    };
    samples.iter().filter_map(spike).collect()
}

/// For every spike, how many ranks (its own included) spike within the window around it: one sweep over all of them.
fn synchrony(spikes: &[Vec<Spike>], window_ns: u64) -> Vec<Vec<u32>> {
    let mut all: Vec<(u64, u32, u32)> = Vec::new();
    for (rank, of_rank) in spikes.iter().enumerate() {
        all.extend(of_rank.iter().enumerate().map(|(index, spike)| (spike.at_ns, rank as u32, index as u32)));
    }
    all.sort_unstable();
    let mut counts = vec![0_u32; spikes.len()];
    let mut answers: Vec<Vec<u32>> = spikes.iter().map(|of_rank| vec![0; of_rank.len()]).collect();
    let (mut from, mut to, mut distinct) = (0, 0, 0_u32);
    for (at_ns, rank, index) in &all {
        while to < all.len() && all[to].0 <= at_ns.saturating_add(window_ns) {
            let count = &mut counts[all[to].1 as usize];
            distinct += u32::from(*count == 0);
            *count += 1;
            to += 1;
        }
        while all[from].0 < at_ns.saturating_sub(window_ns) {
            let count = &mut counts[all[from].1 as usize];
            *count -= 1;
            distinct -= u32::from(*count == 0);
            from += 1;
        }
        answers[*rank as usize][*index as usize] = distinct;
    }
    answers
}

fn judge(
    rank: &RankView<'_>,
    spike: &Spike,
    together: usize,
    world_size: u64,
    trace_start_ns: u64,
    config: &CollectiveConfig,
) -> Option<CollectiveInterval> {
    let near = |at: u64| rank.markers.partition_point(|marker| *marker < at);
    let first = near(spike.at_ns.saturating_sub(config.marker_window_ns));
    let after = near(spike.at_ns.saturating_add(config.marker_window_ns).saturating_add(1));
    let markers = &rank.markers[first..after];
    let synchrony = match world_size {
        0 | 1 => 0.0,
        _ => ((together.max(1) - 1) as f64 / (world_size - 1) as f64).min(1.0),
    };
    let share = |value: f64, whole: f64| if whole > 0.0 { (value / whole).min(1.0) } else { 1.0 };
    let divergence = share(spike.gap as f64, config.min_gap_bytes as f64)
        .max(share(spike.ratio.unwrap_or(0.0), config.min_gap_ratio));
    let mut reasons = BTreeSet::from(["gap_spike_statistical_outlier"]);
    let mut confidence = if markers.is_empty() { 0.0 } else { 0.34 };
    confidence += 0.34 * synchrony;
    confidence += 0.16 * (spike.zscore / config.robust_zscore_threshold).min(1.0);
    confidence += 0.16 * divergence;
    if markers.is_empty() {
        confidence -= 0.15;
        reasons.insert("weak_marker_signal");
    } else {
        reasons.extend(["marker_collective_token", "marker_spike_overlap"]);
    }
    if synchrony >= config.min_synchrony_ratio {
        reasons.insert("cross_rank_synchrony");
    }
    if divergence >= 0.5 {
        reasons.insert("allocator_device_divergence");
    }
    if world_size <= 1 || together <= 1 {
        confidence -= 0.15;
        reasons.insert("single_rank_only");
    }
    if spike.ratio.is_none() {
        confidence -= 0.05;
    }
    let confidence = confidence.clamp(0.0, 1.0);
    let rounded = round_to(confidence, 3);
    if confidence <= 0.0 || rounded < config.min_confidence {
        return None;
    }
    let start = markers.first().map_or(spike.at_ns, |marker| spike.at_ns.min(*marker));
    let end = markers.last().map_or(spike.at_ns, |marker| spike.at_ns.max(*marker));
    Some(CollectiveInterval {
        rank: rank.rank,
        start_ns: start.saturating_sub(config.interval_padding_ns).max(trace_start_ns),
        end_ns: end.saturating_add(config.interval_padding_ns),
        confidence: rounded,
        class: match confidence {
            high if high >= 0.8 => Class::Confident,
            middle if middle >= 0.6 => Class::Likely,
            _ => Class::Suspect,
        },
        reasons,
        evidence: CollectiveEvidence {
            marker_hits: markers.len(),
            synchronized_ranks: together.max(1),
            expected_world_size: world_size,
            synchrony_ratio: round_to(synchrony, 4),
            peak_gap_bytes: spike.gap,
            peak_gap_ratio: spike.ratio.map(|ratio| round_to(ratio, 6)),
            robust_zscore: spike.zscore,
        },
        phase: None,
        spikes_ns: vec![spike.at_ns],
    })
}

/// Whether any text in an event names a collective. Remembers metadata it has seen, for they repeat.
#[derive(Debug, Default)]
pub struct MarkerSearch {
    known: FxHashMap<String, bool>,
}

impl MarkerSearch {
    /// Whether a text does.
    pub fn text(&mut self, text: &str) -> bool {
        if let Some(known) = self.known.get(text) {
            return *known;
        }
        let found = names_a_collective(text);
        if self.known.len() >= 4096 {
            self.known.clear();
        }
        self.known.insert(text.to_owned(), found);
        found
    }

    /// Whether any text in a value does.
    pub fn value(&mut self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => items.iter().any(|item| self.value(item)),
            Value::Object(map) => map.values().any(|item| self.value(item)),
            _ => false,
        }
    }
}

fn names_a_collective(text: &str) -> bool {
    const TOKENS: [&str; 8] = [
        "nccl",
        "collective",
        "communication",
        "allreduce",
        "allgather",
        "reducescatter",
        "broadcast",
        "barrier",
    ];
    // `all_reduce`, `all-reduce` and `AllReduce` are one word.
    let joined: String =
        text.chars().filter(|c| !matches!(c, '-' | '_')).map(|c| c.to_ascii_lowercase()).collect();
    TOKENS.iter().any(|token| joined.contains(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn rank_samples(spike_at: u64) -> Vec<Sample> {
        (0..60)
            .map(|i| {
                let extra = if i == spike_at { 4 * GIB } else { (i % 3) * MIB };
                Sample::new(i * 100 * MS, Some(10 * GIB + extra), Some(10 * GIB), Some(80 * GIB))
            })
            .collect()
    }

    #[test]
    fn ranks_that_spike_together_at_a_marker_are_confident() {
        let samples: Vec<Vec<Sample>> = (0..4).map(|_| rank_samples(30)).collect();
        let markers = [30 * 100 * MS];
        let views: Vec<RankView<'_>> = (0..4)
            .map(|rank| RankView { rank, samples: &samples[rank as usize], markers: &markers, phases: None })
            .collect();
        let found = attribute(&views, 4, 0, &CollectiveConfig::default());
        assert_eq!(found.len(), 4);
        assert!(found.iter().all(|interval| interval.classification() == "collective_confident"));
        assert_eq!(found[2].evidence.synchronized_ranks, 4);
    }

    #[test]
    fn a_lone_unmarked_spike_is_dropped_unless_asked_for() {
        let samples = rank_samples(30);
        let view = [RankView { rank: 0, samples: &samples, markers: &[], phases: None }];
        assert!(attribute(&view, 1, 0, &CollectiveConfig::default()).is_empty());
        assert!(CollectiveConfig::preset("nonsense").is_none());
        assert_eq!(CollectiveConfig::preset(" High ").unwrap().min_samples_per_rank, 5);
    }

    #[test]
    fn words_are_found_however_they_are_written() {
        let mut search = MarkerSearch::default();
        for text in ["ncclAllReduce", "all-reduce", "reduce_scatter done", "BARRIER"] {
            assert!(search.text(text), "{text}");
        }
        assert!(!search.text("forward") && !search.text(""));
        assert!(search.value(&serde_json::json!({"a": [{"b": "all_gather"}]})));
    }
}
