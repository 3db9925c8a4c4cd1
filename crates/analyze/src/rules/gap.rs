//! Hidden memory: what the device has in use beyond what the framework's allocator holds.
//!
//! Contexts, libraries, collectives and other processes live there. The three classes, their thresholds, numbers and rounding
//! are 0.4.3's; ours is linear and never fails on a series without time. Page: `docs/rules/hidden_gap.md`.

use serde_json::Value;
use stormlog_model::{Event, Finding, Record, Severity};

use super::{Rule, RuleContext, findings};
use crate::recording::derived_of;
use crate::sample::Sample;
use crate::series::{mean, round_to, sample_deviation, slope_of_line, student_t_two_sided};
use crate::text::python_bytes;

/// The rule: memory on the device that the allocator does not know of.
#[derive(Debug, Default)]
pub struct HiddenMemory;

impl Rule for HiddenMemory {
    fn findings(&self, context: &RuleContext<'_>) -> Vec<Finding> {
        // Fragmentation has a rule of its own, which asks at the peak.
        let gaps = context.gaps.iter().filter(|gap| gap.class != GapClass::FragmentationLike);
        gaps.map(|gap| findings::of_gap(context.stream, gap, context.phases.resolve(gap.at_ns).as_ref()))
            .collect()
    }
}

/// When a gap is worth a word. The names are those of 0.4.3's `thresholds`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GapThresholds {
    /// `gap_ratio_threshold`: share of the device.
    pub ratio: f64,
    /// `gap_spike_zscore`.
    pub spike_zscore: f64,
    /// `gap_drift_r_squared`.
    pub drift_r_squared: f64,
    /// `gap_fragmentation_ratio`.
    pub fragmentation: f64,
}

impl Default for GapThresholds {
    fn default() -> Self {
        GapThresholds { ratio: 0.05, spike_zscore: 2.0, drift_r_squared: 0.6, fragmentation: 0.3 }
    }
}

/// What kind of gap it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GapClass {
    /// A few samples far above the rest.
    TransientSpike,
    /// It grows.
    PersistentDrift,
    /// Much of the reserved memory is in inactive splits.
    FragmentationLike,
}

impl GapClass {
    /// The word in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            GapClass::TransientSpike => "transient_spike",
            GapClass::PersistentDrift => "persistent_drift",
            GapClass::FragmentationLike => "fragmentation_like",
        }
    }

    /// What to do about it.
    pub fn remediation(self) -> [&'static str; 3] {
        match self {
            GapClass::TransientSpike => [
                "Investigate non-allocator memory consumers active during spikes (cuDNN workspace, NCCL buffers, other frameworks).",
                "Use torch.cuda.memory_snapshot() around spike windows for detailed attribution.",
                "Consider pinning cuDNN workspace size with torch.backends.cudnn.benchmark = False.",
            ],
            GapClass::PersistentDrift => [
                "Look for non-PyTorch CUDA allocations accumulating over time (e.g. custom CUDA kernels, third-party libraries).",
                "Monitor nvidia-smi used memory alongside torch allocator counters.",
                "If gap stabilises after warmup, it may be one-time CUDA context overhead.",
            ],
            GapClass::FragmentationLike => [
                "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True so segments grow in place instead of being split.",
                "Allocate long-lived tensors (weights, optimizer state, buffers) before the loop, so short-lived ones do not split their segments.",
                "Keep shapes steady: pad or bucket variable sequence lengths and image sizes into a few sizes.",
            ],
        }
    }
}

/// A classified gap.
#[derive(Debug, Clone, PartialEq)]
pub struct GapFinding {
    /// Which class.
    pub class: GapClass,
    /// How bad.
    pub severity: Severity,
    /// 0 to 1, three decimals.
    pub confidence: f64,
    /// The numbers, with 0.4.3's keys and rounding.
    pub evidence: Record,
    /// The sentence.
    pub description: String,
    /// The sample that shows it best.
    pub at_ns: u64,
}

/// The fragmentation ratio (`inactive/reserved`) of the samples the gap is judged by, as they go by.
#[derive(Debug, Clone, Copy, Default)]
pub struct FragmentationSeen {
    sum: f64,
    count: u64,
    most: Option<(f64, u64)>,
}

impl FragmentationSeen {
    /// Takes the ratio of one usable sample.
    pub fn observe(&mut self, at_ns: u64, ratio: f64) {
        self.sum += ratio;
        self.count += 1;
        if self.most.is_none_or(|(most, _)| ratio > most) {
            self.most = Some((ratio, at_ns));
        }
    }
}

