//! Memory over time in a bounded number of points that never lose a maximum.

/// Most points kept: more than any terminal has columns.
const MOST: usize = 2048;

/// Moments (nanoseconds since 1970) and bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Series {
    points: Vec<(u64, u64)>,
    /// Shortest time between two points.
    width_ns: u64,
}

impl Series {
    pub(crate) fn push(&mut self, at_ns: u64, bytes: u64) {
        match self.points.last_mut() {
            Some((last, _)) if at_ns < *last => return,
            Some((last, most)) if at_ns - *last < self.width_ns => *most = (*most).max(bytes),
            _ => self.points.push((at_ns, bytes)),
        }
        if self.points.len() > MOST {
            let span = at_ns.saturating_sub(self.points.first().map_or(0, |(first, _)| *first));
            self.width_ns = (span / (MOST as u64 / 2)).max(1);
            let width = self.width_ns;
            self.points.dedup_by(|later, earlier| {
                let joined = later.0 - earlier.0 < width;
                if joined {
                    earlier.1 = earlier.1.max(later.1);
                }
                joined
            });
        }
    }

    pub(crate) fn points(&self) -> &[(u64, u64)] {
        &self.points
    }

    pub(crate) fn max(&self) -> Option<u64> {
        self.points.iter().map(|(_, bytes)| *bytes).max()
    }
}

impl FromIterator<(u64, u64)> for Series {
    fn from_iter<T: IntoIterator<Item = (u64, u64)>>(points: T) -> Self {
        let mut series = Series::default();
        points.into_iter().for_each(|(at, bytes)| series.push(at, bytes));
        series
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_life_fits_and_keeps_its_peak() {
        let series: Series =
            (0..200_000u64).map(|at| (at * 1_000_000, if at == 777 { 99 } else { 5 })).collect();
        assert!(series.points().len() <= MOST);
        assert!(series.points().len() > MOST / 4, "{}", series.points().len());
        assert_eq!(series.max(), Some(99));
        assert!(series.points().is_sorted_by_key(|(at, _)| *at));
    }
}
