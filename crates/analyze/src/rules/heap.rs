//! What a heap capture adds: the lines whose memory stays and grows, and the request that got none.
//!
//! The capture is read elsewhere; here is what it means. Growth of a process's memory that telemetry shows gets the line
//! that grew. Page: `docs/rules/heap.md`.

use stormlog_model::memory::{Memory, Source};
use stormlog_model::{Evidence, Finding, Holder, Severity, format_bytes};

use super::growth::{acquit, confirm};
use super::observation::{self, is_long_enough, is_long_enough_on_a_device};
use super::{advice, metrics};
use crate::series::{Envelope, Growth, growth};
use crate::text::duration;

/// The id of the finding about blocks that a leak checker found.
const NEVER_FREED: &str = "heap.never_freed";
/// The id of the finding about a request that got no memory.
pub(crate) const FAILED_REQUEST: &str = "heap.failed_request";
/// A line that grew by less than this is housekeeping…
const LEAST_BYTES: f64 = 4.0 * 1_048_576.0;
/// …and so is one below this part of the peak.
const LEAST_SHARE: f64 = 0.02;
/// Moments into which a time without changes is split.
const QUIET_MOMENTS: u64 = 200;
/// Standard deviations of a sampled heap's estimate that its growth must exceed to be sure.
const DEVIATIONS: f64 = 4.0;
/// Below this it is only suspected.
const SURE: f64 = 0.5;
/// Lines that grow by less than this share of the one that grows most are not named.
const NAMED_SHARE: f64 = 0.2;
/// A heap that grew by less than this share of what the process grew by does not explain it.
const EXPLAINS: f64 = 0.25;
/// A heap that rose by this share of what the process grew by is what grew…
const IS_WHAT_GREW: f64 = 0.5;
/// …and when it has given back this share of that, nothing is kept.
const GIVEN_BACK: f64 = 0.8;
/// The memory of a device's allocator explains the use of the device when it grew by this share of it…
const EXPLAINS_DEVICE: f64 = 0.7;
/// …and, where the device is known by another number, by no more than this.
const MOST_OF_DEVICE: f64 = 1.3;
/// Lines that are named.
const NAMED: usize = 3;

/// A line of the program and what it held over time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kept {
    /// `metrics.py:33 append`.
    pub place: String,
    /// The same, in parts.
    pub holder: Holder,
    /// The line that calls it.
    pub caller: Option<String>,
    /// Bytes at the end.
    pub bytes: u64,
    /// Allocations they came in.
    pub count: u64,
    /// Mean size of the blocks of its largest stack.
    pub block_bytes: u64,
    /// Microseconds since the start and bytes alive then; empty where that is not known.
    pub live: Vec<(u64, u64)>,
}

/// A capture, as its reader sums it up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Capture {
    /// The file.
    pub path: String,
    /// The process.
    pub pid: u32,
    /// The memory that the figures are of.
    pub memory: Memory,
    /// When it began, nanoseconds since 1970; 0 where it does not say.
    pub started_at_ns: u64,
    /// How long it lasted.
    pub seconds: f64,
    /// The most it held.
    pub peak_bytes: u64,
    /// Mean bytes between two recorded allocations; `None` where all were recorded.
    pub sample_bytes: Option<u64>,
    /// All of the heap over time, as in [`Kept::live`].
    pub live: Vec<(u64, u64)>,
    /// The lines that held most.
    pub kept: Vec<Kept>,
    /// What the lines held at the end is what a leak checker found: blocks that the program never freed.
    pub never_freed: bool,
    /// The sentence about the last request that got no memory, and how many there were.
    pub failed: Option<(String, u64)>,
}

impl Kept {
    /// `metrics.py:33 append ← train.py:120 main`.
    pub(crate) fn words(&self) -> String {
        match &self.caller {
            Some(caller) => format!("{} ← {caller}", self.place),
            None => self.place.clone(),
        }
    }
}

/// A line that grows, and how.
struct Growing<'a> {
    kept: &'a Kept,
    growth: Growth,
}

