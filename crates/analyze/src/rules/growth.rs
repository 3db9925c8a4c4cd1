//! Memory that grows and is not given back, from telemetry alone: host, allocator and driver each on its own.
//!
//! What the floor does is asked of [`crate::series::growth`]; here it is decided which counter to blame, how bad it is and what
//! to say. A floor that keeps rising is a `leak`; one that rose and stopped is `growth`, for information. Page:
//! `docs/rules/growth.md`.

use stormlog_model::alloc_conf::setting;
use stormlog_model::{Finding, Severity, format_bytes};

use super::observation::{is_long_enough, is_long_enough_on_a_device, is_watched_long_enough};
use super::{Rule, RuleContext, about, advice, metrics};
use crate::Sample;
use crate::phases::PhaseIndex;
use crate::recording::Stream;
use crate::series::{Envelope, Growth, Shape, Window, growth, growth_of};
use crate::text::{duration, rate};

const GIB: f64 = 1_073_741_824.0;
const MIB: f64 = 1_048_576.0;
/// Below this a leak is only suspected.
const SURE: f64 = 0.5;
/// What follows a start of at least this many seconds…
const LONGEST_NOTHING: f64 = 1.0;
/// …must have lasted for this many: a start has parts, and the last of them looks like a leak.
const LEAST_TAIL: f64 = 10.0;
/// Less growth than this is not worth a doubt.
const LEAST_UNDECIDED: f64 = 16.0 * MIB;
/// A phase that ran this often is a step or an epoch.
const LEAST_RUNS: usize = 8;
/// What one counter grew by explains another's growth when it is this share of it.
pub(crate) const EXPLAINS: f64 = 0.7;

/// Which counter grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counter {
    Host,
    Shared,
    Allocator,
    Reserved,
    /// What a device has in use beyond its allocator.
    Driver,
    /// What a device has in use, where nothing is known of an allocator.
    Used,
}

impl Counter {
    const ALL: [Counter; 6] = [
        Counter::Host,
        Counter::Shared,
        Counter::Allocator,
        Counter::Reserved,
        Counter::Driver,
        Counter::Used,
    ];

    fn id(self) -> &'static str {
        match self {
            Counter::Host => "growth.host",
            Counter::Shared => "growth.shared",
            Counter::Allocator => "growth.allocator",
            Counter::Reserved => "growth.reserved",
            Counter::Driver | Counter::Used => "growth.driver",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Counter::Host => "host memory",
            Counter::Shared => "shared memory",
            Counter::Allocator => "memory handed out by the allocator",
            Counter::Reserved => "memory held by the allocator (not what it hands out)",
            Counter::Driver => "device memory outside the allocator",
            Counter::Used => "device memory in use",
        }
    }

    fn advice(self) -> Vec<String> {
        match self {
            Counter::Host => advice([
                "Find the line: `stormlog run --heap --output heap.bin -- COMMAND`, then `stormlog leaks heap.bin`.",
                "Usual suspects: lists that log per step, caches without a bound, graphs kept through a loss that was not detached.",
                "Data-loader workers: objects touched in each worker are copied page by page; use arrays, not lists of objects.",
            ]),
            Counter::Shared => advice([
                "Close and unlink each segment when its reader is done: `segment.close()`, then `segment.unlink()` in one process.",
                "`ls -l /dev/shm` lists segments that outlive their program; tensors sent through queues are such segments.",
                "Find the line: `stormlog run --heap --output heap.bin -- COMMAND`, then `stormlog leaks heap.bin`.",
            ]),
            Counter::Allocator => advice([
                "Keep numbers, not tensors: `total += loss.item()`, `.detach()` before storing an output.",
                "Take an allocator snapshot late in the run (`torch.cuda.memory._dump_snapshot`) and look at it: `stormlog snapshot FILE`.",
                "Look for reference cycles through hooks and closures; `gc.collect()` that lowers memory proves one.",
            ]),
            Counter::Reserved => advice([
                "The program does not hold it, the allocator does: shapes that keep changing split its blocks. Pad or bucket them.",
                &format!(
                    "Set {}, and no max_split_size_mb with it.",
                    setting("expandable_segments:True", None)
                ),
            ]),
            Counter::Driver => advice([
                "Something other than the framework's allocator allocates device memory: a library, a custom kernel, another process on the device.",
                "Compare the processes on the device (`nvidia-smi`) at the start and at the end.",
            ]),
            Counter::Used => advice([
                "Find the line: `stormlog run -- COMMAND` records what PyTorch hands out, with `--cuda-driver` what libraries and custom kernels take too.",
                "Compare the processes on the device (`nvidia-smi`) at the start and at the end.",
            ]),
        }
    }
}

