//! Memory over time as the report draws it: one lane a memory of a process, alerts and phases beside them, all on one axis of time.
//!
//! A process that was sampled from outside and from inside has one lane a memory: of two lines with one name the longer one stays. Each line has at most
//! [`MOST_POINTS`] points, the least and the greatest of every stretch. Must never judge, and never draw a counter that was not read.

use stormlog_analyze::timeline::{Line as Series, Timeline, TimelineMark, thinned};
use stormlog_render::report::{Lane, Line, LineKind, Mark, Rule, Stretch};

use crate::follow::AXIS;
use crate::outlook::usage;

/// Points of a line.
pub(crate) const MOST_POINTS: usize = 2000;
/// Marks and stretches of a process: more cannot be distinguished.
const MOST_MARKS: usize = 600;
const MOST_STRETCHES: usize = 4000;
/// The lane of the process's own memory.
const HOST: &str = "host";
/// The lane of what all processes use of the nearest limit: a cgroup's, or the machine's memory.
pub const LIMIT: &str = "limit";

/// The axis: nanoseconds since 1970 to milliseconds since the first moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    pub(crate) start_ns: u64,
}

impl Clock {
    pub(crate) fn ms(self, at_ns: u64) -> u64 {
        at_ns.saturating_sub(self.start_ns) / 1_000_000
    }
}

/// What was sampled of one process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProcessLanes {
    /// Memory over time, a lane each.
    pub lanes: Vec<Lane>,
    /// Alerts, forecasts and deaths.
    pub marks: Vec<Mark>,
    /// Phases and steps.
    pub stretches: Vec<Stretch>,
}

impl ProcessLanes {
    /// Of the streams of one process, which is number `process` of the report.
    pub(crate) fn of(process: usize, streams: &[&Timeline], clock: Clock) -> Self {
        let mut found = ProcessLanes::default();
        let mut streams: Vec<&&Timeline> = streams.iter().collect();
        streams.sort_by_key(|stream| stream.device_id);
        for stream in streams {
            found.take(process, stream, clock);
        }
        for lane in &mut found.lanes {
            add_hidden(lane);
        }
        found.marks.sort_by_key(|mark| mark.at);
        found.marks.dedup_by(|later, earlier| later.at == earlier.at && later.text == earlier.text);
        found.marks.truncate(MOST_MARKS);
        found.stretches.sort_by(|a, b| (a.from, a.to, &a.name).cmp(&(b.from, b.to, &b.name)));
        found.stretches.dedup();
        found.stretches.truncate(MOST_STRETCHES);
        found
    }

    /// Adds the curve of a capture or of a look at the process itself (nanoseconds since 1970, bytes) to the lane of a memory, on the axis of a followed
    /// process. A counter that was sampled stays as it is.
    pub fn add_curve(&mut self, memory: &str, name: &'static str, points: Vec<(u64, u64)>) {
        if points.is_empty() {
            return;
        }
        let lane = self.lane(0, memory);
        if !lane.lines.iter().any(|known| known.name == name) {
            lane.lines.push(line(&Series { name, points }, AXIS));
        }
    }

    /// What is used of the nearest limit at a moment of the axis, and when it is met by the forecast that held then, in words. `None` where no limit was
    /// read.
    #[must_use]
    pub fn usage_at(&self, at_ms: u64) -> Option<String> {
        let lane = self.lanes.iter().find(|lane| lane.memory == LIMIT)?;
        let (line, limit) = (lane.lines.first()?, lane.limit.as_ref()?);
        let after = line.time.partition_point(|time| *time <= at_ms);
        let used = *line.bytes.get(after.checked_sub(1)?)?;
        let held = self.marks.iter().rev().filter(|mark| mark.at <= at_ms);
        // A forecast whose moment has passed did not come true.
        let limit_at = held.filter_map(|mark| mark.limit_at).next().filter(|limit_at| *limit_at > at_ms);
        let growth = limit_at.map(|limit_at| {
            let seconds = (limit_at - at_ms) as f64 / 1e3;
            (limit.bytes.saturating_sub(used) as f64 / seconds, seconds)
        });
        Some(format!("in use {}", usage(used, limit.bytes, growth)))
    }

    /// The lane of a memory, which is made where there is none.
    fn lane(&mut self, process: usize, memory: &str) -> &mut Lane {
        let at = self.lanes.iter().position(|lane| lane.memory == memory).unwrap_or_else(|| {
            let title =
                if memory == HOST { "host memory".to_owned() } else { format!("GPU memory, {memory}") };
            self.lanes.push(Lane { process, memory: memory.to_owned(), title, ..Lane::default() });
            self.lanes.len() - 1
        });
        &mut self.lanes[at]
    }

