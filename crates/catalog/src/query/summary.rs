//! One number a group: peaks, counts, how the hidden memory grew.
//!
//! Where every source is a sink whose roll-ups are fresh, what they can answer is taken from them: a long recording is not read for a number that
//! is already known.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde_json::Value;
use stormlog_model::classify::{is_alert_event, is_collector_transition};
use stormlog_model::{Counter, Event, Record};
use stormlog_store::Source;
use stormlog_store::sink::{self, CounterSummary, PeakValue, SessionRollup};

use super::sessions::SessionFilter;
use super::sources::quoted;
use super::store::{SourceSession, Store};
use super::{QueryError, record};

/// What can be summed up.
pub const METRICS: [&str; 8] = [
    "session_count_by_status",
    "peak_allocator_allocated_bytes",
    "peak_allocator_reserved_bytes",
    "peak_device_used_bytes",
    "alert_count",
    "collector_degradation_transitions",
    "interrupted_sessions_with_oom_bundles",
    "hidden_memory_gap_growth",
];
/// What it can be grouped by.
pub const GROUPS: [&str; 4] = ["session", "session-rank", "rank", "status"];

/// One number of one group; `details` are further columns.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the names are those of 0.4.3's rows")]
pub struct SummaryRow {
    pub metric: String,
    pub group_by: String,
    pub value: i128,
    pub session_id: Option<String>,
    pub rank: Option<u64>,
    pub status: Option<String>,
    pub details: Record,
}

impl SummaryRow {
    /// The object form, the details beside the rest.
    pub fn to_record(&self) -> Record {
        let mut row = record([
            ("metric", self.metric.as_str().into()),
            ("group_by", self.group_by.as_str().into()),
            ("value", number(self.value)),
            ("session_id", self.session_id.as_deref().into()),
            ("rank", self.rank.into()),
            ("status", self.status.as_deref().into()),
        ]);
        row.extend(self.details.clone());
        row
    }
}

/// Beyond 64 bits there is no difference worth a digit.
fn number(value: i128) -> Value {
    let signed = i64::try_from(value).map(Value::from);
    signed.or_else(|_| u64::try_from(value).map(Value::from)).unwrap_or_default()
}