/// The rule: memory that keeps growing, and does so after the start.
#[derive(Debug, Default)]
pub struct MemoryGrowth;

impl Rule for MemoryGrowth {
    fn findings(&self, context: &RuleContext<'_>) -> Vec<Finding> {
        findings(context.stream, context.phases)
    }
}

/// What grows in a stream, by its whole time and by the phase that comes again and again.
fn findings(stream: &Stream, phases: &PhaseIndex) -> Vec<Finding> {
    let limit = stream.facts.limit.total();
    let say = |counter, envelope: &Envelope| {
        let by_time = by_time(stream, counter, envelope);
        let by_phase = by_phase(stream, counter, envelope, phases);
        let is_ongoing = by_time.is_some_and(|found| found.shape.is_ongoing());
        match (by_time, by_phase) {
            (Some(found), phase) if is_ongoing || phase.is_none() => {
                let phase = phase.map(|(path, _)| path);
                Some(finding(stream, counter, &found, envelope, limit, phase))
            }
            (_, Some((path, found))) => Some(finding(stream, counter, &found, envelope, limit, Some(path))),
            (Some(_), None) | (None, None) => None,
        }
    };
    if stream.is_host() {
        let shared = &stream.facts.resident.shared;
        let own = say(Counter::Host, anonymous(stream));
        return own.into_iter().chain(say(Counter::Shared, shared)).collect();
    }
    let grown = |envelope: &Envelope| {
        growth(envelope).filter(|found| found.shape.is_ongoing()).map_or(0.0, |found| found.bytes)
    };
    let mut findings: Vec<Finding> = say(Counter::Allocator, &stream.allocated).into_iter().collect();
    let allocated = grown(&stream.allocated);
    if stream.is_one_counter && stream.allocated.count() > 0 {
        return findings;
    }
    let reserved = grown(&stream.reserved);
    if reserved > 0.0 && allocated < EXPLAINS * reserved {
        findings.extend(say(Counter::Reserved, &stream.reserved));
    }
    let used = grown(&stream.used);
    if used > 0.0 && allocated.max(reserved) < EXPLAINS * used {
        let has_allocator = stream.allocated.count() + stream.reserved.count() > 0;
        let counter = if has_allocator { Counter::Driver } else { Counter::Used };
        findings.extend(say(counter, &stream.used));
    }
    findings
}

/// The pace of a stream's leak, as a gate asks for it: of what is handed out where that is known. What others take of the
/// same device is not this program's growth.
pub fn pace(stream: &Stream) -> Option<f64> {
    let leak = |counter, envelope| by_time(stream, counter, envelope).filter(|found| is_leak(counter, found));
    let (first, second) = match (stream.is_host(), stream.allocated.count() > 0) {
        (true, _) => {
            let shared = leak(Counter::Shared, &stream.facts.resident.shared);
            (leak(Counter::Host, anonymous(stream)), shared)
        }
        (false, true) => (leak(Counter::Allocator, &stream.allocated), None),
        (false, false) => (leak(Counter::Used, &stream.used), None),
    };
    first.into_iter().chain(second).map(|found| found.bytes_per_second).reduce(f64::max)
}

/// The growth over time, that of the start left aside where the rest grows too; of a program that only started, its start.
fn by_time(stream: &Stream, counter: Counter, envelope: &Envelope) -> Option<Growth> {
    let found = growth(envelope)?;
    let start = &stream.facts.start;
    let first_ns = envelope.span_ns()?.0;
    if counter != Counter::Host || !found.shape.is_ongoing() {
        return Some(found);
    }
    let from_ns = first_ns.saturating_add((found.after_seconds * 1e9) as u64);
    let is_leak_after_all = is_leak(counter, &found) && !start.explains(&stream.samples, from_ns);
    if is_leak_after_all || !start.explains(&stream.samples, 0) {
        return Some(found);
    }
    let over_ns = start.over_ns().unwrap_or(first_ns);
    let windows = envelope.windows();
    let later = growth_of(&windows[windows.partition_point(|window| window.floor_at_ns < over_ns)..]);
    let before = over_ns.saturating_sub(first_ns) as f64 / 1e9;
    let later = later.map(|later| Growth { after_seconds: before + later.after_seconds, ..later });
    let start = Growth { shape: Shape::Start, ..found };
    Some(later.filter(|later| is_leak(counter, later)).unwrap_or(start))
}

