//! Does the floor rise, how, and how sure is that?
//!
//! The slope is Theil–Sen's, the certainty Mann–Kendall's rank agreement together with growth over scatter. A floor that
//! stopped rising, that rose once, or whose rise is lost in noise is not a leak. Pure; the same windows give the same answer.

use super::points::{FEW_POINTS, Floor, POINTS, Point, after_last_release, floor_of, series_of};
use super::tail::tail_of;
use super::{Envelope, Window, mad, median};

const MIB: f64 = 1_048_576.0;
/// Fewer points than this prove nothing.
const MIN_POINTS: usize = 6;
/// Growth below this is the allocator's own breathing.
const LEAST_GROWTH: f64 = 4.0 * MIB;
/// What scattered series must grow by.
const LEAST_NOISY_GROWTH: f64 = 16.0 * MIB;
/// Agreement of ranks below this is not a direction.
const LEAST_AGREEMENT: f64 = 0.5;
/// Growth over scatter below this is lost in noise.
const LEAST_SIGNAL: f64 = 3.0;
/// Shares of the time that a program may take to end: what it gives back or needs for that is not its work.
const ENDINGS: [f64; 4] = [0.0, 0.05, 0.1, 0.14];
/// The share of a growth that must be there in the end where that is left aside.
const MOST_KEPT: f64 = 0.5;
/// A second look finds growth only beyond what the floor falls by at times.
const BEYOND: f64 = 1.5;
/// A climb that was given back is a tooth like what follows it when it was this share of it, and took this share of its time.
const TOOTH_BYTES: f64 = 0.5;
const TOOTH_SECONDS: f64 = 0.25;
/// Agreement and growth over scatter of a second look.
const CLEARLY: (f64, f64) = (0.6, 4.0);

/// How a floor rises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// All the time, at about the same pace.
    Steady,
    /// All the time, faster and faster.
    Accelerating,
    /// By jumps that keep coming.
    Stepwise,
    /// Once or twice, and then no more.
    Step,
    /// It rose, and slows down or has stopped.
    Saturating,
    /// It rose while the program loaded its libraries, and hardly else.
    Start,
}

impl Shape {
    /// The word in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Shape::Steady => "steady",
            Shape::Accelerating => "accelerating",
            Shape::Stepwise => "stepwise",
            Shape::Step => "step",
            Shape::Saturating => "saturating",
            Shape::Start => "start",
        }
    }

    /// Whether it would continue like this.
    pub fn is_ongoing(self) -> bool {
        matches!(self, Shape::Steady | Shape::Accelerating | Shape::Stepwise)
    }
}

/// A floor that rises.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Growth {
    /// How.
    pub shape: Shape,
    /// 0 to 1.
    pub confidence: f64,
    /// Bytes the floor rose by.
    pub bytes: f64,
    /// The floor at the start.
    pub from_bytes: f64,
    /// The floor at the end.
    pub to_bytes: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Seconds it was looked at.
    pub seconds: f64,
    /// Seconds before that, which are the start: memory that was taken then is not part of this growth.
    pub after_seconds: f64,
    /// Releases seen meanwhile.
    pub releases: usize,
    /// Whether the floor was taken from valleys between releases.
    pub by_cycle: bool,
    /// Kendall's tau of the floor.
    pub agreement: f64,
    /// Growth over scatter.
    pub signal_to_noise: f64,
    /// Points of the floor that it was judged by.
    pub points: usize,
}

impl Growth {
    /// Whether most of it is there where `bytes` are held.
    #[must_use]
    pub fn is_held(&self, bytes: f64) -> bool {
        bytes >= self.from_bytes + MOST_KEPT * self.bytes
    }
}

/// The growth of a series' floor; `None` when it does not rise.
pub fn growth(envelope: &Envelope) -> Option<Growth> {
    growth_of(envelope.windows())
}

/// The growth of the floor of windows in time order. Where the whole of them does not continue rising, what follows the start and precedes the end
/// is asked.
pub fn growth_of(windows: &[Window]) -> Option<Growth> {
    let series = series_of(windows);
    let whole = judge_series(&series);
    let is_ongoing = |found: &Growth| found.shape.is_ongoing();
    if whole.as_ref().is_some_and(is_ongoing) {
        return whole;
    }
    let begin = series.first()?.0;
    let after_release = || {
        let (rest, climb) = after_last_release(&series)?;
        let found = judge_series(rest).filter(is_ongoing)?;
        // A climb of this sort has been given back before: this is the next tooth of a saw.
        let is_tooth = climb.is_some_and(|(seconds, bytes)| {
            bytes >= TOOTH_BYTES * found.bytes && seconds >= TOOTH_SECONDS * found.seconds
        });
        (!is_tooth).then_some(found)
    };
    let later = between_start_and_end(&series).or_else(after_release);
    later.map(|found| Growth { after_seconds: found.after_seconds - begin, ..found }).or(whole)
}

