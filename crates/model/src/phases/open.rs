//! Which phases were open when the recording ended, derived from its events: for programs that have ended.
//!
//! A ring forgets its oldest events, so an end without a beginning is normal. Must never hold more phases than a program
//! can sensibly have open, however many beginnings it is fed.

use std::borrow::Borrow;

use crate::{Event, Record};
use rustc_hash::FxHashMap;
use serde_json::Value;

use super::{PHASE_ENTER, PHASE_EXIT, PHASE_SCOPE};

/// More open at once are not phases but a program that never closes them; the oldest stay.
const MAX_OPEN: usize = 10_000;

/// A phase that was open at the end.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenPhase {
    /// Its names, outermost first.
    pub path: Vec<String>,
    /// `<session>:<sequence>`.
    pub scope_id: String,
    /// The thread it was entered in.
    pub thread_id: u64,
    /// That thread's name.
    pub thread_name: String,
    /// The rank.
    pub rank: u64,
    /// When it was entered.
    pub entered_at_ns: u64,
    /// What the program said about it.
    pub attributes: Record,
}

impl OpenPhase {
    /// The object form.
    pub fn to_record(&self) -> Record {
        let mut record = Record::new();
        let mut put = |key: &str, value: Value| record.insert(key.to_owned(), value);
        put("path", Value::from(self.path.clone()));
        put("scope_id", self.scope_id.as_str().into());
        put("thread_id", self.thread_id.into());
        put("thread_name", self.thread_name.as_str().into());
        put("rank", self.rank.into());
        put("entered_at_ns", self.entered_at_ns.into());
        if !self.attributes.is_empty() {
            put("attributes", Value::Object(self.attributes.clone()));
        }
        record
    }

    fn of(event: &Event, scope: &Record) -> Option<Self> {
        let path = scope.get("path")?.as_array()?;
        let text = |key: &str| scope.get(key)?.as_str().map(str::to_owned);
        Some(OpenPhase {
            path: path.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            scope_id: text("scope_id")?,
            thread_id: scope.get("thread_id")?.as_u64()?,
            thread_name: text("thread_name")?,
            rank: event.head.identity.rank,
            entered_at_ns: event.timestamp_ns,
            attributes: scope.get("attributes").and_then(Value::as_object).cloned().unwrap_or_default(),
        })
    }
}

/// Follows the boundaries of a recording.
#[derive(Debug, Default)]
pub struct OpenPhases {
    open: FxHashMap<(String, u64), (u64, OpenPhase)>,
    entered: u64,
}

impl OpenPhases {
    /// One event, boundary or not.
    pub fn observe(&mut self, event: &Event) {
        let is_enter = event.head.event_type == PHASE_ENTER;
        if !is_enter && event.head.event_type != PHASE_EXIT {
            return;
        }
        let scope = event.metadata.map.get(PHASE_SCOPE).and_then(Value::as_object);
        let Some(phase) = scope.and_then(|scope| OpenPhase::of(event, scope)) else { return };
        let key = (phase.scope_id.clone(), phase.rank);
        if !is_enter {
            self.open.remove(&key);
        } else if self.open.len() < MAX_OPEN {
            self.entered += 1;
            self.open.insert(key, (self.entered, phase));
        }
    }

    /// What is still open, in the order it was entered.
    pub fn finish(self) -> Vec<OpenPhase> {
        let mut found: Vec<(u64, OpenPhase)> = self.open.into_values().collect();
        found.sort_by_key(|(order, _)| *order);
        found.into_iter().map(|(_, phase)| phase).collect()
    }
}

/// The phases still open after `events`, in the order they were entered.
pub fn open_phases<E: Borrow<Event>>(events: impl IntoIterator<Item = E>) -> Vec<OpenPhase> {
    let mut open = OpenPhases::default();
    events.into_iter().for_each(|event| open.observe(event.borrow()));
    open.finish()
}