impl Capture {
    /// Bytes alive at a moment, nanoseconds since 1970; `None` where it was not recorded then.
    pub(crate) fn live_at(&self, at_ns: u64) -> Option<u64> {
        let since_us = at_ns.checked_sub(self.started_at_ns).filter(|_| self.started_at_ns > 0)? / 1000;
        let after = self.live.partition_point(|(time_us, _)| *time_us <= since_us);
        let is_over = since_us as f64 > self.seconds * 1e6;
        self.live.get(after.checked_sub(1)?).filter(|_| !is_over).map(|(_, bytes)| *bytes)
    }

    /// The lines that keep growing and matter, the one that grew most first. The same rule judges them as judges the process.
    fn growing(&self) -> Vec<Growing<'_>> {
        let least = (self.peak_bytes as f64 * LEAST_SHARE).max(LEAST_BYTES);
        let judged = self.kept.iter().map(|kept| (kept, growth_of(&kept.live)));
        let mut found: Vec<Growing<'_>> =
            judged.filter_map(|(kept, growth)| Some(Growing { kept, growth: growth? })).collect();
        found.retain(|line| {
            let Growth { shape, confidence, seconds, bytes, from_bytes, .. } = line.growth;
            let at_end = line.kept.live.last().map_or(0.0, |(_, bytes)| *bytes as f64);
            // What a sample estimates to be alive is off by the root of the number of recorded blocks.
            let noise = self.sample_bytes.map_or(0.0, |period| (from_bytes.max(0.0) * period as f64).sqrt());
            shape.is_ongoing()
                && confidence >= SURE
                && observation::is_line_evidence(&line.growth, at_end)
                && bytes >= least.max(DEVIATIONS * noise)
                && self.is_long_enough(bytes, seconds)
        });
        found.sort_by(|a, b| b.growth.bytes.total_cmp(&a.growth.bytes));
        let most = found.first().map_or(0.0, |line| line.growth.bytes);
        found.retain(|line| line.growth.bytes >= NAMED_SHARE * most);
        found
    }

    fn is_long_enough(&self, bytes: f64, seconds: f64) -> bool {
        match self.memory {
            Memory::Host => is_long_enough(bytes, seconds),
            Memory::Device(_) => is_long_enough_on_a_device(bytes, seconds),
        }
    }

    /// Whether the whole heap grew by so much that it explains a process that grew by `bytes`.
    fn grew_by_a_part_of(&self, bytes: f64) -> bool {
        growth_of(&self.live)
            .is_some_and(|growth| growth.shape.is_ongoing() && growth.bytes >= EXPLAINS * bytes)
    }
}

/// The growth of what was alive. Moments are where the heap changed; while nothing changed, it held what it held before.
fn growth_of(live: &[(u64, u64)]) -> Option<Growth> {
    let (first, last) = (live.first()?.0, live.last()?.0);
    let pause = (last.saturating_sub(first) / QUIET_MOMENTS).max(1);
    let mut envelope = Envelope::default();
    let mut before: Option<(u64, u64)> = None;
    for (at_us, bytes) in live {
        if let Some((begin, held)) = before {
            let quiet = (1..=QUIET_MOMENTS).map(|step| begin.saturating_add(step * pause));
            let quiet = quiet.take_while(|moment| *moment < *at_us);
            quiet.for_each(|moment| envelope.observe(moment.saturating_mul(1000), held));
        }
        envelope.observe(at_us.saturating_mul(1000), *bytes);
        before = Some((*at_us, *bytes));
    }
    growth(&envelope)
}

