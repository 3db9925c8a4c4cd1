//! Ranks and machines that are unlike the others of their job, attempt by attempt, with the phase and the line that differ. The rule is
//! `stormlog_analyze::rules::outliers`: median and median absolute deviation.

use std::collections::BTreeMap;
use std::sync::Arc;

use stormlog_analyze::rules::outliers::{Outlying, TYPICAL, different_line, outlying};
use stormlog_analyze::series::median;

use crate::gather::{JobState, RankState};
use crate::peak::{Kind, Peak};
use crate::report::{OutlierHost, OutlierRank};

/// The ranks of one attempt that have a peak.
type Ranks<'a> = Vec<(i64, Peak, &'a RankState)>;

fn attempts(job: &JobState, kind: Kind) -> BTreeMap<Option<i64>, Ranks<'_>> {
    let mut attempts: BTreeMap<Option<i64>, Ranks<'_>> = BTreeMap::new();
    for ((attempt, rank), state) in &job.ranks {
        if let Some(peak) = state.peak(kind) {
            attempts.entry(*attempt).or_default().push((*rank, peak, state));
        }
    }
    attempts
}

/// The ranks of a job that are unlike the others.
#[must_use]
pub fn ranks(job_id: &str, job: &JobState) -> Vec<OutlierRank> {
    let mut found = Vec::new();
    for kind in Kind::ALL {
        for (attempt, ranks) in attempts(job, kind) {
            let peaks: Vec<f64> = ranks.iter().map(|(_, peak, _)| peak.bytes as f64).collect();
            let Some(out) = outlying(&peaks) else { continue };
            found.extend(out.indices.iter().map(|at| OutlierRank {
                job_id: job_id.to_owned(),
                attempt,
                ..outlier(kind, &ranks, *at, &out)
            }));
        }
    }
    found
}

fn outlier(kind: Kind, ranks: &Ranks<'_>, at: usize, out: &Outlying) -> OutlierRank {
    let (rank, peak, state) = &ranks[at];
    let line = line(kind, ranks, at, out);
    OutlierRank {
        rank: *rank,
        host: state.host().map(|host| host.to_string()),
        memory: kind.as_str(),
        peak_bytes: peak.bytes.unsigned_abs(),
        median_bytes: out.centre as u64,
        difference_bytes: peak.bytes.saturating_sub(out.centre as i64),
        threshold_bytes: out.threshold as u64,
        phase: peak.phase.as_ref().map(|phase| phase.to_string()),
        usual_phase: usual_phase(ranks, out),
        line: line.as_ref().map(|(line, _)| line.clone()),
        line_more_bytes: line.map(|(_, more)| more),
        ..OutlierRank::default()
    }
}

/// The phase in which most of the others peak.
fn usual_phase(ranks: &Ranks<'_>, out: &Outlying) -> Option<String> {
    let mut phases: BTreeMap<&Arc<str>, u64> = BTreeMap::new();
    for (at, (_, peak, _)) in ranks.iter().enumerate() {
        if let Some(phase) = peak.phase.as_ref().filter(|_| out.indices.binary_search(&at).is_err()) {
            *phases.entry(phase).or_default() += 1;
        }
    }
    phases.into_iter().max_by_key(|(_, count)| *count).map(|(phase, _)| phase.to_string())
}

/// The line that keeps more than in the ranks that are most like the rest.
fn line(kind: Kind, ranks: &Ranks<'_>, at: usize, out: &Outlying) -> Option<(String, u64)> {
    fn kept(kind: Kind, state: &RankState) -> Vec<(&str, u64)> {
        let lines = &state.lines[usize::from(kind == Kind::Device)];
        lines
            .iter()
            .filter_map(|(place, bytes)| Some((place.as_str(), u64::try_from(*bytes).ok()?)))
            .collect()
    }
    let (_, peak, own) = &ranks[at];
    let mut usual: Vec<&(i64, Peak, &RankState)> = ranks.iter().collect();
    usual.sort_by(|a, b| {
        let away = |peak: &Peak| (peak.bytes as f64 - out.centre).abs();
        away(&a.1).total_cmp(&away(&b.1))
    });
    let others = usual.iter().map(|(_, _, state)| kept(kind, state)).filter(|lines| !lines.is_empty());
    let others: Vec<Vec<(&str, u64)>> = others.take(TYPICAL).collect();
    let own = kept(kind, own);
    let (line, more) = different_line(&own, &others, peak.bytes.unsigned_abs())?;
    Some((own.get(line)?.0.to_owned(), more))
}

/// The machines of a job whose ranks are unlike those of the others.
#[must_use]
pub fn hosts(job_id: &str, job: &JobState) -> Vec<OutlierHost> {
    let mut found = Vec::new();
    for kind in Kind::ALL {
        for (attempt, ranks) in attempts(job, kind) {
            let mut by_host: BTreeMap<&Arc<str>, Vec<f64>> = BTreeMap::new();
            for (_, peak, state) in &ranks {
                if let Some(host) = state.host() {
                    by_host.entry(host).or_default().push(peak.bytes as f64);
                }
            }
            let middles: Vec<(&Arc<str>, u64, f64)> = by_host
                .into_iter()
                .map(|(host, mut peaks)| (host, peaks.len() as u64, median(&mut peaks)))
                .collect();
            // One rank a machine: the rank itself is reported.
            if middles.iter().all(|(_, ranks, _)| *ranks <= 1) {
                continue;
            }
            let Some(out) = outlying(&middles.iter().map(|(_, _, middle)| *middle).collect::<Vec<f64>>())
            else {
                continue;
            };
            found.extend(out.indices.iter().map(|at| {
                let (host, ranks, middle) = &middles[*at];
                OutlierHost {
                    job_id: job_id.to_owned(),
                    attempt,
                    host: host.to_string(),
                    memory: kind.as_str(),
                    ranks: *ranks,
                    median_bytes: *middle as u64,
                    usual_bytes: out.centre as u64,
                    difference_bytes: (*middle - out.centre) as i64,
                }
            }));
        }
    }
    found
}