/// What a host's growth is judged by: memory that no file backs where that is known, else what is resident.
fn anonymous(stream: &Stream) -> &Envelope {
    let resident = if stream.used.count() > 0 { &stream.used } else { &stream.allocated };
    let parts = &stream.facts.resident;
    if parts.covers(resident.count()) { &parts.anonymous } else { resident }
}

/// The growth of the least memory of each run of a repeated phase, when that continues: batches in between do not matter then.
fn by_phase<'a>(
    stream: &Stream,
    counter: Counter,
    envelope: &Envelope,
    phases: &'a PhaseIndex,
) -> Option<(&'a str, Growth)> {
    let value: fn(&Sample) -> Option<u64> = match counter {
        Counter::Host | Counter::Driver | Counter::Used => Sample::used,
        // Not in a sample.
        Counter::Shared => return None,
        Counter::Allocator => Sample::allocated,
        Counter::Reserved => Sample::reserved,
    };
    let (path, runs) = phases.repeated(LEAST_RUNS)?;
    let mut floors = Envelope::default();
    for (from, to) in runs {
        let first = stream.samples.partition_point(|sample| sample.at_ns < from);
        let inside = stream.samples[first..].iter().take_while(|sample| sample.at_ns <= to);
        if let Some(floor) = inside.filter_map(value).min() {
            floors.observe(from, floor);
        }
    }
    let found = growth(&floors)?;
    (found.shape.is_ongoing() && found.confidence >= SURE && is_kept(envelope, &found))
        .then_some((path, found))
}

/// Whether the program as a whole keeps what a phase gains: a step that needs more and gives it back is not a leak.
fn is_kept(envelope: &Envelope, growth: &Growth) -> bool {
    let windows = envelope.windows();
    let third = windows.len() / 3;
    let least = |windows: &[Window]| windows.iter().map(|window| window.floor).min().unwrap_or(0) as f64;
    least(&windows[windows.len() - third..]) - least(&windows[..third]) >= 0.5 * growth.bytes
}

fn finding(
    stream: &Stream,
    counter: Counter,
    growth: &Growth,
    envelope: &Envelope,
    limit: Option<u64>,
    phase: Option<&str>,
) -> Finding {
    let seconds_left = limit.map(|limit| (limit as f64 - growth.to_bytes) / growth.bytes_per_second);
    let seconds_left =
        seconds_left.filter(|left| growth.shape.is_ongoing() && left.is_finite() && *left > 0.0);
    let is_leak = is_leak(counter, growth);
    let severity = if is_leak { severity(growth, seconds_left) } else { Severity::Info };
    let is_undecided = is_undecided(counter, growth);
    let title = if is_undecided {
        format!(
            "{} grew by {} for {}, from {} to {}; the recording is too short to call it a leak",
            counter.name(),
            rate(growth.bytes_per_second),
            duration(growth.seconds),
            format_bytes(growth.from_bytes.max(0.0) as u64),
            format_bytes(growth.to_bytes.max(0.0) as u64),
        )
    } else {
        let verb = match growth.shape {
            Shape::Start => "grew while the program started",
            Shape::Step | Shape::Saturating => "grew and levelled off",
            Shape::Steady | Shape::Accelerating | Shape::Stepwise => "grows",
        };
        let (from, to) = (growth.from_bytes, growth.to_bytes);
        title(counter, verb, [growth.bytes, growth.seconds, from, to])
    };
    let kind = if is_leak { "leak" } else { "growth" };
    let mut finding = about(stream, counter.id(), kind, severity, growth.confidence, title);
    let phase = phase.map(|phase| format!("; the floor of each run of phase {phase} rises"));
    finding.message = Some(message(growth, seconds_left) + &phase.unwrap_or_default());
    finding.metrics.extend(metrics([
        ("growth_bytes", growth.bytes.round().into()),
        ("start_bytes", growth.from_bytes.round().into()),
        ("end_bytes", growth.to_bytes.round().into()),
        ("bytes_per_second", growth.bytes_per_second.into()),
        ("seconds", growth.seconds.into()),
        ("after_seconds", growth.after_seconds.into()),
        ("releases", growth.releases.into()),
        ("rank_agreement", growth.agreement.into()),
        ("signal_to_noise", growth.signal_to_noise.into()),
        ("samples", envelope.count().into()),
        ("peak_bytes", envelope.peak().into()),
        ("seconds_to_limit", seconds_left.into()),
    ]));
    if let (Some(pointer), Some((first, last))) = (finding.evidence.first_mut(), envelope.span_ns()) {
        (pointer.start_ns, pointer.end_ns) = (Some(first), Some(last));
        pointer.description = Some(format!("{} growth of the floor", growth.shape.as_str()));
    }
    finding.undecided = is_undecided;
    if is_leak {
        finding.advice = counter.advice();
    } else if is_undecided {
        finding.advice = advice(["Record a longer run: the lines that keep growing are named then."]);
    }
    finding
}

