//! The lower and upper edge of a series of any length, in a fixed number of windows.
//!
//! Windows are slices of time, all of one width. When there are too many, the width doubles and neighbours merge: an hour and a
//! month cost the same few kilobytes, and every sample is looked at once. Must never drop a sample's effect on its window.

/// Windows kept; between half of this and this many once the series is long.
const CAPACITY: usize = 512;

/// One slice of time that holds at least one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    slot: u64,
    /// When the least value was seen (the latest of equals).
    pub floor_at_ns: u64,
    /// The least value.
    pub floor: u64,
    /// The greatest value.
    pub ceiling: u64,
    /// How many samples.
    pub count: u64,
}

impl Window {
    fn absorb(&mut self, other: &Window) {
        if other.floor <= self.floor {
            (self.floor, self.floor_at_ns) = (other.floor, other.floor_at_ns);
        }
        self.ceiling = self.ceiling.max(other.ceiling);
        self.count += other.count;
    }
}

/// The windows of one series.
#[derive(Debug, Clone)]
pub struct Envelope {
    width_ns: u64,
    first_ns: u64,
    last_ns: u64,
    first: u64,
    last: u64,
    windows: Vec<Window>,
}

impl Default for Envelope {
    fn default() -> Self {
        Envelope { width_ns: 1, first_ns: 0, last_ns: 0, first: 0, last: 0, windows: Vec::new() }
    }
}

impl Envelope {
    /// Takes one sample. One that is older than the last is counted into the last window: clocks go back, memory does not.
    pub fn observe(&mut self, at_ns: u64, value: u64) {
        if self.windows.is_empty() {
            (self.first_ns, self.first) = (at_ns, value);
        }
        self.last = value;
        self.last_ns = self.last_ns.max(at_ns);
        let slot = self.slot_of(at_ns);
        let fresh = Window { slot, floor_at_ns: at_ns, floor: value, ceiling: value, count: 1 };
        match self.windows.last_mut() {
            Some(window) if slot <= window.slot => window.absorb(&fresh),
            _ => {
                self.windows.push(fresh);
                while self.windows.len() > CAPACITY {
                    self.widen();
                }
            }
        }
    }

    fn slot_of(&self, at_ns: u64) -> u64 {
        at_ns.saturating_sub(self.first_ns) / self.width_ns
    }

    fn widen(&mut self) {
        self.width_ns = self.width_ns.saturating_mul(2);
        let mut kept: usize = 0;
        for index in 0..self.windows.len() {
            let mut window = self.windows[index];
            window.slot /= 2;
            match kept.checked_sub(1).map(|last| &mut self.windows[last]) {
                Some(last) if last.slot == window.slot => last.absorb(&window),
                _ => {
                    self.windows[kept] = window;
                    kept += 1;
                }
            }
        }
        self.windows.truncate(kept);
    }

    /// The windows, oldest first.
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// How many samples were taken.
    pub fn count(&self) -> u64 {
        self.windows.iter().map(|window| window.count).sum()
    }

    /// First and last moment; `None` before the first sample.
    pub fn span_ns(&self) -> Option<(u64, u64)> {
        (!self.windows.is_empty()).then_some((self.first_ns, self.last_ns))
    }

    /// First and last value; `None` before the first sample.
    pub fn ends(&self) -> Option<(u64, u64)> {
        (!self.windows.is_empty()).then_some((self.first, self.last))
    }

    /// The greatest value.
    pub fn peak(&self) -> Option<u64> {
        self.windows.iter().map(|window| window.ceiling).max()
    }

    /// The least value.
    pub fn floor(&self) -> Option<u64> {
        self.windows.iter().map(|window| window.floor).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_series_stays_small_and_loses_no_extreme() {
        let mut envelope = Envelope::default();
        for step in 0..100_000_u64 {
            envelope.observe(1_000_000 * step, if step == 77_777 { 5 } else { 100 + step % 10 });
        }
        assert!(envelope.windows().len() <= CAPACITY && envelope.windows().len() > CAPACITY / 4);
        assert_eq!(envelope.count(), 100_000);
        assert_eq!((envelope.floor(), envelope.peak()), (Some(5), Some(109)));
        assert!(envelope.windows().is_sorted_by_key(|window| window.floor_at_ns));
    }

    #[test]
    fn few_samples_keep_a_window_each_and_clocks_may_go_back() {
        let mut envelope = Envelope::default();
        for at in [1000, 2000, 4000, 3000] {
            envelope.observe(at, at);
        }
        let floors: Vec<u64> = envelope.windows().iter().map(|window| window.floor).collect();
        assert_eq!(floors, [1000, 2000, 3000]);
        assert_eq!(envelope.span_ns(), Some((1000, 4000)));
        assert_eq!(Envelope::default().span_ns(), None);
    }

    proptest::proptest! {
        #[test]
        fn any_input_is_taken(samples in proptest::collection::vec((0u64..u64::MAX, 0u64..u64::MAX), 0..2000)) {
            let mut envelope = Envelope::default();
            for (at, value) in &samples {
                envelope.observe(*at, *value);
            }
            proptest::prop_assert!(envelope.windows().len() <= CAPACITY);
            proptest::prop_assert_eq!(envelope.count(), samples.len() as u64);
            proptest::prop_assert_eq!(envelope.peak(), samples.iter().map(|(_, value)| *value).max());
        }
    }
}
