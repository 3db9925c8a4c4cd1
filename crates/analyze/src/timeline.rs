//! What of a recording can be drawn over time: the counters of each stream, its limit, its phases and its alerts.
//!
//! Long streams are thinned to what a picture can show; the least and the greatest value of every stretch stay. Must never judge,
//! and never invent a counter: one that was not read is not a line.

use std::collections::BTreeMap;

use stormlog_model::{Event, Severity};

use crate::Recording;
use crate::phases::{PhaseIndex, Span};
use crate::recording::{RankRecord, SessionRecord, Stream};
use crate::sample::Sample;

/// Points of a line that a wide picture can tell apart.
const MOST_POINTS: usize = 4096;
/// Alerts kept of a stream; a tracker that warns with every sample says nothing new after that.
const MOST_MOMENTS: usize = 512;
/// Characters kept of what an alert says.
const MOST_TEXT: usize = 300;
/// Points of a floor.
const FLOOR_POINTS: usize = 24;
/// A phase that ran this often is a step.
const LEAST_STEPS: usize = 3;

/// One stream over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// Its session.
    pub session_id: String,
    /// Its rank.
    pub rank: u64,
    /// How many ranks there should be.
    pub world_size: u64,
    /// Its process.
    pub pid: i64,
    /// What the user would call the program.
    pub program: Option<String>,
    /// Its device; below 0 is the host.
    pub device_id: i64,
    /// First and last sample.
    pub span_ns: (u64, u64),
    /// The counters that were read.
    pub lines: Vec<Line>,
    /// The most there can be, where that is known.
    pub limit: Option<u64>,
    /// What all processes together use of that limit, where it was read.
    pub limit_used: Vec<(u64, u64)>,
    /// Name, start and end of the outermost phases.
    pub phases: Vec<(String, u64, u64)>,
    /// Name of the phase that comes again and again, and each time it ran.
    pub steps: Option<(String, Vec<(u64, u64)>)>,
    /// Alerts and deaths.
    pub moments: Vec<TimelineMark>,
}

/// One counter over time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// `allocated`, `reserved`, `device used`, `RSS`.
    pub name: &'static str,
    /// Moment and bytes.
    pub points: Vec<(u64, u64)>,
}

impl Line {
    /// The least of each of up to [`FLOOR_POINTS`] stretches: what is never given back. Empty where the line is too short, or is its own floor.
    #[must_use]
    pub fn floor(&self) -> Vec<(u64, u64)> {
        if self.points.len() < 4 * FLOOR_POINTS {
            return Vec::new();
        }
        // Stretches of one length: a shorter last one may hold no trough, and the floor would seem to rise there.
        let edge = |at: usize| at * self.points.len() / FLOOR_POINTS;
        let stretches = (0..FLOOR_POINTS).map(|at| &self.points[edge(at)..edge(at + 1)]);
        let least = stretches.filter_map(|group| group.iter().min_by_key(|(_, bytes)| *bytes));
        let floor: Vec<(u64, u64)> = least.copied().collect();
        let mean = |points: &[(u64, u64)]| {
            points.iter().map(|(_, bytes)| *bytes as f64).sum::<f64>() / points.len().max(1) as f64
        };
        // Below this the two lines could not be distinguished.
        if mean(&floor) < 0.97 * mean(&self.points) { floor } else { Vec::new() }
    }
}

/// An event that is marked on the time axis.
#[derive(Debug, Clone, PartialEq)]
pub struct TimelineMark {
    /// When.
    pub at_ns: u64,
    /// What.
    pub name: &'static str,
    /// How bad.
    pub severity: Severity,
    /// The sentence of the event, its beginning.
    pub text: String,
    /// When the limit is reached, where it is a forecast.
    pub forecast: Option<Forecast>,
}

/// How memory grew when a forecast was made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Seconds until the limit is reached.
    pub seconds_to_limit: f64,
}

impl Forecast {
    fn of(event: &Event) -> Option<Self> {
        let number = |key: &str| event.metadata.map.get(key)?.as_f64().filter(|value| value.is_finite());
        let forecast = Forecast {
            bytes_per_second: number("bytes_per_second")?,
            seconds_to_limit: number("seconds_to_limit")?,
        };
        (forecast.bytes_per_second > 0.0 && forecast.seconds_to_limit >= 0.0).then_some(forecast)
    }
}

