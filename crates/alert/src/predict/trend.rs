//! The slope of a few points, robust against outliers, and how far to believe it.
//!
//! Theil–Sen: the median of the slopes of all pairs, so that a third of the points may be wrong. Pure arithmetic on at
//! most [`super::floors::WINDOWS`] points; must never allocate.

use super::floors::WINDOWS;

const PAIRS: usize = WINDOWS * (WINDOWS - 1) / 2;

/// What some points say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Trend {
    /// Units per second.
    pub(super) slope: f64,
    /// 0 to 1: how consistently it rises.
    pub(super) steadiness: f64,
    /// Growth of the later half over that of the earlier one; `None` when the earlier one did not grow.
    pub(super) momentum: Option<f64>,
    /// Growth of the later half.
    pub(super) late_growth: f64,
    /// Slope of the later half.
    pub(super) late_slope: f64,
}

/// The trend of points in time order; a difference up to `tolerance` does not count.
pub(super) fn trend(points: &[(f64, f64)], tolerance: f64) -> Option<Trend> {
    if points.len() < 4 || points.len() > WINDOWS {
        return None;
    }
    let slope = theil_sen(points)?;
    let (early, late) = points.split_at(points.len() / 2);
    let (early_slope, late_slope) = (theil_sen(early).unwrap_or(slope), theil_sen(late).unwrap_or(slope));
    let span = |part: &[(f64, f64)]| match (part.first(), part.last()) {
        (Some(first), Some(last)) => last.0 - first.0,
        _ => 0.0,
    };
    let (early_growth, late_growth) = (early_slope * span(early), late_slope * span(late));
    Some(Trend {
        slope,
        steadiness: steadiness(points, tolerance),
        momentum: (early_growth > tolerance).then(|| late_growth / early_growth),
        late_growth,
        late_slope,
    })
}

fn theil_sen(points: &[(f64, f64)]) -> Option<f64> {
    let mut slopes = [0.0; PAIRS];
    let mut count = 0;
    for (index, a) in points.iter().enumerate() {
        for b in &points[index + 1..] {
            let step = b.0 - a.0;
            if step > 0.0 && count < PAIRS {
                slopes[count] = (b.1 - a.1) / step;
                count += 1;
            }
        }
    }
    if count == 0 {
        return None;
    }
    let (_, median, _) = slopes[..count].select_nth_unstable_by(count / 2, f64::total_cmp);
    Some(*median)
}

/// Kendall's tau of the points, times the share of steps that rise: a line has 1, noise about 0, one jump hardly more.
fn steadiness(points: &[(f64, f64)], tolerance: f64) -> f64 {
    let sign = |a: &(f64, f64), b: &(f64, f64)| {
        let difference = b.1 - a.1;
        if difference.abs() <= tolerance { 0.0 } else { difference.signum() }
    };
    let (mut agreement, mut pairs) = (0.0, 0.0);
    for (index, a) in points.iter().enumerate() {
        for b in &points[index + 1..] {
            agreement += sign(a, b);
            pairs += 1.0;
        }
    }
    let rising = points.windows(2).filter(|pair| sign(&pair[0], &pair[1]) > 0.0).count() as f64;
    let share = rising / (points.len() - 1) as f64;
    // Six steps in ten up is as steady as real allocators get.
    (agreement / pairs).max(0.0) * (share / 0.6).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Trend {
        let points: Vec<(f64, f64)> = values.iter().enumerate().map(|(i, y)| (i as f64, *y)).collect();
        trend(&points, 0.01).unwrap()
    }

    #[test]
    fn a_line_is_a_line_even_with_outliers() {
        let mut values: Vec<f64> = (0..20).map(|i| 3.0 * f64::from(i)).collect();
        assert_eq!(of(&values).slope, 3.0);
        assert_eq!(of(&values).steadiness, 1.0);
        values[3] = 500.0;
        values[12] = -40.0;
        assert!((of(&values).slope - 3.0).abs() < 0.5);
    }

    #[test]
    fn a_step_is_not_steady_and_loses_momentum() {
        let values: Vec<f64> = (0..20).map(|i| if i < 6 { 0.0 } else { 100.0 }).collect();
        assert!(of(&values).steadiness < 0.1);
        let saturating: Vec<f64> = (0..24).map(|i| 100.0 * (1.0 - (-f64::from(i) / 6.0).exp())).collect();
        assert!(of(&saturating).momentum.unwrap() < 0.4);
        assert!(of(&(0..24).map(|i| f64::from(i * i)).collect::<Vec<_>>()).momentum.unwrap() > 2.0);
    }

    #[test]
    fn too_few_points_give_no_trend() {
        assert_eq!(trend(&[], 0.0), None);
        assert_eq!(trend(&[(0.0, 1.0); 3], 0.0), None);
        assert_eq!(trend(&[(0.0, 1.0); 9], 0.0), None, "all at one time");
    }
}
