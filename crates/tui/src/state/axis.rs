//! An axis of time with a window and a cursor: zoom, steps, and where a moment is on the screen. Times are milliseconds since 1970.

/// The narrowest window.
const LEAST_MS: u64 = 40;
/// Steps of a key with Shift or Ctrl held, as parts of the window.
const FAR: usize = 8;

/// What of the time is shown, and which moment is looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Axis {
    whole: (u64, u64),
    /// Length of the window; `None`: everything.
    length: Option<u64>,
    /// Its start; `None`: it ends with the axis, and moves with it.
    start: Option<u64>,
    /// The moment that is looked at; `None`: the end, which of a living process is now.
    cursor: Option<u64>,
}

impl Axis {
    /// The axis reaches from the first to the last of these.
    pub(crate) fn set_whole(&mut self, first: u64, last: u64) {
        self.whole = (first, last.max(first));
        self.cursor = self.cursor.map(|cursor| cursor.clamp(self.whole.0, self.whole.1));
    }

    pub(crate) fn window(&self) -> (u64, u64) {
        let (first, last) = self.whole;
        let Some(length) = self.length.filter(|length| *length < last - first) else { return self.whole };
        let start = self.start.unwrap_or(last - length).clamp(first, last - length);
        (start, start + length)
    }

    pub(crate) fn whole(&self) -> (u64, u64) {
        self.whole
    }

    pub(crate) fn cursor(&self) -> Option<u64> {
        self.cursor
    }

    /// The moment that is looked at.
    pub(crate) fn at(&self) -> u64 {
        self.cursor.unwrap_or(self.whole.1)
    }

    /// To a moment; to the end or beyond it is the end, which is followed.
    pub(crate) fn go(&mut self, at: u64) {
        self.cursor = Some(at.max(self.whole.0)).filter(|at| *at < self.whole.1);
        let (from, to) = self.window();
        let at = self.at();
        // The cursor pushes the window.
        if at < from {
            self.start = Some(at);
        } else if at > to {
            self.start = Some(at - (to - from));
        }
        if self.cursor.is_none() {
            self.start = None;
        }
    }

    /// Moves the cursor by `columns` to the right, of the `width` that the window has.
    pub(crate) fn step(&mut self, columns: i64, width: usize) {
        let (from, to) = self.window();
        let step = ((to - from) / width.max(1) as u64).max(1);
        let way = columns.unsigned_abs().saturating_mul(step);
        let at = self.at();
        self.go(if columns < 0 { at.saturating_sub(way) } else { at.saturating_add(way) });
    }

    /// A larger step.
    pub(crate) fn stride(&mut self, is_right: bool, width: usize) {
        let columns = i64::try_from((width / FAR).max(1)).unwrap_or(1);
        self.step(if is_right { columns } else { -columns }, width);
    }

    /// Half or twice as much time, around a moment that stays where it is.
    pub(crate) fn zoom(&mut self, is_in: bool, around: u64) {
        let (from, to) = self.window();
        let length = (to - from).max(1);
        let new = if is_in { (length / 2).max(LEAST_MS.min(length)) } else { length.saturating_mul(2) };
        if new >= self.whole.1 - self.whole.0 {
            (self.length, self.start) = (None, None);
            return;
        }
        let around = around.clamp(from, to);
        let left = u128::from(around - from) * u128::from(new) / u128::from(length);
        let start = around.saturating_sub(u64::try_from(left).unwrap_or(0)).max(self.whole.0);
        self.length = Some(new);
        self.start = Some(start).filter(|start| start + new < self.whole.1);
    }

    pub(crate) fn show_whole(&mut self) {
        (self.length, self.start) = (None, None);
    }

    /// The end, and what comes.
    pub(crate) fn follow(&mut self) {
        (self.cursor, self.start) = (None, None);
    }

    #[cfg(test)]
    pub(crate) fn is_zoomed(&self) -> bool {
        self.window() != self.whole
    }

    /// The moment in the middle of a column.
    pub(crate) fn time_at(&self, column: usize, width: usize) -> u64 {
        let (from, to) = self.window();
        let part = (2 * column.min(width.saturating_sub(1)) + 1) as u128;
        let offset = u128::from(to - from) * part / (2 * width.max(1) as u128);
        from + u64::try_from(offset).unwrap_or(0)
    }

    /// The column of a moment; `None` where it is outside the window.
    pub(crate) fn column_of(&self, at: u64, width: usize) -> Option<usize> {
        let (from, to) = self.window();
        (width > 0 && (from..=to).contains(&at)).then(|| {
            let part = u128::from(at - from) * width as u128 / u128::from((to - from).max(1));
            usize::try_from(part).unwrap_or(0).min(width - 1)
        })
    }

