//! From a recording to everything there is to say about it.
//!
//! Runs the rules over streams, ranks and jobs, turns what they found into findings, and puts the worst first. Must never
//! decide anything a rule should: here is only which rule sees what, and how many of the same are said once.

use std::collections::BTreeMap;

use stormlog_model::{Evidence, Finding, Record, Severity};

use crate::all_processes::host_peak;
use crate::jobs::{JobRank, JobRecord, jobs};
use crate::joined::StreamFindings;
use crate::layers::{self, Layers};
use crate::phases::{PhaseAttribution, PhaseIndex};
use crate::recording::{Recording, SessionRecord, Stream};
use crate::rules::collective::{CollectiveConfig, CollectiveInterval, attribute};
use crate::rules::gap::{GapFinding, GapThresholds, hidden_gaps};
use crate::rules::inputs::{self, Input};
use crate::rules::outliers::{self, MemoryKind, Peak, RankComparisonInput};
use crate::rules::ranks::{CrossRank, cross_rank};
use crate::rules::{RuleContext, copy_on_write, findings, growth, heap, hidden, limit, metrics, oom};
use crate::series::Envelope;

/// The same finding of more streams than this is said once.
const SAID_EACH: usize = 3;

/// What the caller may choose.
#[derive(Debug, Clone, Default)]
pub struct AnalysisOptions {
    /// Thresholds of the hidden gap.
    pub gap: GapThresholds,
    /// Knobs of collective attribution.
    pub collective: CollectiveConfig,
}

/// A hidden gap and where it was found.
#[derive(Debug, Clone)]
pub struct PlacedGap {
    /// The session.
    pub session_id: String,
    /// The rank.
    pub rank: u64,
    /// What was found.
    pub gap: GapFinding,
    /// The phase of its moment.
    pub phase: Option<PhaseAttribution>,
}

/// One session, in numbers.
#[derive(Debug, Clone)]
pub struct SessionFacts {
    /// Its id.
    pub session_id: String,
    /// First and last event.
    pub span_ns: (u64, u64),
    /// Events.
    pub event_count: u64,
    /// Its ranks.
    pub ranks: Vec<u64>,
    /// Highest values over all its streams: allocated, reserved, used.
    pub peaks: [Option<u64>; 3],
    /// The steepest growth that is a leak, bytes per second.
    pub growth: Option<f64>,
    /// The highest use (or what was handed out) of each phase.
    pub phase_peaks: BTreeMap<String, u64>,
}

/// Why an analysis could not be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    /// `gap_analysis`, `collective_attribution`, `fragmentation_analysis`.
    pub what: &'static str,
    /// The sentence.
    pub reason: &'static str,
}

/// Everything there is to say.
#[derive(Debug, Clone)]
pub struct Analysis {
    /// The answer in a few lines, where the caller knows more than the recording shows; every page begins with it.
    pub headline: Vec<String>,
    /// Lines that follow the answer, where the caller knows more: the layers of memories.
    pub layer_lines: Vec<String>,
    /// The layers of each process's memories.
    pub layers: Vec<Layers>,
    /// The worst first.
    pub findings: Vec<Finding>,
    /// Hidden gaps, as 0.4.3 counts them.
    pub gaps: Vec<PlacedGap>,
    /// Collective intervals.
    pub collective: Vec<CollectiveInterval>,
    /// Jobs of more than one rank.
    pub jobs: Vec<CrossRank>,
    /// Every session.
    pub sessions: Vec<SessionFacts>,
    /// What could not be asked.
    pub unavailable: Vec<Unavailable>,
    /// Events looked at.
    pub event_count: u64,
    /// Whether anything but host memory was recorded.
    pub has_devices: bool,
    /// For each job with a rank that stands out, the processes whose heaps would say why.
    pub odd_ranks: Vec<RankComparisonInput>,
    /// Heap captures looked at.
    pub captures: usize,
    /// The highest host memory of all processes at one moment.
    pub host_peak: Option<u64>,
    /// The highest use of a device, of all processes on it.
    pub device_used_peak: Option<u64>,
    last_capture: String,
    /// Allocator snapshots looked at.
    pub snapshots: usize,
    /// The inputs.
    pub inputs: Vec<Input>,
}

impl Analysis {
    /// Adds what the caller knows beside the events: a bundle, a failed budget.
    pub fn add(&mut self, finding: Finding) {
        self.findings.push(finding);
        self.sort();
    }

