//! The report of everything at some paths: the story, its lanes, its stacks over time, findings and environment, as the values of one page.
//!
//! Captures are read here, those of the processes that matter; what is left out is named. Must never print, and never judge.

mod captures;
mod categories;
mod environment;
mod snapshots;
mod words;

use std::path::{Path, PathBuf};

use stormlog_analyze::timeline::Timeline;
use stormlog_analyze::{Analysis, Recording};
use stormlog_model::memory::Memory;
use stormlog_model::text::short_name;
use stormlog_model::{Severity, format_bytes, format_duration};
use stormlog_render::flamegraph::FlameGraph;
use stormlog_render::report::{self as page, Graph, Lane, Mark, Process, Report};

use crate::Story;
use crate::captures::CaptureReader;
use crate::choice::main_process;
use crate::lanes::{self, Clock, ProcessLanes};
use crate::moment;
use captures::{Captures, ReadCapture, difference, peak};
use environment::environment;
use snapshots::{ReadSnapshot, Snapshots};
use words::{finding, process};

/// Processes that are listed.
const MOST_PROCESSES: usize = 256;
/// A process whose program is not known.
const UNNAMED: &str = "the program";

/// What was recorded at some paths, as far as the report needs the rules' reading of it.
pub struct Recorded {
    /// The paths.
    pub paths: Vec<PathBuf>,
    /// Memory over time, taken before the rules consumed the recording.
    pub timelines: Vec<Timeline>,
    /// What the rules say.
    pub analysis: Analysis,
    /// The captures that were read for them.
    pub captures: CaptureReader,
}

/// Memory over time of a recording.
#[must_use]
pub fn timelines(recording: &Recording) -> Vec<Timeline> {
    stormlog_analyze::timeline::timelines(recording)
}

/// The report; with `before`, against another recording.
#[must_use]
pub fn report(recorded: &Recorded, before: Option<&Recorded>) -> Report {
    let judged = (recorded.analysis.findings.as_slice(), recorded.analysis.layers.as_slice());
    let story = Story::with(&recorded.paths, judged, &mut |process| recorded.captures.digest(process));
    let (captures, snapshots) = (Captures::at(&recorded.paths), Snapshots::at(&recorded.paths));
    let mut built = Builder::new(recorded, &story, &captures);
    built.begin_with(&snapshots);
    built.add_lanes(recorded);
    built.report.notes.extend(captures.notes.into_iter().chain(snapshots.notes));
    captures.read.into_iter().for_each(|capture| built.add_capture(capture));
    built.add_categories();
    snapshots.read.into_iter().for_each(|snapshot| built.add_snapshot(snapshot));
    // The memory of a device is scarce: it is shown first.
    built.report.graphs.sort_by_key(|graph| (graph.process, graph.memory == "host"));
    built.add_deaths(&story);
    if let Some(before) = before {
        built.compare(before);
    }
    built.finish(recorded, &story)
}

struct Builder {
    report: Report,
    clock: Clock,
    end_ns: u64,
}

impl Builder {
    fn new(recorded: &Recorded, story: &Story, captures: &Captures) -> Self {
        let sampled = recorded.timelines.iter().map(|stream| stream.span_ns);
        let spans = || sampled.clone().chain(captures.read.iter().filter_map(|capture| capture.span_ns));
        let stories = story.processes.iter().take(MOST_PROCESSES);
        let mut report = Report { processes: stories.map(process).collect(), ..Report::default() };
        if story.processes.len() > MOST_PROCESSES {
            let more = story.processes.len() - MOST_PROCESSES;
            report.notes.push(format!("{more} more processes are not in this page."));
        }
        let clock = Clock { start_ns: spans().map(|span| span.0).min().unwrap_or(0) };
        let end_ns = spans().map(|span| span.1).max().unwrap_or(0);
        Builder { report, clock, end_ns }
    }

    /// The place of a process; one that no run directory lists is added.
    fn place(&mut self, pid: i64, rank: Option<u64>) -> Option<usize> {
        let pid = u32::try_from(pid).ok().filter(|pid| *pid > 0);
        // On several machines processes of different ranks may have one number.
        let of = |known: &Process| {
            known.pid == pid
                && (known.rank == rank || (pid.is_some() && (known.rank.is_none() || rank.is_none())))
        };
        let found = self.report.processes.iter().position(of);
        if found.is_some() || self.report.processes.len() >= MOST_PROCESSES {
            return found;
        }
        let name = pid.map_or_else(|| UNNAMED.to_owned(), |pid| format!("process {pid}"));
        self.report.processes.push(Process {
            name,
            pid,
            rank,
            ended: "unknown".to_owned(),
            ..Process::default()
        });
        Some(self.report.processes.len() - 1)
    }

