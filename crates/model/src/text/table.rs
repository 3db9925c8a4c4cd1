//! Tables for people: aligned columns two blanks apart, no lines, no colours.

use std::fmt::{self, Display, Formatter, Write};

/// Rows under a header.
#[derive(Debug, Clone)]
pub struct Table {
    /// Columns of numbers, aligned to the right.
    right: &'static [usize],
    rows: Vec<Vec<String>>,
}

impl Table {
    /// With these names; `right` are the columns of numbers.
    #[must_use]
    pub fn new(header: &[&str], right: &'static [usize]) -> Self {
        Table { right, rows: vec![header.iter().map(|name| (*name).to_owned()).collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The lines, without trailing blanks.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
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

/// Every line with its end.
impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.lines().iter().try_for_each(|line| writeln!(f, "{line}"))
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
}
