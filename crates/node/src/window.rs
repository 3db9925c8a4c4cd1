//! The highest value of the last minute, by seconds: two scrapers get the same answer, whenever they ask. Holds at most one entry a second.

use std::collections::VecDeque;

const SECOND_NS: u64 = 1_000_000_000;
/// The label of the series.
pub const WINDOW_LABEL: &str = "1m";
const SECONDS: u64 = 60;

/// Maxima of the last seconds.
#[derive(Debug, Default)]
pub(crate) struct Window {
    seconds: VecDeque<(u64, u64)>,
}

impl Window {
    /// A value at a moment; moments come in order.
    pub(crate) fn push(&mut self, at_ns: u64, value: u64) {
        let second = at_ns / SECOND_NS;
        match self.seconds.back_mut() {
            Some((last, most)) if *last >= second => *most = (*most).max(value),
            _ => self.seconds.push_back((second, value)),
        }
        self.drop_before(at_ns);
    }

    /// The highest of the minute before `now_ns`; `None` where there was no sample.
    pub(crate) fn most(&mut self, now_ns: u64) -> Option<u64> {
        self.drop_before(now_ns);
        self.seconds.iter().map(|(_, most)| *most).max()
    }

    fn drop_before(&mut self, now_ns: u64) {
        let first = (now_ns / SECOND_NS).saturating_sub(SECONDS);
        while self.seconds.front().is_some_and(|(second, _)| *second < first) {
            self.seconds.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spike_between_two_scrapes_is_kept_for_a_minute() {
        let mut window = Window::default();
        for tenth in 0..3000 {
            let value = if tenth == 1000 { 900 } else { 10 };
            window.push(tenth * SECOND_NS / 10, value);
            assert!(window.seconds.len() <= 61);
            let is_near = (1000..1610).contains(&tenth);
            assert_eq!(window.most(tenth * SECOND_NS / 10), Some(if is_near { 900 } else { 10 }), "{tenth}");
        }
        assert_eq!(window.most(1000 * SECOND_NS), None);
    }
}
