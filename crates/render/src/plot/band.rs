//! Many lines as two: their median, and the range from the least to the greatest. Must never count a line before it begins or after it has ended.

use super::figure::{Band, Series};

/// Moments at which the lines are compared.
const MOMENTS: usize = 300;

/// The median of the lines, and their range, without names.
#[must_use]
pub fn median_and_range(lines: &[Series]) -> (Series, Band) {
    let times = || lines.iter().flat_map(|line| &line.points).map(|(x, _)| *x).filter(|x| x.is_finite());
    let (first, last) = (times().fold(f64::INFINITY, f64::min), times().fold(f64::NEG_INFINITY, f64::max));
    let (mut median, mut range) = (Series::default(), Band::default());
    if !first.is_finite() || !last.is_finite() {
        return (median, range);
    }
    for step in 0..=MOMENTS {
        let at = first + (last - first) * step as f64 / MOMENTS as f64;
        let mut values: Vec<f64> = lines.iter().filter_map(|line| value_at(line, at)).collect();
        values.sort_by(f64::total_cmp);
        if let (Some(least), Some(most)) = (values.first(), values.last()) {
            median.points.push((at, values[values.len() / 2]));
            range.points.push((at, *least, *most));
        }
    }
    (median, range)
}

/// The last value not after a moment; `None` before the first point and after the last.
fn value_at(line: &Series, at: f64) -> Option<f64> {
    let before = line.points.partition_point(|(x, _)| *x <= at).checked_sub(1)?;
    let is_over = before + 1 == line.points.len() && line.points[before].0 < at;
    Some(line.points[before].1).filter(|value| !is_over && value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_range_count_a_line_only_while_it_runs() {
        let line = |level: f64, to: u32| Series {
            points: (0..=to).map(|x| (f64::from(x), level)).collect(),
            ..Series::default()
        };
        let (median, range) = median_and_range(&[line(1.0, 100), line(2.0, 100), line(9.0, 50)]);
        let at = |x: f64| median.points.iter().position(|(time, _)| *time >= x).unwrap();
        assert_eq!((median.points[at(20.0)].1, range.points[at(20.0)].2), (2.0, 9.0));
        assert_eq!(range.points[at(80.0)].2, 2.0);
        assert!(median_and_range(&[]).0.points.is_empty());
    }
}
