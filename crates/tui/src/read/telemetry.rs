//! The sessions of a process, read on: resident memory, the last alerts and open phases for a live view, and the lanes of the report page.

use std::path::PathBuf;

use serde_json::Value;
use stormlog_model::{Counter, Event};
use stormlog_story::FollowedSessions;
use stormlog_story::lanes::ProcessLanes;

use crate::state::reading::{Level, Note};
use crate::state::series::Series;

/// Alerts kept.
const MOST_NOTES: usize = 20;
/// Phases that may be open at once.
const MOST_PHASES: usize = 64;
/// The host among the devices.
const HOST: i64 = -1;

/// What was recorded so far.
#[derive(Default)]
pub(super) struct Telemetry {
    sessions: FollowedSessions,
    pub(super) rss: Series,
    pub(super) notes: Vec<Note>,
    phases: Vec<(String, String)>,
}

impl Telemetry {
    /// Takes in what is new in the sessions of a process, of which the first is the one from outside.
    pub(super) fn look(&mut self, paths: &[PathBuf], pid: Option<u32>) {
        let mut sessions = std::mem::take(&mut self.sessions);
        sessions.look(paths, &mut |place, event| {
            let is_its = pid.is_none_or(|pid| event.head.pid == i64::from(pid));
            if place == 0 && is_its {
                self.take(event);
            }
        });
        self.sessions = sessions;
    }

    /// The lanes of the report page, as far as they are recorded.
    pub(super) fn lanes(&mut self, pid: Option<u32>) -> ProcessLanes {
        self.sessions.lanes(pid).clone()
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