    fn take(&mut self, process: usize, stream: &Timeline, clock: Clock) {
        let lane = self.lane(process, &memory_name(stream.device_id));
        for series in &stream.lines {
            lane_line(lane, series, clock);
        }
        let limit = stream.limit.map(|bytes| Rule { name: "limit".to_owned(), bytes });
        lane.limit = lane.limit.take().or(limit.clone());
        if stream.device_id < 0 && !stream.limit_used.is_empty() {
            self.take_limit(process, stream, limit, clock);
        }
        self.marks.extend(stream.moments.iter().map(|moment| mark(process, moment, clock)));
        let stretch = |name: &str, from: u64, to: u64, is_step| Stretch {
            process,
            name: name.to_owned(),
            is_step,
            from: clock.ms(from),
            to: clock.ms(to),
        };
        let steps = stream.steps.as_ref();
        let is_step = |name: &str| steps.is_some_and(|(step, _)| step == name);
        let phases = stream.phases.iter().filter(|(name, ..)| !is_step(name));
        self.stretches.extend(phases.map(|(name, from, to)| stretch(name, *from, *to, false)));
        if let Some((name, runs)) = steps {
            self.stretches.extend(runs.iter().map(|(from, to)| stretch(name, *from, *to, true)));
        }
    }

    /// What all processes use of the limit: a lane of its own, because it may be far above what this process has.
    fn take_limit(&mut self, process: usize, stream: &Timeline, limit: Option<Rule>, clock: Clock) {
        if self.lanes.iter().any(|lane| lane.memory == LIMIT) {
            return;
        }
        let series = Series { name: "in use", points: stream.limit_used.clone() };
        let title = "all processes and the limit".to_owned();
        let mut lane = Lane { process, memory: LIMIT.to_owned(), title, limit, ..Lane::default() };
        lane_line(&mut lane, &series, clock);
        self.lanes.push(lane);
    }
}

/// `host`, `cuda:0`: telemetry numbers the devices of one kind.
pub(crate) fn memory_name(device_id: i64) -> String {
    if device_id < 0 { HOST.to_owned() } else { format!("cuda:{device_id}") }
}

fn lane_line(lane: &mut Lane, series: &Series, clock: Clock) {
    let line = line(series, clock);
    lane.thinned += (series.points.len() - line.time.len()) as u64;
    match lane.lines.iter_mut().find(|known| known.name == line.name) {
        Some(known) if known.time.len() >= line.time.len() => {}
        Some(known) => *known = line,
        None => lane.lines.push(line),
    }
}

/// The line of a series, with at most [`MOST_POINTS`] points.
pub(crate) fn line(series: &Series, clock: Clock) -> Line {
    let points = thinned(series.points.clone(), MOST_POINTS);
    Line {
        name: series.name.to_owned(),
        kind: LineKind::Main,
        time: points.iter().map(|(at, _)| clock.ms(*at)).collect(),
        bytes: points.iter().map(|(_, bytes)| *bytes).collect(),
    }
}

/// What a device has in use beyond what the allocator holds: the context, libraries, other processes, and what nothing explains.
fn add_hidden(lane: &mut Lane) {
    let of = |name: &str| lane.lines.iter().find(|line| line.name == name);
    let (Some(used), Some(reserved)) = (of("device used"), of("reserved")) else { return };
    let mut hidden =
        Line { name: "outside the allocator".to_owned(), kind: LineKind::Hidden, ..Line::default() };
    for (at, bytes) in used.time.iter().zip(&used.bytes) {
        let before = reserved.time.partition_point(|time| time <= at);
        let Some(held) = before.checked_sub(1).and_then(|index| reserved.bytes.get(index)) else { continue };
        hidden.time.push(*at);
        hidden.bytes.push(bytes.saturating_sub(*held));
    }
    if hidden.bytes.iter().any(|bytes| *bytes > 0) {
        lane.lines.push(hidden);
    }
}

fn mark(process: usize, moment: &TimelineMark, clock: Clock) -> Mark {
    let at = clock.ms(moment.at_ns);
    // A forecast of years cannot be drawn on an axis of minutes.
    let limit_at = moment
        .forecast
        .map(|forecast| at.saturating_add((forecast.seconds_to_limit * 1000.0).min(1e12) as u64));
    Mark {
        process,
        at,
        name: moment.name.to_owned(),
        severity: moment.severity.as_str().to_owned(),
        text: moment.text.clone(),
        limit_at,
    }
}

/// The lines of another run on a lane of this one, from their own start.
pub(crate) fn compare(lane: &mut Lane, past: Option<&Lane>) {
    let lines = past.into_iter().flat_map(|past| past.lines.iter().take(2));
    let before = lines.map(|line| Line {
        name: format!("{}, before", line.name),
        kind: LineKind::Before,
        ..line.clone()
    });
    lane.lines.extend(before);
}
