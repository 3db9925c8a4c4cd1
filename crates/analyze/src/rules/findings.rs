//! What hidden gaps, collectives and first causes come to as findings: their rules give 0.4.3's numbers to the letter, and here it
//! is said whether these matter, and how.

use serde_json::Value;
use stormlog_model::{Evidence, Finding, Severity, format_bytes};

use super::collective::CollectiveInterval;
use super::gap::{GapClass, GapFinding};
use super::ranks::CrossRank;
use super::{about, advice, metrics};
use crate::jobs::JobRecord;
use crate::phases::PhaseAttribution;
use crate::recording::Stream;
use crate::series::{Envelope, growth as growth_of};

/// A spike or a drift below both is real and does not matter.
const LEAST_GAP: f64 = 268_435_456.0;
const LEAST_GAP_SHARE: f64 = 0.02;

/// Hidden memory of a stream: for information where there is too little of it, or where it was taken once.
pub(crate) fn of_gap(stream: &Stream, gap: &GapFinding, phase: Option<&PhaseAttribution>) -> Finding {
    let number = |key: &str| gap.evidence.get(key).and_then(Value::as_f64).unwrap_or(0.0);
    let total = stream.samples.iter().find_map(|sample| sample.total()).unwrap_or(0) as f64;
    let least = LEAST_GAP.max(LEAST_GAP_SHARE * total);
    let matters = match gap.class {
        GapClass::TransientSpike => number("max_gap_bytes") - number("mean_gap_bytes") >= least,
        _ => number("gap_end_bytes") - number("gap_start_bytes") >= least && hidden_continues(stream),
    };
    let severity = if matters { gap.severity } else { Severity::Info };
    let id = format!("hidden_gap.{}", gap.class.as_str());
    let what = match gap.class {
        GapClass::TransientSpike => {
            format!(
                "device memory outside the allocator spiked to {}",
                format_bytes(number("max_gap_bytes").max(0.0) as u64)
            )
        }
        _ => format!(
            "device memory outside the allocator drifts from {} to {}",
            format_bytes(number("gap_start_bytes").max(0.0) as u64),
            format_bytes(number("gap_end_bytes").max(0.0) as u64)
        ),
    };
    let mut finding = about(stream, &id, "hidden_gap", severity, gap.confidence, what);
    let phase = phase.and_then(PhaseAttribution::label);
    finding.message = Some(match phase {
        Some(phase) => format!("{} Phase: {phase}.", gap.description),
        None => gap.description.clone(),
    });
    finding.metrics.extend(gap.evidence.clone());
    if let Some(pointer) = finding.evidence.first_mut() {
        (pointer.start_ns, pointer.end_ns) = (Some(gap.at_ns), Some(gap.at_ns));
    }
    finding.advice = advice(gap.class.remediation());
    finding
}

/// Whether what is hidden keeps growing: a context that was made once has a fine correlation with time, too.
fn hidden_continues(stream: &Stream) -> bool {
    let mut hidden = Envelope::default();
    for sample in &stream.samples {
        if let Some(gap) = sample.gap() {
            hidden.observe(sample.at_ns, u64::try_from(gap.max(0)).unwrap_or(u64::MAX));
        }
    }
    growth_of(&hidden).is_some_and(|found| found.shape.is_ongoing())
}

/// The stretches of hidden memory that go with collectives, as one.
pub(crate) fn of_collectives(intervals: &[CollectiveInterval], job: &JobRecord<'_>) -> Option<Finding> {
    let best = intervals.iter().max_by(|a, b| a.confidence.total_cmp(&b.confidence))?;
    let most = intervals.iter().map(|interval| interval.evidence.peak_gap_bytes).max()?;
    let ranks: std::collections::BTreeSet<u64> = intervals.iter().map(|interval| interval.rank).collect();
    let session = |rank: u64| job.ranks.iter().find(|known| known.record.head.identity.rank == rank);
    Some(Finding {
        id: "collective.spikes".to_owned(),
        kind: "collective".to_owned(),
        severity: Severity::Info,
        confidence: best.confidence,
        title: format!(
            "{} periods of hidden memory (up to {}) coincide with collective communication on {} ranks",
            intervals.len(),
            format_bytes(most),
            ranks.len()
        ),
        message: None,
        metrics: metrics([("intervals", intervals.len().into()), ("peak_gap_bytes", most.into())]),
        evidence: vec![Evidence {
            kind: "telemetry".to_owned(),
            session_id: session(best.rank).map(|rank| rank.session_id.to_owned()),
            start_ns: Some(best.start_ns),
            end_ns: Some(best.end_ns),
            description: Some(format!("rank {}: {}", best.rank, best.classification())),
            ..Evidence::default()
        }],
        advice: advice(["Leave room for the communication library's buffers; NCCL_BUFFSIZE bounds them."]),
        undecided: false,
        process: None,
        memory: None,
        holder: None,
    })
}

/// The rank that jumped before the others, where that is more than a guess.
pub(crate) fn of_first_cause(across: &CrossRank, job: &JobRecord<'_>) -> Option<Finding> {
    let best = across.best();
    let suspect = best.suspects.first().filter(|suspect| suspect.confidence != "low")?;
    let record = job.ranks.iter().find(|rank| rank.record.head.identity.rank == suspect.rank)?;
    let phase = suspect.phase.as_ref().and_then(PhaseAttribution::label);
    Some(Finding {
        id: "ranks.first_cause".to_owned(),
        kind: "first_cause".to_owned(),
        severity: Severity::Info,
        confidence: if suspect.confidence == "high" { 0.9 } else { 0.6 },
        title: format!(
            "rank {} was the first to jump, by {}{}",
            suspect.rank,
            format_bytes(suspect.peak_delta_bytes),
            phase.map(|phase| format!(", in phase {phase}")).unwrap_or_default()
        ),
        message: Some(format!("clocks were aligned by {}", best.alignment.as_str().replace('_', " "))),
        metrics: metrics([
            ("rank", suspect.rank.into()),
            ("lead_ns", (suspect.lead_ns as f64).into()),
            ("peak_delta_bytes", suspect.peak_delta_bytes.into()),
        ]),
        evidence: vec![Evidence {
            kind: "telemetry".to_owned(),
            session_id: Some(record.session_id.to_owned()),
            start_ns: Some(suspect.first_spike_ns),
            end_ns: Some(suspect.first_spike_ns),
            ..Evidence::default()
        }],
        advice: Vec::new(),
        undecided: false,
        process: (record.record.head.pid > 0).then_some(record.record.head.pid),
        memory: None,
        holder: None,
    })
}