    fn add_lanes(&mut self, recorded: &Recorded) {
        let mut by_process: Vec<Vec<&Timeline>> = Vec::new();
        for stream in &recorded.timelines {
            let rank = (stream.world_size > 1).then_some(stream.rank);
            let Some(place) = self.place(stream.pid, rank) else { continue };
            by_process.resize_with(by_process.len().max(place + 1), Vec::new);
            by_process[place].push(stream);
            let process = &mut self.report.processes[place];
            process.rank = process.rank.or(rank);
        }
        for (place, streams) in by_process.iter().enumerate() {
            let found = ProcessLanes::of(place, streams, self.clock);
            self.peaks(place, &found.lanes);
            self.report.lanes.extend(found.lanes);
            self.report.marks.extend(found.marks);
            self.report.stretches.extend(found.stretches);
        }
        if self.report.processes.iter().filter(|process| process.rank.is_some()).count() < 2 {
            self.report.processes.iter_mut().for_each(|process| process.rank = None);
        }
    }

    fn peaks(&mut self, place: usize, lanes: &[Lane]) {
        let process = &mut self.report.processes[place];
        for lane in lanes {
            let first = lane.lines.first().and_then(|line| line.bytes.iter().max().copied());
            let Some(peak) = first else { continue };
            match lane.memory.as_str() {
                lanes::LIMIT => {}
                "host" => process.peak_bytes = process.peak_bytes.max(Some(peak)),
                _ => process.devices.push((lane.memory.clone(), peak)),
            }
        }
    }

    fn add_capture(&mut self, capture: ReadCapture) {
        let Some(process) = self.place(capture.pid.map_or(-1, i64::from), None) else { return };
        let of = &mut self.report.processes[process];
        if of.name.starts_with("process ") || capture.pid.is_none() {
            of.name = capture.program;
        }
        of.parts.extend(capture.purposes);
        let offset_ms = capture.span_ns.map_or(0, |(began, _)| self.clock.ms(began));
        for (memory, flame) in capture.graphs {
            let (name, most) = (memory.to_string(), peak(&flame));
            match memory {
                Memory::Host => of.peak_bytes = of.peak_bytes.or(Some(most)),
                Memory::Device(_) if of.devices.iter().all(|(known, _)| *known != name) => {
                    of.devices.push((name.clone(), most));
                }
                Memory::Device(_) => {}
            }
            self.report.graphs.push(Graph { process, memory: name, offset_ms, is_difference: false, flame });
        }
    }

    /// Lanes of what the memory of devices is for, below the others of their process.
    fn add_categories(&mut self) {
        let devices = self.report.graphs.iter().filter(|graph| graph.memory != "host");
        let lanes: Vec<Lane> = devices.filter_map(categories::lane).collect();
        self.report.lanes.extend(lanes);
    }

    /// The axis includes the traces of snapshots.
    fn begin_with(&mut self, snapshots: &Snapshots) {
        for (from, to) in snapshots.read.iter().filter_map(|snapshot| snapshot.span_ns) {
            let is_first = self.clock.start_ns == 0 || from < self.clock.start_ns;
            self.clock.start_ns = if is_first { from } else { self.clock.start_ns };
            self.end_ns = self.end_ns.max(to);
        }
    }

    /// A snapshot does not name its process: it is one of its own, by the file's name.
    fn add_snapshot(&mut self, snapshot: ReadSnapshot) {
        let ReadSnapshot { name, memory, span_ns, peak_bytes, flame, reserved, categories } = snapshot;
        let known =
            self.report.processes.iter().position(|process| process.pid.is_none() && process.name == name);
        let process = known.unwrap_or(self.report.processes.len());
        if known.is_none() {
            if process >= MOST_PROCESSES {
                return;
            }
            let ended = "unknown".to_owned();
            self.report.processes.push(Process { name, ended, ..Process::default() });
        }
        self.report.processes[process].devices.push((memory.clone(), peak_bytes));
        let offset_ms = span_ns.map_or(0, |(began, _)| self.clock.ms(began));
        let graph = Graph { process, memory, offset_ms, is_difference: false, flame };
        self.report.lanes.extend(snapshot_lane(&graph, reserved));
        let times = graph.flame.strip.as_ref().map(|strip| strip.time_ms.clone()).unwrap_or_default();
        self.report.lanes.extend(categories::of_curves(&graph, &times, categories));
        self.report.graphs.push(graph);
    }

