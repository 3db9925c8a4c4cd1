//! The part of an event that does not change between two samples: made once for each kind and device, then shared.
//!
//! Every sampler takes its heads from here, so that session, process and interval read the same in all recordings.

use std::sync::Arc;
use std::time::Duration;

use stormlog_model::{Head, Identity, SessionSummary};

/// Kinds that a caller invents must not fill the table that is searched for every event.
const KEPT: usize = 32;

/// The heads of the events of one session.
#[derive(Debug)]
pub struct Heads {
    like: Head,
    made: Vec<Arc<Head>>,
}

impl Heads {
    /// For events of this session, taken every `interval`.
    pub fn new(session: &SessionSummary, identity: &Identity, collector: &str, interval: Duration) -> Self {
        let like = Head {
            session_id: session.session_id.clone(),
            event_type: String::new(),
            collector: collector.to_owned(),
            // To the nearest millisecond.
            sampling_interval_ms: u64::try_from(interval.as_micros().div_ceil(500) / 2).unwrap_or(0),
            pid: session.pid,
            host: session.host.clone(),
            identity: identity.clone(),
            device_id: 0,
        };
        Heads { like, made: Vec::new() }
    }

    /// The session's process.
    pub fn pid(&self) -> Option<u32> {
        self.like.pid.try_into().ok()
    }

    /// The head of an event of that kind about a device, by the session's own collector.
    pub fn get(&mut self, event_type: &str, device_id: i64) -> Arc<Head> {
        self.find(event_type, device_id, None)
    }

    /// The same by another collector: a session may hold samples of several.
    pub fn get_by(&mut self, event_type: &str, device_id: i64, collector: &str) -> Arc<Head> {
        self.find(event_type, device_id, Some(collector))
    }

    fn find(&mut self, event_type: &str, device_id: i64, collector: Option<&str>) -> Arc<Head> {
        let collector = collector.unwrap_or(&self.like.collector);
        let same = |head: &&Arc<Head>| {
            head.device_id == device_id && head.event_type == event_type && head.collector == collector
        };
        if let Some(head) = self.made.iter().find(same) {
            return Arc::clone(head);
        }
        let (event_type, collector) = (event_type.to_owned(), collector.to_owned());
        let head = Arc::new(Head { event_type, device_id, collector, ..self.like.clone() });
        if self.made.len() < KEPT {
            self.made.push(Arc::clone(&head));
        }
        head
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use stormlog_model::SessionStatus;

    /// A session of process 7; other tests of this crate use it too.
    pub(crate) fn session() -> SessionSummary {
        SessionSummary {
            session_id: "s".into(),
            status: SessionStatus::Running,
            started_at_ns: 1,
            ended_at_ns: None,
            host: "here".into(),
            pid: 7,
            job_id: None,
            rank: 0,
            local_rank: 0,
            world_size: 1,
            attempt: None,
            source: "test".into(),
        }
    }

    #[test]
    fn a_head_is_made_once_for_each_kind_device_and_collector() {
        let session = session();
        let mut heads = Heads::new(&session, &Identity::default(), "a", Duration::from_micros(99_600));
        let first = heads.get("sample", -1);
        assert_eq!((first.sampling_interval_ms, first.pid, first.collector.as_str()), (100, 7, "a"));
        assert!(Arc::ptr_eq(&first, &heads.get("sample", -1)));
        assert_eq!(heads.get_by("sample", 0, "b").collector, "b");
        assert!(Arc::ptr_eq(&heads.get_by("sample", 0, "b"), &heads.get_by("sample", 0, "b")));
        (0..100).for_each(|number| drop(heads.get(&number.to_string(), 0)));
        assert!(heads.made.len() <= KEPT);
    }
}