/// Keeps the moments of a stream.
#[derive(Debug, Default, Clone)]
pub struct AlertMarks {
    kept: Vec<TimelineMark>,
}

impl AlertMarks {
    pub(crate) fn observe(&mut self, event: &Event) {
        let (name, severity) = match event.head.event_type.as_str() {
            "warning" => ("warning", Severity::Warning),
            "critical" => ("critical alert", Severity::Critical),
            "error" => ("error", Severity::Critical),
            "collector_degraded" => ("collector degraded", Severity::Warning),
            "cleanup" => ("cleanup", Severity::Info),
            _ => return,
        };
        if self.kept.len() < MOST_MOMENTS {
            let text = event.context.as_deref().unwrap_or_default().chars().take(MOST_TEXT).collect();
            let forecast = Forecast::of(event);
            let name = if forecast.is_some() { "forecast" } else { name };
            self.kept.push(TimelineMark { at_ns: event.timestamp_ns, name, severity, text, forecast });
        }
    }
}

impl Timeline {
    /// The highest value of any line.
    pub fn peak(&self) -> u64 {
        let values = self.lines.iter().flat_map(|line| &line.points).map(|(_, bytes)| *bytes);
        values.max().unwrap_or(0)
    }
}

/// Every stream with samples, the one with the highest peak first.
pub fn timelines(recording: &Recording) -> Vec<Timeline> {
    let mut found = Vec::new();
    for session in &recording.sessions {
        for rank in &session.ranks {
            let phases = rank.phases.clone().index();
            found.extend(rank.streams.iter().filter_map(|stream| of_stream(session, rank, stream, &phases)));
        }
    }
    found.sort_by_key(|timeline| (std::cmp::Reverse(timeline.peak()), timeline.session_id.clone()));
    found
}

/// The phases of one thread.
#[derive(Debug, Clone)]
pub struct ThreadPhases {
    /// The processes they are of, each with its program: one, unless a session has samples of several.
    pub processes: Vec<(i64, Option<String>)>,
    /// The name of the thread.
    pub thread_name: String,
    /// Every phase, an outer one before those in it.
    pub spans: Vec<Span>,
}

/// The phases of every thread, nested ones too. [`Timeline`] has only what fits into a row of a picture.
pub fn phases(recording: &Recording) -> Vec<ThreadPhases> {
    let mut found = Vec::new();
    for rank in recording.sessions.iter().flat_map(|session| &session.ranks) {
        let mut threads: BTreeMap<i64, Vec<Span>> = BTreeMap::new();
        for span in rank.phases.clone().spans() {
            threads.entry(span.thread_id).or_default().push(span);
        }
        let streams = rank.streams.iter().filter(|stream| !stream.samples.is_empty());
        let mut processes: Vec<_> = streams.map(|stream| (stream.head.pid, stream.program.clone())).collect();
        processes.sort_by_key(|(pid, program)| (*pid, program.is_none()));
        processes.dedup_by_key(|(pid, _)| *pid);
        if processes.is_empty() {
            processes.push((rank.head.pid, None));
        }
        found.extend(threads.into_values().map(|mut spans| {
            spans.sort_by_key(|span| (span.from_ns, std::cmp::Reverse(span.to_ns), span.depth));
            let thread_name = spans.first().map(|span| span.thread_name.clone()).unwrap_or_default();
            ThreadPhases { processes: processes.clone(), thread_name, spans }
        }));
    }
    found
}

/// What a line takes from a sample.
type SampleField = fn(&Sample) -> Option<u64>;