    fn add_deaths(&mut self, story: &Story) {
        for (place, process) in story.processes.iter().take(MOST_PROCESSES).enumerate() {
            let Some(at) = process.ended_at_ns.and_then(|at| u64::try_from(at).ok()) else { continue };
            if process.ended != crate::Ended::Failed || self.clock.start_ns == 0 {
                continue;
            }
            self.end_ns = self.end_ns.max(at);
            self.report.marks.retain(|mark| mark.process != place || mark.text != process.what_happened);
            self.report.marks.push(Mark {
                process: place,
                at: self.clock.ms(at),
                name: "died".to_owned(),
                severity: Severity::Critical.as_str().to_owned(),
                text: process.what_happened.clone(),
                limit_at: None,
            });
        }
    }

    /// Both curves, and what the peaks hold more and less than in the other recording.
    fn compare(&mut self, before: &Recorded) {
        let name = before.paths.first().map(|path| name_of(path)).unwrap_or_default();
        let story = Story::with(&before.paths, (&[], &[]), &mut |process| before.captures.digest(process));
        let captures = Captures::at(&before.paths);
        let mut other = Builder::new(before, &story, &captures);
        other.add_lanes(before);
        // Processes are compared in their order: the program with the program, its first child with its first child.
        for lane in &mut self.report.lanes {
            let past = other
                .report
                .lanes
                .iter()
                .find(|past| (past.process, &past.memory) == (lane.process, &lane.memory));
            lanes::compare(lane, past);
        }
        let length = other.end_ns.saturating_sub(other.clock.start_ns);
        self.end_ns = self.end_ns.max(self.clock.start_ns.saturating_add(length));
        self.report.notes.extend(captures.notes);
        let main = captures.read.first();
        let mut differences = Vec::new();
        for graph in self.report.graphs.iter().filter(|graph| graph.process == 0) {
            let of = |(memory, _): &&(Memory, FlameGraph)| memory.to_string() == graph.memory;
            let past = main.and_then(|main| main.graphs.iter().find(of));
            differences.extend(past.map(|(_, past)| difference(graph, past, &name)));
        }
        differences.append(&mut self.report.graphs);
        self.report.graphs = differences;
        self.report.baseline = Some(name);
    }

    fn finish(mut self, recorded: &Recorded, story: &Story) -> Report {
        let clock = self.clock;
        let report = &mut self.report;
        report.headline.clone_from(&story.headline);
        let main = main_process(&story.processes).filter(|at| *at < report.processes.len());
        // Without a run there are no stories: the fullest process is looked at first.
        let fullest = || (0..report.processes.len()).max_by_key(|at| report.processes[*at].peak_bytes);
        report.start = main.or_else(fullest).unwrap_or(0);
        let worst = recorded.analysis.findings.iter().map(|finding| finding.severity).max();
        report.severity = worst.map(|worst| worst.as_str().to_owned()).unwrap_or_default();
        report.findings = recorded.analysis.findings.iter().map(|found| finding(found, clock)).collect();
        for outlier in recorded.analysis.findings.iter().filter(|found| found.kind == "rank_outlier") {
            let rank = outlier.metrics.get("rank").and_then(serde_json::Value::as_u64);
            let odd =
                report.processes.iter_mut().find(|process| process.rank.is_some() && process.rank == rank);
            if let Some(odd) = odd {
                odd.outlier.clone_from(&outlier.title);
            }
        }
        let problems =
            recorded.analysis.inputs.iter().flat_map(|input| input.problems.iter().chain(&input.notes));
        report.notes.extend(problems.cloned());
        report.end_ms = report.graphs.iter().map(last_moment).max().unwrap_or(0).max(clock.ms(self.end_ns));
        report.title = title(report, recorded);
        report.subtitle = subtitle(clock, self.end_ns, recorded);
        report.facts = facts(report);
        report.environment = environment(&recorded.paths);
        self.report
    }
}