/// Session, rank and status; those the group goes by.
type Group = (Option<String>, Option<u64>, Option<&'static str>);

/// What is summed up over events.
#[derive(Clone, Copy)]
enum Metric {
    Peak(Counter),
    Alerts,
    Transitions,
    Growth,
}

/// A group while it is summed up.
#[derive(Default)]
struct Sum {
    value: Option<i128>,
    /// Events are ordered by time, then by session.
    at: Option<(u64, String)>,
    first: Option<((u64, String), i128)>,
    last: Option<((u64, String), i128)>,
    most: Option<i128>,
    samples: u64,
}

impl Store {
    /// One number a group; counters that are unknown have no part in it.
    pub fn summarize(&mut self, metric: &str, group_by: Option<&str>) -> Result<Vec<SummaryRow>, QueryError> {
        match metric {
            "session_count_by_status" => return self.by_status(metric),
            "interrupted_sessions_with_oom_bundles" => return self.with_bundles(metric),
            _ => {}
        }
        let asked = match metric {
            "peak_allocator_allocated_bytes" => Metric::Peak(Counter::Allocated),
            "peak_allocator_reserved_bytes" => Metric::Peak(Counter::Reserved),
            "peak_device_used_bytes" => Metric::Peak(Counter::Used),
            "alert_count" => Metric::Alerts,
            "collector_degradation_transitions" => Metric::Transitions,
            "hidden_memory_gap_growth" => Metric::Growth,
            other => return Err(QueryError::UnknownMetric(other.to_owned())),
        };
        let group_by = group_by.unwrap_or("session");
        let known = self.rollups().and_then(|sessions| of_rollups(&sessions, asked, group_by));
        let sums = match known {
            Some(sums) => sums,
            None => self.of_events(asked, group_by)?,
        };
        let mut rows: Vec<(String, SummaryRow)> = sums
            .into_iter()
            .filter_map(|(group, sum)| {
                let (value, details) = sum.finish(asked)?;
                let order = order_of(&group);
                let (session_id, rank, status) = group;
                let status = status.map(str::to_owned);
                let (metric, group_by) = (metric.to_owned(), group_by.to_owned());
                Some((order, SummaryRow { metric, group_by, value, session_id, rank, status, details }))
            })
            .collect();
        rows.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }

    fn by_status(&mut self, metric: &str) -> Result<Vec<SummaryRow>, QueryError> {
        let mut counts: BTreeMap<&'static str, i128> = BTreeMap::new();
        for row in self.session_rows()? {
            *counts.entry(row.summary.status.as_str()).or_default() += 1;
        }
        let row = |(status, value): (&str, i128)| SummaryRow {
            metric: metric.to_owned(),
            group_by: "status".to_owned(),
            value,
            session_id: None,
            rank: None,
            status: Some(status.to_owned()),
            details: Record::new(),
        };
        Ok(counts.into_iter().map(row).collect())
    }

    fn with_bundles(&mut self, metric: &str) -> Result<Vec<SummaryRow>, QueryError> {
        let asked = SessionFilter {
            status: Some("interrupted".to_owned()),
            has_oom_bundle: Some(true),
            ..SessionFilter::default()
        };
        let rows = self.sessions(&asked)?.into_iter().map(|row| SummaryRow {
            metric: metric.to_owned(),
            group_by: "session".to_owned(),
            value: row.oom_bundle_count.into(),
            session_id: Some(row.summary.session_id),
            rank: None,
            status: Some(row.summary.status.as_str().to_owned()),
            details: Record::new(),
        });
        Ok(rows.collect())
    }

    fn of_events(&mut self, metric: Metric, group_by: &str) -> Result<FxHashMap<Group, Sum>, QueryError> {
        let mut sums: FxHashMap<Group, Sum> = FxHashMap::default();
        // Events that follow each other are mostly of one group.
        let mut last: Option<(Group, Sum)> = None;
        self.each_event(|_, known, event| {
            if !metric.concerns(event) {
                return;
            }
            let is_same = last.as_ref().is_some_and(|(group, _)| is_of(group, known, event, group_by));
            if !is_same {
                if let Some((group, sum)) = last.take() {
                    sums.insert(group, sum);
                }
                let group = group_of(known, event, group_by);
                let sum = sums.remove(&group).unwrap_or_default();
                last = Some((group, sum));
            }
            if let Some((_, sum)) = &mut last {
                sum.observe(metric, event);
            }
        })?;
        sums.extend(last);
        Ok(sums)
    }

    /// The roll-ups of all sources; `None` unless each is a sink that has fresh ones.
    fn rollups(&self) -> Option<Vec<SessionRollup>> {
        let mut found = Vec::new();
        for source in &self.catalog.sources {
            let Source::Sink(path) = &source.source else { return None };
            found.extend(sink::read_rollups(path)?.sessions);
        }
        (!self.catalog.sources.is_empty()).then_some(found)
    }
}

impl Metric {
    fn concerns(self, event: &Event) -> bool {
        match self {
            Metric::Peak(counter) => event.counter(counter).is_some(),
            Metric::Alerts => is_alert_event(event),
            Metric::Transitions => is_collector_transition(&event.head.event_type),
            Metric::Growth => event.head.event_type == "sample" && gap_of(event).is_some(),
        }
    }
}

fn gap_of(event: &Event) -> Option<i128> {
    Some(i128::from(event.counter(Counter::Used)?) - i128::from(event.counter(Counter::Reserved)?))
}

fn group_of(known: &SourceSession, event: &Event, group_by: &str) -> Group {
    let (session, rank) = (Some(event.head.session_id.clone()), Some(event.head.identity.rank));
    match group_by {
        "rank" => (None, rank, None),
        "session-rank" => (session, rank, None),
        "status" => (None, None, Some(known.summary.status.as_str())),
        _ => (session, None, None),
    }
}

fn is_of(group: &Group, known: &SourceSession, event: &Event, group_by: &str) -> bool {
    let (session, rank) =
        (group.0.as_ref() == Some(&event.head.session_id), group.1 == Some(event.head.identity.rank));
    match group_by {
        "rank" => rank,
        "session-rank" => session && rank,
        "status" => group.2 == Some(known.summary.status.as_str()),
        _ => session,
    }
}

/// Groups are listed in the order of their text in Python.
fn order_of((session, rank, status): &Group) -> String {
    let none = || "None".to_owned();
    let session = session.as_deref().map_or_else(none, quoted);
    let rank = rank.map_or_else(none, |rank| rank.to_string());
    format!("({session}, {rank}, {})", status.map_or_else(none, quoted))
}

impl Sum {
    fn observe(&mut self, metric: Metric, event: &Event) {
        let is_before =
            |at: &(u64, String)| (event.timestamp_ns, event.head.session_id.as_str()) < (at.0, at.1.as_str());
        let moment = || (event.timestamp_ns, event.head.session_id.clone());
        match metric {
            Metric::Peak(counter) => {
                let Some(value) = event.counter(counter).map(i128::from) else { return };
                let is_first = self.value == Some(value) && self.at.as_ref().is_some_and(is_before);
                if self.value.is_none_or(|most| value > most) || is_first {
                    (self.value, self.at) = (Some(value), Some(moment()));
                }
            }
            Metric::Alerts | Metric::Transitions => self.value = Some(self.value.unwrap_or(0) + 1),
            Metric::Growth => {
                let Some(gap) = gap_of(event) else { return };
                if self.first.as_ref().is_none_or(|(at, _)| is_before(at)) {
                    self.first = Some((moment(), gap));
                }
                match &mut self.last {
                    Some((at, _)) if is_before(at) => {}
                    // The text is copied when it changes only.
                    Some((at, last)) if at.1 == event.head.session_id => {
                        (at.0, *last) = (event.timestamp_ns, gap)
                    }
                    slot => *slot = Some((moment(), gap)),
                }
                self.most = Some(self.most.map_or(gap, |most| most.max(gap)));
                self.samples += 1;
            }
        }
    }

    fn finish(self, metric: Metric) -> Option<(i128, Record)> {
        match metric {
            Metric::Peak(_) => {
                let at = self.at.map(|(at_ns, _)| at_ns);
                Some((self.value?, record([("timestamp_ns", at.into())])))
            }
            Metric::Alerts | Metric::Transitions => Some((self.value?, Record::new())),
            Metric::Growth => {
                let (first, last) = (self.first?.1, self.last?.1);
                let value = self.value.unwrap_or(last - first);
                let details = record([
                    ("first_gap_bytes", number(first)),
                    ("latest_gap_bytes", number(last)),
                    ("peak_gap_bytes", self.most.map_or(Value::Null, number)),
                    ("sample_count", self.samples.into()),
                ]);
                Some((value, details))
            }
        }
    }
}

/// The summary by what roll-ups hold; `None` where they do not hold it.
fn of_rollups(sessions: &[SessionRollup], metric: Metric, group_by: &str) -> Option<FxHashMap<Group, Sum>> {
    let by_rank = matches!(group_by, "rank" | "session-rank");
    let group = |session: &SessionRollup, rank: Option<u64>| -> Group {
        match group_by {
            "status" => (None, None, Some(session.session.status.as_str())),
            "rank" => (None, rank, None),
            _ => (Some(session.session.session_id.clone()), rank, None),
        }
    };
    let mut sums: FxHashMap<Group, Sum> = FxHashMap::default();
    match metric {
        Metric::Peak(counter) => {
            for session in sessions {
                if by_rank {
                    for rank in &session.ranks {
                        take_peak(
                            sums.entry(group(session, Some(rank.rank))).or_default(),
                            peak_of(&rank.counters, counter),
                        );
                    }
                } else {
                    take_peak(
                        sums.entry(group(session, None)).or_default(),
                        peak_of(&session.counters, counter),
                    );
                }
            }
        }
        Metric::Alerts | Metric::Transitions if !by_rank => {
            for session in sessions {
                let count = match metric {
                    Metric::Alerts => session.alerts.total_count,
                    _ => session.collector_health.transition_count,
                };
                if count > 0 {
                    let sum = sums.entry(group(session, None)).or_default();
                    sum.value = Some(sum.value.unwrap_or(0) + i128::from(count));
                }
            }
        }
        // Over several sessions the first and last gap of a rank are of different programs.
        Metric::Growth if by_rank && (group_by != "rank" || sessions.len() == 1) => {
            for session in sessions {
                for rank in &session.ranks {
                    let gaps = rank
                        .hidden_gap_delta_bytes
                        .zip(rank.hidden_gap_first_bytes)
                        .zip(rank.hidden_gap_latest_bytes);
                    if let Some(((delta, first), last)) = gaps {
                        let sum = Sum {
                            value: Some(delta),
                            first: Some(((0, String::new()), first)),
                            last: Some(((0, String::new()), last)),
                            most: rank.hidden_gap_peak_bytes,
                            samples: rank.sample_count,
                            at: None,
                        };
                        sums.insert(group(session, Some(rank.rank)), sum);
                    }
                }
            }
        }
        _ => return None,
    }
    Some(sums)
}

fn peak_of(counters: &CounterSummary, counter: Counter) -> &PeakValue {
    match counter {
        Counter::Allocated => &counters.allocator_allocated_bytes,
        Counter::Reserved => &counters.allocator_reserved_bytes,
        _ => &counters.device_used_bytes,
    }
}

fn take_peak(sum: &mut Sum, peak: &PeakValue) {
    if let Some(value) = peak.value
        && sum.value.is_none_or(|most| value > most)
    {
        sum.value = Some(value);
        sum.at = peak.timestamp_ns.map(|at| (at, String::new()));
    }
}
