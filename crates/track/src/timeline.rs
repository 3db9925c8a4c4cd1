//! Memory over time in equal intervals: one definition for the tracker's Python API and for the bundle of `diagnose`.
//!
//! Must never skip an interval: one without an event has what held before it.

use stormlog_model::{Counters, float_repr};

/// More points are a mistake in the unit of the interval.
const MOST_POINTS: u64 = 1_000_000;

/// A timeline that would not fit.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("interval {} would give {points} points of {span_s:.0} seconds: take {} or more", float_repr(*.interval_s), float_repr(*.least_interval_s))]
pub struct TooManyPoints {
    /// The interval asked for, in seconds.
    pub interval_s: f64,
    /// What it would come to.
    pub points: u64,
    /// The time to be covered, in seconds.
    pub span_s: f64,
    /// The shortest interval that fits.
    pub least_interval_s: f64,
}

/// The last counters of each interval, under the time it began. `events` are in order, with nanoseconds since 1970.
pub(crate) fn filled(
    events: impl IntoIterator<Item = (u64, Counters)>,
    interval_s: f64,
) -> Result<Vec<(f64, Counters)>, TooManyPoints> {
    let mut points: Vec<(f64, Counters)> = Vec::new();
    let mut start = None;
    for (at_ns, counters) in events {
        let at = at_ns as f64 / 1e9;
        let start = *start.get_or_insert(at);
        let interval = ((at - start) / interval_s).floor().max(0.0) as u64;
        if interval >= MOST_POINTS {
            let span_s = at - start;
            let least_interval_s = span_s / (MOST_POINTS - 1) as f64;
            return Err(TooManyPoints { interval_s, points: interval + 1, span_s, least_interval_s });
        }
        let before = points.last().map(|(_, counters)| *counters);
        while (points.len() as u64) <= interval {
            let time = start + points.len() as f64 * interval_s;
            points.push((time, before.unwrap_or(counters)));
        }
        if let Some(last) = points.last_mut() {
            last.1 = counters;
        }
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stormlog_model::Counter;

    fn at(seconds: f64, used: u64) -> (u64, Counters) {
        let mut counters = Counters::default();
        counters.set(Counter::Used, Some(used));
        ((seconds * 1e9) as u64, counters)
    }

    #[test]
    fn an_interval_without_an_event_has_what_held_before() {
        let points = filled([at(10.0, 1), at(10.4, 2), at(12.6, 3)], 0.5).unwrap();
        let found: Vec<(f64, Option<u64>)> =
            points.iter().map(|(time, counters)| (*time, counters.get(Counter::Used))).collect();
        let expected = [(10.0, 2), (10.5, 2), (11.0, 2), (11.5, 2), (12.0, 2), (12.5, 3)];
        assert_eq!(found, expected.map(|(time, used)| (time, Some(used))));
        assert!(filled([], 0.5).unwrap().is_empty());
    }

    #[test]
    fn too_many_points_are_refused_with_an_interval_that_fits() {
        let events = [at(0.0, 1), at(100.0, 2)];
        let refused = filled(events, 1e-9).unwrap_err();
        assert!(refused.to_string().contains("of 100 seconds: take"), "{refused}");
        assert!(filled(events, refused.least_interval_s * 1.000_001).is_ok());
    }
}