/// What grew, how, by how much in how many seconds, from and to how much.
fn title(counter: Counter, verb: &str, [bytes, seconds, from, to]: [f64; 4]) -> String {
    let [bytes, from, to] = [bytes, from, to].map(|bytes| format_bytes(bytes.max(0.0) as u64));
    format!("{} {verb}: {bytes} in {}, from {from} to {to}", counter.name(), duration(seconds))
}

/// Makes growth for information of a leak or an undecided growth: a capture has shown that it is not a leak.
pub(crate) fn acquit(finding: &mut Finding) {
    settle(finding, "growth", Severity::Info, "grew");
    finding.advice.clear();
}

/// Makes a leak of an undecided growth: a capture has shown the line that keeps it.
pub(crate) fn confirm(finding: &mut Finding, confidence: f64) {
    settle(finding, "leak", Severity::Warning, "grows");
    finding.confidence = confidence;
}

fn settle(finding: &mut Finding, kind: &str, severity: Severity, verb: &str) {
    let number = |key: &str| finding.metrics.get(key).and_then(serde_json::Value::as_f64).unwrap_or(0.0);
    let numbers = ["growth_bytes", "seconds", "start_bytes", "end_bytes"].map(number);
    if let Some(counter) = Counter::ALL.into_iter().find(|counter| finding.title.starts_with(counter.name()))
    {
        let place = finding.title.rfind(" (").map_or("", |at| &finding.title[at..]);
        finding.title = title(counter, verb, numbers) + place;
    }
    (finding.kind, finding.severity, finding.undecided) = (kind.to_owned(), severity, false);
}

fn is_leak(counter: Counter, growth: &Growth) -> bool {
    let is_long = match counter {
        Counter::Host | Counter::Shared => is_long_enough(growth.bytes, growth.seconds),
        Counter::Allocator | Counter::Reserved | Counter::Driver | Counter::Used => {
            is_long_enough_on_a_device(growth.bytes, growth.seconds)
        }
    };
    let is_long_after_start = growth.after_seconds < LONGEST_NOTHING || growth.seconds >= LEAST_TAIL;
    let is_seen = is_long && is_long_after_start && is_watched_long_enough(growth);
    growth.shape.is_ongoing() && growth.confidence >= SURE && is_seen
}

/// Growth that has not stopped and is not known to be a leak: neither a verdict nor nothing.
fn is_undecided(counter: Counter, growth: &Growth) -> bool {
    growth.shape.is_ongoing() && !is_leak(counter, growth) && growth.bytes >= LEAST_UNDECIDED
}

/// A leak is critical when it is large, when it has doubled the program, or when the limit is near.
fn severity(growth: &Growth, seconds_left: Option<f64>) -> Severity {
    let is_large = growth.bytes >= GIB;
    let has_doubled = growth.bytes >= 256.0 * MIB && growth.to_bytes >= 2.0 * growth.from_bytes;
    let is_near = seconds_left.is_some_and(|left| left < growth.seconds);
    if is_large || has_doubled || is_near { Severity::Critical } else { Severity::Warning }
}

