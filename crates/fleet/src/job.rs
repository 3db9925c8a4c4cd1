//! One job of a fleet: its peaks and waste, which of its ranks are missing or were there twice, how often it was started again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stormlog_analyze::rules::ranks::missing_ranks;
use stormlog_analyze::series::median;

use crate::CLOCK_SKEW_US;
use crate::gather::{JobState, RankState};
use crate::moment::moment;
use crate::peak::{Kind, Peak};
use crate::report::{JobReport, MOST_NAMED, MemoryReport};

impl JobState {
    /// What its processes are called most often.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let most = self.names.iter().max_by_key(|(name, count)| (**count, std::cmp::Reverse(name.as_str())));
        most.map(|(name, _)| name.as_str())
    }

    /// Its version labels.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        let labels: Vec<&str> = self.versions.iter().map(String::as_str).collect();
        (!labels.is_empty()).then(|| labels.join(", "))
    }

    /// Its deaths.
    #[must_use]
    pub fn death_count(&self) -> u64 {
        self.deaths.len() as u64 + self.deaths_not_kept
    }

    /// Its ranks, each with the highest of its attempts.
    fn peaks(&self, kind: Kind) -> BTreeMap<i64, (Peak, &RankState)> {
        let mut peaks: BTreeMap<i64, (Peak, &RankState)> = BTreeMap::new();
        for ((_, rank), state) in &self.ranks {
            let Some(peak) = state.peak(kind) else { continue };
            match peaks.get(rank) {
                Some((known, _)) if known.bytes >= peak.bytes => {}
                _ => {
                    peaks.insert(*rank, (peak, state));
                }
            }
        }
        peaks
    }

    /// As reported.
    #[must_use]
    pub fn report(&self, job_id: &str) -> JobReport {
        let seen: BTreeSet<u64> =
            self.ranks.keys().filter_map(|(_, rank)| u64::try_from(*rank).ok()).collect();
        let seen: Vec<u64> = seen.into_iter().collect();
        // A rank above the declared number of ranks shows that the number is wrong, unless the rank is beyond any cluster.
        let highest = seen.last().map_or(0, |rank| rank.saturating_add(1)).min(1 << 16);
        let world_size = u64::try_from(self.world_size).unwrap_or(0).max(highest);
        let mut missing = missing_ranks(&seen, world_size);
        // Counted by itself: of a number of ranks beyond any cluster only the first are listed.
        let present = seen.iter().filter(|rank| **rank < world_size).count() as u64;
        let missing_count = world_size - present;
        missing.truncate(MOST_NAMED);
        let hosts: BTreeSet<&Arc<str>> = self.hosts().collect();
        JobReport {
            job_id: job_id.to_owned(),
            name: self.name().map(str::to_owned),
            version: self.version(),
            started_at: self.span.and_then(|(first, _)| moment(first)),
            ended_at: self.span.and_then(|(_, last)| moment(last)),
            world_size,
            ranks_seen: seen.len() as u64,
            missing_count,
            missing_ranks: missing,
            duplicated_ranks: self.duplicated(),
            restarts: self.restarts(),
            hosts: hosts.len() as u64,
            runs: self.runs.len() as u64,
            deaths: self.death_count(),
            host_memory: self.memory(Kind::Host),
            device_memory: self.memory(Kind::Device),
        }
    }

    /// The machines of its ranks and launchers.
    pub fn hosts(&self) -> impl Iterator<Item = &Arc<str>> {
        let states = self.ranks.values().chain([&self.unranked]);
        states.flat_map(|state| state.spans.keys().map(|(_, host)| host))
    }

    fn memory(&self, kind: Kind) -> Option<MemoryReport> {
        let peaks = self.peaks(kind);
        let launcher = self.unranked.peak(kind);
        let mut all: Vec<(Option<i64>, &Peak, &RankState)> =
            peaks.iter().map(|(rank, (peak, state))| (Some(*rank), peak, *state)).collect();
        // A launcher has a memory of its own size, often above that of small ranks: it stands for the job only where no rank was recorded.
        if all.is_empty() {
            all.extend(launcher.iter().map(|peak| (None, peak, &self.unranked)));
        }
        let (rank, peak, state) =
            all.iter().max_by_key(|(rank, peak, _)| (peak.bytes, std::cmp::Reverse(*rank)))?;
        let middle = median(&mut all.iter().map(|(_, peak, _)| peak.bytes as f64).collect::<Vec<f64>>());
        let sum = all.iter().fold(0_i64, |sum, (_, peak, _)| sum.saturating_add(peak.bytes));
        let (limit, waste) = match kind {
            Kind::Host => self.host_limit_and_waste(),
            Kind::Device => {
                let states = || all.iter().map(|(_, _, state)| *state);
                let limit = states().filter_map(RankState::device_total).reduce(i64::saturating_add);
                let waste = states().filter_map(RankState::device_waste).reduce(i64::saturating_add);
                (limit, waste)
            }
        };
        let unsigned = |value: i64| u64::try_from(value).unwrap_or(0);
        Some(MemoryReport {
            peak_bytes: unsigned(peak.bytes),
            peak_rank: *rank,
            peak_host: state.host().map(|host| host.to_string()),
            peak_at: peak.at_us.and_then(moment),
            peak_phase: peak.phase.as_ref().map(|phase| phase.to_string()),
            median_peak_bytes: middle as u64,
            sum_of_peaks_bytes: unsigned(sum),
            launcher_peak_bytes: launcher.as_ref().map(|peak| unsigned(peak.bytes)),
            limit_bytes: limit.map(unsigned),
            waste_bytes: waste.map(unsigned),
        })
    }

    /// The limits of its machines, and what of them its processes never used. A machine (or pod) has one limit, however many ranks share it.
    fn host_limit_and_waste(&self) -> (Option<i64>, Option<i64>) {
        let mut by_host: BTreeMap<&Arc<str>, BTreeMap<Option<i64>, i64>> = BTreeMap::new();
        for ((attempt, _), state) in &self.ranks {
            let Some((host, peak)) = state.host().zip(state.peak(Kind::Host)) else { continue };
            let sum = by_host.entry(host).or_default().entry(*attempt).or_default();
            *sum = sum.saturating_add(peak.bytes);
        }
        let used = |host: &Arc<str>| by_host.get(host)?.values().max().copied();
        let known = self.limits.iter().filter_map(|(host, limit)| Some((*limit, used(host)?)));
        let pairs: Vec<(i64, i64)> = known.collect();
        let limit = pairs.iter().map(|(limit, _)| *limit).reduce(i64::saturating_add);
        let waste = pairs.iter().map(|(limit, used)| limit.saturating_sub(*used).max(0));
        (limit, waste.reduce(i64::saturating_add))
    }

    /// Ranks that two runs or machines claimed at one time in one attempt: their clocks may differ, those of one machine do not.
    fn duplicated(&self) -> Vec<i64> {
        let is_duplicated = |state: &RankState| {
            let spans: Vec<_> = state.spans.iter().collect();
            spans.iter().enumerate().any(|(at, ((_, host), (first, last)))| {
                spans[..at].iter().any(|((_, other), (other_first, other_last))| {
                    let slack = if host == other { 0 } else { CLOCK_SKEW_US };
                    (*last).min(*other_last).saturating_sub((*first).max(*other_first)) > slack
                })
            })
        };
        let ranks: BTreeSet<i64> =
            self.ranks.iter().filter(|(_, state)| is_duplicated(state)).map(|((_, rank), _)| *rank).collect();
        ranks.into_iter().collect()
    }

    /// Restarts: as the launcher counted them, or by the runs of one rank that followed each other.
    fn restarts(&self) -> u64 {
        let counted = self.ranks.keys().filter_map(|(attempt, _)| *attempt).max().unwrap_or(0);
        let followed = self.ranks.values().map(|state| {
            let mut spans: Vec<(i64, i64)> = state.spans.values().copied().collect();
            spans.sort_unstable();
            let mut last = i64::MIN;
            let mut starts = 0_u64;
            for (first, end) in spans {
                starts += u64::from(first > last);
                last = last.max(end);
            }
            starts.saturating_sub(1)
        });
        u64::try_from(counted).unwrap_or(0).max(followed.max().unwrap_or(0))
    }
}
