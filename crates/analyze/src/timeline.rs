//! What of a recording can be drawn over time: the counters of each stream, its limit, its phases and its alerts.
//!
//! Long streams are thinned to what a picture can show; the least and the greatest value of every stretch stay. Must never judge,
//! and never invent a counter: one that was not read is no line.

use stormlog_model::{Event, Severity};

use crate::Recording;
use crate::phases::PhaseIndex;
use crate::recording::{RankRecord, SessionRecord, Stream};
use crate::sample::Sample;

/// Points of a line that a wide picture can tell apart.
const MOST_POINTS: usize = 4096;
/// Alerts kept of a stream; a tracker that warns with every sample says nothing new after that.
const MOST_MOMENTS: usize = 512;

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
    /// Its device; below 0 is the host.
    pub device_id: i64,
    /// First and last sample.
    pub span_ns: (u64, u64),
    /// The counters that were read.
    pub lines: Vec<Line>,
    /// The most there can be, where that is known.
    pub limit: Option<u64>,
    /// Name, start and end of the outermost phases.
    pub phases: Vec<(String, u64, u64)>,
    /// Alerts and deaths.
    pub moments: Vec<Moment>,
}

/// One counter over time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// `allocated`, `reserved`, `device used`, `RSS`.
    pub name: &'static str,
    /// Moment and bytes.
    pub points: Vec<(u64, u64)>,
}

/// A moment at which something was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    /// When.
    pub at_ns: u64,
    /// What.
    pub name: &'static str,
    /// How bad.
    pub severity: Severity,
}

/// Keeps the moments of a stream.
#[derive(Debug, Default, Clone)]
pub struct AlertMarks {
    kept: Vec<Moment>,
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
            self.kept.push(Moment { at_ns: event.timestamp_ns, name, severity });
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

/// What a line takes from a sample.
type Reads = fn(&Sample) -> Option<u64>;

fn of_stream(
    session: &SessionRecord,
    rank: &RankRecord,
    stream: &Stream,
    phases: &PhaseIndex,
) -> Option<Timeline> {
    let span_ns = (stream.samples.first()?.at_ns, stream.samples.last()?.at_ns);
    let used = if stream.is_host() { "RSS" } else { "device used" };
    let counters: &[(&'static str, Reads)] = if stream.is_one_counter {
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
        .map(|(name, of)| Line { name, points: thinned(&stream.samples, *of) })
        .filter(|line| !line.points.is_empty())
        .collect();
    if lines.is_empty() {
        return None;
    }
    let mut moments = stream.facts.moments.kept.clone();
    if let Some(mark) = &stream.facts.oom.first {
        moments.retain(|moment| moment.at_ns != mark.at_ns);
        let name = "out of memory";
        moments.push(Moment { at_ns: mark.at_ns, name, severity: Severity::Critical });
    }
    let identity = &rank.head.identity;
    Some(Timeline {
        session_id: session.session_id.clone(),
        rank: identity.rank,
        world_size: identity.world_size,
        pid: stream.head.pid,
        device_id: stream.head.device_id,
        span_ns,
        lines,
        limit: stream.facts.limit.total(),
        phases: phases.outermost().map(|(path, from, to)| (path.to_owned(), from, to)).collect(),
        moments,
    })
}

/// The least and the greatest value of each stretch, in time order.
fn thinned(samples: &[Sample], of: Reads) -> Vec<(u64, u64)> {
    let known: Vec<(u64, u64)> =
        samples.iter().filter_map(|sample| Some((sample.at_ns, of(sample)?))).collect();
    if known.len() <= MOST_POINTS {
        return known;
    }
    let stretch = known.len().div_ceil(MOST_POINTS / 2);
    let mut kept = Vec::with_capacity(MOST_POINTS + 1);
    for group in known.chunks(stretch) {
        let least = group.iter().min_by_key(|(_, bytes)| *bytes);
        let most = group.iter().max_by_key(|(_, bytes)| *bytes);
        let mut pair: Vec<(u64, u64)> = least.into_iter().chain(most).copied().collect();
        pair.sort_unstable();
        kept.extend(pair);
    }
    kept.extend(known.last());
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
