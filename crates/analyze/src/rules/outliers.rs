//! A rank whose peak is unlike the others': uneven shards, one more process on its device, a leak of its own.
//! Page: `docs/rules/rank_outlier.md`.

use stormlog_model::memory::Memory;
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
pub const TYPICAL: usize = 3;
/// A line that keeps less more than elsewhere explains nothing.
const LEAST_LINE: f64 = 16_777_216.0;

/// One of the two memories that ranks are compared by, each apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryKind {
    /// Of the machine.
    Host,
    /// Of its devices.
    Device,
}

impl MemoryKind {
    /// Both.
    pub const ALL: [MemoryKind; 2] = [MemoryKind::Host, MemoryKind::Device];

    /// The word in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            MemoryKind::Host => "host",
            MemoryKind::Device => "device",
        }
    }

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            MemoryKind::Host => MemoryKind::Device,
            MemoryKind::Device => MemoryKind::Host,
        }
    }
}

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
pub struct RankComparisonInput {
    /// The odd one.
    pub pid: i64,
    /// Some of the others.
    pub typical: Vec<i64>,
}

/// Lines and the bytes each keeps.
pub type KeptLines<'a> = Vec<(&'a str, u64)>;

/// The rule: which line keeps most more than it usually does in the others (its place in `own`), and how much more. `None` where no line explains
/// anything: the difference is small, or there is nothing to compare with.
#[must_use]
pub fn different_line(own: &[(&str, u64)], others: &[KeptLines<'_>], own_peak: u64) -> Option<(usize, u64)> {
    if others.is_empty() {
        return None;
    }
    let usual = |place: &str| {
        let kept = |lines: &KeptLines<'_>| {
            lines.iter().filter(|(other, _)| *other == place).map(|(_, bytes)| *bytes).sum::<u64>()
        };
        median(&mut others.iter().map(|lines| kept(lines) as f64).collect::<Vec<f64>>())
    };
    let more = own.iter().enumerate().map(|(at, (place, bytes))| (at, *bytes as f64 - usual(place)));
    let (at, more) = more.max_by(|a, b| a.1.total_cmp(&b.1))?;
    (more >= LEAST_LINE.max(LEAST_SHARE * own_peak as f64)).then_some((at, more as u64))
}

/// The line that makes the difference, where the heaps of both sides were recorded.
pub fn explain(finding: &mut Finding, own: &Capture, others: &[Capture]) {
    fn lines(capture: &Capture) -> KeptLines<'_> {
        capture.kept.iter().map(|kept| (kept.place.as_str(), kept.bytes)).collect()
    }
    let elsewhere: Vec<KeptLines<'_>> = others.iter().map(lines).collect();
    let Some((at, more)) = different_line(&lines(own), &elsewhere, own.peak_bytes) else { return };
    let Some(kept) = own.kept.get(at) else { return };
    let line = format!("it holds {} more than the others at {}", format_bytes(more), kept.words());
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

/// The ranks that stand out in a memory, if they are few. The peaks are all of that memory.
pub fn finding(memory: MemoryKind, peaks: &[Peak]) -> Option<(Finding, RankComparisonInput)> {
    let values: Vec<f64> = peaks.iter().map(|peak| peak.bytes as f64).collect();
    let Outlying { centre, threshold, indices } = outlying(&values)?;
    let mut out: Vec<&Peak> = indices.into_iter().map(|at| &peaks[at]).collect();
    let away = |peak: &Peak| (peak.bytes as f64 - centre).abs();
    out.sort_by(|a, b| away(b).total_cmp(&away(a)));
    let worst = out.first()?;
    let side = if worst.bytes as f64 > centre { "above" } else { "below" };
    let phase = worst.phase.as_ref().and_then(PhaseAttribution::label);
    let title = format!(
        "rank {} peaks {} {side} the median of {} ranks ({} against {} of {} memory){}",
        worst.rank,
        format_bytes(away(worst) as u64),
        peaks.len(),
        format_bytes(worst.bytes),
        format_bytes(centre as u64),
        memory.as_str(),
        phase.map(|phase| format!(", in phase {phase}")).unwrap_or_default(),
    );
    let mut usual: Vec<&Peak> = peaks.iter().collect();
    usual.sort_by(|a, b| away(a).total_cmp(&away(b)));
    let odd = RankComparisonInput {
        pid: worst.pid,
        typical: usual.iter().take(TYPICAL).map(|peak| peak.pid).collect(),
    };
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
            "Compare the input of this rank: tokens, experts, sequence lengths, the last shard of a dataset.",
            "Look for a second process on its device.",
        ]),
        undecided: false,
        process: Some(worst.pid),
        // Which of the devices it is, the ranks need not agree on.
        memory: (memory == MemoryKind::Host).then_some(Memory::Host),
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
        let (mut found, odd) =
            finding(MemoryKind::Device, &peaks(&[50, 50, 50, 61, 50, 50, 50, 50])).unwrap();
        assert_eq!(found.metrics["rank"], 3);
        assert!(found.title.starts_with("rank 3 peaks 11.00 GiB above the median of 8 ranks"));
        assert_eq!(odd, RankComparisonInput { pid: 103, typical: vec![100, 101, 102] });
        let heap = |dispatched: u64| {
            let kept = |place: &str, bytes| Kept { place: place.into(), bytes, count: 1, ..Kept::default() };
            let kept =
                vec![kept("model.py:31 build", 20 << 30), kept("moe.py:77 dispatch", dispatched << 30)];
            Capture { peak_bytes: (20 + dispatched) << 30, kept, ..Capture::default() }
        };
        explain(&mut found, &heap(13), &[]);
        assert_eq!(found.message, None, "with no other rank to compare with");
        explain(&mut found, &heap(13), &[heap(2), heap(2), heap(3)]);
        let line = "it holds 11.00 GiB more than the others at moe.py:77 dispatch";
        assert_eq!(found.message.as_deref(), Some(line));
    }

    #[test]
    fn even_ranks_two_groups_and_too_few_are_silent() {
        assert_eq!(finding(MemoryKind::Device, &peaks(&[50; 8])), None);
        assert_eq!(finding(MemoryKind::Device, &peaks(&[50, 50, 50, 50, 80, 80, 80, 80])), None);
        assert_eq!(finding(MemoryKind::Device, &peaks(&[50, 90, 10])), None);
    }
}