    /// Adds the end of a process by its bundle. The request that failed, which its heap capture shows, is a part of it and not a second finding.
    pub fn add_death(&mut self, death: &oom::Death) {
        let mut found = oom::of_bundle(death);
        let is_part = |other: &mut Finding| {
            death.is_memory && other.id == heap::FAILED_REQUEST && other.process == found.process
        };
        let parts: Vec<Finding> = self.findings.extract_if(.., is_part).collect();
        for part in parts {
            found.message = Some(part.title);
            found.memory = found.memory.or(part.memory);
            found.metrics.extend(part.metrics);
            found.evidence.extend(part.evidence);
        }
        self.add(found);
    }

    /// Adds what a heap capture shows. A leak that telemetry shows gets the line that grew, which is not reported a second time; growth that
    /// telemetry could not judge is judged by the heap.
    pub fn take_capture(&mut self, capture: &heap::Capture) {
        // A capture has one of these for each memory.
        if std::mem::replace(&mut self.last_capture, capture.path.clone()) != capture.path
            || self.captures == 0
        {
            self.captures += 1;
        }
        let mut is_explained = false;
        for finding in &mut self.findings {
            is_explained |= heap::explain(finding, capture);
        }
        let mut own = heap::findings(capture);
        own.retain(|finding| !is_explained || finding.kind != "leak");
        match own.iter().any(|finding| finding.kind == "leak") {
            true => {
                self.findings.retain(|finding| finding.kind == "leak" || !heap::is_about(finding, capture))
            }
            false if !is_explained => {
                self.findings.iter_mut().for_each(|finding| heap::disprove(finding, capture));
            }
            false => {}
        }
        if is_explained || own.iter().any(|finding| finding.kind == "leak") {
            self.findings.retain(|finding| !heap::is_use_of(finding, capture));
        }
        self.findings.iter_mut().for_each(|finding| hidden::explain(finding, capture));
        self.findings.iter_mut().for_each(|finding| copy_on_write::explain(finding, capture));
        self.layers.iter_mut().for_each(|layers| layers.split(capture));
        self.findings.extend(own);
        self.sort();
    }

    /// Adds the line by which the odd rank of a job differs from the others, as heap captures of them show it.
    pub fn explain_rank(&mut self, own: &heap::Capture, others: &[heap::Capture]) {
        let is_of_memory =
            |finding: &&mut Finding| finding.id == outliers::ID && finding.memory == Some(own.memory);
        for finding in self.findings.iter_mut().filter(is_of_memory) {
            outliers::explain(finding, own, others);
        }
    }

    /// Adds what an allocator snapshot shows, as its own rules found it.
    pub fn take_snapshot(&mut self, findings: Vec<Finding>) {
        self.snapshots += 1;
        if self.event_count == 0 {
            // What telemetry would have been asked is beside the point.
            self.unavailable.clear();
        }
        self.findings.extend(findings);
        self.sort();
    }

    fn sort(&mut self) {
        self.findings.sort_by(|a, b| b.severity.cmp(&a.severity).then(b.confidence.total_cmp(&a.confidence)));
    }

    /// The worst severity, if anything was found.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    /// Whether something was found that needs attention.
    pub fn has_trouble(&self) -> bool {
        self.worst() >= Some(Severity::Warning)
    }

    /// Whether any input was damaged.
    pub fn is_damaged(&self) -> bool {
        self.inputs.iter().any(|input| input.problem_count > 0)
    }

    /// The highest value of a counter over all sessions: 0 allocated, 1 reserved, 2 used.
    pub fn peak(&self, counter: usize) -> Option<u64> {
        self.sessions.iter().filter_map(|session| session.peaks.get(counter).copied().flatten()).max()
    }
}

