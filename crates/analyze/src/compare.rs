//! Two runs side by side: what each took, where, and what was set differently.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::Value;
use stormlog_model::{Record, format_bytes};

use crate::measure::Measures;
use crate::text::rate;

/// Lines whose memory differs most are shown up to this many.
const LINES: usize = 8;
/// Settings that differ are shown up to this many.
const SHOWN: usize = 40;

/// One run.
#[derive(Debug, Clone, Default)]
pub struct Side {
    /// Its numbers.
    pub measures: Measures,
    /// The highest use of each phase.
    pub phases: BTreeMap<String, u64>,
    /// The highest heap of a capture.
    pub heap_peak: Option<u64>,
    /// What lines of the program keep, by a heap capture.
    pub lines: BTreeMap<String, u64>,
    /// Kinds of findings, with how many.
    pub findings: BTreeMap<String, usize>,
    /// Settings and versions, flat: `environment.torch` → `2.11.0`.
    pub settings: BTreeMap<String, String>,
}

/// What differs.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Before.
    pub a: Side,
    /// After.
    pub b: Side,
}

impl Comparison {
    /// The settings that differ: name, before, after.
    pub fn changed_settings(&self) -> Vec<(&str, Option<&str>, Option<&str>)> {
        let keys: BTreeSet<&String> = self.a.settings.keys().chain(self.b.settings.keys()).collect();
        let of = |side: &'_ Side, key: &str| side.settings.get(key).cloned();
        keys.into_iter()
            .filter(|key| of(&self.a, key) != of(&self.b, key))
            .map(|key| {
                (
                    key.as_str(),
                    self.a.settings.get(key).map(String::as_str),
                    self.b.settings.get(key).map(String::as_str),
                )
            })
            .collect()
    }

    /// The few numbers of a run, under the names of the object form.
    fn peaks(&self) -> [(&'static str, Option<u64>, Option<u64>); 4] {
        let (a, b) = (&self.a.measures, &self.b.measures);
        [
            ("peak_allocated_bytes", a.peak_allocated, b.peak_allocated),
            ("peak_reserved_bytes", a.peak_reserved, b.peak_reserved),
            ("peak_device_used_bytes", a.peak_used, b.peak_used),
            ("peak_heap_bytes", self.a.heap_peak, self.b.heap_peak),
        ]
    }

    /// What each side has of every name, what differs most first.
    fn pairs(&self, of: Part) -> Vec<(&str, Option<u64>, Option<u64>)> {
        let (a, b) = (of(&self.a), of(&self.b));
        let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
        let mut pairs: Vec<_> =
            keys.into_iter().map(|key| (key.as_str(), a.get(key).copied(), b.get(key).copied())).collect();
        pairs.sort_by_key(|(_, a, b)| std::cmp::Reverse(a.unwrap_or(0).abs_diff(b.unwrap_or(0))));
        pairs
    }

    /// The object form.
    pub fn to_record(&self) -> Record {
        let pair = |a: Value, b: Value| {
            let delta = a.as_f64().zip(b.as_f64()).map(|(a, b)| b - a);
            let mut record = Record::new();
            record.insert("a".to_owned(), a);
            record.insert("b".to_owned(), b);
            if let Some(delta) = delta {
                let whole = delta as i64;
                let delta = if delta.fract() == 0.0 { Value::from(whole) } else { Value::from(delta) };
                record.insert("delta".to_owned(), delta);
            }
            Value::Object(record)
        };
        let mut record = Record::new();
        for (name, a, b) in self.peaks() {
            record.insert(name.to_owned(), pair(a.into(), b.into()));
        }
        let (a, b) = (self.a.measures.growth, self.b.measures.growth);
        record.insert("growth_bytes_per_second".to_owned(), pair(a.into(), b.into()));
        for (name, of) in [("phases", phases as Part), ("allocations", lines as Part)] {
            let pairs = self.pairs(of).into_iter();
            let pairs = pairs.map(|(name, a, b)| (name.to_owned(), pair(a.into(), b.into())));
            record.insert(name.to_owned(), Value::Object(pairs.collect()));
        }
        let count = |side: &Side| -> Value {
            Value::Object(side.findings.iter().map(|(kind, count)| (kind.clone(), (*count).into())).collect())
        };
        record.insert("findings".to_owned(), pair(count(&self.a), count(&self.b)));
        let settings = self.changed_settings().into_iter();
        let settings = settings.map(|(name, a, b)| (name.to_owned(), pair(a.into(), b.into())));
        record.insert("settings".to_owned(), Value::Object(settings.collect()));
        record
    }

    /// The page.
    pub fn text(&self) -> String {
        let mut page = String::new();
        let size = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), format_bytes);
        // Writing to a string cannot fail.
        for (name, a, b) in self.peaks() {
            if a.is_some() || b.is_some() {
                let name = name.trim_end_matches("_bytes").replace('_', " ");
                let _ = writeln!(page, "{name:<24} {:>12} → {:>12}  {}", size(a), size(b), change(a, b));
            }
        }
        let (a, b) = (self.a.measures.growth, self.b.measures.growth);
        let _ = writeln!(page, "{:<24} {:>12} → {:>12}", "growth", pace(a), pace(b));
        for (name, a, b) in self.pairs(phases).into_iter().take(SHOWN) {
            let _ = writeln!(page, "phase {name:<18} {:>12} → {:>12}  {}", size(a), size(b), change(a, b));
        }
        let kept = self.pairs(lines);
        for (name, a, b) in kept.iter().filter(|(_, a, b)| a != b).take(LINES) {
            let _ =
                writeln!(page, "keeps {name:<18} {:>12} → {:>12}  {}", size(*a), size(*b), change(*a, *b));
        }
        if !kept.is_empty() {
            let _ = writeln!(page, "`stormlog diff A B` lists all lines");
        }
        let kinds: BTreeSet<&String> = self.a.findings.keys().chain(self.b.findings.keys()).collect();
        for kind in kinds {
            let of = |side: &Side| side.findings.get(kind).copied().unwrap_or(0);
            let _ =
                writeln!(page, "{:<24} {:>12} → {:>12}", format!("finding {kind}"), of(&self.a), of(&self.b));
        }
        let settings = self.changed_settings();
        for (name, a, b) in settings.iter().take(SHOWN) {
            let _ = writeln!(page, "{name}: {} → {}", a.unwrap_or("-"), b.unwrap_or("-"));
        }
        if settings.len() > SHOWN {
            let _ = writeln!(page, "… and {} more settings", settings.len() - SHOWN);
        }
        page
    }
}

