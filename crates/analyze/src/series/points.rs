//! From windows to the floor: the few points whose trend is asked.
//!
//! A program that allocates and releases returns to its floor; what it reaches in between is not growth. Where releases are
//! seen, the floor is the valleys between them; where none is, it is the least of each slice of time. A climb that has not
//! been released yet but stays below what was released before is one more tooth.

use super::Window;

/// Points a trend is asked of: all pairs of them are looked at.
pub(super) const POINTS: usize = 64;
/// Points of a second look at a scattered series: each is the least of four times as many samples.
pub(super) const FEW_POINTS: usize = 16;
/// A fall of this share of the whole range is a release; less is noise or a detail.
const RELEASE: f64 = 0.2;
/// Fewer valleys than this do not make a trend of their own.
const MIN_VALLEYS: usize = 5;

/// The last part of a recording, in which the program may be on its way out.
const ENDING: f64 = 0.06;
/// An exit takes its time however short the program was: this many seconds of a short recording, but not more than this share of it.
const EXIT_SECONDS: f64 = 1.0;
const MOST_ENDING: f64 = 0.15;
/// The share of the time that must follow a release for the rest to be judged by itself.
const MOST_OF_THE_TIME: f64 = 0.5;
/// A release that takes back this share of a climb takes it back.
const GIVEN_BACK: f64 = 0.8;
/// With this many windows one of them may be taken for its neighbours.
const ENOUGH_TO_ERODE: usize = 32;

/// A point of the floor: seconds since the first, bytes.
pub(super) type Point = (f64, f64);

/// The floor of a series.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Floor {
    pub(super) points: Vec<Point>,
    /// The points are valleys between releases, not slices of time.
    pub(super) by_cycle: bool,
    /// How many releases were seen.
    pub(super) releases: usize,
}

/// The lower edge of windows in time order, until the program takes itself down.
pub(super) fn series_of(windows: &[Window]) -> Vec<Point> {
    let Some(first) = windows.first() else { return Vec::new() };
    let mut series: Vec<Point> = windows
        .iter()
        .map(|window| {
            (window.floor_at_ns.saturating_sub(first.floor_at_ns) as f64 / 1e9, window.floor as f64)
        })
        .collect();
    if series.len() >= ENOUGH_TO_ERODE {
        erode(&mut series);
    }
    let ended = end_of_life(&series);
    series.truncate(ended);
    series
}

/// The floor of a series in at most `most` points; empty when releases show that nothing is kept.
pub(super) fn floor_of(series: &[Point], most: usize) -> Floor {
    let whole = |releases| Floor { points: thinned(series, most), by_cycle: false, releases };
    let legs = legs_of(series);
    let releases = legs.iter().filter(|leg| !leg.is_up).count();
    if releases == 0 {
        return whole(0);
    }
    let Valleys { lows, highs } = valleys_of(series, &legs);
    if let Some(late) = late_climb(series, &legs, &highs) {
        return Floor { points: thinned(late, most), by_cycle: false, releases };
    }
    if lows.len() >= MIN_VALLEYS {
        return Floor { points: thinned(&lows, most), by_cycle: true, releases };
    }
    // With few valleys the question is how much of each climb was given back; three in a row that rise mean more than two.
    let least_kept = if lows.len() >= 3 { 0.15 } else { 0.3 };
    let kept = lows.windows(2).zip(&highs).all(|(pair, high)| {
        let climbed = high.1 - pair[0].1;
        climbed > 0.0 && pair[1].1 - pair[0].1 > least_kept * climbed
    });
    if kept && lows.len() >= 2 { whole(releases) } else { Floor { releases, ..Floor::default() } }
}

/// What follows the last release, when that is most of the time: a load that needed more than it kept is over. With the climb before it, where the
/// release gave that back: bytes and seconds.
pub(super) fn after_last_release(series: &[Point]) -> Option<(&[Point], Option<Point>)> {
    let legs = legs_of(series);
    let at = legs.iter().rposition(|leg| !leg.is_up)?;
    let (first, end) = (series.first()?, series.last()?);
    let rest = &series[legs[at].to..];
    let rise = |leg: &Leg| (series[leg.to].0 - series[leg.from].0, series[leg.to].1 - series[leg.from].1);
    let climb = legs[..at].last().filter(|leg| leg.is_up).map(rise);
    let climb = climb.filter(|(_, bytes)| -rise(&legs[at]).1 >= GIVEN_BACK * bytes);
    (end.0 - rest.first()?.0 >= MOST_OF_THE_TIME * (end.0 - first.0)).then_some((rest, climb))
}

/// Takes each value down to the least of itself and its neighbours: a lone spike is not a tooth.
fn erode(series: &mut [Point]) {
    let values: Vec<f64> = series.iter().map(|point| point.1).collect();
    for (index, point) in series.iter_mut().enumerate() {
        let around = &values[index.saturating_sub(1)..(index + 2).min(values.len())];
        point.1 = around.iter().copied().fold(f64::MAX, f64::min);
    }
}

/// How much of the series is before the program ended: what an exit gives back in its last moments is not a release.
fn end_of_life(series: &[Point]) -> usize {
    let (Some(first), Some(last)) = (series.first(), series.last()) else { return 0 };
    let whole = last.0 - first.0;
    let begin = last.0 - (ENDING * whole).max(EXIT_SECONDS.min(MOST_ENDING * whole));
    match legs_of(series).last() {
        Some(leg) if !leg.is_up && series[leg.from].0 >= begin => leg.from + 1,
        _ => series.len(),
    }
}

/// A stretch between two turning points, as indices of the series.
struct Leg {
    from: usize,
    to: usize,
    is_up: bool,
}

