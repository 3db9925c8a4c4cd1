//! Where the start ends: the longest last stretch of a floor that keeps to one line.
//!
//! A program loads, warms up, and then works; how fast it works has nothing to do with how fast it loaded. From the last points a line is
//! drawn (Theil–Sen) and extended backwards for as long as earlier points keep to it. Must never give a stretch that is too short to judge.

use super::growth::theil_sen;
use super::points::Point;
use super::{mad, median};

/// A tail of fewer points, or of a smaller share of the time, is not judged.
const LEAST_POINTS: usize = 10;
const LEAST_SHARE: f64 = 0.2;
/// Points further from the line than this number of the tail's deviations, or than this share of its growth, precede the tail.
const DEVIATIONS: f64 = 5.0;
const SHARE_OFF: f64 = 0.1;

/// The tail of points, when it begins later than they do.
pub(super) fn tail_of(points: &[Point]) -> Option<&[Point]> {
    let (first, last) = (points.first()?.0, points.last()?.0);
    let least = last - LEAST_SHARE * (last - first);
    let mut begin =
        points.partition_point(|point| point.0 < least).min(points.len().checked_sub(LEAST_POINTS)?);
    loop {
        let tail = &points[begin..];
        let slope = theil_sen(tail);
        let line: Vec<f64> = tail.iter().map(|(at, value)| value - slope * at).collect();
        let centre = median(&mut line.clone());
        let grown = (slope * (last - tail[0].0)).abs();
        let tolerance = (DEVIATIONS * 1.4826 * mad(&line, centre)).max(SHARE_OFF * grown);
        let keeps = |point: &Point| (point.1 - slope * point.0 - centre).abs() <= tolerance;
        // One point may be off; two in a row are another stretch.
        let before = &points[..begin];
        match before {
            [.., a, b] if keeps(a) || keeps(b) => begin -= if keeps(b) { 1 } else { 2 },
            [b] if keeps(b) => return None,
            [] => return None,
            _ => return Some(tail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: impl IntoIterator<Item = f64>) -> Vec<Point> {
        values.into_iter().enumerate().map(|(at, value)| (at as f64, value)).collect()
    }

    #[test]
    fn tail_begins_where_the_load_ends() {
        let loaded = points(
            (0..64).map(|i| if i < 8 { 400.0 * f64::from(i) } else { 3200.0 + 10.0 * f64::from(i - 8) }),
        );
        let tail = tail_of(&loaded).unwrap();
        assert!((7.0..=10.0).contains(&tail[0].0), "{:?}", tail[0]);
    }

    #[test]
    fn one_line_has_no_tail_of_its_own() {
        assert_eq!(tail_of(&points((0..64).map(f64::from))), None);
        assert_eq!(tail_of(&points((0..5).map(f64::from))), None);
        assert_eq!(tail_of(&[]), None);
    }
}