fn of_stream(
    session: &SessionRecord,
    rank: &RankRecord,
    stream: &Stream,
    phases: &PhaseIndex,
) -> Option<Timeline> {
    let span_ns = (stream.samples.first()?.at_ns, stream.samples.last()?.at_ns);
    let used = if stream.is_host() { "RSS" } else { "device used" };
    let counters: &[(&'static str, SampleField)] = if stream.is_one_counter {
        &[(used, |sample| sample.used().or(sample.allocated()))]
    } else {
        &[
            ("allocated", |sample| sample.allocated()),
            ("reserved", |sample| sample.reserved()),
            (used, |sample| sample.used()),
        ]
    };
    let lines: Vec<Line> = counters
        .iter()
        .map(|(name, of)| Line { name, points: thinned(known(&stream.samples, *of), MOST_POINTS) })
        .filter(|line| !line.points.is_empty())
        .collect();
    if lines.is_empty() {
        return None;
    }
    let mut moments = stream.facts.moments.kept.clone();
    if let Some(mark) = &stream.facts.oom.first {
        moments.retain(|moment| moment.at_ns != mark.at_ns);
        let (name, severity) = ("out of memory", Severity::Critical);
        let text = mark.context.iter().flat_map(|text| text.chars()).take(MOST_TEXT).collect();
        moments.push(TimelineMark { at_ns: mark.at_ns, name, severity, text, forecast: None });
    }
    let identity = &rank.head.identity;
    Some(Timeline {
        session_id: session.session_id.clone(),
        rank: identity.rank,
        world_size: identity.world_size,
        pid: stream.head.pid,
        program: stream.program.clone(),
        device_id: stream.head.device_id,
        span_ns,
        lines,
        limit: stream.facts.limit.total(),
        limit_used: thinned(known(&stream.samples, Sample::limit_used), MOST_POINTS),
        phases: phases.outermost().map(|(path, from, to)| (path.to_owned(), from, to)).collect(),
        steps: phases.repeated(LEAST_STEPS).map(|(path, runs)| (path.to_owned(), runs)),
        moments,
    })
}

fn known(samples: &[Sample], of: SampleField) -> Vec<(u64, u64)> {
    samples.iter().filter_map(|sample| Some((sample.at_ns, of(sample)?))).collect()
}

/// At most about `most` points: the least and the greatest value of each stretch, in time order, and the last.
#[must_use]
pub fn thinned(points: Vec<(u64, u64)>, most: usize) -> Vec<(u64, u64)> {
    if points.len() <= most {
        return points;
    }
    let stretch = points.len().div_ceil((most / 2).max(1));
    let mut kept = Vec::with_capacity(most + 1);
    for group in points.chunks(stretch) {
        let least = group.iter().min_by_key(|(_, bytes)| *bytes);
        let most = group.iter().max_by_key(|(_, bytes)| *bytes);
        let mut pair: Vec<(u64, u64)> = least.into_iter().chain(most).copied().collect();
        pair.sort_unstable();
        kept.extend(pair);
    }
    kept.extend(points.last());
    kept.dedup();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{finish, gpu, sample, with};

    #[test]
    fn a_long_stream_keeps_its_spike_and_becomes_short() {
        let value = |at: u64| if at == 70_001 { 9_000 } else { 100 + at % 7 };
        let found = timelines(&finish((0..200_000).map(|at| sample(at, value(at)))));
        let [only] = found.as_slice() else { panic!("{} timelines", found.len()) };
        assert_eq!((only.lines[0].name, only.peak()), ("RSS", 9_000));
        assert!(only.lines[0].points.len() <= MOST_POINTS + 1);
        assert!(only.lines[0].points.is_sorted_by_key(|point| point.0));
        assert_eq!(only.span_ns, (0, 199_999));
    }

    #[test]
    fn floor_of_a_saw_tooth_is_below_it_and_a_smooth_line_has_none() {
        let saw = timelines(&finish((0..400).map(|at| sample(at, 1_000 + at + at % 10 * 500))));
        let floor = saw[0].lines[0].floor();
        assert!((20..=24).contains(&floor.len()), "{}", floor.len());
        assert!(floor.is_sorted_by_key(|point| point.1) && floor.iter().all(|(_, bytes)| *bytes < 1_500));
        let smooth = timelines(&finish((0..400).map(|at| sample(at, 100_000 + at))));
        assert!(smooth[0].lines[0].floor().is_empty());
    }

    #[test]
    fn a_device_has_its_counters_its_limit_and_its_alerts() {
        let alerts = (0..2_000).map(|at| with(gpu(at, 1, 2, 3, 80), "warning", "Memory usage at 90 %"));
        let oom = with(gpu(3_000, 1, 2, 3, 80), "error", "OOM detected (x)");
        let found = timelines(&finish((0..9).map(|at| gpu(at, 1, 2, 3, 80)).chain(alerts).chain([oom])));
        let names: Vec<&str> = found[0].lines.iter().map(|line| line.name).collect();
        assert_eq!(names, ["allocated", "reserved", "device used"]);
        assert_eq!((found[0].limit, found[0].moments.len()), (Some(80), MOST_MOMENTS + 1));
        assert_eq!(found[0].moments.last().map(|moment| moment.name), Some("out of memory"));
    }
}