/// The growth of the longest stretch that keeps to one line and ends where the program may have begun to take itself down.
fn between_start_and_end(series: &[Point]) -> Option<Growth> {
    let (first, last) = (series.first()?.0, *series.last()?);
    // The valleys of a working set have been judged, and a few of them are not a trend.
    if floor_of(series, POINTS).by_cycle {
        return None;
    }
    ENDINGS.iter().find_map(|ending| {
        let end = last.0 - ending * (last.0 - first);
        let count = series.partition_point(|point| point.0 <= end);
        // Samples may be dense at the end: then most of what was seen would be left aside.
        let series = series.get(..count).filter(|rest| rest.len() as f64 >= 0.8 * series.len() as f64)?;
        let floor = floor_of(series, POINTS);
        let (fallen, tail) = (largest_fall(series), tail_of(&floor.points).unwrap_or(&floor.points));
        let found = judge(&Floor { points: tail.to_vec(), ..floor }, true).filter(|found| !found.by_cycle)?;
        // What is given back in the end was a tooth, unless most of it stays.
        (found.shape.is_ongoing() && found.is_held(last.1) && found.bytes >= BEYOND * fallen).then_some(found)
    })
}

/// The growth of all of a series: by many points, or by few where those are scattered.
fn judge_series(series: &[Point]) -> Option<Growth> {
    let fine = judge(&floor_of(series, POINTS), false);
    if fine.is_some() || series.len() < 4 * FEW_POINTS {
        return fine;
    }
    let few = floor_of(series, FEW_POINTS);
    let found = judge(&few, true).filter(|found| !found.by_cycle)?;
    (found.shape.is_ongoing() && found.bytes >= BEYOND * largest_fall(&few.points)).then_some(found)
}

/// The most that a floor fell from what it had reached: a working set moves by that much.
fn largest_fall(points: &[Point]) -> f64 {
    let mut highest = f64::MIN;
    points.iter().fold(0.0, |fallen, point| {
        highest = highest.max(point.1);
        fallen.max(highest - point.1)
    })
}

/// The growth of a floor. `is_second_look`: the points were chosen after others had not shown growth, so that they must show it clearly.
fn judge(floor: &Floor, is_second_look: bool) -> Option<Growth> {
    let points = &floor.points;
    if points.len() < MIN_POINTS {
        return None;
    }
    let seconds = points.last()?.0 - points.first()?.0;
    let edge = (points.len() / 8).clamp(1, 4);
    let from = median_of(&points[..edge]);
    let to = median_of(&points[points.len() - edge..]);
    let bytes = to - from;
    if seconds <= 0.0 || bytes < LEAST_GROWTH.max(0.01 * from) {
        return None;
    }
    let slope = theil_sen(points);
    let agreement = kendall(points);
    let line: Vec<f64> = points.iter().map(|(at, value)| value - slope * at).collect();
    let centre = median(&mut line.clone());
    let scatter = 1.4826 * mad(&line, centre);
    let signal_to_noise = (bytes / scatter.max(bytes / 1000.0)).min(1000.0);
    let (least_agreement, least_signal) =
        if is_second_look { CLEARLY } else { (LEAST_AGREEMENT, LEAST_SIGNAL) };
    let shape = match stepping(points, bytes) {
        Some(shape) => shape,
        None => {
            let noisy = signal_to_noise < 12.0 && agreement < 0.9 && !is_second_look;
            let least = if noisy { LEAST_NOISY_GROWTH.max(0.05 * from) } else { 0.0 };
            if agreement < least_agreement || signal_to_noise < least_signal || slope <= 0.0 || bytes < least
            {
                return None;
            }
            pace(points, bytes)
        }
    };
    let enough = (points.len() as f64 / 12.0).min(1.0);
    let by_scatter = 1.0 - (-signal_to_noise / 5.0).exp();
    let confidence = match shape {
        Shape::Stepwise => 0.9 * agreement.max(0.0).sqrt(),
        Shape::Step => 0.6,
        _ => agreement.max(0.0).sqrt() * by_scatter,
    } * (0.6 + 0.4 * enough);
    Some(Growth {
        shape,
        confidence: confidence.clamp(0.0, 0.99),
        bytes,
        from_bytes: from,
        to_bytes: to,
        bytes_per_second: if shape == Shape::Stepwise { bytes / seconds } else { slope },
        seconds,
        after_seconds: points.first()?.0,
        releases: floor.releases,
        by_cycle: floor.by_cycle,
        agreement,
        signal_to_noise,
        points: points.len(),
    })
}