/// What was allocated and reserved over the time of a snapshot's trace.
fn snapshot_lane(graph: &Graph, reserved: Vec<u64>) -> Option<Lane> {
    let strip = graph.flame.strip.as_ref()?;
    let time: Vec<u64> = strip.time_ms.iter().map(|at| graph.offset_ms.saturating_add(*at)).collect();
    let line = |name: &str, bytes: Vec<u64>| page::Line {
        name: name.to_owned(),
        time: time.clone(),
        bytes,
        ..page::Line::default()
    };
    let lines = vec![line("allocated", strip.heap_bytes.clone()), line("reserved", reserved)];
    let (memory, title) = (graph.memory.clone(), format!("GPU memory, {}", graph.memory));
    Some(Lane { process: graph.process, memory, title, lines, ..Lane::default() })
}

/// The end of a graph on the axis. A capture that does not say when it began has no other.
fn last_moment(graph: &Graph) -> u64 {
    let last = graph.flame.strip.as_ref().and_then(|strip| strip.time_ms.last().copied());
    graph.offset_ms.saturating_add(last.unwrap_or(0))
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    short_name(&name.to_string_lossy())
}

fn title(report: &Report, recorded: &Recorded) -> String {
    let named = report.processes.get(report.start).map(|process| process.name.clone());
    // Telemetry without a run does not name its program: the file does.
    let named = named.filter(|name| name != UNNAMED);
    let name = named.unwrap_or_else(|| recorded.paths.first().map(|path| name_of(path)).unwrap_or_default());
    match &report.baseline {
        Some(baseline) => format!("{name} against {baseline}"),
        None => name,
    }
}

fn subtitle(clock: Clock, end_ns: u64, recorded: &Recorded) -> String {
    let mut parts: Vec<String> =
        recorded.paths.iter().take(3).map(|path| path.display().to_string()).collect();
    if recorded.paths.len() > 3 {
        parts.push(format!("{} more", recorded.paths.len() - 3));
    }
    if let Some(start) = moment::clock(clock.start_ns.into()).filter(|_| clock.start_ns > 0) {
        parts.push(start);
        parts.push(format_duration(end_ns.saturating_sub(clock.start_ns) as f64 / 1e9));
    }
    parts.join(" · ")
}

fn facts(report: &Report) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    if let Some(peak) = report.processes.iter().filter_map(|process| process.peak_bytes).max() {
        facts.push(("peak".to_owned(), format_bytes(peak)));
    }
    let devices = report.processes.iter().flat_map(|process| &process.devices);
    if let Some((name, peak)) = devices.max_by_key(|(_, peak)| *peak) {
        facts.push((format!("peak of {name}"), format_bytes(*peak)));
    }
    if report.processes.len() > 1 {
        facts.push(("processes".to_owned(), report.processes.len().to_string()));
    }
    facts
}

/// The page, of at most `most_bytes`.
#[must_use]
pub fn page(report: &Report, most_bytes: usize) -> String {
    page::page(report, most_bytes)
}

#[cfg(test)]
mod tests {
    use stormlog_analyze::{AnalysisOptions, analyze};
    use stormlog_render::flamegraph::Strip;

    use super::*;

    #[test]
    fn capture_without_a_start_has_its_whole_axis() {
        let strip = Strip { time_ms: vec![0, 900], heap_bytes: vec![1, 2], ..Strip::default() };
        let flame = FlameGraph { strip: Some(strip), ..FlameGraph::default() };
        let capture = ReadCapture {
            pid: None,
            program: "train.py".to_owned(),
            span_ns: None,
            graphs: vec![(Memory::Host, flame)],
            purposes: Vec::new(),
        };
        let analysis = analyze(Recording::default(), Vec::new(), &AnalysisOptions::default());
        let captures = CaptureReader::default();
        let recorded = Recorded { paths: Vec::new(), timelines: Vec::new(), analysis, captures };
        let story = Story::default();
        let mut builder = Builder::new(&recorded, &story, &Captures::default());
        builder.add_capture(capture);
        let report = builder.finish(&recorded, &story);
        assert_eq!((report.end_ms, report.title.as_str()), (900, "train.py"));
        assert_eq!(report.processes[0].peak_bytes, Some(2));
    }
}
