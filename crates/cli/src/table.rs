//! Tables for people: aligned columns two blanks apart, no lines, no colours.

use std::fmt::Write;

/// Rows under a header.
pub(crate) struct Table {
    /// Columns of numbers, aligned to the right.
    right: &'static [usize],
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(header: &[&str], right: &'static [usize]) -> Self {
        Table { right, rows: vec![header.iter().map(|name| (*name).to_owned()).collect()] }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The lines, without trailing blanks.
    pub(crate) fn lines(&self) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let gap = if column == 0 { "" } else { "  " };
                let width = widths[column];
                // Writing to a string cannot fail.
                let _ = match self.right.contains(&column) {
                    true => write!(line, "{gap}{cell:>width$}"),
                    false => write!(line, "{gap}{cell:<width$}"),
                };
            }
            line.trim_end().to_owned()
        };
        self.rows.iter().map(line).collect()
    }
}

/// A moment as people read it, with its zone.
pub(crate) fn moment(ns: i64) -> String {
    match jiff::Timestamp::from_nanosecond(ns.into()) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
        Err(_) => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["NAME", "SIZE"], &[1]);
        table.row(["a".into(), "1".into()]);
        table.row(["longer".into(), "12345".into()]);
        assert_eq!(table.lines(), ["NAME     SIZE", "a           1", "longer  12345"]);
    }

    #[test]
    fn times_are_in_utc() {
        assert_eq!(moment(1_700_000_000_000_000_000), "2023-11-14 22:13:20Z");
    }
}