/// Whether a sample counts for the gap: device size, use and reservation are known.
pub fn is_usable(sample: &Sample) -> bool {
    sample.total().is_some() && sample.gap().is_some()
}

/// The classes of gap in the samples among events, the worst first, each with the place of the event that shows it.
pub fn hidden_gaps_of(events: &[Event], thresholds: &GapThresholds) -> Vec<(GapFinding, usize)> {
    let (mut samples, mut places, mut seen) = (Vec::new(), Vec::new(), FragmentationSeen::default());
    for (place, event) in events.iter().enumerate() {
        let Some(sample) = Sample::of(event).filter(is_usable) else { continue };
        if let Some(ratio) = derived_of(event).fragmentation_ratio {
            seen.observe(sample.at_ns, ratio);
        }
        samples.push(sample);
        places.push(place);
    }
    let place_of =
        |gap: &GapFinding| samples.iter().position(|sample| sample.at_ns == gap.at_ns).unwrap_or(0);
    let found = hidden_gaps(&samples, &seen, thresholds).into_iter();
    found.map(|gap| (places[place_of(&gap)], gap)).map(|(place, gap)| (gap, place)).collect()
}

/// The classes of gap in samples, the worst first.
pub fn hidden_gaps(
    samples: &[Sample],
    fragmentation: &FragmentationSeen,
    thresholds: &GapThresholds,
) -> Vec<GapFinding> {
    let (mut times, mut gaps) = (Vec::new(), Vec::new());
    let mut widest: f64 = 0.0;
    for sample in samples {
        let (Some(total), Some(gap)) = (sample.total(), sample.gap()) else { continue };
        gaps.push(gap as f64);
        times.push(sample.at_ns);
        widest = widest.max((gap as f64 / total as f64).abs());
    }
    if gaps.len() < 3 || widest < thresholds.ratio {
        return Vec::new();
    }
    let average = mean(&gaps);
    let mut found: Vec<GapFinding> = [
        spikes(&times, &gaps, average, thresholds),
        drift(&times, &gaps, thresholds),
        fragmented(fragmentation, average, thresholds),
    ]
    .into_iter()
    .flatten()
    .collect();
    found.sort_by(|a, b| b.severity.cmp(&a.severity).then(b.confidence.total_cmp(&a.confidence)));
    found
}

fn spikes(times: &[u64], gaps: &[f64], average: f64, thresholds: &GapThresholds) -> Option<GapFinding> {
    let deviation = sample_deviation(gaps, average);
    if deviation <= 0.0 || deviation.is_nan() {
        return None;
    }
    let count = gaps.iter().filter(|gap| (*gap - average) / deviation > thresholds.spike_zscore).count();
    if count == 0 {
        return None;
    }
    let first_most =
        gaps.iter().enumerate().fold(0, |most, (at, gap)| if *gap > gaps[most] { at } else { most });
    let most = gaps[first_most];
    let zscore = (most - average) / deviation;
    let limit = thresholds.spike_zscore;
    Some(GapFinding {
        class: GapClass::TransientSpike,
        severity: if zscore > 2.0 * limit { Severity::Critical } else { Severity::Warning },
        confidence: round_to((zscore / (3.0 * limit)).min(1.0), 3),
        evidence: record([
            ("spike_count", count.into()),
            ("max_gap_bytes", most.into()),
            ("max_zscore", round_to(zscore, 3).into()),
            ("mean_gap_bytes", round_to(average, 1).into()),
            ("std_gap_bytes", round_to(deviation, 1).into()),
        ]),
        description: format!(
            "Detected {count} transient spike(s) in the device-vs-allocator gap (max z-score {zscore:.1})."
        ),
        at_ns: times[first_most],
    })
}

