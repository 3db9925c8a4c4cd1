//! The phase and the step that a program is in, followed event by event. Must never hold more phases than a program can sensibly have open.

use std::sync::Arc;

use serde_json::Value;
use stormlog_analyze::phases::{Boundary, SCOPE_KEY};
use stormlog_model::Event;
use stormlog_model::phases::{MAX_DEPTH, PHASE_ENTER, PHASE_EXIT};

/// Phases that were entered and not left, and the last step.
#[derive(Default)]
pub(crate) struct CurrentPhase {
    open: Vec<(String, Arc<str>)>,
    step: Option<i64>,
}

impl CurrentPhase {
    /// Takes in an event of the process, in the order of time.
    pub(crate) fn observe(&mut self, event: &Event, step: Option<i64>) {
        self.step = step.or(self.step);
        let is_enter = event.head.event_type == PHASE_ENTER;
        if !is_enter && event.head.event_type != PHASE_EXIT {
            return;
        }
        let scope = event.metadata.map.get(SCOPE_KEY).and_then(Value::as_object);
        let Some(boundary) = scope.and_then(|scope| Boundary::of(&event.head.event_type, scope)) else {
            return;
        };
        if !is_enter {
            if let Some(at) = self.open.iter().rposition(|(id, _)| *id == boundary.scope_id) {
                self.open.remove(at);
            }
        } else if self.open.len() < MAX_DEPTH {
            self.open.push((boundary.scope_id, Arc::from(boundary.parts.join(" / "))));
        }
    }

    pub(crate) fn phase(&self) -> Option<Arc<str>> {
        self.open.last().map(|(_, path)| Arc::clone(path))
    }

    pub(crate) fn step(&self) -> Option<i64> {
        self.step
    }
}
