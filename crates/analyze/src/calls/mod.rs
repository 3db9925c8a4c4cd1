//! What profiled calls show: patterns of memory and insights about time, with the keys and numbers of 0.4.3's `MemoryAnalyzer`.
//!
//! Pure arithmetic over calls; lists of functions are in the order of their first call, where 0.4.3's order is arbitrary.

mod insights;
mod patterns;

pub use insights::insights;
pub use patterns::patterns;

use rustc_hash::FxHashMap;

/// One profiled call.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The function.
    pub function: String,
    /// How long it took.
    pub seconds: f64,
    /// When it began, in seconds.
    pub started: f64,
    /// Bytes it allocated.
    pub allocated: i64,
    /// Bytes it left behind; negative when it freed more.
    pub change: i64,
    /// The most that was allocated during it.
    pub peak: i64,
    /// Allocated before it…
    pub before: i64,
    /// …and after it.
    pub after: i64,
    /// Inactive splits after it.
    pub inactive: i64,
    /// Reserved after it.
    pub reserved: i64,
}

/// When a pattern or an insight is worth a word. The names are those of 0.4.3's `thresholds`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CallThresholds {
    /// `memory_leak_ratio`: the share of calls that leave memory behind.
    pub leak: f64,
    /// `fragmentation_ratio`.
    pub fragmentation: f64,
    /// `inefficient_allocation_ratio`.
    pub inefficient: f64,
    /// `slow_function_percentile`, 0 to 1.
    pub slow: f64,
    /// `high_memory_percentile`, 0 to 1.
    pub intensive: f64,
    /// `min_calls_for_analysis`.
    pub least_calls: f64,
}

impl Default for CallThresholds {
    fn default() -> Self {
        CallThresholds {
            leak: 0.7,
            fragmentation: 0.3,
            inefficient: 0.5,
            slow: 0.9,
            intensive: 0.9,
            least_calls: 3.0,
        }
    }
}

/// Something of every call by function, functions in the order of their first call.
fn by_function<T>(calls: &[Call], of: impl Fn(&Call) -> T) -> Vec<(&str, Vec<T>)> {
    let mut place: FxHashMap<&str, usize> = FxHashMap::default();
    let mut grouped: Vec<(&str, Vec<T>)> = Vec::new();
    for call in calls {
        let at = *place.entry(&call.function).or_insert_with(|| {
            grouped.push((&call.function, Vec::new()));
            grouped.len() - 1
        });
        grouped[at].1.push(of(call));
    }
    grouped
}

/// Each once, in the order they came.
fn once(names: Vec<&str>) -> Vec<&str> {
    let mut seen = rustc_hash::FxHashSet::default();
    names.into_iter().filter(|name| seen.insert(*name)).collect()
}

/// A quantile with numpy's linear interpolation; 0 for none.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let place = (share.clamp(0.0, 1.0) * last as f64).max(0.0);
    let below = (place.floor() as usize).min(last);
    let (low, high) = (sorted[below], sorted[(below + 1).min(last)]);
    let part = place - below as f64;
    // From the nearer end, so that equal neighbours stay equal.
    if part < 0.5 { low + (high - low) * part } else { high - (high - low) * (1.0 - part) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(function: &str, at: f64, change: i64) -> Call {
        Call {
            function: function.to_owned(),
            seconds: 0.1,
            started: at,
            allocated: change.max(1),
            change,
            peak: change,
            before: 0,
            after: at as i64 * change,
            inactive: 0,
            reserved: 1 << 30,
        }
    }

    #[test]
    fn memory_kept_after_every_call_is_a_leak_and_freed_memory_is_not() {
        let leaking: Vec<Call> = (0..20).map(|at| call("step", f64::from(at), 100 << 20)).collect();
        let found = patterns(&leaking, &CallThresholds::default());
        assert_eq!(found[0]["pattern_type"], "memory_leak");
        assert_eq!(found[0]["severity"], "critical");
        assert_eq!(found[0]["metrics"]["call_count"], 20);
        assert!(
            insights(&leaking, &CallThresholds::default())
                .iter()
                .any(|found| found["title"] == "Memory Growth Trend")
        );
        let calm: Vec<Call> = (0..5).map(|at| call("step", f64::from(at), 0)).collect();
        assert!(patterns(&calm, &CallThresholds::default()).is_empty());
    }

    #[test]
    fn empty_input_gives_no_insight_and_extreme_numbers_do_not_panic() {
        assert!(patterns(&[], &CallThresholds::default()).is_empty());
        assert!(insights(&[], &CallThresholds::default()).is_empty());
        let strange: Vec<Call> =
            (0..12).map(|_| Call { seconds: f64::NAN, ..call("f", f64::NAN, -1) }).collect();
        assert!(insights(&strange, &CallThresholds::default()).len() <= 5);
        patterns(&strange, &CallThresholds { least_calls: f64::NAN, ..CallThresholds::default() });
    }

    #[test]
    fn quantiles_are_numpy_s() {
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.75), 3.25);
        assert_eq!(quantile(&[5.0], 0.9), 5.0);
        assert_eq!(quantile(&[], 0.9), 0.0);
    }
}
