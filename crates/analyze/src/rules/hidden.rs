//! Device memory outside the framework's allocator, in parts: the context, other processes, and the rest, which is a finding when it is large.
//! Whether it grows is for `growth` and `gap`, whose findings stand for it then. With `--cuda-driver` the lines that took it are named. Page:
//! `docs/rules/hidden_gap.md`.

use stormlog_model::memory::{Memory, Source};
use stormlog_model::{Counter, Event, Finding, Severity, format_bytes};

use super::heap::{Capture, add_evidence};
use super::{about, advice, metrics};
use crate::recording::Stream;

/// The one id of this rule.
pub const ID: &str = "hidden_memory.outside";
/// Memory outside the allocator is a finding from this size, or this share of the device, on.
const LEAST_BYTES: u64 = 512 << 20;
const LEAST_SHARE: f64 = 0.05;
/// A context with the modules of a framework takes less.
const MOST_CONTEXT: u64 = 1 << 30;
/// Samples at the beginning, of which the least gap is the context.
const FIRST: usize = 10;
/// Fewer samples show nothing.
const LEAST_SAMPLES: usize = 3;
/// Lines that are named.
const NAMED: usize = 3;
/// In a sample's metadata: what the process holds on the device, by the driver.
const OF_PROCESS: &str = "process_device_used_bytes";

/// What other processes hold on a device, by the driver's list.
#[derive(Debug, Default, Clone, Copy)]
pub struct OtherProcesses {
    /// At the last sample that has it.
    bytes: Option<u64>,
}

impl OtherProcesses {
    pub(crate) fn observe(&mut self, event: &Event) {
        if event.head.device_id < 0 {
            return;
        }
        let own = event.metadata.map.get(OF_PROCESS).and_then(serde_json::Value::as_u64);
        if let Some((used, own)) = event.counter(Counter::Used).zip(own) {
            self.bytes = Some(used.saturating_sub(own));
        }
    }
}

/// What the streams of one process show.
pub(crate) fn findings(streams: &[&Stream]) -> Vec<Finding> {
    let inside = streams.iter().filter(|stream| !stream.is_host() && stream.allocator_samples > 0);
    inside.filter_map(|stream| finding(stream, streams)).collect()
}

/// Device memory outside the allocator, in parts.
pub(crate) struct Outside {
    /// Of which sample.
    pub(crate) at_ns: u64,
    /// All that was in use on the device.
    pub(crate) used: u64,
    /// What of it the allocator did not hold.
    pub(crate) bytes: u64,
    /// What was there from the beginning.
    pub(crate) context: u64,
    /// What other processes held, where the driver lists them.
    pub(crate) others: Option<u64>,
}

/// What is outside the allocator near the end: the sample with the median gap of the last quarter. `None` where the allocator was not sampled.
pub(crate) fn outside_allocator(stream: &Stream, streams: &[&Stream]) -> Option<Outside> {
    let usable = stream.samples.iter().filter(|sample| sample.reserved().is_some_and(|bytes| bytes > 0));
    let gap =
        |sample: &crate::Sample| Some((u64::try_from(sample.gap()?).ok()?, sample.at_ns, sample.used()?));
    let gaps: Vec<(u64, u64, u64)> = usable.filter_map(gap).collect();
    if stream.allocator_samples == 0 || gaps.len() < LEAST_SAMPLES {
        return None;
    }
    let mut last = gaps[gaps.len() - gaps.len().div_ceil(4)..].to_vec();
    last.sort_unstable();
    let (bytes, at_ns, used) = last[last.len() / 2];
    let is_same = |other: &&&Stream| other.memory == stream.memory;
    let others = streams.iter().filter(is_same).find_map(|other| other.facts.others.bytes);
    let others = others.map(|others| others.min(bytes));
    let first = gaps.iter().take(FIRST).map(|gap| gap.0).min().unwrap_or(0);
    let known = others.unwrap_or(0);
    let context = first.saturating_sub(known).min(MOST_CONTEXT).min(bytes - known);
    Some(Outside { at_ns, used, bytes, context, others })
}

fn finding(stream: &Stream, streams: &[&Stream]) -> Option<Finding> {
    let total = stream.samples.iter().find_map(|sample| sample.total())?;
    let Outside { bytes: outside, context, others, .. } = outside_allocator(stream, streams)?;
    let others = others.unwrap_or(0);
    let rest = outside - others - context;
    let least = LEAST_BYTES.min((LEAST_SHARE * total as f64) as u64);
    if rest < least {
        return None;
    }
    let title = format!(
        "{} of device memory is outside the allocator, {} of it beyond the context and other processes",
        format_bytes(outside),
        format_bytes(rest)
    );
    let mut found = about(stream, ID, "hidden_gap", Severity::Warning, 0.8, title);
    found.message = Some(format!(
        "context {}, other processes {}, not known {}",
        format_bytes(context),
        format_bytes(others),
        format_bytes(rest)
    ));
    found.metrics.extend(metrics([
        ("outside_bytes", outside.into()),
        ("context_bytes", context.into()),
        ("other_process_bytes", others.into()),
        ("driver_bytes", serde_json::Value::Null),
        ("unknown_bytes", rest.into()),
    ]));
    found.advice = advice([
        "Record it with `stormlog run --cuda-driver -- COMMAND`: the driver's events name the line and the library of each allocation.",
        "Usual suspects: NCCL's buffers, cuDNN and cuBLAS workspaces, CuPy or RMM pools, custom kernels that call cudaMalloc.",
    ]);
    Some(found)
}

