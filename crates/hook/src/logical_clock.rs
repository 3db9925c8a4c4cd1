//! A process-wide logical timestamp: it advances when the coarse clock ticks or the GIL passes to another thread. A reader orders the records of
//! different threads by it. Must never give a later record an earlier timestamp.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::clock::{self, Time};
use crate::sys;

/// What makes a logical time: the coarse clock, and how often the GIL has changed hands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LogicalTime {
    pub time: Time,
    pub turn: u64,
}

impl LogicalTime {
    /// None at all.
    pub const NEVER: Self = Self { time: Time::NEVER, turn: 0 };

    /// Whether it seems to last. As for [`clock::stands_at`], what is read is a hint.
    #[inline(always)]
    pub fn lasts(&self) -> bool {
        clock::stands_at(self.time) && clock::turn() == self.turn
    }
}

/// The last logical time that has a name. All zeroes: none.
#[repr(C)]
pub struct LogicalClock {
    lock: AtomicU32,
    second: AtomicU64,
    nanosecond: AtomicU64,
    turn: AtomicU64,
    /// Nanoseconds of the monotonic clock.
    name: AtomicU64,
}

impl LogicalClock {
    /// Forgets it; only while nothing is recorded.
    pub fn clear(&self) {
        self.lock.store(0, Ordering::Relaxed);
        self.name.store(0, Ordering::Relaxed);
    }

    /// The present logical time and its name: nanoseconds of the monotonic clock, in whole microseconds that no other logical time has.
    pub fn now(&self) -> (LogicalTime, u64) {
        // Held for a few memory accesses and two looks at a clock.
        while self.lock.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            sys::give_way();
        }
        let last = LogicalTime {
            time: Time {
                second: self.second.load(Ordering::Relaxed),
                nanosecond: self.nanosecond.load(Ordering::Relaxed),
            },
            turn: self.turn.load(Ordering::Relaxed),
        };
        // Looked at under the lock: a later caller sees no earlier time.
        let now = LogicalTime { time: clock::now(), turn: clock::turn() };
        let mut name = self.name.load(Ordering::Relaxed);
        if name == 0 || now != last {
            let here = if now.turn == last.turn { now.time.nanoseconds() } else { clock::exactly() };
            name = (name + 1000).max(here / 1000 * 1000);
            self.second.store(now.time.second, Ordering::Relaxed);
            self.nanosecond.store(now.time.nanosecond, Ordering::Relaxed);
            self.turn.store(now.turn, Ordering::Relaxed);
            self.name.store(name, Ordering::Relaxed);
        }
        self.lock.store(0, Ordering::Release);
        (now, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_only_go_forward_and_are_the_same_for_the_same_moment() {
        static TURN: AtomicU64 = AtomicU64::new(7);
        clock::follow(&TURN);
        // SAFETY: all fields are atomics, for which all zeroes is a value.
        let clock: LogicalClock = unsafe { core::mem::zeroed() };
        let (mut last, mut name) = clock.now();
        for round in 0..10_000 {
            if round % 3 == 0 {
                TURN.fetch_add(1, Ordering::Relaxed);
            }
            let (now, next) = clock.now();
            assert_eq!(now == last, next == name, "{round}");
            assert!(next >= name);
            (last, name) = (now, next);
        }
        TURN.fetch_add(1, Ordering::Relaxed);
        assert!(!last.lasts());
    }
}
