//! Alert rules and a dashboard over the series of `stormlog serve`, as the files that other systems read.
//!
//! Pure: text out, nothing in. This crate must never name a series that is not in `stormlog-metrics` (a test compares them).
#![forbid(unsafe_code)]

mod dashboard;
mod panels;
mod rules;

pub use dashboard::dashboard;
pub use rules::{RuleFormat, rules};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Series that a text names. A recording rule has colons in its name and is not one.
    fn series(text: &str) -> BTreeSet<&str> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        text.split(|c: char| !is_part(c))
            .filter(|word| word.starts_with("stormlog_") && !word.contains(':'))
            .collect()
    }

    #[test]
    fn only_series_that_are_served_are_named() {
        let known: BTreeSet<&str> =
            stormlog_metrics::families::ALL.iter().map(|family| family.name).collect();
        for text in [rules(RuleFormat::Prometheus), rules(RuleFormat::Kubernetes), dashboard()] {
            let unknown: Vec<&str> = series(&text).into_iter().filter(|name| !known.contains(name)).collect();
            assert!(unknown.is_empty(), "{unknown:?}");
        }
    }

    #[test]
    fn files_among_the_examples_are_what_the_commands_print() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/monitoring");
        let files = [
            ("rules.yml", rules(RuleFormat::Prometheus)),
            ("prometheus-rule.yml", rules(RuleFormat::Kubernetes)),
            ("dashboard.json", dashboard()),
        ];
        for (name, text) in files {
            let kept = std::fs::read_to_string(root.join(name)).unwrap_or_default();
            assert!(kept == text, "examples/monitoring/{name} is old: print it again");
        }
    }
}