/// Whether a finding says more about the same memory: that it grows.
pub(crate) fn is_part_of(hidden: &Finding, other: &Finding) -> bool {
    let is_growth = matches!(other.id.as_str(), "growth.driver" | "hidden_gap.persistent_drift");
    let is_same = (hidden.process, hidden.memory) == (other.process, other.memory);
    is_growth && is_same && other.severity > Severity::Info
}

/// Names the lines that took the memory, as the driver's events in a capture show them.
pub(crate) fn explain(finding: &mut Finding, capture: &Capture) {
    let Memory::Device(driver) = capture.memory else { return };
    let is_driver = driver.source == Source::Driver;
    let is_device = matches!(finding.memory, Some(Memory::Device(device)) if (device.kind, device.index) == (driver.kind, driver.index));
    if finding.id != ID || !is_driver || !is_device || finding.process != Some(capture.pid.into()) {
        return;
    }
    let number = |key: &str| finding.metrics.get(key).and_then(serde_json::Value::as_u64).unwrap_or(0);
    let held = capture.live.last().map_or(0, |(_, bytes)| *bytes);
    let rest = number("unknown_bytes").saturating_sub(held);
    let mut lines: Vec<_> = capture.kept.iter().filter(|kept| kept.bytes > 0).collect();
    lines.sort_by_key(|kept| std::cmp::Reverse(kept.bytes));
    let Some(largest) = lines.first() else { return };
    finding.holder = Some(largest.holder.clone());
    finding.title = format!(
        "{} of device memory is outside the allocator: {} by {}",
        format_bytes(number("outside_bytes")),
        format_bytes(largest.bytes),
        largest.place
    );
    finding.confidence = 0.95;
    finding.metrics.insert("driver_bytes".to_owned(), held.into());
    finding.metrics.insert("unknown_bytes".to_owned(), rest.into());
    let named = lines.iter().take(NAMED).map(|kept| format!("{} {}", format_bytes(kept.bytes), kept.words()));
    let line = format!(
        "taken from the driver {}: {}; still unknown {}",
        format_bytes(held),
        named.collect::<Vec<_>>().join(", "),
        format_bytes(rest)
    );
    finding.advice = advice([
        "PyTorch cannot use this memory: free it where it is taken, or take it from PyTorch's allocator (`torch.empty`, `torch.cuda.MemPool`).",
    ]);
    add_evidence(finding, capture, line);
}

#[cfg(test)]
mod tests {
    use stormlog_model::Holder;

    use super::*;
    use crate::rules::heap::Kept;
    use crate::testing::{finish, gpu, metadata};
    use crate::{AnalysisOptions, analyze};

    const SECOND: u64 = 1_000_000_000;
    const MI: u64 = 1 << 20;
    const GI: u64 = 1 << 30;

    /// A training of 100 seconds with `hidden(second)` mebibytes outside the allocator, on a device of 140 GiB.
    fn training(hidden: impl Fn(u64) -> u64) -> crate::Analysis {
        let one = |at: u64| {
            let event = gpu(at * SECOND, 900 * MI, 1000 * MI, (1000 + hidden(at)) * MI, 140 * GI);
            metadata(event, &[("backend", "cuda".into())])
        };
        analyze(finish((0..100).map(one)), Vec::new(), &AnalysisOptions::default())
    }

    fn hidden(analysis: &crate::Analysis) -> Option<&Finding> {
        analysis.findings.iter().find(|finding| finding.id == ID)
    }

    #[test]
    fn memory_beyond_the_context_is_a_finding_and_the_context_is_not() {
        assert!(hidden(&training(|_| 600)).is_none(), "a context");
        assert!(hidden(&training(|at| 600 + at.min(10) * 20)).is_none(), "modules that are loaded later");
        let found = training(|at| if at < 20 { 600 } else { 600 + 3072 });
        let found = hidden(&found).unwrap();
        assert_eq!(
            (found.severity, found.metrics["unknown_bytes"].as_u64()),
            (Severity::Warning, Some(3 * GI))
        );
        let large = training(|_| 6000);
        assert_eq!(hidden(&large).unwrap().metrics["context_bytes"], GI, "no context is so large");
    }

    #[test]
    fn memory_that_grows_is_one_finding() {
        let found = training(|at| 600 + 100 * at);
        let troubles: Vec<&str> = found
            .findings
            .iter()
            .filter(|finding| finding.severity > Severity::Info)
            .map(|finding| finding.id.as_str())
            .collect();
        assert!(!troubles.contains(&ID) && troubles.contains(&"growth.driver"), "{troubles:?}");
    }

    #[test]
    fn the_drivers_events_name_the_line() {
        let mut found = training(|at| if at < 20 { 600 } else { 600 + 3072 });
        let kept = Kept {
            place: "kernel.py:7 take".into(),
            holder: Holder { file: "kernel.py".into(), line: 7, function: "take".into() },
            bytes: 3 * GI,
            count: 1,
            ..Kept::default()
        };
        let memory = "cuda:0/driver".parse().unwrap();
        found.take_capture(&Capture {
            pid: 7,
            memory,
            live: vec![(0, 0), (1, 3 * GI)],
            kept: vec![kept],
            ..Capture::default()
        });
        let named = hidden(&found).unwrap();
        assert_eq!(named.holder.as_ref().map(|holder| holder.line), Some(7));
        assert_eq!(named.metrics["unknown_bytes"], 0);
        assert!(named.title.contains("3.00 GiB by kernel.py:7 take"), "{}", named.title);
    }
}