/// Looks at a recording and at what its reader noticed.
pub fn analyze(mut recording: Recording, inputs: Vec<Input>, options: &AnalysisOptions) -> Analysis {
    let phases: Vec<Vec<PhaseIndex>> = recording
        .sessions
        .iter_mut()
        .map(|session| {
            session.ranks.iter_mut().map(|rank| std::mem::take(&mut rank.phases).index()).collect()
        })
        .collect();
    let mut analysis = Analysis {
        headline: Vec::new(),
        layer_lines: Vec::new(),
        layers: Vec::new(),
        findings: inputs::findings(&inputs),
        gaps: Vec::new(),
        collective: Vec::new(),
        jobs: Vec::new(),
        sessions: recording
            .sessions
            .iter()
            .zip(&phases)
            .map(|(session, phases)| facts(session, phases))
            .collect(),
        unavailable: unavailable(&recording),
        event_count: recording.event_count,
        has_devices: streams_of(&recording).any(|stream| !stream.is_host()),
        odd_ranks: Vec::new(),
        captures: 0,
        host_peak: host_peak(streams_of(&recording)),
        device_used_peak: streams_of(&recording)
            .filter(|stream| !stream.is_host())
            .filter_map(|stream| stream.used.peak())
            .max(),
        last_capture: String::new(),
        snapshots: 0,
        inputs,
    };
    let mut of_streams = StreamFindings::default();
    let processes = recording.by_process();
    for (session, phases) in recording.sessions.iter().zip(&phases) {
        for (rank, phases) in session.ranks.iter().zip(phases) {
            for stream in &rank.streams {
                let gaps = hidden_gaps(&stream.samples, &stream.gap_fragmentation, &options.gap);
                let context = RuleContext { stream, phases, gaps: &gaps };
                let mut found: Vec<Finding> =
                    stream.rules.iter().flat_map(|rule| rule.findings(&context)).collect();
                if found.iter().any(|finding| finding.id == limit::ID) {
                    let is_of =
                        |streams: &&Vec<&Stream>| streams.iter().any(|one| std::ptr::eq(*one, stream));
                    let of_process = processes.iter().find(is_of);
                    if of_process.is_some_and(|streams| limit::is_judged_inside(stream, streams)) {
                        found.retain(|finding| finding.id != limit::ID);
                    }
                }
                of_streams.add(session.process, stream, found);
                analysis.take_gaps(stream, phases, gaps);
            }
        }
    }
    analysis.findings.extend(of_streams.findings);
    one_fact(&mut analysis.findings);
    analysis.layers = layers::layers(&processes);
    analysis.findings.extend(copy_on_write::findings(&processes));
    for streams in &processes {
        let hidden = hidden::findings(streams).into_iter();
        let hidden: Vec<Finding> = hidden
            .filter(|found| !analysis.findings.iter().any(|other| hidden::is_part_of(found, other)))
            .collect();
        analysis.findings.extend(hidden);
    }
    for job in jobs(&recording, &phases) {
        analysis.take_job(&job, options);
    }
    oom::merge_reports_of_one_death(&mut analysis.findings);
    analysis.findings = said_once(analysis.findings);
    analysis.sort();
    analysis
}

impl Analysis {
    fn take_gaps(&mut self, stream: &Stream, phases: &PhaseIndex, gaps: Vec<GapFinding>) {
        for gap in gaps {
            let phase = phases.resolve(gap.at_ns);
            let head = &stream.head;
            let (session_id, rank) = (head.session_id.clone(), head.identity.rank);
            self.gaps.push(PlacedGap { session_id, rank, gap, phase });
        }
    }

    fn take_job(&mut self, job: &JobRecord<'_>, options: &AnalysisOptions) {
        let intervals = attribute(&job.views(), job.world_size, job.first_ns, &options.collective);
        self.findings.extend(findings::of_collectives(&intervals, job));
        self.collective.extend(intervals);
        if job.ranks.len() < 2 {
            return;
        }
        for (memory, ranks) in job.by_memory() {
            let peaks: Vec<Peak> = ranks.iter().filter_map(peak).collect();
            if let Some((finding, odd)) = outliers::finding(memory, &peaks) {
                self.findings.push(finding);
                // The heaps that are compared are those of the host.
                if memory == MemoryKind::Host {
                    self.odd_ranks.push(odd);
                }
            }
        }
        let across = cross_rank(&job.as_job(), job.has_one_clock());
        self.findings.extend(findings::of_first_cause(&across, job));
        self.jobs.push(across);
    }
}

fn peak(rank: &JobRank<'_>) -> Option<Peak> {
    let most = rank.used.iter().max_by_key(|sample| sample.used())?;
    Some(Peak {
        rank: rank.record.head.identity.rank,
        session_id: rank.session_id.to_owned(),
        pid: rank.record.head.pid,
        host: rank.record.head.host.clone(),
        bytes: most.used()?,
        at_ns: most.at_ns,
        phase: rank.phases.resolve(most.at_ns),
    })
}