/// The zigzag of the series: turning points further apart than a release.
fn legs_of(series: &[Point]) -> Vec<Leg> {
    let (low, high) =
        series.iter().fold((f64::MAX, f64::MIN), |(low, high), point| (low.min(point.1), high.max(point.1)));
    let enough = RELEASE * (high - low);
    if enough <= 0.0 {
        return Vec::new();
    }
    let mut legs: Vec<Leg> = Vec::new();
    let (mut from, mut least, mut most) = (0, 0, 0);
    let mut rising: Option<bool> = None;
    for (index, point) in series.iter().enumerate() {
        if point.1 <= series[least].1 {
            least = index;
        }
        if point.1 >= series[most].1 {
            most = index;
        }
        let fell = series[most].1 - point.1 >= enough;
        let rose = point.1 - series[least].1 >= enough;
        match rising {
            None if fell || rose => {
                // Which extreme came first tells the direction of the first leg.
                rising = Some(least <= most && rose);
                from = if rose { least } else { most };
                if from > 0 {
                    legs.push(Leg { from: 0, to: from, is_up: !rose });
                }
                (least, most) = if rose { (least, index) } else { (index, most) };
            }
            Some(true) if fell => {
                legs.push(Leg { from, to: most, is_up: true });
                (from, least, rising) = (most, index, Some(false));
            }
            Some(false) if rose => {
                legs.push(Leg { from, to: least, is_up: false });
                (from, most, rising) = (least, index, Some(true));
            }
            _ => {}
        }
    }
    if let Some(is_up) = rising {
        let to = if is_up { most } else { least };
        legs.push(Leg { from, to, is_up });
    }
    // A flat start before the first turn is not a leg of its own.
    legs.retain(|leg| (series[leg.to].1 - series[leg.from].1).abs() >= enough);
    legs
}

struct Valleys {
    lows: Vec<Point>,
    /// The height reached after each low.
    highs: Vec<Point>,
}

fn valleys_of(series: &[Point], legs: &[Leg]) -> Valleys {
    let mut valleys = Valleys { lows: Vec::new(), highs: Vec::new() };
    let starts_low = legs.first().filter(|first| first.is_up);
    valleys.lows.extend(starts_low.map(|first| series[first.from]));
    for leg in legs {
        if leg.is_up { &mut valleys.highs } else { &mut valleys.lows }.push(series[leg.to]);
    }
    valleys
}

/// The last climb, when it has left everything that was released before far behind.
fn late_climb<'a>(series: &'a [Point], legs: &[Leg], highs: &[Point]) -> Option<&'a [Point]> {
    let last = legs.last().filter(|leg| leg.is_up)?;
    let before = highs.iter().rev().skip(1).map(|high| high.1).fold(f64::MIN, f64::max);
    let (start, end) = (series[last.from], series[last.to]);
    let span = series.last()?.0 - series.first()?.0;
    let is_long = end.0 - start.0 >= 0.3 * span;
    let is_beyond = before > f64::MIN && end.1 - start.1 >= 1.5 * (before - start.1).max(0.0);
    (is_long && is_beyond).then(|| &series[last.from..])
}

/// At most `most` points: the least of each group of neighbours.
fn thinned(series: &[Point], most: usize) -> Vec<Point> {
    let group = series.len().div_ceil(most).max(1);
    let least = |points: &[Point]| points.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1));
    series.chunks(group).filter_map(least).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Envelope;
    use super::*;

    fn floor(values: impl IntoIterator<Item = u64>) -> Floor {
        let mut envelope = Envelope::default();
        for (index, value) in values.into_iter().enumerate() {
            envelope.observe(index as u64 * 1_000_000_000, value);
        }
        floor_of(&series_of(envelope.windows()), POINTS)
    }

    #[test]
    fn a_line_has_no_releases_and_a_saw_has_its_valleys() {
        let line = floor((0..100).map(|i| 1000 + 10 * i));
        assert_eq!((line.releases, line.by_cycle), (0, false));
        assert!(line.points.len() <= POINTS && line.points.len() > 30);
        let saw = floor((0..100).map(|i| 1000 + 100 * (i % 10)));
        assert!(saw.by_cycle && saw.releases >= 9);
        assert!(saw.points.iter().all(|point| point.1 == 1000.0), "{saw:?}");
    }

    #[test]
    fn a_climb_given_back_leaves_no_floor() {
        let once = floor((0..100).map(|i| if i < 90 { 1000 + 100 * i } else { 1000 }));
        assert!(once.points.is_empty() && once.releases == 1);
        let unfinished = floor((0..100).map(|i| 1000 + 100 * (i % 60)));
        assert!(unfinished.points.is_empty(), "{unfinished:?}");
    }

    #[test]
    fn a_climb_beyond_all_before_is_looked_at() {
        let values = (0..200).map(|i| if i < 100 { 1000 + 50 * (i % 10) } else { 1000 + 50 * (i - 100) });
        let late = floor(values);
        assert!(!late.by_cycle && late.points.len() > 10);
    }

    #[test]
    fn memory_freed_at_exit_is_not_a_release() {
        let floor = floor((0..200).map(|i| if i < 195 { 1000 + 100 * i } else { 500 }));
        assert_eq!((floor.releases, floor.by_cycle), (0, false));
        assert!(floor.points.last().is_some_and(|point| point.1 > 19_000.0));
    }

    #[test]
    fn empty_and_flat_series_are_accepted() {
        assert_eq!(floor([]), Floor::default());
        assert_eq!(floor([5; 40]).releases, 0);
    }
}
