//! Several trackers of one session: a process's host side and every GPU, each with its rhythm, alerts and health, all
//! writing to the same files.

use std::sync::Arc;
use std::time::Duration;

use stormlog_model::{Event, Problem, SessionStatus, SessionSummary};

use crate::{Config, Listener, Outlets, Source, StartError, Tracker};

/// Trackers that start and end together.
pub struct Group {
    trackers: Vec<Tracker>,
}

impl Group {
    /// One tracker a part, over the same files. All parts must be of one session.
    pub fn new(
        parts: Vec<(Config, Box<dyn Source>)>,
        outlets: Outlets,
        listener: Option<Arc<dyn Listener>>,
    ) -> Result<Self, Problem> {
        let mut trackers = Vec::new();
        let mut last = Some(outlets);
        let count = parts.len();
        for (number, (config, source)) in (1..).zip(parts) {
            let own = if number == count { last.take() } else { last.as_ref().map(Outlets::share) };
            let listener = listener.clone().map(|it| -> Box<dyn Listener> { Box::new(Shared(it)) });
            trackers.push(Tracker::new(config, source, own.unwrap_or_default(), listener)?);
        }
        Ok(Group { trackers })
    }

    /// Takes the first sample of each and starts their threads; all or none.
    pub fn start(&self) -> Result<(), StartError> {
        for (number, tracker) in self.trackers.iter().enumerate() {
            if let Err(error) = tracker.start() {
                for started in &self.trackers[..number] {
                    started.stop_as(SessionStatus::Incomplete, Duration::from_secs(1));
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Ends the session in that state. `false` when a thread did not stop in time.
    pub fn stop(&self, status: SessionStatus, longest: Duration) -> bool {
        // Each is asked, also after one that did not answer.
        self.trackers.iter().filter(|tracker| !tracker.stop_as(status, longest)).count() == 0
    }

    /// The trackers, in the order of the parts.
    pub fn trackers(&self) -> &[Tracker] {
        &self.trackers
    }

    /// The session; incomplete when any part of it is.
    pub fn session(&self) -> Option<SessionSummary> {
        let mut sessions = self.trackers.iter().filter_map(Tracker::session);
        let first = sessions.next()?;
        let incomplete = sessions.find(|session| session.status == SessionStatus::Incomplete);
        Some(incomplete.unwrap_or(first))
    }

    /// The events kept of all of them, oldest first.
    pub fn events(&self) -> Vec<Event> {
        let mut events: Vec<Event> =
            self.trackers.iter().flat_map(|tracker| tracker.events(|_| true, None)).collect();
        events.sort_by_key(|event| event.timestamp_ns);
        events
    }

    /// The events kept for a bundle of all of them, oldest first.
    pub fn flight(&self) -> Vec<Event> {
        let kept = |tracker: &Tracker| tracker.with_flight(|events| events.cloned().collect::<Vec<Event>>());
        let mut events: Vec<Event> = self.trackers.iter().filter_map(kept).flatten().collect();
        events.sort_by_key(|event| event.timestamp_ns);
        events
    }

    /// What went wrong with the files since the last time.
    pub fn take_warnings(&self) -> Vec<String> {
        self.trackers.first().map(Tracker::take_warnings).unwrap_or_default()
    }
}

/// One listener for all.
struct Shared(Arc<dyn Listener>);

impl Listener for Shared {
    fn alert(&self, event: &Event) {
        self.0.alert(event);
    }
}
