//! The report of 0.4.3's `generate_optimization_report`, key by key, with a score that cannot call a leak excellent.
//!
//! 0.4.3 scores what profiled functions show; from telemetry alone it always came to 100, A. Here findings of telemetry count
//! as patterns, so the score, the critical issues and the recommendations speak of them.

use serde_json::Value;
use stormlog_model::{Finding, Record, Severity};

use crate::{Analysis, PlacedGap};

/// The optimization score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Score {
    /// 0 to 100.
    pub score: u8,
    /// A to F.
    pub grade: char,
    /// The sentence.
    pub description: &'static str,
    /// What it was lowered by.
    pub issues: usize,
}

/// What a leak of at least this confidence leaves of the score: a C, or a D where it is critical.
const SURE: f64 = 0.8;
const MOST_WITH_A_LEAK: u8 = 79;
const MOST_WITH_A_CRITICAL_LEAK: u8 = 69;

/// The score of findings: 100 less 20 for each critical one and 10 for each warning. What needs attention, or could not be judged, is
/// never an A; a leak that is sure is never a B.
pub fn score(findings: &[Finding]) -> Score {
    let loss = |finding: &Finding| match finding.severity {
        Severity::Critical => 20_u32,
        Severity::Warning => 10,
        Severity::Info => 0,
    };
    let lost: u32 = findings.iter().map(loss).sum();
    let mut score = u8::try_from(100_u32.saturating_sub(lost)).unwrap_or(0);
    for finding in findings {
        let is_sure_leak = finding.kind == "leak" && finding.confidence >= SURE;
        let most = match finding.severity {
            Severity::Critical if is_sure_leak => MOST_WITH_A_CRITICAL_LEAK,
            Severity::Warning if is_sure_leak => MOST_WITH_A_LEAK,
            Severity::Critical | Severity::Warning => 89,
            Severity::Info if finding.undecided => 89,
            Severity::Info => 100,
        };
        score = score.min(most);
    }
    let (grade, description) = match score {
        90.. => ('A', "Excellent memory usage patterns"),
        80.. => ('B', "Good memory usage with minor issues"),
        70.. => ('C', "Acceptable memory usage with some optimization potential"),
        60.. => ('D', "Poor memory usage patterns requiring attention"),
        _ => ('F', "Critical memory usage issues requiring immediate attention"),
    };
    let is_undecided = lost == 0 && findings.iter().any(|finding| finding.undecided);
    let description =
        if is_undecided { "Memory grew, and the recording is too short to judge it" } else { description };
    let issues = findings.iter().filter(|finding| finding.severity > Severity::Info).count();
    Score { score, grade, description, issues }
}

/// The report. `selected` is the session it is about, when one was chosen.
pub fn optimization_report(analysis: &Analysis, selected: Option<&str>) -> Record {
    let troubles: Vec<&Finding> =
        analysis.findings.iter().filter(|finding| finding.severity > Severity::Info).collect();
    let patterns = |severity: Option<Severity>| -> Value {
        let wanted = |finding: &&&Finding| severity.is_none_or(|severity| finding.severity == severity);
        troubles.iter().filter(wanted).map(|finding| pattern(finding)).collect()
    };
    let mut report = Record::new();
    let mut put = |key: &str, value: Value| report.insert(key.to_owned(), value);
    put(
        "summary",
        object([
            ("total_functions_analyzed", 0.into()),
            ("total_function_calls", 0.into()),
            ("total_memory_allocated", 0.into()),
            ("total_execution_time", 0.into()),
            ("analysis_timestamp", Value::Null),
        ]),
    );
    put("critical_issues", patterns(Some(Severity::Critical)));
    put("high_impact_insights", Value::Array(Vec::new()));
    put("all_patterns", patterns(None));
    put("all_insights", Value::Array(Vec::new()));
    put("recommendations", troubles.iter().take(10).map(|finding| recommendation(finding)).collect());
    let score = score(&analysis.findings);
    put(
        "optimization_score",
        object([
            ("score", score.score.into()),
            ("grade", score.grade.to_string().into()),
            ("description", score.description.into()),
            ("issues_found", score.issues.into()),
        ]),
    );
    put("gap_analysis", analysis.gaps.iter().map(gap_value).collect());
    put(
        "collective_attribution",
        analysis.collective.iter().map(|interval| Value::Object(interval.to_record())).collect(),
    );
    if !analysis.unavailable.is_empty() {
        let entries = analysis.unavailable.iter().map(|missing| {
            let why = object([("available", false.into()), ("reason", missing.reason.into())]);
            (missing.what.to_owned(), why)
        });
        put("analysis_availability", Value::Object(entries.collect()));
    }
    match analysis.jobs.as_slice() {
        [] => {}
        [first, rest @ ..] => {
            put("cross_rank_analysis", Value::Object(first.to_record()));
            if !rest.is_empty() {
                let rest = rest.iter().map(|job| Value::Object(job.to_record()));
                put("other_cross_rank_analyses", rest.collect());
            }
        }
    }
    let discovered: Vec<&str> = analysis.sessions.iter().map(|session| session.session_id.as_str()).collect();
    let selected = selected.or(discovered.first().copied());
    put(
        "session",
        object([("selected_session_id", selected.into()), ("discovered_session_ids", discovered.into())]),
    );
    put("findings", analysis.findings.iter().map(|finding| Value::Object(finding.to_record())).collect());
    report
}