fn drift(times: &[u64], gaps: &[f64], thresholds: &GapThresholds) -> Option<GapFinding> {
    let (first, last) = (*times.first()?, *times.last()?);
    if gaps.len() < 5 {
        return None;
    }
    // Differences of nanoseconds are exact; nanoseconds since the epoch are not, as floats.
    let since: Vec<f64> = times.iter().map(|at| at.wrapping_sub(first) as i64 as f64).collect();
    let (slope, correlation) = slope_of_line(&since, gaps)?;
    let r_squared = correlation * correlation;
    if slope <= 0.0 || r_squared < thresholds.drift_r_squared {
        return None;
    }
    let freedom = gaps.len() as f64 - 2.0;
    let tiny = 1e-20;
    let t = correlation * (freedom / ((1.0 - correlation + tiny) * (1.0 + correlation + tiny))).sqrt();
    let per_second = slope * 1e9;
    Some(GapFinding {
        class: GapClass::PersistentDrift,
        severity: if r_squared > 0.85 { Severity::Critical } else { Severity::Warning },
        confidence: round_to(r_squared.min(1.0), 3),
        evidence: record([
            ("slope_bytes_per_sec", round_to(per_second, 1).into()),
            ("r_squared", round_to(r_squared, 4).into()),
            ("p_value", round_to(student_t_two_sided(t, freedom), 6).into()),
            ("gap_start_bytes", gaps.first().copied().into()),
            ("gap_end_bytes", gaps.last().copied().into()),
        ]),
        description: format!(
            "Device-vs-allocator gap is drifting upward at {}/s (R²={r_squared:.2}).",
            python_bytes(per_second.abs() as i128)
        ),
        at_ns: last,
    })
}

fn fragmented(seen: &FragmentationSeen, average_gap: f64, thresholds: &GapThresholds) -> Option<GapFinding> {
    let (most, at_ns) = seen.most?;
    let average = seen.sum / seen.count as f64;
    if average < thresholds.fragmentation {
        return None;
    }
    Some(GapFinding {
        class: GapClass::FragmentationLike,
        severity: if average > 0.5 { Severity::Critical } else { Severity::Warning },
        confidence: round_to((average / 0.6).min(1.0), 3),
        evidence: record([
            ("avg_fragmentation_ratio", round_to(average, 4).into()),
            ("max_fragmentation_ratio", round_to(most, 4).into()),
            ("avg_gap_bytes", round_to(average_gap, 1).into()),
            ("sample_count", seen.count.into()),
        ]),
        description: format!(
            "Inactive split blocks average {:.0}% of reserved memory: freed space inside segments still in use, \
             which can neither return to the device nor serve a larger request.",
            average * 100.0
        ),
        at_ns,
    })
}

fn record<const N: usize>(pairs: [(&str, Value); N]) -> Record {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn series(gap: impl Fn(u64) -> u64, count: u64) -> Vec<Sample> {
        (0..count)
            .map(|at| {
                Sample::new(at * 1_000_000_000, Some(10 * GIB + gap(at)), Some(10 * GIB), Some(80 * GIB))
            })
            .collect()
    }

    fn classes(samples: &[Sample]) -> Vec<GapClass> {
        let found = hidden_gaps(samples, &FragmentationSeen::default(), &GapThresholds::default());
        found.into_iter().map(|finding| finding.class).collect()
    }

    #[test]
    fn growing_gap_is_a_finding_and_a_steady_one_is_not() {
        assert!(classes(&series(|_| 5 * GIB, 50)).is_empty());
        assert_eq!(classes(&series(|at| GIB + at * (GIB / 4), 50)), [GapClass::PersistentDrift]);
    }

    #[test]
    fn one_spike_is_found_at_its_moment() {
        let samples = series(|at| if at == 30 { 9 * GIB } else { GIB }, 60);
        let found = hidden_gaps(&samples, &FragmentationSeen::default(), &GapThresholds::default());
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].severity, found[0].at_ns), (Severity::Critical, 30_000_000_000));
    }

    #[test]
    fn small_gaps_few_samples_and_zero_duration_give_no_finding() {
        assert!(classes(&series(|at| at << 10, 50)).is_empty());
        assert!(classes(&series(|_| 40 * GIB, 2)).is_empty());
        let at_once: Vec<Sample> =
            (0..10).map(|i| Sample::new(5, Some((20 + i) * GIB), Some(GIB), Some(80 * GIB))).collect();
        assert!(classes(&at_once).is_empty());
    }

    #[test]
    fn fragmentation_needs_a_gap_as_in_the_older_release() {
        let mut seen = FragmentationSeen::default();
        (0..10).for_each(|at| seen.observe(at, 0.55));
        let with_gap = hidden_gaps(&series(|_| 5 * GIB, 10), &seen, &GapThresholds::default());
        assert_eq!(with_gap[0].class, GapClass::FragmentationLike);
        assert_eq!(with_gap[0].confidence, 0.917);
        assert!(hidden_gaps(&series(|_| 0, 10), &seen, &GapThresholds::default()).is_empty());
    }
}