fn median_of(points: &[Point]) -> f64 {
    let mut values: Vec<f64> = points.iter().map(|point| point.1).collect();
    median(&mut values)
}

/// The median of the slopes of all pairs: a quarter of the points may be anywhere.
pub(super) fn theil_sen(points: &[Point]) -> f64 {
    let mut slopes = Vec::with_capacity(points.len() * points.len() / 2);
    for (index, a) in points.iter().enumerate() {
        slopes.extend(points[index + 1..].iter().filter(|b| b.0 > a.0).map(|b| (b.1 - a.1) / (b.0 - a.0)));
    }
    median(&mut slopes)
}

/// Kendall's tau: 1 when every later point is higher.
fn kendall(points: &[Point]) -> f64 {
    let (mut agreement, mut pairs) = (0.0, 0.0);
    for (index, a) in points.iter().enumerate() {
        for b in &points[index + 1..] {
            let difference = b.1 - a.1;
            agreement += if difference == 0.0 { 0.0 } else { difference.signum() };
            pairs += 1.0;
        }
    }
    if pairs > 0.0 { agreement / pairs } else { 0.0 }
}

/// Whether the growth is in a few jumps, and whether they still come.
fn stepping(points: &[Point], bytes: f64) -> Option<Shape> {
    let rises: Vec<f64> = points.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
    let usual = median(&mut rises.clone());
    let noise = 1.4826 * mad(&rises, usual);
    let is_jump = |rise: f64| rise > (6.0 * noise).max(0.04 * bytes);
    let jumping: Vec<usize> = (0..rises.len()).filter(|index| is_jump(rises[*index])).collect();
    let explained: f64 = jumping.iter().map(|index| rises[*index]).sum();
    if jumping.is_empty() || jumping.len() * 3 > rises.len() || explained < 0.75 * bytes {
        return None;
    }
    let mut times: Vec<f64> = Vec::new();
    for run in jumping.chunk_by(|a, b| b - a == 1) {
        // A jump may take two slices of time; a longer rise is a slope.
        if run.len() > 2 {
            return None;
        }
        times.extend(run.first().map(|index| points[index + 1].0));
    }
    if times.len() < 3 {
        return Some(Shape::Step);
    }
    let mut pauses: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let longest = pauses.iter().copied().fold(0.0, f64::max);
    let pause = median(&mut pauses);
    // Three jumps are a habit only when they come at about the same pace.
    if times.len() == 3 && longest > 1.7 * pause {
        return Some(Shape::Step);
    }
    let (begin, end) = (points.first()?.0, points.last()?.0);
    let idle = end - times.last()?;
    Some(if idle > 2.5 * pause && idle > 0.25 * (end - begin) { Shape::Saturating } else { Shape::Stepwise })
}

