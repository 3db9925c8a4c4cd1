//! Events as rows, in time order, each with where it was found.

use serde_json::Value;
use stormlog_model::classify::is_alert_event;
use stormlog_model::{Event, Record, Schema, to_record};

use super::store::{SourceSession, Store};
use super::{QueryError, is_wanted};

/// Which events; `None` is any. Both ends of the time are included; a negative limit leaves out that many of the last.
#[derive(Debug, Default, Clone)]
#[allow(missing_docs, reason = "the names are those of the rows")]
pub struct EventFilter {
    pub session_id: Option<String>,
    pub event_type: Option<String>,
    pub rank: Option<i64>,
    pub collector: Option<String>,
    pub status: Option<String>,
    pub time_start_ns: Option<i128>,
    pub time_end_ns: Option<i128>,
    pub has_alert: Option<bool>,
    pub collector_health_status: Option<String>,
    pub backend: Option<String>,
    pub limit: Option<i64>,
}

/// Where events were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventOrigin {
    /// The file.
    pub source_path: String,
    /// What the source is.
    pub source_kind: &'static str,
    /// How their session ended.
    pub session_status: &'static str,
}

/// Events in time order. Many share an origin, which is stored once.
#[derive(Debug, Default)]
pub struct EventRows {
    /// The events.
    pub events: Vec<Event>,
    /// The number of the origin of each.
    pub origin_of: Vec<usize>,
    /// The origins.
    pub origins: Vec<EventOrigin>,
}

impl EventRows {
    /// The rows in object form, one after the other.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        self.rows().map(|(event, origin)| {
            // An event that was read can be written in the latest schema.
            let mut row = to_record(event, Schema::V4).unwrap_or_default();
            let mut put = |key: &str, value: Value| row.insert(key.to_owned(), value);
            put("source_path", origin.source_path.as_str().into());
            put("source_kind", origin.source_kind.into());
            put("session_status", origin.session_status.into());
            row
        })
    }

    /// Each event with its origin.
    pub fn rows(&self) -> impl Iterator<Item = (&Event, &EventOrigin)> {
        self.events.iter().zip(&self.origin_of).map(|(event, number)| (event, &self.origins[*number]))
    }
}

impl EventFilter {
    fn is_session_wanted(&self, known: &SourceSession) -> bool {
        is_wanted(&self.session_id, Some(&known.summary.session_id))
            && is_wanted(&self.status, Some(known.summary.status.as_str()))
    }

    fn matches(&self, event: &Event) -> bool {
        let head = &event.head;
        let states = |wanted: &Option<String>, key: &str| {
            wanted.is_none() || wanted.as_deref() == event.metadata.map.get(key).and_then(Value::as_str)
        };
        let at_ns = i128::from(event.timestamp_ns);
        self.time_start_ns.is_none_or(|start| at_ns >= start)
            && self.time_end_ns.is_none_or(|end| at_ns <= end)
            && self.rank.is_none_or(|rank| u64::try_from(rank) == Ok(head.identity.rank))
            && is_wanted(&self.event_type, Some(&head.event_type))
            && is_wanted(&self.collector, Some(&head.collector))
            && states(&self.collector_health_status, "collector_health_status")
            && states(&self.backend, "backend")
            && self.has_alert.is_none_or(|has| has == is_alert_event(event))
    }
}

/// Gathers events and keeps the first of them in time.
struct Gathering {
    rows: Vec<(Event, usize)>,
    origins: Vec<EventOrigin>,
    last: Option<(usize, String)>,
    most: usize,
}

impl Gathering {
    fn take(&mut self, number: usize, kind: &'static str, known: &SourceSession, event: &Event) {
        let is_same =
            self.last.as_ref().is_some_and(|(of, id)| *of == number && *id == known.summary.session_id);
        if !is_same {
            self.last = Some((number, known.summary.session_id.clone()));
            let origin = EventOrigin {
                source_path: known.place(),
                source_kind: kind,
                session_status: known.summary.status.as_str(),
            };
            if self.origins.last() != Some(&origin) {
                self.origins.push(origin);
            }
        }
        self.rows.push((event.clone(), self.origins.len() - 1));
        // With a limit no more than about twice as many are held.
        if self.rows.len() > self.most.saturating_mul(2).saturating_add(4096) {
            self.sort();
            self.rows.truncate(self.most);
        }
    }

    fn sort(&mut self) {
        self.rows.sort_by(|(a, _), (b, _)| {
            (a.timestamp_ns, &a.head.session_id).cmp(&(b.timestamp_ns, &b.head.session_id))
        });
    }
}

impl Store {
    /// The events, in time order.
    pub fn events(&mut self, filter: &EventFilter) -> Result<EventRows, QueryError> {
        let mut rows = self
            .picked(filter.limit, |known, event| filter.is_session_wanted(known) && filter.matches(event))?;
        let length = rows.events.len();
        let kept = match filter.limit {
            None => length,
            Some(limit) => match usize::try_from(limit) {
                Ok(limit) => limit.min(length),
                Err(_) => length.saturating_sub(usize::try_from(limit.unsigned_abs()).unwrap_or(usize::MAX)),
            },
        };
        rows.events.truncate(kept);
        rows.origin_of.truncate(kept);
        Ok(rows)
    }

    /// The events that are picked, in time order; those of one moment in the order of their sessions.
    pub(super) fn picked(
        &mut self,
        limit: Option<i64>,
        pick: impl Fn(&SourceSession, &Event) -> bool,
    ) -> Result<EventRows, QueryError> {
        let most = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        let kinds: Vec<&'static str> = (0..self.source_count()).map(|number| self.kind_of(number)).collect();
        let mut found = Gathering { rows: Vec::new(), origins: Vec::new(), last: None, most };
        self.each_event(|number, known, event| {
            if pick(known, event) {
                found.take(number, kinds[number], known, event);
            }
        })?;
        found.sort();
        let (events, origin_of) = found.rows.into_iter().unzip();
        Ok(EventRows { events, origin_of, origins: found.origins })
    }
}