/// What a capture shows by itself.
pub fn findings(capture: &Capture) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some((sentence, count)) = &capture.failed {
        let mut found = about(capture, FAILED_REQUEST, "oom", Severity::Critical, 1.0);
        found.title = sentence.clone();
        found.metrics.insert("failed_requests".to_owned(), (*count).into());
        found.advice = advice([
            "`stormlog flamegraph` on the capture shows which lines held the memory at that moment.",
            "Raise the limit, or make the largest holder smaller.",
        ]);
        findings.push(found);
    }
    let leaked = capture.kept.iter().filter(|kept| capture.never_freed && kept.bytes > 0);
    findings.extend(leaked.take(NAMED).map(|kept| never_freed(capture, kept)));
    for Growing { kept, growth } in capture.growing().into_iter().take(NAMED) {
        let mut found =
            about(capture, "heap.growth", "leak", Severity::Warning, observation::confidence(&growth));
        found.title = format!(
            "{} keeps {} in {} allocations and grows by {}/s",
            kept.place,
            format_bytes(kept.bytes.max(growth.to_bytes.max(0.0) as u64)),
            kept.count,
            format_bytes(growth.bytes_per_second.max(0.0) as u64)
        );
        if capture.memory.is_device() {
            found.title += &format!(" on {}", capture.memory);
        }
        found.message = Some(format!(
            "allocated by {}; it held {} more at the end of {} than at their beginning",
            kept.words(),
            format_bytes(growth.bytes as u64),
            duration(growth.seconds)
        ));
        found.metrics.extend(metrics([
            ("kept_bytes", kept.bytes.into()),
            ("growth_bytes", growth.bytes.round().into()),
            ("allocations", kept.count.into()),
            ("bytes_per_second", growth.bytes_per_second.into()),
            ("seconds", growth.seconds.into()),
            ("after_seconds", growth.after_seconds.into()),
        ]));
        if let Some(pointer) = found.evidence.first_mut() {
            let first = kept.live.first().map_or(0, |(time_us, _)| time_us * 1000);
            pointer.start_ns =
                (capture.started_at_ns > 0).then(|| capture.started_at_ns.saturating_add(first));
        }
        found.holder = Some(kept.holder.clone());
        found.advice = line_advice();
        findings.push(found);
    }
    findings
}

/// A line whose blocks a leak checker reported: it saw every free, so that this is sure.
fn never_freed(capture: &Capture, kept: &Kept) -> Finding {
    let mut found = about(capture, NEVER_FREED, "leak", Severity::Warning, 1.0);
    let bytes = format_bytes(kept.bytes);
    found.title =
        format!("{} never freed {bytes} in {} allocations on {}", kept.place, kept.count, capture.memory);
    found.message = Some(format!("allocated by {}", kept.words()));
    let figures = [("kept_bytes", kept.bytes.into()), ("allocations", kept.count.into())];
    found.metrics.extend(metrics(figures));
    found.holder = Some(kept.holder.clone());
    found.advice = advice([
        "Free the memory when its owner ends, or hold it in an object that frees it.",
        "Memory that a framework's allocator keeps until the end is reported too; that is not a leak.",
    ]);
    found
}

/// Whether a finding is about the growth of the capture's memory.
pub(crate) fn is_about(finding: &Finding, capture: &Capture) -> bool {
    let is_growth = matches!(finding.kind.as_str(), "leak" | "growth");
    let is_counter = match capture.memory {
        Memory::Host => true,
        // The driver's own events are of what is outside the allocator.
        Memory::Device(device) => (finding.id == "growth.driver") == (device.source == Source::Driver),
    };
    is_growth && is_counter && is_of_device(finding, capture) && finding.process == Some(capture.pid.into())
}

/// Whether both are of one memory, whatever reports it.
fn is_of_device(finding: &Finding, capture: &Capture) -> bool {
    match (finding.memory, capture.memory) {
        (Some(Memory::Device(a)), Memory::Device(b)) => (a.kind, a.index) == (b.kind, b.index),
        (known, memory) => known == Some(memory),
    }
}