fn message(growth: &Growth, seconds_left: Option<f64>) -> String {
    let shape = growth.shape.as_str();
    let how = match (growth.by_cycle, growth.releases) {
        (true, releases) => format!("the floor after each of {releases} releases rises"),
        (false, 0) => "no memory was released".to_owned(),
        (false, releases) => format!("{releases} releases gave back only part of it"),
    };
    let pace = rate(growth.bytes_per_second);
    let start = (growth.after_seconds >= 1.0)
        .then(|| format!(" after a start of {}", duration(growth.after_seconds)));
    let limit = seconds_left.map(|left| format!("; at this rate the limit is reached in {}", duration(left)));
    match growth.shape {
        Shape::Start => format!("{shape}: libraries or other files were being mapped throughout"),
        Shape::Step | Shape::Saturating => {
            format!("{shape}: it rose once and stays; a warm-up or a cache looks like this")
        }
        Shape::Steady | Shape::Accelerating | Shape::Stepwise => {
            format!("{shape}, {pace}{}: {how}{}", start.unwrap_or_default(), limit.unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{finish, gpu, metadata, sample, with};

    const SECOND: u64 = 1_000_000_000;
    const MI: u64 = 1 << 20;

    fn of(events: impl IntoIterator<Item = stormlog_model::Event>) -> Vec<Finding> {
        findings(&finish(events).sessions[0].ranks[0].streams[0], &PhaseIndex::default())
    }

    /// Forty steps whose own least memory rises by 8 MiB each, with `between` in the pauses.
    fn steps(between: impl Fn(u64, u64) -> u64) -> Vec<Finding> {
        let scope = |action: &str, step: u64| {
            serde_json::json!({
                "action": action, "name": "step", "path": ["step"], "depth": 1, "scope_id": format!("s:{step}"),
                "parent_scope_id": null, "thread_id": 1, "thread_name": "main", "sequence": step,
            })
        };
        let mut events = Vec::new();
        for step in 0..40_u64 {
            let at = step * 10 * SECOND;
            let base = (1000 + 8 * step) * MI;
            let mark = |at, action: &str| {
                let event = with(sample(at, base), &format!("phase_{action}"), "");
                metadata(event, &[("phase_scope", scope(action, step))])
            };
            events.push(mark(at, "enter"));
            events.extend((0..3).map(|i| sample(at + i * SECOND + 1, base + i * MI)));
            events.push(mark(at + 3 * SECOND, "exit"));
            events.extend((4..10).map(|i| sample(at + i * SECOND, between(base, step * i))));
        }
        let mut recording = finish(events);
        let phases = std::mem::take(&mut recording.sessions[0].ranks[0].phases).index();
        findings(&recording.sessions[0].ranks[0].streams[0], &phases)
    }

    #[test]
    fn growth_rule_reports_a_rising_step_floor_and_not_released_memory() {
        let kept = steps(|base, noise| base + (noise * 7919 % 500) * MI);
        assert_eq!(kept[0].kind, "leak");
        assert!(kept[0].message.as_ref().unwrap().contains("each run of phase step rises"), "{kept:?}");
        let given_back = steps(|_, _| 500 * MI);
        assert!(given_back.iter().all(|finding| finding.severity == Severity::Info), "{given_back:?}");
    }

    #[test]
    fn one_to_twenty_gibibytes_in_a_line_is_critical_and_a_saw_of_that_peak_is_not() {
        let leak = of((0..200).map(|i| sample(i * SECOND, 1024 * MI + i * 100 * MI)));
        assert_eq!((leak[0].kind.as_str(), leak[0].severity), ("leak", Severity::Critical));
        assert!(leak[0].confidence > 0.9 && leak[0].id == "growth.host");
        let saw = of((0..200).map(|i| sample(i * SECOND, 1024 * MI + (i % 20) * 1000 * MI)));
        assert!(saw.iter().all(|finding| finding.severity == Severity::Info), "{saw:?}");
    }

    #[test]
    fn the_counter_that_grows_is_the_one_named() {
        let ids = |found: Vec<Finding>| found.into_iter().map(|finding| finding.id).collect::<Vec<_>>();
        let total = 80_000 * MI;
        let in_allocator = (0..200).map(|i| {
            gpu(i * SECOND, (1000 + 50 * i) * MI, (1100 + 50 * i) * MI, (1500 + 50 * i) * MI, total)
        });
        assert_eq!(ids(of(in_allocator)), ["growth.allocator"]);
        let in_cache =
            (0..200).map(|i| gpu(i * SECOND, 1000 * MI, (1100 + 50 * i) * MI, (1500 + 50 * i) * MI, total));
        assert_eq!(ids(of(in_cache)), ["growth.reserved"]);
        let in_driver = (0..200).map(|i| gpu(i * SECOND, 1000 * MI, 1100 * MI, (1500 + 50 * i) * MI, total));
        assert_eq!(ids(of(in_driver)), ["growth.driver"]);
    }

    #[test]
    fn use_of_a_device_is_not_called_outside_of_an_unknown_allocator() {
        let used = |i: u64| {
            let mut event = gpu(i * SECOND, 0, 0, (1500 + 50 * i) * MI, 80_000 * MI);
            for counter in [stormlog_model::Counter::Allocated, stormlog_model::Counter::Reserved] {
                event.counters.set(counter, None);
            }
            event
        };
        let found = of((0..200).map(used));
        assert_eq!(found[0].id, "growth.driver");
        assert!(found[0].title.starts_with("device memory in use grows"), "{}", found[0].title);
    }

    #[test]
    fn a_start_is_not_a_leak() {
        let start = of((0..20).map(|i| sample(i * 10_000_000, (20 + i) * MI)));
        assert!(start.iter().all(|finding| finding.severity == Severity::Info && finding.kind == "growth"));
        // A model that is loaded: half a gibibyte in each tenth of a second.
        let total = 80_000 * MI;
        let load = |tick: u64, i: u64| gpu(i * tick, i * 512 * MI, i * 512 * MI, i * 512 * MI, total);
        let loaded = of((0..20).map(|i| load(SECOND / 10, i)));
        assert!(loaded.iter().all(|finding| finding.severity == Severity::Info), "{loaded:?}");
        let leaks = of((0..20).map(|i| load(SECOND, i)));
        assert_eq!((leaks[0].kind.as_str(), leaks[0].severity), ("leak", Severity::Critical));
    }

    #[test]
    fn growth_of_a_few_seconds_or_of_a_few_samples_is_undecided() {
        let judged = |found: Vec<Finding>| {
            let found = found.into_iter().next().unwrap();
            (found.kind, found.severity, found.undecided, found.title)
        };
        // 600 MiB in 2.6 seconds, sampled ten times a second.
        let (kind, severity, undecided, title) =
            judged(of((0..27).map(|i| sample(i * SECOND / 10, (30 + 23 * i) * MI))));
        assert_eq!((kind.as_str(), severity, undecided), ("growth", Severity::Info, true));
        assert!(title.contains(" for 2.") && title.contains("; the recording is too short"), "{title}");
        let few = judged(of((0..7).map(|i| sample(i * 3 * SECOND, (30 + 100 * i) * MI))));
        assert_eq!((few.0.as_str(), few.2), ("growth", true), "seven samples");
        let long = judged(of((0..100).map(|i| sample(i * SECOND / 10, (30 + 2 * i) * MI))));
        assert_eq!((long.0.as_str(), long.2), ("leak", false), "ten seconds");
    }

    #[test]
    fn a_gate_goes_by_the_programs_own_growth() {
        let pace_of =
            |events: Vec<stormlog_model::Event>| pace(&finish(events).sessions[0].ranks[0].streams[0]);
        assert_eq!(
            pace_of((0..20).map(|i| sample(i * 10_000_000, (20 + i) * MI)).collect()),
            None,
            "a start"
        );
        let of_host = pace_of((0..200).map(|i| sample(i * SECOND, (100 + i) * MI)).collect()).unwrap();
        assert!((of_host / MIB - 1.0).abs() < 0.05, "{of_host}");
        // Another process fills the device.
        let others =
            (0..200).map(|i| gpu(i * SECOND, 900 * MI, 1000 * MI, (1500 + 50 * i) * MI, 80_000 * MI));
        assert_eq!(pace_of(others.collect()), None);
    }

    #[test]
    fn a_warm_up_is_for_information_only() {
        let short = of((0..200).map(|i| sample(i * SECOND, 1024 * MI + i.min(40) * 100 * MI)));
        assert!(short.iter().all(|finding| finding.severity == Severity::Info));
        let long = of((0..200).map(|i| sample(i * SECOND, 1024 * MI + i.min(110) * 100 * MI)));
        assert_eq!((long[0].kind.as_str(), long[0].severity), ("growth", Severity::Info));
        assert!(long[0].advice.is_empty());
    }
}