/// A part of a side whose names are compared.
type Part = fn(&Side) -> &BTreeMap<String, u64>;

fn phases(side: &Side) -> &BTreeMap<String, u64> {
    &side.phases
}

fn lines(side: &Side) -> &BTreeMap<String, u64> {
    &side.lines
}

fn pace(bytes_per_second: f64) -> String {
    if bytes_per_second == 0.0 { "none".to_owned() } else { rate(bytes_per_second) }
}

fn change(a: Option<u64>, b: Option<u64>) -> String {
    match (a, b) {
        (Some(a), Some(b)) if a == b => "the same".to_owned(),
        (Some(a), Some(b)) if b > a => format!("+{}", format_bytes(b - a)),
        (Some(a), Some(b)) => format!("−{}", format_bytes(a - b)),
        (None, Some(_)) => "new".to_owned(),
        (Some(_), None) => "gone".to_owned(),
        (None, None) => String::new(),
    }
}

/// The leaves of a JSON object by their dotted names: what settings are compared by.
pub fn flatten(prefix: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten(&name, inner, into);
            }
        }
        Value::String(text) => {
            into.insert(prefix.to_owned(), text.clone());
        }
        other => {
            into.insert(prefix.to_owned(), other.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn comparison_shows_only_differences() {
        let mut before = Side::default();
        before.measures.peak_allocated = Some(3 << 30);
        before.phases.insert("load".into(), 1 << 30);
        flatten("", &json!({"torch": "2.10", "env": {"A": "1"}}), &mut before.settings);
        let mut after = before.clone();
        after.measures.peak_allocated = Some(4 << 30);
        after.settings.insert("torch".into(), "2.11".into());
        after.phases.clear();
        let comparison = Comparison { a: before, b: after };
        assert_eq!(comparison.changed_settings(), [("torch", Some("2.10"), Some("2.11"))]);
        let page = comparison.text();
        assert!(page.contains("3.00 GiB →     4.00 GiB  +1.00 GiB"), "{page}");
        assert!(page.starts_with("peak allocated ") && page.contains("none →         none"), "{page}");
        assert!(page.contains("gone") && !page.contains("env.A"));
        assert_eq!(comparison.to_record()["peak_allocated_bytes"]["delta"], 1 << 30);
    }
}