/// Whether a finding says that a device's use grows because the allocator's memory in this capture does: one fact, seen from outside. A driver may
/// number devices in another way than the framework.
pub(crate) fn is_use_of(finding: &Finding, capture: &Capture) -> bool {
    let is_allocator = matches!(capture.memory, Memory::Device(device) if device.source == Source::Allocator);
    if finding.id != "growth.driver" || !is_allocator {
        return false;
    }
    let grown = number(finding, "growth_bytes");
    let Some(own) = growth_of(&capture.live).filter(|growth| growth.shape.is_ongoing()) else { return false };
    let is_of_process = finding.process == Some(capture.pid.into()) && own.bytes <= MOST_OF_DEVICE * grown;
    own.bytes >= EXPLAINS_DEVICE * grown && (is_of_device(finding, capture) || is_of_process)
}

/// Names the line behind a leak of a memory, or behind growth that was undecided and is a leak by that. True when it did.
pub(crate) fn explain(finding: &mut Finding, capture: &Capture) -> bool {
    if !(finding.kind == "leak" || finding.undecided) || !is_about(finding, capture) {
        return false;
    }
    let growing = capture.growing();
    let Some(Growing { kept, growth: most }) = growing.first() else { return false };
    let all: f64 = growing.iter().map(|line| line.growth.bytes).sum();
    let share = 100.0 * most.bytes / all.max(1.0);
    let line = format!("{share:.0} % of what grows: {} ({} allocations alive)", kept.words(), kept.count);
    if finding.undecided {
        confirm(finding, observation::confidence(most));
    }
    add_evidence(finding, capture, line);
    finding.holder = Some(kept.holder.clone());
    finding.advice = line_advice();
    true
}

/// What to do where the line is known.
fn line_advice() -> Vec<String> {
    advice([
        "Find what references the objects made on this line: a list, a cache, a logger.",
        "`stormlog leaks` lists every such line; `stormlog tree` shows the stacks.",
    ])
}

/// Takes growth back that the heap disproves.
pub(crate) fn disprove(finding: &mut Finding, capture: &Capture) {
    let is_asked = (finding.kind == "leak" || finding.undecided) && is_about(finding, capture);
    let Some(line) =
        touched_later(finding, capture).or_else(|| given_back(finding, capture)).filter(|_| is_asked)
    else {
        return;
    };
    acquit(finding);
    add_evidence(finding, capture, line);
}

/// The process grew and its heap did not, and all that is resident was asked for before: pages of blocks that were there already were touched for the first time.
fn touched_later(finding: &Finding, capture: &Capture) -> Option<String> {
    let (grown, resident) = (number(finding, "growth_bytes"), number(finding, "end_bytes"));
    let at_end = capture.live.last().map_or(0.0, |(_, bytes)| *bytes as f64);
    let is_later = finding.id == "growth.host" && !capture.grew_by_a_part_of(grown) && at_end >= resident;
    is_later.then(|| {
        format!(
            "no leak: the heap did not grow and holds {}, more than is resident; the growth is memory that was allocated earlier and touched only now",
            format_bytes(at_end as u64)
        )
    })
}

/// The heap rose with the process, for a few seconds, and gave that back before the program's own code had ended. A longer growth is judged without its end,
/// in which a program may clear what it has leaked.
fn given_back(finding: &Finding, capture: &Capture) -> Option<String> {
    if !observation::is_short(number(finding, "seconds")) {
        return None;
    }
    let at_end = capture.live.last()?.1;
    let (at_peak, peak) =
        capture.live.iter().map(|(_, bytes)| *bytes).enumerate().max_by_key(|(_, bytes)| *bytes)?;
    let before = capture.live[..=at_peak].iter().map(|(_, bytes)| *bytes).min()?;
    let (rise, fall) = ((peak - before) as f64, (peak - at_end) as f64);
    let is_it = rise >= IS_WHAT_GREW * number(finding, "growth_bytes") && fall >= GIVEN_BACK * rise;
    is_it.then(|| {
        format!(
            "no leak: {} of it was freed before the program's code ended, when the heap held {}",
            format_bytes(peak - at_end),
            format_bytes(at_end)
        )
    })
}

fn number(finding: &Finding, key: &str) -> f64 {
    finding.metrics.get(key).and_then(serde_json::Value::as_f64).unwrap_or(0.0)
}