/// The use of a device that grows because an allocator's memory does is reported once, as the allocator's: a process is sampled from inside, where
/// the allocator is known, and from outside, where it is not.
fn one_fact(findings: &mut Vec<Finding>) {
    let grown = |finding: &Finding| finding.metrics.get("growth_bytes").and_then(serde_json::Value::as_f64);
    let is_allocator = |id: &str| matches!(id, "growth.allocator" | "growth.reserved");
    let known: Vec<Finding> = findings.iter().filter(|finding| is_allocator(&finding.id)).cloned().collect();
    findings.retain(|finding| {
        let explains = |own: &Finding| {
            let is_same = (own.process, own.memory) == (finding.process, finding.memory);
            let share = grown(own).unwrap_or(0.0) / grown(finding).unwrap_or(f64::INFINITY).max(1.0);
            own.kind == "leak" && is_same && share >= growth::EXPLAINS
        };
        finding.id != "growth.driver" || !known.iter().any(explains)
    });
}

/// Sixty-four ranks with one leak are one finding with sixty-four pointers.
fn said_once(findings: Vec<Finding>) -> Vec<Finding> {
    let mut by_id: BTreeMap<(String, Severity), Vec<Finding>> = BTreeMap::new();
    for finding in findings {
        by_id.entry((finding.id.clone(), finding.severity)).or_default().push(finding);
    }
    let mut said = Vec::new();
    for mut alike in by_id.into_values() {
        if alike.len() <= SAID_EACH {
            said.append(&mut alike);
            continue;
        }
        // The largest speaks for all of them.
        alike.sort_by(|a, b| b.size_bytes().cmp(&a.size_bytes()).then(b.confidence.total_cmp(&a.confidence)));
        let count = alike.len();
        let rest: Vec<Evidence> = alike.iter().skip(1).flat_map(|other| other.evidence.clone()).collect();
        if let Some(mut first) = alike.into_iter().next() {
            first.title = format!("{}; and {} more streams like it", first.title, count - 1);
            first.metrics.insert("stream_count".to_owned(), count.into());
            first.evidence.extend(rest);
            said.push(first);
        }
    }
    said
}

fn facts(session: &SessionRecord, phases: &[PhaseIndex]) -> SessionFacts {
    let streams = || session.ranks.iter().flat_map(|rank| &rank.streams);
    let peak = |of: fn(&Stream) -> &Envelope| streams().filter_map(|stream| of(stream).peak()).max();
    SessionFacts {
        session_id: session.session_id.clone(),
        span_ns: session.span_ns,
        event_count: session.event_count,
        ranks: session.ranks.iter().map(|rank| rank.head.identity.rank).collect(),
        peaks: [peak(|s| &s.allocated), peak(|s| &s.reserved), peak(|s| &s.used)],
        growth: streams().filter_map(growth::pace).reduce(f64::max),
        phase_peaks: phase_peaks(session, phases),
    }
}

fn phase_peaks(session: &SessionRecord, phases: &[PhaseIndex]) -> BTreeMap<String, u64> {
    let mut peaks = BTreeMap::new();
    for (rank, phases) in session.ranks.iter().zip(phases).filter(|(_, phases)| !phases.is_empty()) {
        for sample in rank.streams.iter().flat_map(|stream| &stream.samples) {
            let Some(used) = sample.used().or(sample.reserved()) else { continue };
            for path in phases.resolve(sample.at_ns).into_iter().flat_map(|found| found.paths) {
                let peak = peaks.entry(path).or_insert(0);
                *peak = used.max(*peak);
            }
        }
    }
    peaks
}

fn streams_of(recording: &Recording) -> impl Iterator<Item = &Stream> {
    recording.sessions.iter().flat_map(|session| &session.ranks).flat_map(|rank| &rank.streams)
}

fn unavailable(recording: &Recording) -> Vec<Unavailable> {
    const NO_ALLOCATOR: &str = "Allocator-native analysis is unavailable because this telemetry session does not expose allocator counters.";
    const DISABLED: &str = "Collector capabilities disable fragmentation analysis.";
    let streams = || streams_of(recording);
    if streams().all(|stream| stream.allocator_samples == 0) {
        let all = ["gap_analysis", "collective_attribution", "fragmentation_analysis"];
        return all.map(|what| Unavailable { what, reason: NO_ALLOCATOR }).into();
    }
    if streams().all(|stream| stream.fragmentation_samples == 0) {
        return vec![Unavailable { what: "fragmentation_analysis", reason: DISABLED }];
    }
    Vec::new()
}

