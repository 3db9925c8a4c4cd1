//! What a session tells: resident memory over time, alerts, open phases. A log is read on from where it was left, a ring anew.

use std::path::Path;

use serde_json::Value;
use stormlog_model::layout::{LOG_DIRECTORY, RING_FILE};
use stormlog_model::{Counter, Event};
use stormlog_store::recording::RecordedEvents;

use crate::state::reading::{Level, Note};
use crate::state::series::Series;

/// Alerts kept.
const MOST_NOTES: usize = 20;
/// Phases that may be open at once.
const MOST_PHASES: usize = 64;
/// The host among the devices.
const HOST: i64 = -1;

/// What was told so far.
#[derive(Default)]
pub(super) struct Told {
    log: Option<RecordedEvents>,
    pub(super) rss: Series,
    pub(super) notes: Vec<Note>,
    phases: Vec<(String, String)>,
}

impl Told {
    /// Takes in what is new in a session's recording.
    pub(super) fn look(&mut self, session: &Path) {
        let mut log = self.log.take().or_else(|| RecordedEvents::log(&session.join(LOG_DIRECTORY)).ok());
        if let Some(log) = &mut log {
            log.flatten().for_each(|event| self.take(&event));
        } else if let Ok(ring) = RecordedEvents::ring(&session.join(RING_FILE)) {
            *self = Told::default();
            ring.flatten().for_each(|event| self.take(&event));
        }
        self.log = log;
    }

    /// The phase that was entered last and is still open.
    pub(super) fn phase(&self) -> Option<String> {
        self.phases.last().map(|(_, path)| path.clone())
    }

    fn take(&mut self, event: &Event) {
        if event.head.device_id == HOST
            && let Some(rss) = event.counter(Counter::Used)
        {
            self.rss.push(event.timestamp_ns, rss);
        }
        match event.head.event_type.as_str() {
            "phase_enter" => self.phase_begins(event),
            "phase_exit" => {
                let ended = scope(event).map(|(id, _)| id);
                self.phases.retain(|(id, _)| Some(id) != ended.as_ref());
            }
            "warning" => self.note(event, Level::Warning),
            "critical" | "error" => self.note(event, Level::Critical),
            "recovered" => self.note(event, Level::Info),
            _ => {}
        }
    }

    fn note(&mut self, event: &Event, level: Level) {
        let text = event.context.as_deref().unwrap_or(&event.head.event_type).to_owned();
        if self.notes.len() == MOST_NOTES {
            self.notes.remove(0);
        }
        self.notes.push(Note { at_ns: event.timestamp_ns, level, text });
    }

    fn phase_begins(&mut self, event: &Event) {
        if self.phases.len() == MOST_PHASES {
            self.phases.remove(0);
        }
        self.phases.extend(scope(event));
    }
}

/// Id and path of the phase an event is about.
fn scope(event: &Event) -> Option<(String, String)> {
    let scope = event.metadata.map.get("phase_scope")?;
    let id = scope.get("scope_id")?.as_str()?.to_owned();
    let path: Vec<&str> = scope.get("path")?.as_array()?.iter().filter_map(Value::as_str).collect();
    Some((id, path.join(" / ")))
}
