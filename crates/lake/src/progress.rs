//! How far a session has been read while it is published: what is there already, what waits for the next time, and where its clock was set back.

use std::sync::Arc;

use crate::marks::Ends;
use crate::row::{Row, SampleRow, SessionFacts};

/// The newest samples of a process that lives are left for the next time: other threads may still write samples of these seconds. A sample that is older
/// than the one before it by more than this shows that the clock was set back.
pub(crate) const HOLD_NS: i64 = 10_000_000_000;
/// Setbacks that are distinguished. A file that is in no order at all has one at every other record.
const MOST_SETBACKS: u32 = 64;

/// A sample that is to be published, of a session by its number in the list of those that are read.
pub(crate) struct PendingRow {
    pub(crate) row: SampleRow,
    pub(crate) session: usize,
    pub(crate) setbacks: u32,
}

impl PendingRow {
    pub(crate) fn at_ns(&self) -> i64 {
        self.row.at_ns()
    }
}

/// A session of the rank whose samples are gathered.
pub(crate) struct SessionProgress {
    pub(crate) session: Arc<SessionFacts>,
    pub(crate) is_final: bool,
    days: Vec<Day>,
    /// How often the clock was set back.
    setbacks: u32,
    /// Since it was set back last.
    newest_ns: i64,
}

/// What was recorded on a day, between two setbacks.
struct Day {
    setbacks: u32,
    day: i32,
    published_to_ns: i64,
    last_ns: i64,
}

impl SessionProgress {
    pub(crate) fn new(session: &Arc<SessionFacts>) -> Self {
        SessionProgress {
            session: Arc::clone(session),
            is_final: false,
            days: Vec::new(),
            setbacks: 0,
            newest_ns: i64::MIN,
        }
    }

    /// Takes the time of the next sample; gives the number of setbacks before it.
    pub(crate) fn observe(&mut self, at_ns: i64) -> u32 {
        if at_ns < self.newest_ns.saturating_sub(HOLD_NS) && self.setbacks < MOST_SETBACKS {
            self.setbacks += 1;
            self.newest_ns = at_ns;
        }
        self.newest_ns = self.newest_ns.max(at_ns);
        self.setbacks
    }

    /// Up to when the day of a sample is published already; `None` where that is not known yet.
    pub(crate) fn published_to(&mut self, day: i32, at_ns: i64) -> Option<i64> {
        let setbacks = self.setbacks;
        let mut days = self.days.iter_mut().rev();
        let known = days.find(|known| known.day == day && known.setbacks == setbacks)?;
        known.last_ns = known.last_ns.max(at_ns);
        Some(known.published_to_ns)
    }

    /// Notes up to when the day of a sample is published already.
    pub(crate) fn begin_day(&mut self, day: i32, published_to_ns: i64, at_ns: i64) {
        self.days.push(Day { setbacks: self.setbacks, day, published_to_ns, last_ns: at_ns });
    }

    /// Whether a sample waits for the next time. After a setback no sample comes that would belong before it.
    pub(crate) fn holds(&self, row: &PendingRow) -> bool {
        !self.is_final && row.setbacks == self.setbacks && row.at_ns() > self.newest_ns - HOLD_NS
    }

    /// The last moment of each day.
    pub(crate) fn ends(&self) -> Ends {
        self.days.iter().map(|day| (day.setbacks, day.day, day.last_ns)).collect()
    }
}
