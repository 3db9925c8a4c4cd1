//! Tables with a head that sorts: which columns there is room for, where each is, and how a cell is fitted into it.

use ratatui::text::{Line, Span};

use crate::text::{clean, fit, width};
use crate::view::theme::Theme;

/// A column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column<K> {
    /// What it is sorted by, where it can be.
    pub(crate) key: Option<K>,
    pub(crate) title: &'static str,
    /// Letters; 0 takes what is left.
    pub(crate) width: usize,
    /// Numbers are compared by their ends.
    pub(crate) is_right: bool,
    /// The screen must have this many columns.
    pub(crate) from: usize,
}

/// Between two columns.
const GAP: usize = 2;

/// The columns that fit a screen, each with its width; the one without a width gets the rest.
pub(crate) fn laid_out<K: Copy>(all: &[Column<K>], room: usize) -> Vec<(Column<K>, usize)> {
    let shown: Vec<Column<K>> = all.iter().filter(|column| column.from <= room).copied().collect();
    let taken: usize = shown.iter().map(|column| column.width + GAP).sum();
    let rest = room.saturating_sub(taken.saturating_sub(GAP));
    shown.into_iter().map(|column| (column, if column.width == 0 { rest } else { column.width })).collect()
}

/// The head, and the screen columns of each key. `sorted` is marked.
pub(crate) fn head<K: Copy + PartialEq>(
    columns: &[(Column<K>, usize)],
    sorted: K,
    theme: &Theme,
) -> (Line<'static>, Vec<(u16, u16, K)>) {
    let (mut spans, mut hits, mut at) = (Vec::new(), Vec::new(), 0usize);
    for (column, wide) in columns {
        let is_sorted = column.key == Some(sorted);
        let title = if is_sorted { format!("{}▾", column.title) } else { column.title.to_owned() };
        let text = cell(&title, *wide, column.is_right);
        let style = if is_sorted { theme.header() } else { theme.faint() };
        spans.push(Span::styled(text, style));
        spans.push(Span::raw(" ".repeat(GAP)));
        if let Some(key) = column.key {
            let place = |at: usize| u16::try_from(at).unwrap_or(u16::MAX);
            hits.push((place(at), place(at + wide + GAP), key));
        }
        at += wide + GAP;
    }
    (Line::from(spans), hits)
}

/// A text in exactly this many columns. Untrusted: nothing in it can move the cursor.
pub(crate) fn cell(text: &str, wide: usize, is_right: bool) -> String {
    let text = clean(text);
    let short = fit(&text, wide);
    let space = " ".repeat(wide.saturating_sub(width(&short)));
    if is_right { format!("{space}{short}") } else { format!("{short}{space}") }
}

/// A row of cells, one for each column.
pub(crate) fn row<K>(columns: &[(Column<K>, usize)], cells: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for (at, (column, wide)) in columns.iter().enumerate() {
        text.push_str(&cell(&cells(at), *wide, column.is_right));
        if at + 1 < columns.len() {
            text.push_str(&" ".repeat(GAP));
        }
    }
    text
}

/// Where a table was drawn, for clicks.
#[derive(Debug)]
pub(crate) struct Drawn<K> {
    pub(crate) header_row: u16,
    pub(crate) left: u16,
    pub(crate) headers: Vec<(u16, u16, K)>,
    pub(crate) first_row: u16,
    pub(crate) rows: std::ops::Range<usize>,
}

/// What is under the mouse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hit<K> {
    Header(K),
    Row(usize),
}

impl<K> Default for Drawn<K> {
    fn default() -> Self {
        Drawn { header_row: 0, left: 0, headers: Vec::new(), first_row: 0, rows: 0..0 }
    }
}

impl<K: Copy> Drawn<K> {
    pub(crate) fn hit(&self, column: u16, row: u16) -> Option<Hit<K>> {
        if row == self.header_row {
            let column = column.checked_sub(self.left)?;
            let is_hit = |(from, to, _): &&(u16, u16, K)| (*from..*to).contains(&column);
            return self.headers.iter().find(is_hit).map(|(_, _, key)| Hit::Header(*key));
        }
        let at = self.rows.start + usize::from(row.checked_sub(self.first_row)?);
        self.rows.contains(&at).then_some(Hit::Row(at))
    }
}

/// A share as a bar.
pub(crate) fn bar(share: f64, wide: usize) -> String {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let full = (share * wide as f64).round() as usize;
    format!("{}{}", "█".repeat(full), "░".repeat(wide.saturating_sub(full)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_do_not_fit_are_left_out_and_the_last_gets_the_rest() {
        let column = |title, width, from| Column { key: Some(title), title, width, is_right: false, from };
        let all = [column("A", 5, 0), column("B", 5, 100), column("C", 0, 0)];
        let narrow = laid_out(&all, 40);
        assert_eq!(
            narrow.iter().map(|(column, wide)| (column.title, *wide)).collect::<Vec<_>>(),
            [("A", 5), ("C", 33)]
        );
        let (line, hits) = head(&narrow, "C", &Theme::PLAIN);
        assert_eq!(line.to_string().trim_end(), "A      C▾");
        assert_eq!(hits, [(0, 7, "A"), (7, 42, "C")]);
        assert_eq!(laid_out(&all, 100).len(), 3);
        assert_eq!(row(&narrow, |at| ["long name", "x\x1b[2J"][at].to_owned()).trim_end(), "long…  x␛[2J");
    }

    #[test]
    fn bars_are_full_at_one_and_survive_what_is_not_a_number() {
        assert_eq!(bar(0.5, 4), "██░░");
        assert_eq!(bar(7.0, 3), "███");
        assert_eq!(bar(f64::NAN, 2), "░░");
    }
}
