//! How much of a recording is read at one look: a late reader catches up in steps, and shows each of them.

use std::time::Duration;

/// A look should take about this long.
const LOOK: Duration = Duration::from_millis(300);
/// The first step, and the shortest: microseconds of the recording. Each look has a cost of its own; shorter steps would only add to it.
const SHORTEST_US: u64 = 1_000_000;

/// Where the reading is, in microseconds since the recording began, and how far the next step goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    at_us: u64,
    step_us: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { at_us: 0, step_us: SHORTEST_US }
    }
}

impl Pace {
    /// Up to when to read now.
    pub(super) fn next(&self, now_us: u64) -> u64 {
        self.at_us.saturating_add(self.step_us).min(now_us).max(self.at_us)
    }

    /// A look took that long: the next goes further, or less far.
    pub(super) fn took(&mut self, until_us: u64, time: Duration) {
        self.at_us = until_us;
        if time < LOOK / 2 {
            self.step_us = self.step_us.saturating_mul(2);
        } else if time > LOOK {
            self.step_us = (self.step_us / 2).max(SHORTEST_US);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_reader_catches_up_in_steps() {
        let (mut pace, now) = (Pace::default(), 100_000_000);
        let mut looks = 0;
        while pace.next(now) < now {
            // Ten times as fast as it was recorded.
            let until = pace.next(now);
            pace.took(until, Duration::from_micros((until - pace.at_us) / 10));
            looks += 1;
        }
        assert!(
            (20..60).contains(&looks),
            "{looks} looks of about a third of a second for ten seconds of reading"
        );
        pace.took(now, Duration::from_millis(1));
        assert_eq!(pace.next(now + 5), now + 5);
        assert_eq!(pace.next(0), now, "never back");
    }
}