/// The numbers of an analysis for the envelope: flat, finite.
pub fn summary_metrics(analysis: &Analysis) -> Record {
    let count = |severity| analysis.findings.iter().filter(|finding| finding.severity == severity).count();
    metrics([
        ("event_count", analysis.event_count.into()),
        ("session_count", analysis.sessions.len().into()),
        ("critical_count", count(Severity::Critical).into()),
        ("warning_count", count(Severity::Warning).into()),
        ("info_count", count(Severity::Info).into()),
        ("peak_allocated_bytes", analysis.peak(0).into()),
        ("peak_reserved_bytes", analysis.peak(1).into()),
        ("peak_device_used_bytes", analysis.peak(2).into()),
    ])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stormlog_model::Head;

    use super::*;
    use crate::testing::{finish, gpu, on_rank, sample};

    const SECOND: u64 = 1_000_000_000;
    const MI: u64 = 1 << 20;

    fn of(events: impl IntoIterator<Item = stormlog_model::Event>) -> Analysis {
        analyze(finish(events), Vec::new(), &AnalysisOptions::default())
    }

    #[test]
    fn a_healthy_recording_has_no_trouble_and_a_leak_has() {
        let healthy = of((0..300).map(|i| sample(i * SECOND, (1000 + (i % 20) * 50) * MI)));
        assert!(!healthy.has_trouble(), "{:#?}", healthy.findings);
        let leak = of((0..300).map(|i| sample(i * SECOND, (1000 + 50 * i) * MI)));
        assert_eq!(leak.worst(), Some(Severity::Critical));
        assert_eq!(leak.findings[0].kind, "leak");
    }

    #[test]
    fn sixty_four_leaking_ranks_are_one_finding_and_the_odd_one_is_named() {
        let events = (0..64).flat_map(|rank| {
            (0..50).map(move |i| {
                let used = if rank == 17 { 60_000 } else { 49_000 } * MI + i * 20 * MI;
                on_rank(gpu(i * SECOND, used, used, used, 80_000 * MI), rank, 64)
            })
        });
        let found = of(events);
        let leaks: Vec<&Finding> = found.findings.iter().filter(|finding| finding.kind == "leak").collect();
        assert_eq!(leaks.len(), 1);
        assert_eq!(leaks[0].metrics["stream_count"], 64);
        let odd = found.findings.iter().find(|finding| finding.kind == "rank_outlier").unwrap();
        assert_eq!(odd.metrics["rank"], 17);
        assert_eq!(found.jobs[0].participating.len(), 64);
    }

    #[test]
    fn host_and_device_sessions_of_ranks_are_compared_apart() {
        // Each rank has a session of the host and one of the device; which of them started last differs between the ranks.
        let events = (0..8).flat_map(|rank| {
            let host_later = u64::from(rank % 3 == 0);
            let session = move |event: stormlog_model::Event, name: &str| {
                let event = on_rank(event, rank, 8);
                let head = Head { session_id: format!("{name}{rank}"), ..(*event.head).clone() };
                stormlog_model::Event { head: Arc::new(head), ..event }
            };
            (0..10).flat_map(move |i| {
                let device = if rank == 5 { 60_000 } else { 41_000 } * MI;
                let at = |is_later: u64| (i + is_later) * SECOND;
                [
                    session(sample(at(host_later), 6_000 * MI), "host"),
                    session(gpu(at(1 - host_later), device, device, device, 80_000 * MI), "device"),
                ]
            })
        });
        let found = of(events);
        let odd: Vec<&Finding> =
            found.findings.iter().filter(|finding| finding.kind == "rank_outlier").collect();
        assert_eq!(odd.len(), 1, "{odd:#?}");
        assert_eq!((&odd[0].metrics["rank"], &odd[0].metrics["rank_count"]), (&5.into(), &8.into()));
        assert!(odd[0].title.contains("against 40.04 GiB of device memory"), "{}", odd[0].title);
        assert_eq!(found.jobs[0].participating.len(), 8);
        assert!(found.odd_ranks.is_empty(), "a heap of the host explains no device");
    }

    #[test]
    fn empty_recording_has_no_findings() {
        let nothing = of([]);
        assert!(nothing.findings.is_empty() && nothing.event_count == 0);
        assert_eq!(nothing.peak(0), None);
    }
}
