//! A rank whose peak is unlike the others': uneven shards, one more process on its device, a leak of its own.
//! Page: `docs/rules/rank_outlier.md`.

use stormlog_event::{Evidence, Finding, Severity, format_bytes};

use super::{advice, metrics};
use crate::phases::PhaseAttribution;
use crate::series::{mad, median};

/// Fewer ranks have no median worth the name.
const MIN_RANKS: usize = 4;
/// Differences below this are noise whatever the ranks say.
const LEAST: f64 = 268_435_456.0;
const LEAST_SHARE: f64 = 0.05;
/// More outliers than this share of the ranks are two groups, not outliers.
const MOST_SHARE: f64 = 0.25;

/// A rank's highest memory.
#[derive(Debug, Clone)]
pub struct Peak {
    /// The rank.
    pub rank: u64,
    /// Its session.
    pub session_id: String,
    /// Its machine.
    pub host: String,
    /// Bytes.
    pub bytes: u64,
    /// When.
    pub at_ns: u64,
    /// What it was doing.
    pub phase: Option<PhaseAttribution>,
}

/// The ranks that stand out, if they are few.
pub fn finding(peaks: &[Peak]) -> Option<Finding> {
    if peaks.len() < MIN_RANKS {
        return None;
    }
    let values: Vec<f64> = peaks.iter().map(|peak| peak.bytes as f64).collect();
    let centre = median(&mut values.clone());
    let spread = 1.4826 * mad(&values, centre);
    let threshold = (6.0 * spread).max(LEAST).max(LEAST_SHARE * centre);
    let mut out: Vec<&Peak> =
        peaks.iter().filter(|peak| (peak.bytes as f64 - centre).abs() > threshold).collect();
    if out.is_empty() || out.len() as f64 > MOST_SHARE * peaks.len() as f64 {
        return None;
    }
    let away = |peak: &Peak| (peak.bytes as f64 - centre).abs();
    out.sort_by(|a, b| away(b).total_cmp(&away(a)));
    let worst = out.first()?;
    let side = if worst.bytes as f64 > centre { "above" } else { "below" };
    let phase = worst.phase.as_ref().and_then(PhaseAttribution::label);
    let title = format!(
        "rank {} peaks {} {side} the median of {} ranks ({} against {}){}",
        worst.rank,
        format_bytes(away(worst) as u64),
        peaks.len(),
        format_bytes(worst.bytes),
        format_bytes(centre as u64),
        phase.map(|phase| format!(", in phase {phase}")).unwrap_or_default(),
    );
    let others: Vec<String> = out.iter().skip(1).map(|peak| peak.rank.to_string()).collect();
    Some(Finding {
        id: "ranks.outlier".to_owned(),
        kind: "rank_outlier".to_owned(),
        severity: Severity::Warning,
        confidence: (away(worst) / threshold / 2.0).clamp(0.5, 0.99),
        title,
        message: (!others.is_empty()).then(|| format!("also ranks {}", others.join(", "))),
        metrics: metrics([
            ("rank", worst.rank.into()),
            ("peak_bytes", worst.bytes.into()),
            ("median_peak_bytes", centre.into()),
            ("outlier_count", out.len().into()),
            ("rank_count", peaks.len().into()),
        ]),
        evidence: out
            .iter()
            .map(|peak| Evidence {
                kind: "telemetry".to_owned(),
                session_id: Some(peak.session_id.clone()),
                start_ns: Some(peak.at_ns),
                end_ns: Some(peak.at_ns),
                description: Some(format!(
                    "rank {} on {}: {}",
                    peak.rank,
                    peak.host,
                    format_bytes(peak.bytes)
                )),
                ..Evidence::default()
            })
            .collect(),
        advice: advice([
            "Compare what this rank was given: tokens, experts, sequence lengths, the last shard of a dataset.",
            "Look for a second process on its device.",
        ]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peaks(bytes: &[u64]) -> Vec<Peak> {
        let one = |(rank, gib): (usize, &u64)| Peak {
            rank: rank as u64,
            session_id: "s".into(),
            host: "h".into(),
            bytes: gib << 30,
            at_ns: 5,
            phase: None,
        };
        bytes.iter().enumerate().map(one).collect()
    }

    #[test]
    fn the_one_that_differs_is_named() {
        let found = finding(&peaks(&[50, 50, 50, 61, 50, 50, 50, 50])).unwrap();
        assert_eq!(found.metrics["rank"], 3);
        assert!(found.title.starts_with("rank 3 peaks 11.00 GiB above the median of 8 ranks"));
    }

    #[test]
    fn even_ranks_two_groups_and_too_few_are_silent() {
        assert_eq!(finding(&peaks(&[50; 8])), None);
        assert_eq!(finding(&peaks(&[50, 50, 50, 50, 80, 80, 80, 80])), None);
        assert_eq!(finding(&peaks(&[50, 90, 10])), None);
    }
}
