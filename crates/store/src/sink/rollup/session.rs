//! The rollup of one session, fed event by event.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashSet};
use std::hash::BuildHasher;

use stormlog_model::classify::{is_alert, is_collector_transition, is_oom, severity_of};
use stormlog_model::{SessionSummary, strip};

use super::observe::{Observation, Peaks, RankState, Span, WindowState};
use super::{AlertSummary, CollectorHealth, OomSummary, SessionRollup};
use crate::sink::SinkError;

/// Sessions, ranks, windows and ranks of windows in one rollup. Half a year of minutes is a quarter of it and takes
/// 60 MB; beyond it a file is hostile or its windows are too short to be a summary.
pub(super) const MAX_GROUPS: usize = 1 << 20;

/// Makes a [`SessionRollup`] out of events in any order.
#[derive(Debug)]
pub struct RollupBuilder {
    start_ns: i64,
    window_ns: u64,
    events: u64,
    samples: u64,
    span: Span,
    peaks: Peaks,
    alerts: AlertSummary,
    health: Health,
    oom: Oom,
    ranks: BTreeMap<u64, RankState>,
    windows: BTreeMap<u64, WindowState>,
}

impl RollupBuilder {
    /// For a session that began at `start_ns`, in windows of `window_ns`, which must not be 0.
    pub fn new(start_ns: i64, window_ns: u64) -> Self {
        RollupBuilder {
            start_ns,
            window_ns: window_ns.max(1),
            events: 0,
            samples: 0,
            span: Span::default(),
            peaks: Peaks::default(),
            alerts: AlertSummary::default(),
            health: Health::default(),
            oom: Oom::default(),
            ranks: BTreeMap::new(),
            windows: BTreeMap::new(),
        }
    }

    /// How many groups one rollup file may have over all its sessions.
    pub fn budget() -> usize {
        MAX_GROUPS
    }

    /// Takes an event in. Every group it begins is taken from `budget`.
    pub fn observe(&mut self, event: &Observation<'_>, budget: &mut usize) -> Result<(), SinkError> {
        let alert = is_alert(event.event_type, event.severity);
        let transition = is_collector_transition(event.event_type);
        let oom = is_oom(event.event_type, event.has_oom_mark);
        self.events += 1;
        self.samples += u64::from(event.event_type == "sample");
        self.span.observe(event.timestamp_ns);
        self.peaks.observe(event);
        self.health.observe(event);
        if alert {
            self.alerts.total_count += 1;
            let severity = severity_of(event.event_type, event.severity);
            *self.alerts.severity_counts.entry(severity).or_default() += 1;
            *self.alerts.event_type_counts.entry(event.event_type.to_owned()).or_default() += 1;
        }
        if oom {
            self.oom.observe(event);
        }
        let mut new_groups = 0;
        let rank = self.ranks.entry(event.rank).or_insert_with(|| {
            new_groups += 1;
            RankState::new(event)
        });
        rank.observe(event);
        let since_start = i128::from(event.timestamp_ns) - i128::from(self.start_ns);
        let index = (since_start.max(0) / i128::from(self.window_ns)).try_into().unwrap_or(u64::MAX);
        let window = self.windows.entry(index).or_default();
        new_groups += usize::from(window.observe(event));
        window.alerts += u64::from(alert);
        window.transitions += u64::from(transition);
        window.ooms += u64::from(oom);
        let left = budget.checked_sub(new_groups);
        *budget = left.ok_or(SinkError::TooManyGroups { limit: MAX_GROUPS })?;
        Ok(())
    }

    /// The rollup. `sources` are the files the events came from.
    pub fn finish(
        self,
        session: SessionSummary,
        mut sources: Vec<String>,
        warnings: Vec<String>,
    ) -> SessionRollup {
        sources.sort_unstable();
        // As in Python, an end of 0 counts as no end.
        let end = session.ended_at_ns.filter(|end| *end != 0).map(i128::from);
        let terminal = end.or(self.span.last().map(i128::from));
        let (start, length) = (self.start_ns, self.window_ns);
        SessionRollup {
            session,
            event_count: self.events,
            sample_count: self.samples,
            first_timestamp_ns: self.span.first(),
            last_timestamp_ns: self.span.last(),
            source_count: sources.len() as u64,
            sources_loaded: sources,
            warnings,
            counters: self.peaks.summary(),
            alerts: self.alerts,
            collector_health: self.health.finish(terminal),
            oom: self.oom.summary(),
            ranks: self.ranks.iter().map(|(rank, state)| state.finish(*rank)).collect(),
            windows: self.windows.iter().map(|(index, state)| state.finish(*index, start, length)).collect(),
        }
    }
}

/// The collector's ups and downs. All are kept until the end, 16 bytes each where the record on disk has hundreds,
/// because how long it was down depends on their order in time.
#[derive(Debug, Default)]
struct Health {
    transitions: Vec<(u64, bool)>,
    last_status: Option<(u64, String)>,
}

impl Health {
    fn observe(&mut self, event: &Observation<'_>) {
        let at = event.timestamp_ns;
        let status = match event.event_type {
            "collector_degraded" => {
                self.transitions.push((at, true));
                "degraded"
            }
            "collector_recovered" => {
                self.transitions.push((at, false));
                "healthy"
            }
            _ => match event.health_status.map(strip) {
                Some(status) if !status.is_empty() => status,
                _ => return,
            },
        };
        match &mut self.last_status {
            Some((seen, _)) if at < *seen => {}
            Some((seen, last)) if last == status => *seen = at,
            slot => *slot = Some((at, status.to_lowercase())),
        }
    }

    fn finish(mut self, terminal: Option<i128>) -> CollectorHealth {
        self.transitions.sort_by_key(|(at, _)| *at);
        let mut summary = CollectorHealth::default();
        let mut down_since: Option<u64> = None;
        for (at, degraded) in self.transitions {
            summary.transition_count += 1;
            if degraded {
                summary.degraded_count += 1;
                down_since = Some(at);
            } else {
                summary.recovered_count += 1;
                summary.degraded_time_ns += down_since.take().map_or(0, |since| at - since);
            }
        }
        if let (Some(since), Some(terminal)) = (down_since, terminal) {
            let down = (terminal - i128::from(since)).max(0);
            let down = u64::try_from(down).unwrap_or(u64::MAX);
            summary.degraded_time_ns = summary.degraded_time_ns.saturating_add(down);
        }
        summary.last_status = self.last_status.map(|(_, status)| status);
        summary
    }
}

/// Out-of-memory events. Of their bundles' paths only a keyed hash is kept: only their number is requested.
#[derive(Debug, Default)]
struct Oom {
    events: u64,
    bundles: HashSet<u64>,
    hasher: RandomState,
}

impl Oom {
    fn observe(&mut self, event: &Observation<'_>) {
        self.events += 1;
        if let Some(path) = event.oom_dump_path.filter(|path| !strip(path).is_empty()) {
            self.bundles.insert(self.hasher.hash_one(path));
        }
    }

    fn summary(&self) -> OomSummary {
        OomSummary {
            marker_count: self.events,
            event_count: self.events,
            bundle_path_count: self.bundles.len() as u64,
        }
    }
}
