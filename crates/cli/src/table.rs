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

/// Lines of text that others wrote some of, without anything a terminal could take as a command: control characters, and those that
/// turn or hide text.
pub(crate) fn harmless(text: &str) -> String {
    let is_hostile = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    text.chars().map(|c| if is_hostile(c) { '\u{fffd}' } else { c }).collect()
}

/// A moment as people read it, with its zone.
pub(crate) fn moment(ns: i64) -> String {
    match jiff::Timestamp::from_nanosecond(ns.into()) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
        Err(_) => "unknown".to_owned(),
    }
}

/// A span as people read it.
pub(crate) fn span(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0 => format!("{} ms", ns / 1_000_000),
        1..60 => format!("{:.1} s", ns as f64 / 1e9),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_not_shown() {
        assert_eq!(harmless("a\x1b[31m\tb\r\nç\u{202e}d"), "a\u{fffd}[31m\u{fffd}b\u{fffd}\nç\u{fffd}d");
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["NAME", "SIZE"], &[1]);
        table.row(["a".into(), "1".into()]);
        table.row(["longer".into(), "12345".into()]);
        assert_eq!(table.lines(), ["NAME     SIZE", "a           1", "longer  12345"]);
    }

    #[test]
    fn spans_and_moments_read_well() {
        assert_eq!(span(950_000_000), "950 ms");
        assert_eq!(span(2_500_000_000), "2.5 s");
        assert_eq!(span(2_472_000_000_000), "41 min 12 s");
        assert_eq!(span(7_260_000_000_000), "2 h 1 min");
        assert_eq!(moment(1_700_000_000_000_000_000), "2023-11-14 22:13:20Z");
    }
}