/// Whether smooth growth continues, quickens, or ends.
fn pace(points: &[Point], bytes: f64) -> Shape {
    let at = |share: f64| {
        let centre = (share * (points.len() - 1) as f64).round() as usize;
        let reach = (points.len() / 16).max(1);
        let from = centre.saturating_sub(reach);
        median_of(&points[from..=(centre + reach).min(points.len() - 1)])
    };
    let quarters = [at(0.0), at(0.25), at(0.5), at(0.75), at(1.0)];
    let (early, late) = (quarters[2] - quarters[0], quarters[4] - quarters[2]);
    let (third, fourth) = (quarters[3] - quarters[2], quarters[4] - quarters[3]);
    let tail = at(1.0) - at(0.8);
    let slows = late < 0.25 * early
        || (late < 0.45 * early && fourth < 0.7 * third)
        // It rose most of the time and then stopped.
        || (tail < 0.04 * bytes && fourth < 0.35 * third);
    if slows {
        Shape::Saturating
    } else if late > 1.8 * early {
        Shape::Accelerating
    } else {
        Shape::Steady
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = f64>) -> Option<Growth> {
        let mut envelope = Envelope::default();
        for (index, value) in values.into_iter().enumerate() {
            envelope.observe(index as u64 * 1_000_000_000, (value * MIB) as u64);
        }
        growth(&envelope)
    }

    #[test]
    fn growth_shapes_are_distinguished() {
        let shape = |found: Option<Growth>| found.map(|growth| growth.shape);
        assert_eq!(shape(of((0..200).map(|i| 1000.0 + 10.0 * f64::from(i)))), Some(Shape::Steady));
        assert_eq!(shape(of((0..200).map(|i| 1000.0 + 0.05 * f64::from(i * i)))), Some(Shape::Accelerating));
        assert_eq!(shape(of((0..200).map(|i| 1000.0 + 200.0 * f64::from(i / 25)))), Some(Shape::Stepwise));
        assert_eq!(shape(of((0..200).map(|i| if i < 80 { 1000.0 } else { 1500.0 }))), Some(Shape::Step));
        let warm = (0..200).map(|i| 1000.0 + 900.0 * (1.0 - (-f64::from(i) / 30.0).exp()));
        assert_eq!(shape(of(warm)), Some(Shape::Saturating));
        assert_eq!(shape(of((0..200).map(|_| 1000.0))), None);
        assert_eq!(shape(of((0..200).map(|i| 3000.0 - f64::from(i)))), None);
    }

    #[test]
    fn second_of_two_teeth_is_not_a_leak() {
        let is_ongoing = |found: Option<Growth>| found.is_some_and(|found| found.shape.is_ongoing());
        let teeth =
            |first: u32| (0..200).map(move |i| if i < first { 10 + 2 * i } else { 10 + 2 * (i - first) });
        assert!(!is_ongoing(of(teeth(90).map(f64::from))), "the first was given back");
        assert!(is_ongoing(of(teeth(60).map(f64::from))), "more than twice as high as what was given back");
        // A short peak at the start says nothing about what follows.
        let peak = (0..200).map(|i| if i < 8 { 10 + 60 * i } else { 10 + 2 * (i - 8) });
        assert!(is_ongoing(of(peak.map(f64::from))));
    }

    #[test]
    fn the_pace_is_right_under_teeth() {
        let leak = of((0..400).map(|i| 1000.0 + 2.0 * f64::from(i) + 60.0 * f64::from(i % 10))).unwrap();
        assert!((leak.bytes_per_second / MIB - 2.0).abs() < 0.1, "{leak:?}");
        assert!(leak.confidence > 0.9);
    }

    #[test]
    fn memory_freed_at_exit_is_not_a_release() {
        // A program of five seconds, recorded: its dictionary doubled at 290 and 550.
        let rss = "27 38 47 58 63 69 84 91 98 104 111 136 143 150 157 164 171 177 184 191 197 204 290 253 259 266 273 280 286 292 299 305 \
                   311 318 325 331 338 345 352 358 364 371 377 411 550 470 477 484 490 495 501 479 264 81 0";
        let mut envelope = Envelope::default();
        for (index, value) in rss.split_whitespace().enumerate() {
            envelope.observe(index as u64 * 100_000_000, value.parse::<u64>().unwrap() << 20);
        }
        let found = growth(&envelope).unwrap();
        assert!(found.shape.is_ongoing() && found.bytes > 400.0 * MIB && found.confidence > 0.8, "{found:?}");
    }

    #[test]
    fn growth_after_a_load_is_found_and_that_of_the_load_is_not() {
        let load = |at: u32| f64::from(at.min(50)) * 60.0;
        let leak = of((0..700).map(|at| load(at) + 0.2 * f64::from(at))).unwrap();
        assert!(leak.shape.is_ongoing() && leak.after_seconds > 40.0, "{leak:?}");
        assert!((leak.bytes_per_second / MIB - 0.2).abs() < 0.02, "{leak:?}");
        let is_ongoing = |found: Option<Growth>| found.is_some_and(|found| found.shape.is_ongoing());
        assert!(!is_ongoing(of((0..700).map(load))));
        // A load that needed more than it kept; in the end a part is given back.
        let peak = |at: u32| if at < 36 { 6.0 * f64::from(at) } else { 30.0 };
        let end = |at: u32| if at < 735 { 0.066 * f64::from(at) } else { 35.0 };
        let leak = of((0..740).map(|at| peak(at) + end(at)));
        assert!(is_ongoing(leak), "{leak:?}");
        assert!(!is_ongoing(of((0..740).map(peak))));
    }

    #[test]
    fn too_few_samples_prove_nothing() {
        assert_eq!(of((0..5).map(|i| 100.0 * f64::from(i))), None);
        assert_eq!(of([]), None);
    }
}
