//! What a process's own recordings say of its devices. Reads the first events of a session, no more.

use stormlog_model::{Counter, Event};
use stormlog_store::recording::RecordedEvents;

use super::layout::{LOG_DIRECTORY, RING_FILE, Viewpoint};
use super::process::{Process, ProcessSession};

/// Events that are asked for a device's size: it is in each of a sampled device.
const FIRST_EVENTS: usize = 64;

impl Process {
    /// Bytes of a CUDA device that the framework's allocator of this process can have: its size, without what was in use beside the
    /// allocator when recording began. `None` where the device was not sampled.
    #[must_use]
    pub fn usable_device_bytes(&self, index: u32) -> Option<u64> {
        let sessions =
            self.sessions.iter().filter(|session| session.viewpoint == Some(Viewpoint::Cuda(index)));
        sessions.filter_map(usable).next()
    }
}

fn usable(session: &ProcessSession) -> Option<u64> {
    let log = RecordedEvents::log(&session.path.join(LOG_DIRECTORY));
    let events = log.or_else(|_| RecordedEvents::ring(&session.path.join(RING_FILE))).ok()?;
    let of_event = |event: Event| {
        let total = event.counter(Counter::Total)?;
        let beside = event.counter(Counter::Used).zip(event.counter(Counter::Reserved));
        Some(total.saturating_sub(beside.map_or(0, |(used, reserved)| used.saturating_sub(reserved))))
    };
    events.flatten().take(FIRST_EVENTS).find_map(of_event)
}
