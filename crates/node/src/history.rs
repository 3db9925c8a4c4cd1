//! A memory over time in few numbers: the highest value of each span, in spans that become longer as the history does. Must never hold more than
//! [`MOST`] spans.

use std::collections::VecDeque;

const SECOND_NS: u64 = 1_000_000_000;
/// Spans that are kept: as many as a wide screen has columns for.
const MOST: usize = 64;

/// The highest values by span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    width_ns: u64,
    /// Number of the span since 1970, and the highest value in it; in order.
    spans: VecDeque<(u64, u64)>,
    peak: Option<u64>,
}

impl Default for History {
    fn default() -> Self {
        History { width_ns: SECOND_NS, spans: VecDeque::new(), peak: None }
    }
}

impl History {
    /// A value at a moment, nanoseconds since 1970.
    pub fn push(&mut self, at_ns: u64, value: u64) {
        self.peak = self.peak.max(Some(value));
        let number = at_ns / self.width_ns;
        // Nearly always: time goes forward.
        if let Some((last, most)) = self.spans.back_mut()
            && *last == number
        {
            *most = (*most).max(value);
            return;
        }
        match self.spans.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(at) => self.spans[at].1 = self.spans[at].1.max(value),
            Err(at) => self.spans.insert(at, (number, value)),
        }
        while self.spans.len() > MOST {
            self.widen();
        }
    }

    /// The highest value of all.
    #[must_use]
    pub fn peak(&self) -> Option<u64> {
        self.peak
    }

    /// Begin of the first span and end of the last, nanoseconds since 1970.
    #[must_use]
    pub fn range_ns(&self) -> Option<(u64, u64)> {
        let (first, last) = (self.spans.front()?.0, self.spans.back()?.0);
        Some((first.saturating_mul(self.width_ns), last.saturating_add(1).saturating_mul(self.width_ns)))
    }

    /// The highest value in each of `columns` equal parts of a time; `None` where nothing was recorded.
    #[must_use]
    pub fn columns(&self, (from_ns, to_ns): (u64, u64), columns: usize) -> Vec<Option<u64>> {
        let mut values = vec![None; columns];
        let length = to_ns.saturating_sub(from_ns);
        if columns == 0 || length == 0 {
            return values;
        }
        let column = |at_ns: u64| {
            let share = u128::from(at_ns.saturating_sub(from_ns)) * columns as u128 / u128::from(length);
            usize::try_from(share).unwrap_or(usize::MAX)
        };
        for (number, value) in &self.spans {
            let begin = number.saturating_mul(self.width_ns);
            let end = begin.saturating_add(self.width_ns);
            if end <= from_ns || begin >= to_ns {
                continue;
            }
            // A span that is wider than a column fills all that it covers.
            let last = column(end.saturating_sub(1)).min(columns - 1);
            for slot in &mut values[column(begin).min(last)..=last] {
                *slot = (*slot).max(Some(*value));
            }
        }
        values
    }

    fn widen(&mut self) {
        self.width_ns = self.width_ns.saturating_mul(2);
        let mut merged: VecDeque<(u64, u64)> = VecDeque::with_capacity(MOST);
        for (number, value) in self.spans.drain(..) {
            match merged.back_mut() {
                Some((last, most)) if *last == number / 2 => *most = (*most).max(value),
                _ => merged.push_back((number / 2, value)),
            }
        }
        self.spans = merged;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_of_a_day_is_bounded_and_keeps_its_peak() {
        let mut history = History::default();
        for second in 0..86_400u64 {
            history.push(second * SECOND_NS, if second == 40_000 { 900 } else { 10 });
        }
        assert!(history.spans.len() <= MOST);
        assert_eq!(history.peak(), Some(900));
        let range = (0, 86_400 * SECOND_NS);
        let columns = history.columns(range, 24);
        assert!(columns.iter().all(Option::is_some));
        let high = columns.iter().filter(|value| **value == Some(900)).count();
        assert!((1..=2).contains(&high), "a span may be in two columns: {high}");
    }

    #[test]
    fn time_without_samples_is_unknown() {
        let mut history = History::default();
        history.push(10 * SECOND_NS, 1);
        history.push(19 * SECOND_NS, 2);
        history.push(12 * SECOND_NS, 3);
        let found = history.columns((10 * SECOND_NS, 20 * SECOND_NS), 10);
        assert_eq!(found, [Some(1), None, Some(3), None, None, None, None, None, None, Some(2)]);
        assert_eq!(history.range_ns(), Some((10 * SECOND_NS, 20 * SECOND_NS)));
        assert_eq!(History::default().columns((5, 5), 3), [None; 3]);
    }
}
