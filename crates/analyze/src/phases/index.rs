//! Phases that can be asked for a moment. Must never visit every phase for one moment.

use rustc_hash::FxHashMap;

use super::{PhaseAttribution, Span, attribute};

/// Intervals in the order of their starts, read as a balanced tree whose root is the middle; both ends belong to an interval.
#[derive(Debug, Clone, Default)]
pub struct Intervals<T> {
    bounds: Vec<(T, T)>,
    /// The latest end in each subtree.
    latest: Vec<T>,
}

impl<T: Copy + Ord> Intervals<T> {
    /// Intervals (start, end), in the order of their starts.
    pub fn of(bounds: Vec<(T, T)>) -> Self {
        let latest = bounds.iter().map(|(_, end)| *end).collect();
        let mut intervals = Intervals { bounds, latest };
        intervals.measure(0, intervals.bounds.len());
        intervals
    }

    fn measure(&mut self, low: usize, high: usize) -> Option<T> {
        if low >= high {
            return None;
        }
        let middle = low + (high - low) / 2;
        let below = self.measure(low, middle).max(self.measure(middle + 1, high));
        let latest = below.map_or(self.latest[middle], |below| below.max(self.latest[middle]));
        self.latest[middle] = latest;
        Some(latest)
    }

    /// The numbers of the intervals a moment is in, in order.
    pub fn at(&self, moment: T) -> Vec<usize> {
        let mut found = Vec::new();
        self.search(moment, 0, self.bounds.len(), &mut found);
        found
    }

    fn search(&self, moment: T, low: usize, high: usize, found: &mut Vec<usize>) {
        if low >= high {
            return;
        }
        let middle = low + (high - low) / 2;
        if self.latest[middle] < moment {
            return;
        }
        self.search(moment, low, middle, found);
        let (start, end) = self.bounds[middle];
        if start <= moment {
            if moment <= end {
                found.push(middle);
            }
            self.search(moment, middle + 1, high, found);
        }
    }
}

/// The phases of one session and rank.
#[derive(Debug, Clone, Default)]
pub struct PhaseIndex {
    /// By start, then by end.
    spans: Vec<Span>,
    intervals: Intervals<u64>,
}

impl PhaseIndex {
    /// Of phases in any order.
    pub fn of(mut spans: Vec<Span>) -> Self {
        spans.sort_by_key(|span| (span.from_ns, span.to_ns));
        let intervals = Intervals::of(spans.iter().map(|span| (span.from_ns, span.to_ns)).collect());
        PhaseIndex { spans, intervals }
    }

    /// Whether there are no phases at all.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Path, start and end of the phases that are in no other, in time order.
    pub fn outermost(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        self.spans.iter().filter(|span| span.depth == 1).map(stretch)
    }

    /// Path, start and end of every phase, in time order.
    pub fn all(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        self.spans.iter().map(stretch)
    }

    /// The outermost phase that comes again and again (steps, epochs): its path and each time it ran, in time order.
    pub fn repeated(&self, least: usize) -> Option<(&str, Vec<(u64, u64)>)> {
        let mut runs: FxHashMap<(usize, &str), Vec<(u64, u64)>> = FxHashMap::default();
        for span in &self.spans {
            runs.entry((span.depth, &span.path)).or_default().push((span.from_ns, span.to_ns));
        }
        let often = runs.into_iter().filter(|(_, spans)| spans.len() >= least);
        let ((_, path), spans) =
            often.min_by_key(|((depth, path), spans)| (*depth, usize::MAX - spans.len(), *path))?;
        Some((path, spans))
    }

    /// Every phase, in time order.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The phase at a moment: the deepest of each thread, one or several.
    pub fn resolve(&self, at_ns: u64) -> Option<PhaseAttribution> {
        self.resolve_from(at_ns, None, None)
    }

    /// The phase of an event that may name the thread and the scope it came from.
    pub fn resolve_from(
        &self,
        at_ns: u64,
        thread_id: Option<i64>,
        scope_id: Option<&str>,
    ) -> Option<PhaseAttribution> {
        let spans: Vec<&Span> = self.intervals.at(at_ns).into_iter().map(|at| &self.spans[at]).collect();
        attribute(&spans, thread_id, scope_id)
    }
}

fn stretch(span: &Span) -> (&str, u64, u64) {
    (&span.path, span.from_ns, span.to_ns)
}

#[cfg(test)]
mod tests {
    use super::super::attribution::tests::span;
    use super::*;

    #[test]
    fn the_deepest_of_one_thread_is_unique() {
        let index = PhaseIndex::of(vec![span(0, 100, 1, "train", 1), span(10, 20, 1, "train / forward", 2)]);
        assert_eq!(index.resolve(15).unwrap().label().as_deref(), Some("train / forward"));
        assert_eq!(index.resolve(50).unwrap().label().as_deref(), Some("train"));
        assert_eq!(index.resolve(101), None);
        assert_eq!(PhaseIndex::default().resolve(1), None);
    }

    #[test]
    fn many_spans_under_a_long_one_are_found_quickly_and_right() {
        let mut spans = vec![span(0, 1_000_000, 1, "run", 1)];
        spans.extend((0..10_000).map(|i| span(i * 100, i * 100 + 50, 1, "run / step", i as i64 + 2)));
        let index = PhaseIndex::of(spans);
        for i in 0..10_000 {
            assert_eq!(index.resolve(i * 100 + 25).unwrap().paths, ["run / step"]);
            assert_eq!(index.resolve(i * 100 + 75).unwrap().paths, ["run"]);
        }
    }

    #[test]
    fn intervals_below_zero_are_found() {
        let intervals = Intervals::of(vec![(-9, -3), (-5, 2), (0, 1)]);
        assert_eq!(intervals.at(-4), [0, 1]);
        assert_eq!(intervals.at(1), [1, 2]);
        assert!(intervals.at(3).is_empty());
    }
}
