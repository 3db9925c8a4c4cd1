//! Memory over time in a bounded number of points that never lose a maximum.

/// One stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Point {
    /// Microseconds since the start, where the stretch begins.
    pub time_us: u64,
    /// Bytes when it ended.
    pub bytes: u64,
    /// Most bytes within it.
    pub max_bytes: u64,
    /// The change of the heap that made it so large, for [`HeapReadOptions::moments`](crate::HeapReadOptions); 0 where it is older than the records.
    #[serde(skip)]
    pub max_change: u64,
}

impl Point {
    fn join(&mut self, later: &Point) {
        self.bytes = later.bytes;
        if later.max_bytes > self.max_bytes {
            (self.max_bytes, self.max_change) = (later.max_bytes, later.max_change);
        }
    }
}

/// The curve so far; twice as many points as asked for are halved.
#[derive(Debug, Clone, Default)]
pub(crate) struct Curve {
    pub(crate) points: Vec<Point>,
    pub(crate) width_us: u64,
    pub(crate) limit: usize,
}

impl Curve {
    pub(crate) fn new(limit: usize) -> Self {
        Curve { points: Vec::new(), width_us: 1, limit: limit.max(2) }
    }

    /// The next tick.
    pub(crate) fn push(&mut self, tick: Point) {
        match self.points.last_mut() {
            Some(last) if tick.time_us.saturating_sub(last.time_us) < self.width_us => last.join(&tick),
            _ => self.points.push(tick),
        }
        while self.points.len() > self.limit {
            self.halve();
        }
    }

    /// Doubles the stretch until fewer points are needed.
    fn halve(&mut self) {
        self.width_us = self.width_us.saturating_mul(2);
        let width = self.width_us;
        self.points.dedup_by(|later, earlier| {
            let joined = later.time_us.saturating_sub(earlier.time_us) < width;
            if joined {
                earlier.join(later);
            }
            joined
        });
        if width == u64::MAX {
            self.points.truncate(self.limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maxima_stay() {
        let mut curve = Curve::new(10);
        for time in 0..1000 {
            let max = if time == 617 { 99 } else { 5 };
            curve.push(Point { time_us: time, bytes: time, max_bytes: max, max_change: time });
        }
        assert!(curve.points.len() <= 10);
        assert_eq!(curve.points.iter().map(|point| point.max_bytes).max(), Some(99));
        assert_eq!(curve.points.last().map(|point| point.bytes), Some(999));
        assert!(curve.points.iter().any(|point| (point.max_bytes, point.max_change) == (99, 617)));
    }
}