    /// The highest value of each column; between two points a counter keeps its value, before the first and after the last it has none.
    pub(crate) fn columns(&self, time: &[u64], bytes: &[u64], width: usize) -> Vec<Option<u64>> {
        let (from, to) = self.window();
        let length = u128::from((to - from).max(1));
        let edge =
            |column: usize| from + u64::try_from(length * column as u128 / width.max(1) as u128).unwrap_or(0);
        let last = time.last().copied().unwrap_or(0);
        let mut at = time.partition_point(|time| *time < from);
        let mut before = at.checked_sub(1).and_then(|at| bytes.get(at)).copied();
        let mut values = Vec::with_capacity(width);
        for column in 0..width {
            // The last moment of the window belongs to its last column.
            let end = if column + 1 == width { to.saturating_add(1) } else { edge(column + 1) };
            let mut most = before.filter(|_| edge(column) <= last);
            while let Some(value) = time.get(at).filter(|time| **time < end).and(bytes.get(at)) {
                most = most.max(Some(*value));
                before = Some(*value);
                at += 1;
            }
            values.push(most);
        }
        values
    }
}

/// The value of a counter at a moment; `None` before its first point.
pub(crate) fn value_at(time: &[u64], bytes: &[u64], at: u64) -> Option<u64> {
    let after = time.partition_point(|time| *time <= at);
    after.checked_sub(1).and_then(|at| bytes.get(at)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis() -> Axis {
        let mut axis = Axis::default();
        axis.set_whole(1000, 2000);
        axis
    }

    #[test]
    fn cursor_moves_by_columns_and_the_end_is_followed() {
        let mut axis = axis();
        assert_eq!((axis.at(), axis.cursor()), (2000, None));
        axis.step(-1, 100);
        assert_eq!(axis.cursor(), Some(1990));
        axis.stride(false, 100);
        assert_eq!(axis.cursor(), Some(1870));
        axis.set_whole(1000, 3000);
        assert_eq!(axis.cursor(), Some(1870), "what comes does not move it");
        axis.step(1000, 100);
        assert_eq!(axis.cursor(), None);
        axis.set_whole(1000, 4000);
        assert_eq!(axis.at(), 4000);
        axis.step(-5000, 10);
        assert_eq!(axis.cursor(), Some(1000));
        axis.follow();
        assert_eq!(axis.cursor(), None);
    }

    #[test]
    fn zoom_keeps_its_moment_in_place_and_ends_with_everything() {
        let mut axis = axis();
        axis.go(1250);
        axis.zoom(true, axis.at());
        assert_eq!(axis.window(), (1125, 1625));
        assert_eq!(axis.column_of(1250, 100), Some(25), "where it was");
        axis.step(-200, 100);
        assert_eq!((axis.window(), axis.at()), ((1000, 1500), 1000), "the cursor pushes the window");
        for _ in 0..20 {
            axis.zoom(true, axis.at());
        }
        assert_eq!(axis.window().1 - axis.window().0, LEAST_MS);
        for _ in 0..20 {
            axis.zoom(false, axis.at());
        }
        assert!(!axis.is_zoomed());
    }

    #[test]
    fn window_at_the_end_moves_with_a_living_process() {
        let mut axis = axis();
        axis.zoom(true, 2000);
        assert_eq!(axis.window(), (1500, 2000));
        axis.set_whole(1000, 2600);
        assert_eq!(axis.window(), (2100, 2600));
        axis.show_whole();
        assert_eq!(axis.window(), (1000, 2600));
    }

    #[test]
    fn columns_keep_the_highest_value_and_know_where_a_line_ends() {
        let axis = axis();
        let (time, bytes) = ([1100, 1110, 1120, 1500], [5, 9, 7, 3]);
        assert_eq!(
            axis.columns(&time, &bytes, 10),
            [None, Some(9), Some(7), Some(7), Some(7), Some(7), None, None, None, None]
        );
        assert_eq!(value_at(&time, &bytes, 1115), Some(9));
        assert_eq!(value_at(&time, &bytes, 1000), None);
        assert_eq!(axis.time_at(0, 10), 1050);
        assert_eq!(axis.columns(&[], &[], 3), [None; 3]);
        assert_eq!(axis.columns(&[2000], &[4], 2), [None, Some(4)]);
    }

    #[test]
    fn empty_axis_has_no_trouble() {
        let mut axis = Axis::default();
        axis.zoom(true, 0);
        axis.step(-3, 0);
        axis.stride(true, 0);
        assert_eq!((axis.window(), axis.column_of(0, 0), axis.time_at(3, 0)), ((0, 0), None, 0));
        assert_eq!(axis.columns(&[0], &[1], 2), [None, Some(1)]);
    }
}
