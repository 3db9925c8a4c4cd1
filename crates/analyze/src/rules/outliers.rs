//! A rank whose peak is unlike the others': uneven shards, one more process on its device, a leak of its own.
//! Page: `docs/rules/rank_outlier.md`.

use stormlog_model::{Evidence, Finding, Severity, format_bytes};

use super::{advice, metrics};
use crate::phases::PhaseAttribution;
use crate::rules::heap::Capture;
use crate::series::{mad, median};

/// Fewer ranks have no median worth the name.
const MIN_RANKS: usize = 4;
/// Differences below this are noise whatever the ranks say.
const LEAST: f64 = 268_435_456.0;
const LEAST_SHARE: f64 = 0.05;
/// More outliers than this share of the ranks are two groups, not outliers.
const MOST_SHARE: f64 = 0.25;

/// The finding's id.
pub const ID: &str = "ranks.outlier";
/// Ranks like the rest that one is compared with.
const TYPICAL: usize = 3;
/// A line that keeps less more than elsewhere explains nothing.
const LEAST_LINE: f64 = 16_777_216.0;

/// A rank's highest memory.
#[derive(Debug, Clone)]
pub struct Peak {
    /// The rank.
    pub rank: u64,
    /// Its session.
    pub session_id: String,
    /// Its process.
    pub pid: i64,
    /// Its machine.
    pub host: String,
    /// Bytes.
    pub bytes: u64,
    /// When.
    pub at_ns: u64,
    /// What it was doing.
    pub phase: Option<PhaseAttribution>,
}

/// The processes to compare: of the rank that stands out most, and of those that are most like the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Odd {
    /// The odd one.
    pub pid: i64,
    /// Some of the others.
    pub typical: Vec<i64>,
}

/// The line that makes the difference, where the heaps of both sides were recorded.
pub fn explain(finding: &mut Finding, own: &Capture, others: &[Capture]) {
    let usual = |place: &str| {
        let kept = |capture: &Capture| {
            capture.kept.iter().filter(|kept| kept.place == place).map(|kept| kept.bytes).sum::<u64>()
        };
        median(&mut others.iter().map(|capture| kept(capture) as f64).collect::<Vec<f64>>())
    };
    let more = own.kept.iter().map(|kept| (kept, kept.bytes as f64 - usual(&kept.place)));
    let Some((kept, more)) = more.max_by(|a, b| a.1.total_cmp(&b.1)) else { return };
    if others.is_empty() || more < LEAST_LINE.max(LEAST_SHARE * own.peak_bytes as f64) {
        return;
    }
    let line = format!("it keeps {} more than the others at {}", format_bytes(more as u64), kept.words());
    finding.message = Some(match finding.message.take() {
        Some(message) => format!("{message}; {line}"),
        None => line.clone(),
    });
    finding.evidence.push(Evidence {
        kind: "heap_capture".to_owned(),
        path: Some(own.path.clone()),
        description: Some(line),
        ..Evidence::default()
    });
}

/// Values that are unlike the rest.
#[derive(Debug, Clone, PartialEq)]
pub struct Outlying {
    /// The median.
    pub centre: f64,
    /// What is further away than this is unlike it.
    pub threshold: f64,
    /// Places of those that are, in order.
    pub indices: Vec<usize>,
}

/// The rule: which of the peaks are unlike the rest, if they are few.
#[must_use]
pub fn outlying(peaks: &[f64]) -> Option<Outlying> {
    if peaks.len() < MIN_RANKS {
        return None;
    }
    let centre = median(&mut peaks.to_vec());
    let spread = 1.4826 * mad(peaks, centre);
    let threshold = (6.0 * spread).max(LEAST).max(LEAST_SHARE * centre);
    let indices: Vec<usize> = (0..peaks.len()).filter(|at| (peaks[*at] - centre).abs() > threshold).collect();
    let are_few = !indices.is_empty() && indices.len() as f64 <= MOST_SHARE * peaks.len() as f64;
    are_few.then_some(Outlying { centre, threshold, indices })
}

/// The ranks that stand out, if they are few.
pub fn finding(peaks: &[Peak]) -> Option<(Finding, Odd)> {
    let values: Vec<f64> = peaks.iter().map(|peak| peak.bytes as f64).collect();
    let Outlying { centre, threshold, indices } = outlying(&values)?;
    let mut out: Vec<&Peak> = indices.into_iter().map(|at| &peaks[at]).collect();
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
    let mut usual: Vec<&Peak> = peaks.iter().collect();
    usual.sort_by(|a, b| away(a).total_cmp(&away(b)));
    let odd = Odd { pid: worst.pid, typical: usual.iter().take(TYPICAL).map(|peak| peak.pid).collect() };
    let others: Vec<String> = out.iter().skip(1).map(|peak| peak.rank.to_string()).collect();
    let finding = Finding {
        id: ID.to_owned(),
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
        undecided: false,
        process: Some(worst.pid),
        memory: None,
        holder: None,
    };
    Some((finding, odd))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::heap::Kept;

    fn peaks(bytes: &[u64]) -> Vec<Peak> {
        let one = |(rank, gib): (usize, &u64)| Peak {
            rank: rank as u64,
            session_id: "s".into(),
            pid: 100 + rank as i64,
            host: "h".into(),
            bytes: gib << 30,
            at_ns: 5,
            phase: None,
        };
        bytes.iter().enumerate().map(one).collect()
    }

    #[test]
    fn the_one_that_differs_is_named() {
        let (mut found, odd) = finding(&peaks(&[50, 50, 50, 61, 50, 50, 50, 50])).unwrap();
        assert_eq!(found.metrics["rank"], 3);
        assert!(found.title.starts_with("rank 3 peaks 11.00 GiB above the median of 8 ranks"));
        assert_eq!(odd, Odd { pid: 103, typical: vec![100, 101, 102] });
        let heap = |dispatched: u64| {
            let kept = |place: &str, bytes| Kept { place: place.into(), bytes, count: 1, ..Kept::default() };
            let kept =
                vec![kept("model.py:31 build", 20 << 30), kept("moe.py:77 dispatch", dispatched << 30)];
            Capture { peak_bytes: (20 + dispatched) << 30, kept, ..Capture::default() }
        };
        explain(&mut found, &heap(13), &[]);
        assert_eq!(found.message, None, "with nobody to compare with");
        explain(&mut found, &heap(13), &[heap(2), heap(2), heap(3)]);
        let line = "it keeps 11.00 GiB more than the others at moe.py:77 dispatch";
        assert_eq!(found.message.as_deref(), Some(line));
    }

    #[test]
    fn even_ranks_two_groups_and_too_few_are_silent() {
        assert_eq!(finding(&peaks(&[50; 8])), None);
        assert_eq!(finding(&peaks(&[50, 50, 50, 50, 80, 80, 80, 80])), None);
        assert_eq!(finding(&peaks(&[50, 90, 10])), None);
    }
}