fn pattern(finding: &Finding) -> Value {
    object([
        ("pattern_type", finding.kind.as_str().into()),
        ("description", finding.title.as_str().into()),
        ("severity", finding.severity.as_str().into()),
        ("affected_functions", Value::Array(Vec::new())),
        ("metrics", Value::Object(finding.metrics.clone())),
        ("suggestions", finding.advice.clone().into()),
    ])
}

fn recommendation(finding: &Finding) -> Value {
    let priority = if finding.severity == Severity::Critical { "high" } else { "medium" };
    object([
        ("priority", priority.into()),
        ("category", finding.kind.as_str().into()),
        ("description", finding.title.as_str().into()),
        ("suggestions", finding.advice.clone().into()),
    ])
}

fn gap_value(placed: &PlacedGap) -> Value {
    let gap = &placed.gap;
    object([
        ("classification", gap.class.as_str().into()),
        ("severity", gap.severity.as_str().into()),
        ("confidence", gap.confidence.into()),
        ("evidence", Value::Object(gap.evidence.clone())),
        ("description", gap.description.as_str().into()),
        ("remediation", gap.class.remediation().into_iter().map(Value::from).collect()),
        ("evidence_timestamp_ns", gap.at_ns.into()),
        ("phase_attribution", placed.phase.as_ref().map_or(Value::Null, |phase| phase.to_record().into())),
    ])
}

fn object<const N: usize>(pairs: [(&str, Value); N]) -> Value {
    Value::Object(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{finish, sample};
    use crate::{AnalysisOptions, analyze};

    #[test]
    fn undecided_growth_is_never_an_a() {
        let grows = (0..15).map(|i| sample(i * 100_000_000, (50 + 3 * i) << 20));
        let analysis = analyze(finish(grows), Vec::new(), &AnalysisOptions::default());
        assert!(analysis.findings.iter().any(|finding| finding.undecided) && !analysis.has_trouble());
        let score = score(&analysis.findings);
        assert_eq!((score.score, score.grade), (89, 'B'));
        assert!(score.description.contains("too short"), "{score:?}");
    }

    #[test]
    fn a_sure_leak_is_never_a_b() {
        let leak = (0..100).map(|i| sample(i * 1_000_000_000, (1 << 30) + i * (3 << 20)));
        let analysis = analyze(finish(leak), Vec::new(), &AnalysisOptions::default());
        assert_eq!(analysis.worst(), Some(Severity::Warning));
        assert_eq!(score(&analysis.findings).grade, 'C');
    }

    #[test]
    fn a_leak_is_never_an_a() {
        let leak = (0..100).map(|i| sample(i * 1_000_000_000, (1 << 30) + i * (200 << 20)));
        let analysis = analyze(finish(leak), Vec::new(), &AnalysisOptions::default());
        let report = optimization_report(&analysis, None);
        assert_ne!(report["optimization_score"]["grade"], "A");
        assert_eq!(report["critical_issues"][0]["pattern_type"], "leak");
        assert_eq!(report["session"]["selected_session_id"], "s");
        let calm = (0..100).map(|i| sample(i * 1_000_000_000, 1 << 30));
        let analysis = analyze(finish(calm), Vec::new(), &AnalysisOptions::default());
        assert_eq!(score(&analysis.findings).grade, 'A');
    }
}
