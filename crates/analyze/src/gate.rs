//! Budgets: does a run keep within what it may take? For CI, with a table, Markdown and JUnit.
//!
//! The gate goes by what is handed out, which is the same on every run of the same program; what the allocator holds is reported
//! and never fails a build. Unknown does not pass: a budget that cannot be checked has failed.

use std::fmt::Write;

use serde_json::Value;
use stormlog_model::text::escape_markup;
use stormlog_model::{Finding, Record, Severity, format_bytes};

use crate::measure::Measures;
use crate::rules::metrics;
use crate::text::{counted, rate};

/// The increase over a baseline that is let through when none is named.
pub const DEFAULT_INCREASE: f64 = 0.02;

/// What a run may take.
#[derive(Debug, Clone, Copy, Default)]
pub struct Budget {
    /// Highest memory handed out (or used, without an allocator).
    pub max_peak: Option<u64>,
    /// Growth of a floor, bytes per second.
    pub max_growth: Option<f64>,
    /// The run to compare with.
    pub baseline: Option<Measures>,
    /// How much more than the baseline's peak: 0.02 is 2 %.
    pub max_increase: Option<f64>,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// `peak`, `device_used_peak`, `growth`, `allocated_peak_increase`, `reserved_peak`.
    pub name: &'static str,
    /// What was measured.
    pub actual: String,
    /// What is allowed; empty for what is only reported.
    pub allowed: String,
    /// Whether it passed; `None` for what is only reported.
    pub passed: Option<bool>,
}

/// Holds a run against a budget.
pub fn check(measures: &Measures, budget: &Budget) -> Vec<Check> {
    let mut checks = Vec::new();
    let peak = measures.gated_peak();
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "unknown".to_owned(), format_bytes);
    if let Some(most) = budget.max_peak {
        checks.push(Check {
            name: "peak",
            actual: size(peak),
            allowed: format!("≤ {}", format_bytes(most)),
            passed: Some(peak.is_some_and(|peak| peak <= most)),
        });
        // What is used has the context, libraries and other processes too: a device is full when its use is.
        if let Some(used) = measures.peak_used.filter(|_| measures.peak_allocated.is_some()) {
            checks.push(Check {
                name: "device_used_peak",
                actual: size(Some(used)),
                allowed: format!("≤ {}", format_bytes(most)),
                passed: Some(used <= most),
            });
        }
    }
    if let Some(most) = budget.max_growth {
        checks.push(Check {
            name: "growth",
            actual: rate(measures.growth),
            allowed: format!("≤ {}", rate(most)),
            passed: Some(measures.growth <= most),
        });
    }
    if let Some(baseline) = &budget.baseline {
        let increase = budget.max_increase.unwrap_or(DEFAULT_INCREASE);
        let before = baseline.gated_peak();
        // Of the same kind: what is resident is not an answer to what an allocator handed out.
        let peak =
            if baseline.peak_allocated.is_some() { measures.peak_allocated } else { measures.peak_used };
        let most = before.map(|before| (before as f64 * (1.0 + increase)) as u64);
        checks.push(Check {
            name: "allocated_peak_increase",
            actual: size(peak),
            allowed: format!("≤ {} (baseline {} + {} %)", size(most), size(before), percent(increase)),
            passed: Some(peak.zip(most).is_some_and(|(peak, most)| peak <= most)),
        });
        checks.push(Check {
            name: "reserved_peak",
            actual: size(measures.peak_reserved),
            allowed: format!("baseline {}", size(baseline.peak_reserved)),
            passed: None,
        });
    }
    checks
}

fn percent(share: f64) -> String {
    let text = format!("{:.2}", share * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `passed: 2 checks`, `FAILED: 1 of 3 checks`; what is only reported is none.
pub fn summary(checks: &[Check]) -> String {
    let judged = checks.iter().filter(|check| check.passed.is_some()).count() as u64;
    match checks.iter().filter(|check| check.passed == Some(false)).count() {
        0 if judged == 0 => "nothing was checked".to_owned(),
        0 => format!("passed: {}", counted(judged, "check")),
        failed => format!("FAILED: {failed} of {}", counted(judged, "check")),
    }
}

/// Whether every check passed.
pub fn has_passed(checks: &[Check]) -> bool {
    checks.iter().all(|check| check.passed != Some(false))
}

/// `1MiB/min`, `200 KiB/s`: bytes over a unit of time, as bytes per second. The unit is never guessed.
pub fn parse_rate(text: &str) -> Option<f64> {
    let (size, unit) = text.split_once('/')?;
    let seconds = match unit.trim().to_ascii_lowercase().as_str() {
        "s" | "sec" | "second" => 1.0,
        "min" | "m" | "minute" => 60.0,
        "h" | "hour" => 3600.0,
        "d" | "day" => 86_400.0,
        _ => return None,
    };
    Some(stormlog_model::parse_bytes(size)? as f64 / seconds)
}

/// `2%` or `0.02`. A whole number without its sign is refused: 2 would let three times the memory through.
pub fn parse_share(text: &str) -> Option<f64> {
    let share = match text.trim().strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => text.trim().parse::<f64>().ok().filter(|share| *share < 1.0)?,
    };
    (share.is_finite() && share >= 0.0).then_some(share)
}

impl Check {
    fn verdict(&self) -> &'static str {
        match self.passed {
            Some(true) => "ok",
            Some(false) => "FAILED",
            None => "reported",
        }
    }

    /// The object form.
    pub fn to_record(&self) -> Record {
        metrics([
            ("name", self.name.into()),
            ("actual", self.actual.as_str().into()),
            ("allowed", self.allowed.as_str().into()),
            ("passed", self.passed.map_or(Value::Null, Value::from)),
        ])
    }

    /// A failed check as a finding.
    pub fn finding(&self) -> Option<Finding> {
        (self.passed == Some(false)).then(|| Finding {
            id: format!("gate.{}", self.name),
            kind: "gate".to_owned(),
            severity: Severity::Critical,
            confidence: 1.0,
            title: format!("{}: {} is not {}", self.name.replace('_', " "), self.actual, self.allowed),
            message: None,
            metrics: Record::new(),
            evidence: Vec::new(),
            advice: vec![
                "If the increase is intended, accept it with --update-baseline and give the reason in the commit."
                    .to_owned(),
            ],
            undecided: false,
            process: None,
            memory: None,
            holder: None,
        })
    }
}

