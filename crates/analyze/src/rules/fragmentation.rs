//! Memory the allocator holds and cannot use, judged when it matters: at the peak of what it held, and at an out-of-memory error.
//!
//! Two ratios go by the name of fragmentation: the current one, inactive splits over reserved (`fragmentation_ratio`), and the
//! older one, reserved but not allocated over reserved (`fragmentation_ratio_legacy`), which counts plain cache. At the end of a
//! run the second is always high, so neither is asked there. Page: `docs/rules/fragmentation.md`.

use serde_json::Value;
use stormlog_model::alloc_conf::setting;
use stormlog_model::{Counter, Finding, Severity, format_bytes};

use super::{Observed, Rule, RuleContext, about, advice, metrics};
use crate::recording::Stream;

const HIGH: f64 = 0.3;
const SEVERE: f64 = 0.5;
/// Slack below this is not a reason to look.
const LEAST_SLACK: u64 = 256 << 20;

/// The state of the allocator at one sample.
#[derive(Debug, Clone, Copy)]
pub struct AllocatorState {
    /// When.
    pub at_ns: u64,
    /// Held.
    pub reserved: u64,
    /// Handed out.
    pub allocated: u64,
    /// Inactive splits over reserved.
    pub ratio: Option<f64>,
}

impl AllocatorState {
    /// The older formula: reserved and not allocated, over reserved.
    pub fn legacy_ratio(&self) -> f64 {
        if self.reserved == 0 { 0.0 } else { self.slack() as f64 / self.reserved as f64 }
    }

    fn slack(&self) -> u64 {
        self.reserved.saturating_sub(self.allocated)
    }
}

/// The samples that the findings use.
#[derive(Debug, Default, Clone, Copy)]
pub struct Fragmentation {
    /// Where reserved was highest; of equals, where most was handed out.
    pub at_peak: Option<AllocatorState>,
    /// The last sample before the first out-of-memory error.
    pub at_oom: Option<AllocatorState>,
    last: Option<AllocatorState>,
}

impl Rule for Fragmentation {
    fn observe(&mut self, observed: &Observed<'_>) {
        let Observed { event, derived } = *observed;
        let counters = event.counter(Counter::Reserved).zip(event.counter(Counter::Allocated));
        if let Some((reserved, allocated)) = counters.filter(|(reserved, _)| *reserved > 0) {
            let ratio = derived.fragmentation_ratio;
            let state = AllocatorState { at_ns: event.timestamp_ns, reserved, allocated, ratio };
            self.last = Some(state);
            if self.at_peak.is_none_or(|peak| (reserved, allocated) > (peak.reserved, peak.allocated)) {
                self.at_peak = Some(state);
            }
        }
        if self.at_oom.is_none()
            && event.head.event_type == "error"
            && event.metadata.map.contains_key("oom_reason")
        {
            self.at_oom = self.last;
        }
    }

    fn findings(&self, context: &RuleContext<'_>) -> Vec<Finding> {
        let stream = context.stream;
        if stream.is_host() {
            return Vec::new();
        }
        at_oom(stream, self).or_else(|| at_peak(stream, self.at_peak?)).into_iter().collect()
    }
}

fn at_oom(stream: &Stream, rule: &Fragmentation) -> Option<Finding> {
    let state = rule.at_oom?;
    let asked = stream.facts.oom.first.as_ref()?.requested_bytes?;
    if state.slack() < asked {
        return None;
    }
    let title = format!(
        "out of memory by fragmentation: {} was requested while {} was free in the allocator",
        format_bytes(asked),
        format_bytes(state.slack())
    );
    let finding = about(stream, "fragmentation.oom", "fragmentation", Severity::Critical, 0.85, title);
    let mut finding = described(finding, stream, &state);
    finding.metrics.insert("requested_bytes".to_owned(), asked.into());
    Some(finding)
}

