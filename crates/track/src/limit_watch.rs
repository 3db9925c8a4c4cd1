//! The limits of a process tree that is seen from outside, and the forecasts of when it meets them.

use std::time::{Duration, Instant};

use stormlog_alert::alerts::AlertEvent;
use stormlog_alert::predict::Forecast;

use crate::{Forecasts, LimitOptions, MemoryLimits};

/// Looking at limits more often finds nothing new.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(50);

/// Limits and their forecasts.
#[derive(Debug)]
pub struct LimitWatch {
    limits: MemoryLimits,
    forecasts: Forecasts,
}

impl LimitWatch {
    /// Of the process `pid` and its descendants, sampled every `interval`; `limit_as` is the limit of its address space.
    pub fn of(pid: u32, limit_as: Option<u64>, interval: Duration) -> Self {
        let pace = interval.max(SHORTEST_INTERVAL);
        let options = LimitOptions { limit_as, pace, is_thorough: true };
        LimitWatch { limits: MemoryLimits::of(pid, options), forecasts: Forecasts::every(pace) }
    }

    /// The warnings that begin or end now, when it is time to look. `held` is what all processes of the tree have
    /// resident, `vms` the address space of its root, `at_ns` the same moment since the epoch.
    pub fn look(&mut self, now: Instant, held: u64, vms: Option<u64>, at_ns: u64) -> Vec<AlertEvent> {
        if !self.limits.look(now, held, vms) {
            return Vec::new();
        }
        let readings = self.limits.readings(held);
        readings.iter().flat_map(|reading| self.forecasts.observe(reading, at_ns)).collect()
    }

    /// The limits as of the last look.
    pub fn limits(&self) -> &MemoryLimits {
        &self.limits
    }

    /// The forecast of the limit that is met first, where it warns.
    pub fn warning(&self) -> Option<Forecast> {
        self.forecasts.warning()
    }

    /// How memory grew at the end, where a forecast that can be believed saw it.
    pub fn growth(&self, now_ns: u64) -> Option<Forecast> {
        self.forecasts.growth(now_ns)
    }
}
