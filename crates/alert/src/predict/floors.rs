//! A bounded history of floors at several time scales.
//!
//! A floor is the least memory seen in a window: a sawtooth (batches, epochs, garbage collections) returns to it, a leak
//! lifts it. Each scale keeps a fixed number of windows, four times as wide as those of the scale before, so that seconds
//! and hours are seen with the same few kilobytes. Must never allocate after it was made.

use std::collections::VecDeque;

/// Windows kept per scale.
pub(super) const WINDOWS: usize = 24;
/// Scales, each this many times wider than the last.
pub(super) const SCALES: usize = 7;
const WIDENING: u64 = 4;

/// One window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    index: u64,
    pub(super) floor: u64,
    pub(super) floor_at_ns: u64,
    pub(super) ceiling: u64,
}

/// The windows of one width.
#[derive(Debug, Clone)]
pub(super) struct Scale {
    pub(super) width_ns: u64,
    pub(super) closed: VecDeque<Window>,
    current: Option<Window>,
}

impl Scale {
    fn new(width_ns: u64) -> Self {
        Scale { width_ns: width_ns.max(1), closed: VecDeque::with_capacity(WINDOWS), current: None }
    }

    /// One value; true when it closed a window.
    fn observe(&mut self, at_ns: u64, value: u64) -> bool {
        let index = at_ns / self.width_ns;
        let fresh = Window { index, floor: value, floor_at_ns: at_ns, ceiling: value };
        match &mut self.current {
            Some(window) if window.index == index => {
                window.ceiling = window.ceiling.max(value);
                // The latest of equals, so that a flat line has its floors a whole window apart.
                if value <= window.floor {
                    (window.floor, window.floor_at_ns) = (value, at_ns);
                }
                false
            }
            current => {
                let Some(done) = current.replace(fresh) else { return false };
                if self.closed.len() == WINDOWS {
                    self.closed.pop_front();
                }
                self.closed.push_back(done);
                true
            }
        }
    }
}

/// All scales, and what was released before.
#[derive(Debug, Clone)]
pub(super) struct Floors {
    pub(super) scales: Vec<Scale>,
    pub(super) releases: Releases,
}

impl Floors {
    pub(super) fn new(base_window_ns: u64) -> Self {
        let mut width_ns = base_window_ns.max(1);
        let mut scales = Vec::with_capacity(SCALES);
        for _ in 0..SCALES {
            scales.push(Scale::new(width_ns));
            width_ns = width_ns.saturating_mul(WIDENING);
        }
        Floors { scales, releases: Releases::default() }
    }

    /// One value; true when a window was closed, so that a new look is worth it.
    pub(super) fn observe(&mut self, at_ns: u64, value: u64) -> bool {
        self.releases.observe(at_ns, value);
        // Every scale must see the value: no short-circuit.
        self.scales.iter_mut().fold(false, |closed, scale| scale.observe(at_ns, value) | closed)
    }
}

/// How high memory has been and come back from: a climb below that height has been survived before.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Releases {
    high: u64,
    climb_since_ns: Option<u64>,
    survived: u64,
    longest_climb_ns: u64,
}

impl Releases {
    fn observe(&mut self, at_ns: u64, value: u64) {
        let since = *self.climb_since_ns.get_or_insert(at_ns);
        // A tenth given back is a release; less is noise.
        if value < self.high - self.high / 10 {
            self.survived = self.survived.max(self.high);
            self.longest_climb_ns = self.longest_climb_ns.max(at_ns.saturating_sub(since));
            self.high = value;
            self.climb_since_ns = Some(at_ns);
        }
        self.high = self.high.max(value);
    }

    /// Whether a climb to `value` seen over `span_ns` may be one more tooth of a saw.
    pub(super) fn explains(&self, at_ns: u64, value: u64, span_ns: u64) -> bool {
        let climb = self.climb_since_ns.map_or(0, |since| at_ns.saturating_sub(since));
        value <= self.survived.saturating_add(self.survived / 20)
            && climb <= self.longest_climb_ns.saturating_mul(2)
            && span_ns < self.longest_climb_ns.saturating_mul(3)
    }
}
