//! The few statistics the rules need, with the rounding and the summing of the numbers 0.4.3 prints.
//!
//! Plain functions over slices; none may panic on an empty one.

/// Middle of the values, the mean of the two middle ones for an even count. Reorders its input; 0 for none.
#[must_use]
pub fn median(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let upper = *upper;
    // For an even count the greatest of those below is the other middle one.
    let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if values.len().is_multiple_of(2) { (lower + upper) / 2.0 } else { upper }
}

/// Median of the distances from `centre`.
pub(crate) fn mad(values: &[f64], centre: f64) -> f64 {
    let mut distances: Vec<f64> = values.iter().map(|value| (value - centre).abs()).collect();
    median(&mut distances)
}

/// Sum by halves, as numpy sums: the error grows with the logarithm of the count.
fn sum(values: &[f64]) -> f64 {
    if values.len() <= 128 {
        return values.iter().sum();
    }
    let (left, right) = values.split_at(values.len() / 2);
    sum(left) + sum(right)
}

/// Arithmetic mean; 0 for none.
pub(crate) fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { sum(values) / values.len() as f64 }
}

/// Standard deviation of a sample (n − 1); 0 for fewer than two.
pub(crate) fn sample_deviation(values: &[f64], mean: f64) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let squares: Vec<f64> = values.iter().map(|value| (value - mean) * (value - mean)).collect();
    (sum(&squares) / (values.len() - 1) as f64).sqrt()
}

/// A least-squares line: slope and correlation. `None` when all times are the same.
pub(crate) fn slope_of_line(times: &[f64], values: &[f64]) -> Option<(f64, f64)> {
    let count = times.len().min(values.len());
    if count < 2 {
        return None;
    }
    let (mean_time, mean_value) = (mean(&times[..count]), mean(&values[..count]));
    let product = |left: &[f64], left_mean: f64, right: &[f64], right_mean: f64| {
        let products: Vec<f64> =
            left.iter().zip(right).map(|(a, b)| (a - left_mean) * (b - right_mean)).collect();
        sum(&products) / count as f64
    };
    let of_times = product(times, mean_time, times, mean_time);
    let of_both = product(times, mean_time, values, mean_value);
    let of_values = product(values, mean_value, values, mean_value);
    if of_times <= 0.0 {
        return None;
    }
    let correlation =
        if of_values > 0.0 { (of_both / (of_times * of_values).sqrt()).clamp(-1.0, 1.0) } else { 0.0 };
    Some((of_both / of_times, correlation))
}

/// The two-sided probability of a Student's t at least this far from 0.
pub(crate) fn student_t_two_sided(t: f64, freedom: f64) -> f64 {
    if !t.is_finite() || freedom <= 0.0 {
        return if t.is_nan() { 1.0 } else { 0.0 };
    }
    incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))
}

/// The regularised incomplete beta function, by its continued fraction (Lentz).
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return if x <= 0.0 { 0.0 } else { 1.0 };
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp();
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(a, b, x) / a
    } else {
        1.0 - front * beta_fraction(b, a, 1.0 - x) / b
    }
}

fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / away(1.0 - (a + b) * x / (a + 1.0));
    let mut result = d;
    for step in 1..=300 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / away(1.0 + even * d);
        c = away(1.0 + even / c);
        result *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / away(1.0 + odd * d);
        c = away(1.0 + odd / c);
        let change = d * c;
        result *= change;
        if (change - 1.0).abs() < 1e-15 {
            break;
        }
    }
    result
}

/// Lanczos' approximation of ln Γ for positive arguments.
fn ln_gamma(x: f64) -> f64 {
    const G: f64 = 7.0;
    const TERMS: [f64; 8] = [
        676.5203681218851,
        -1259.1392167224028,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507343278686905,
        -0.13857109526572012,
        9.984_369_578_019_572e-6,
        1.5056327351493116e-7,
    ];
    let x = x - 1.0;
    let mut series = 0.999_999_999_999_809_9;
    for (index, term) in TERMS.iter().enumerate() {
        series += term / (x + index as f64 + 1.0);
    }
    let t = x + G + 0.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + series.ln()
}

/// Python's `round(value, digits)`: correctly rounded decimals, ties by the exact binary value.
pub(crate) fn round_to(value: f64, digits: usize) -> f64 {
    format!("{value:.digits$}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&mut []), 0.0);
        assert_eq!(median(&mut [7.0]), 7.0);
        assert_eq!(mad(&[1.0, 2.0, 4.0], 2.0), 1.0);
    }

    #[test]
    fn student_t_equals_scipy() {
        // scipy.stats.t.sf(t, df) * 2
        for (t, freedom, expected) in [
            (2.0, 10.0, 0.07338803477074037),
            (0.5, 3.0, 0.651447964848151),
            (12.0, 48.0, 4.669_137_132_173_704e-16),
            (1.0, 1.0, 0.5),
            (0.0, 5.0, 1.0),
        ] {
            let found = student_t_two_sided(t, freedom);
            assert!((found - expected).abs() < 1e-10, "{t} {freedom}: {found} is not {expected}");
        }
        assert_eq!(student_t_two_sided(f64::INFINITY, 5.0), 0.0);
    }

    #[test]
    fn lines() {
        let (slope, correlation) = slope_of_line(&[0.0, 1.0, 2.0], &[1.0, 3.0, 5.0]).unwrap();
        assert!((slope - 2.0).abs() < 1e-12 && (correlation - 1.0).abs() < 1e-12);
        assert_eq!(slope_of_line(&[1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(slope_of_line(&[0.0, 1.0], &[2.0, 2.0]), Some((0.0, 0.0)));
    }

    #[test]
    fn rounding_is_pythons() {
        assert_eq!(round_to(2.675, 2), 2.67);
        assert_eq!(round_to(0.5, 0), 0.0);
        assert_eq!(round_to(1.005, 3), 1.005);
    }
}