pub(crate) fn add_evidence(finding: &mut Finding, capture: &Capture, line: String) {
    finding.message = Some(match finding.message.take() {
        Some(message) => format!("{message}; {line}"),
        None => line.clone(),
    });
    finding.evidence.push(Evidence {
        kind: "heap_capture".to_owned(),
        path: Some(capture.path.clone()),
        description: Some(line),
        ..Evidence::default()
    });
}

fn about(capture: &Capture, id: &str, kind: &str, severity: Severity, confidence: f64) -> Finding {
    Finding {
        id: id.to_owned(),
        kind: kind.to_owned(),
        severity,
        confidence,
        title: String::new(),
        message: None,
        metrics: metrics([("pid", capture.pid.into())]),
        evidence: vec![Evidence {
            kind: "heap_capture".to_owned(),
            path: Some(capture.path.clone()),
            ..Evidence::default()
        }],
        advice: Vec::new(),
        undecided: false,
        process: Some(capture.pid.into()),
        memory: Some(capture.memory),
        holder: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{finish, sample};
    use crate::{AnalysisOptions, analyze};

    /// A line of 100 seconds that holds `bytes(second)` mebibytes.
    fn kept(bytes: impl Fn(u64) -> u64) -> Kept {
        Kept {
            place: "metrics.py:33 append".into(),
            holder: Holder { file: "metrics.py".into(), line: 33, function: "append".into() },
            caller: Some("train.py:120 main".into()),
            bytes: bytes(99) << 20,
            count: 12,
            block_bytes: 0,
            live: (0..100).map(|second| (second * 1_000_000, bytes(second) << 20)).collect(),
        }
    }

    fn capture(kept: Vec<Kept>) -> Capture {
        let live = kept.first().map(|kept| kept.live.clone()).unwrap_or_default();
        Capture { pid: 7, seconds: 100.0, peak_bytes: 100 << 20, live, kept, ..Capture::default() }
    }

    fn leak() -> crate::Analysis {
        let leak = (0..100).map(|i| sample(i * 1_000_000_000, (1 << 30) + i * (200 << 20)));
        analyze(finish(leak), Vec::new(), &AnalysisOptions::default())
    }

    #[test]
    fn only_what_grows_and_matters_is_named() {
        assert!(findings(&capture(vec![kept(|_| 50)])).is_empty(), "flat");
        assert!(findings(&capture(vec![kept(|at| at / 50)])).is_empty(), "small");
        assert!(findings(&capture(vec![kept(|at| at.min(30))])).is_empty(), "a cache that is full");
        assert!(findings(&capture(vec![kept(|at| 10 + at * 7919 % 40)])).is_empty(), "a working set");
        assert!(findings(&capture(vec![Kept { live: Vec::new(), ..kept(|at| at) }])).is_empty(), "unknown");
        let found = findings(&capture(vec![kept(|at| at)]));
        assert_eq!(found.len(), 1);
        let title = "metrics.py:33 append keeps 99.00 MiB in 12 allocations and grows by 1.00 MiB/s";
        assert_eq!(found[0].title, title);
        assert_eq!(found[0].holder.as_ref().map(|holder| holder.line), Some(33));
    }

    #[test]
    fn capture_decides_where_telemetry_sees_a_warm_up() {
        let warm_up = (0..100).map(|i| sample(i * 1_000_000_000, (1 << 30) + i.min(30) * (20 << 20)));
        let mut analysis = analyze(finish(warm_up), Vec::new(), &AnalysisOptions::default());
        assert!(!analysis.has_trouble());
        analysis.take_capture(&capture(vec![kept(|at| at)]));
        assert!(analysis.has_trouble());
        assert!(analysis.findings.iter().all(|finding| finding.kind != "growth"), "{:?}", analysis.findings);
    }

    /// A process that grows by 600 MiB in 2.6 seconds.
    fn short() -> crate::Analysis {
        let grows = (0..27).map(|i| sample(i * 100_000_000, (30 << 20) + i * (23 << 20)));
        analyze(finish(grows), Vec::new(), &AnalysisOptions::default())
    }

    /// The capture of a line that grows for `tenths` of a second, holds `at_end` mebibytes for a tenth and is over.
    fn building(tenths: u64, at_end: u64) -> Capture {
        let held = (0..tenths).map(|i| (i * 100_000, (23 * i) << 20));
        let live: Vec<(u64, u64)> = held.chain([(tenths * 100_000, at_end << 20)]).collect();
        let peak_bytes = (23 * tenths) << 20;
        let line = Kept { live: live.clone(), bytes: at_end << 20, ..kept(|_| 0) };
        Capture { peak_bytes, live, ..capture(vec![line]) }
    }

    #[test]
    fn capture_decides_growth_of_a_few_seconds() {
        let mut analysis = short();
        assert!(analysis.findings.iter().any(|finding| finding.undecided), "{:?}", analysis.findings);
        analysis.take_capture(&building(26, 6));
        let found = &analysis.findings[0];
        assert_eq!((found.kind.as_str(), found.undecided, found.severity), ("growth", false, Severity::Info));
        assert!(found.title.starts_with("host memory grew: 5"), "{}", found.title);
        let message = found.message.as_deref().unwrap_or_default();
        assert!(message.contains("no leak: 569.0 MiB of it was freed"), "{message}");
        let mut analysis = short();
        analysis.take_capture(&building(26, 598));
        let leaks: Vec<&Finding> =
            analysis.findings.iter().filter(|finding| finding.kind == "leak").collect();
        assert_eq!((leaks.len(), leaks[0].id.as_str()), (1, "growth.host"), "held to the end");
        assert!(!analysis.findings.iter().any(|finding| finding.undecided), "{:?}", analysis.findings);
        assert!((0.5..0.9).contains(&leaks[0].confidence), "{}", leaks[0].confidence);
        assert!(leaks[0].title.starts_with("host memory grows: 5"), "{}", leaks[0].title);
        assert_eq!((leaks[0].holder.is_some(), leaks[0].severity), (true, Severity::Warning));
    }

    #[test]
    fn leak_of_ten_seconds_that_is_cleared_at_the_end_is_one() {
        assert_eq!(findings(&building(100, 6)).len(), 1);
        assert!(findings(&building(26, 6)).is_empty());
    }

    #[test]
    fn growth_of_touched_pages_is_not_a_leak() {
        let mut analysis = leak();
        let reserved = Kept { live: (0..100).map(|at| (at * 1_000_000, 64 << 30)).collect(), ..kept(|_| 1) };
        analysis.take_capture(&Capture { pid: 7, ..capture(vec![reserved]) });
        assert!(!analysis.has_trouble(), "{:?}", analysis.findings);
        let mut analysis = leak();
        analysis.take_capture(&capture(vec![kept(|_| 50)]));
        assert!(analysis.has_trouble(), "a heap smaller than what is resident disproves nothing");
    }

    #[test]
    fn a_failed_request_is_critical() {
        let failed =
            Capture { failed: Some(("malloc of 4 GiB got no memory".into(), 2)), ..Capture::default() };
        let found = findings(&failed);
        assert_eq!((found[0].severity, found[0].kind.as_str()), (Severity::Critical, "oom"));
    }

    #[test]
    fn the_growth_of_a_process_gets_its_line() {
        let mut analysis = leak();
        analysis.take_capture(&Capture { pid: 8, ..capture(vec![kept(|at| at)]) });
        assert_eq!(
            analysis.findings.iter().filter(|found| found.kind == "leak").count(),
            2,
            "of another process"
        );
        let mut analysis = leak();
        analysis.take_capture(&capture(vec![kept(|at| at), kept(|at| at)]));
        let leaks: Vec<&Finding> = analysis.findings.iter().filter(|found| found.kind == "leak").collect();
        let message = leaks[0].message.as_deref().unwrap_or_default();
        assert!(message.contains("50 % of what grows: metrics.py:33 append ← train.py:120"), "{message}");
        assert_eq!((leaks.len(), leaks[0].holder.is_some()), (1, true));
    }
}
