//! The last events in memory, up to a number; dropped ones are counted.

use std::collections::VecDeque;

use stormlog_model::Event;

#[derive(Debug)]
pub(crate) struct History {
    events: VecDeque<Event>,
    limit: usize,
    dropped: u64,
}

impl History {
    /// Keeps at most `limit` events. Grows with them: a short run does not pay for a long one.
    pub(crate) fn new(limit: usize) -> Self {
        History { events: VecDeque::new(), limit, dropped: 0 }
    }

    /// The same with all its memory taken and touched now, so that the last events of a program out of memory need
    /// none. `like` is any event.
    pub(crate) fn ready(limit: usize, like: &Event) -> Self {
        let mut events = VecDeque::with_capacity(limit);
        events.resize(limit, like.clone());
        events.clear();
        History { events, limit, dropped: 0 }
    }

    pub(crate) fn push(&mut self, event: Event) {
        if self.limit == 0 {
            return;
        }
        if self.events.len() >= self.limit {
            self.events.pop_front();
            self.dropped += 1;
        }
        self.events.push_back(event);
    }

    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.dropped = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Event> + ExactSizeIterator {
        self.events.iter()
    }
}