fn at_peak(stream: &Stream, state: AllocatorState) -> Option<Finding> {
    let ratio = state.ratio?;
    if ratio < HIGH || state.slack() < LEAST_SLACK {
        return None;
    }
    let severity = if ratio > SEVERE { Severity::Critical } else { Severity::Warning };
    let title = format!(
        "{:.0} % of the allocator's {} was in split blocks at the peak",
        ratio * 100.0,
        format_bytes(state.reserved)
    );
    let confidence = (ratio / 0.6).min(1.0);
    Some(described(
        about(stream, "fragmentation.peak", "fragmentation", severity, confidence, title),
        stream,
        &state,
    ))
}

fn described(mut finding: Finding, stream: &Stream, state: &AllocatorState) -> Finding {
    finding.metrics.extend(metrics([
        ("fragmentation_ratio", state.ratio.map_or(Value::Null, Value::from)),
        ("fragmentation_ratio_legacy", state.legacy_ratio().into()),
        ("reserved_bytes", state.reserved.into()),
        ("allocated_bytes", state.allocated.into()),
    ]));
    if let Some(pointer) = finding.evidence.first_mut() {
        (pointer.start_ns, pointer.end_ns) = (Some(state.at_ns), Some(state.at_ns));
    }
    let of_allocator = if stream.is_of_jax() {
        "Keep XLA_PYTHON_CLIENT_PREALLOCATE on: one pool fragments less than one that grows.".to_owned()
    } else {
        format!(
            "Set {}, so that segments grow in place instead of being split.",
            setting("expandable_segments:True", None)
        )
    };
    finding.advice = advice([
        &of_allocator,
        "Allocate what lives long (weights, optimizer state, buffers) before the loop.",
        "Pad or bucket shapes into a few sizes; largest batch first.",
    ]);
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{finding_of, finish, gpu, inactive, metadata, with};

    const GIB: u64 = 1 << 30;

    fn of(events: Vec<stormlog_model::Event>) -> Option<Finding> {
        finding_of(&finish(events), "fragmentation")
    }

    #[test]
    fn fragmentation_is_judged_at_the_peak_and_not_at_the_end() {
        let at_peak = inactive(gpu(1, 19 * GIB, 20 * GIB, 20 * GIB, 80 * GIB), GIB);
        let at_end = inactive(gpu(2, GIB, 20 * GIB, 20 * GIB, 80 * GIB), 15 * GIB);
        assert_eq!(of(vec![at_peak, at_end]), None);
        let split = inactive(gpu(1, 8 * GIB, 20 * GIB, 20 * GIB, 80 * GIB), 9 * GIB);
        let found = of(vec![split]).unwrap();
        assert_eq!(found.severity, Severity::Warning);
        assert_eq!(found.metrics["fragmentation_ratio"], 0.45);
        assert_eq!(found.metrics["fragmentation_ratio_legacy"], 0.6);
    }

    #[test]
    fn advice_for_jax_names_its_own_settings() {
        let message = "RESOURCE_EXHAUSTED: Out of memory. Tried to allocate 2.00 GiB";
        let events = [
            gpu(1, 10 * GIB, 16 * GIB, 16 * GIB, 80 * GIB),
            metadata(
                with(gpu(2, 10 * GIB, 16 * GIB, 16 * GIB, 80 * GIB), "error", message),
                &[("oom_reason", "x".into())],
            ),
        ];
        let events = events.map(|mut event| {
            let head = stormlog_model::Head {
                collector: "stormlog.jax.memory_tracker".into(),
                ..(*event.head).clone()
            };
            event.head = std::sync::Arc::new(head);
            event
        });
        let advice = of(events.to_vec()).unwrap().advice;
        assert!(advice[0].contains("XLA_PYTHON_CLIENT_PREALLOCATE"), "{advice:?}");
    }

    #[test]
    fn an_error_with_enough_free_in_the_allocator_is_fragmentation() {
        let before = gpu(1, 10 * GIB, 16 * GIB, 16 * GIB, 80 * GIB);
        let message = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0";
        let error = metadata(
            with(gpu(2, 10 * GIB, 16 * GIB, 16 * GIB, 80 * GIB), "error", message),
            &[("oom_reason", "x".into())],
        );
        let found = of(vec![before, error]).unwrap();
        assert_eq!((found.id.as_str(), found.severity), ("fragmentation.oom", Severity::Critical));
    }
}