/// The table in a terminal.
pub fn table(checks: &[Check]) -> String {
    let width = |of: fn(&Check) -> usize| checks.iter().map(of).max().unwrap_or(0);
    let (names, actuals) = (width(|c| c.name.chars().count()), width(|c| c.actual.chars().count()));
    let mut out = String::new();
    for check in checks {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{:<8}  {:<names$}  {:>actuals$}  {}",
            check.verdict(),
            check.name,
            check.actual,
            check.allowed
        );
    }
    out
}

/// The table for a pull request.
pub fn markdown(checks: &[Check]) -> String {
    let verdict = if has_passed(checks) { "passed" } else { "**failed**" };
    let mut out =
        format!("### Memory check {verdict}\n\n| check | measured | allowed | |\n|---|---|---|---|\n");
    for check in checks {
        let _ =
            writeln!(out, "| {} | {} | {} | {} |", check.name, check.actual, check.allowed, check.verdict());
    }
    out
}

/// The JUnit file every CI system reads.
pub fn junit(checks: &[Check]) -> String {
    let failures = checks.iter().filter(|check| check.passed == Some(false)).count();
    let counts = format!(
        "name=\"stormlog check\" tests=\"{}\" failures=\"{failures}\" errors=\"0\" time=\"0\"",
        checks.len()
    );
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n<testsuite {counts} skipped=\"0\">\n"
    );
    for check in checks {
        let _ = write!(out, "  <testcase classname=\"stormlog.check\" name=\"{}\" time=\"0\"", check.name);
        let text = format!("{} measured, allowed {}", check.actual, check.allowed);
        let text = escape_markup(&text);
        let _ = match check.passed {
            Some(false) => {
                writeln!(out, "><failure type=\"over_budget\" message=\"{text}\">{text}</failure></testcase>")
            }
            Some(true) => writeln!(out, "/>"),
            None => writeln!(out, "><system-out>{text}</system-out></testcase>"),
        };
    }
    out.push_str("</testsuite>\n</testsuites>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measures(allocated: u64) -> Measures {
        Measures { peak_allocated: Some(allocated), peak_reserved: Some(9_999), ..Measures::default() }
    }

    #[test]
    fn a_baseline_lets_two_percent_through() {
        let budget = Budget { baseline: Some(measures(1000)), ..Budget::default() };
        assert!(has_passed(&check(&measures(1020), &budget)));
        let failed = check(&measures(1021), &budget);
        assert!(!has_passed(&failed));
        assert_eq!(failed[1].passed, None, "reserved is reported");
        assert!(failed[0].finding().is_some());
        let wide = Budget { max_increase: Some(0.5), ..budget };
        assert!(has_passed(&check(&measures(1400), &wide)));
    }

    #[test]
    fn resident_and_allocated_memory_are_not_compared() {
        let budget = Budget { baseline: Some(measures(1000)), ..Budget::default() };
        let resident = Measures { peak_used: Some(10), ..Measures::default() };
        let checks = check(&resident, &budget);
        assert_eq!((checks[0].actual.as_str(), checks[0].passed), ("unknown", Some(false)));
        assert_eq!(summary(&checks), "FAILED: 1 of 1 check");
        let budget = Budget { baseline: Some(resident), ..Budget::default() };
        assert!(has_passed(&check(&Measures { peak_used: Some(10), ..measures(1000) }, &budget)));
    }

    #[test]
    fn unknown_measure_fails_the_gate() {
        let budget = Budget { max_peak: Some(10), ..Budget::default() };
        assert!(!has_passed(&check(&Measures::default(), &budget)));
        let growth = Budget { max_growth: Some(0.0), ..Budget::default() };
        assert!(has_passed(&check(&Measures::default(), &growth)), "nothing grows");
    }

    #[test]
    fn rates_and_shares_are_read() {
        assert_eq!(parse_rate("1MiB/min"), Some(1_048_576.0 / 60.0));
        assert_eq!(parse_rate("1MiB"), None, "a minute, an hour?");
        assert_eq!(parse_rate("1MiB/fortnight"), None);
        assert_eq!(parse_share("2%"), Some(0.02));
        assert_eq!(parse_share("0.1"), Some(0.1));
        assert_eq!((parse_share("2"), parse_share("200%")), (None, Some(2.0)));
        assert_eq!(parse_share("-1%"), None);
    }

    #[test]
    fn outputs_name_the_failure() {
        let checks = check(&measures(2000), &Budget { max_peak: Some(1000), ..Budget::default() });
        assert!(table(&checks).starts_with("FAILED    peak  1.95 KiB  ≤ 1000 B"), "{}", table(&checks));
        assert!(markdown(&checks).contains("| peak | 1.95 KiB | ≤ 1000 B | FAILED |"));
        let junit = junit(&checks);
        assert!(junit.contains("failures=\"1\"") && junit.contains("<failure type="));
    }
}
