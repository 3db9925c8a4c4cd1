//! Round numbers along an axis, in the unit people would use.

use super::figure::{Axis, Measure};

const KIB: f64 = 1024.0;

/// An axis that is ready: where its ticks are, what they say, and what the label says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scale {
    pub(super) from: f64,
    pub(super) to: f64,
    /// Place in the data's own numbers, and text.
    pub(super) ticks: Vec<(f64, String)>,
    /// The label with its unit.
    pub(super) label: String,
    /// How many of the data's numbers one of the unit is.
    pub(super) unit: f64,
}

impl Scale {
    /// The axis for data in a range, with about `wanted` ticks. `is_tight` ends it where the data end, else at a tick.
    pub(super) fn of(axis: &Axis, from: f64, to: f64, wanted: usize, is_tight: bool) -> Self {
        let (from, to) = usable(from, axis.end.filter(|end| end.is_finite()).unwrap_or(to));
        let (unit, name) = unit_of(axis.measure, from.abs().max(to.abs()));
        let step = nice_step((to - from) / unit / wanted.max(1) as f64) * unit;
        let to = if is_tight { to } else { (to / step - 1e-9).ceil() * step };
        let decimals = decimals_of(step / unit);
        let first = (from / step - 1e-9).ceil() as i64;
        let last = (to / step + 1e-9).floor() as i64;
        // A step is at least a thousandth of the range, so this is short whatever the numbers are.
        let ticks = (first..=last.min(first.saturating_add(64)))
            .map(|index| {
                let value = index as f64 * step;
                (value, format!("{:.decimals$}", value / unit))
            })
            .collect();
        let label = match (axis.label.is_empty(), name.is_empty()) {
            (false, false) => format!("{} ({name})", axis.label),
            (true, _) => name.to_owned(),
            (false, true) => axis.label.clone(),
        };
        Scale { from, to, ticks, label, unit }
    }

    /// Where a value is, from 0 at the start to 1 at the end.
    pub(super) fn share(&self, value: f64) -> f64 {
        (value - self.from) / (self.to - self.from)
    }
}

/// A range that has an extent.
fn usable(from: f64, to: f64) -> (f64, f64) {
    if !from.is_finite() || !to.is_finite() {
        return (0.0, 1.0);
    }
    if to - from > 1e-12 * from.abs().max(to.abs()).max(1e-6) {
        (from, to)
    } else if from > 0.0 {
        (0.0, from * 1.25)
    } else {
        (from, from + 1.0)
    }
}

fn unit_of(measure: Measure, most: f64) -> (f64, &'static str) {
    match measure {
        Measure::Number => (1.0, ""),
        Measure::Bytes => {
            let names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
            let power = (most.max(1.0).ln() / KIB.ln() + 1e-9).floor().clamp(0.0, names.len() as f64 - 1.0);
            (KIB.powf(power), names[power as usize])
        }
        Measure::Seconds if most < 0.5 => (1e-3, "ms"),
        Measure::Seconds if most < 600.0 => (1.0, "s"),
        Measure::Seconds if most < 6.0 * 3600.0 => (60.0, "min"),
        Measure::Seconds => (3600.0, "h"),
    }
}

/// The next of 1, 2, 2.5, 5, 10 times a power of ten.
fn nice_step(rough: f64) -> f64 {
    let power = 10_f64.powf(rough.max(1e-12).log10().floor());
    let share = rough / power;
    let nice = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|nice| share <= nice + 1e-9);
    nice.unwrap_or(10.0) * power
}

fn decimals_of(step: f64) -> usize {
    (0..6).find(|places| ((step * 10_f64.powi(*places)).fract() - 0.5).abs() > 0.499).unwrap_or(6) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(measure: Measure, to: f64) -> (Vec<String>, String) {
        let scale = Scale::of(&Axis::new("x", measure), 0.0, to, 5, false);
        (scale.ticks.into_iter().map(|(_, text)| text).collect(), scale.label)
    }

    #[test]
    fn ticks_are_round_and_in_a_unit_people_use() {
        let (ticks, label) = texts(Measure::Bytes, 13.3 * 1024.0 * 1024.0 * 1024.0);
        assert_eq!((ticks.join(" ").as_str(), label.as_str()), ("0 5 10 15", "x (GiB)"));
        let (ticks, label) = texts(Measure::Bytes, 1.2 * 1024.0 * 1024.0);
        assert_eq!((ticks.join(" ").as_str(), label.as_str()), ("0.00 0.25 0.50 0.75 1.00 1.25", "x (MiB)"));
        assert_eq!(texts(Measure::Seconds, 5400.0).1, "x (min)");
        assert_eq!(texts(Measure::Seconds, 0.02).1, "x (ms)");
        assert_eq!(texts(Measure::Number, 7.0).1, "x");
    }

    #[test]
    fn a_range_without_extent_and_hostile_numbers_still_make_an_axis() {
        for (from, to) in [
            (0.0, 0.0),
            (5.0, 5.0),
            (f64::NAN, 1.0),
            (0.0, f64::INFINITY),
            (-3.0, -3.0),
            (0.0, f64::MAX),
            (1e18, 1e18 + 1.0),
        ] {
            let scale = Scale::of(&Axis::new("", Measure::Bytes), from, to, 5, true);
            assert!(scale.to > scale.from && scale.ticks.len() <= 65, "{from} {to}: {scale:?}");
        }
    }
}
