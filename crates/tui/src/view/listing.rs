//! A list in columns: a header that can be clicked, the rows around the cursor. Columns that have no room are left out, those of least weight first.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::state::list::Cursor;
use crate::text::{fit, fit_end, width};
use crate::view::theme::Theme;

/// A column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    /// Columns of the screen it takes; of the widest column, the least it takes.
    pub(crate) wide: u16,
    /// It takes what is left.
    pub(crate) takes_rest: bool,
    /// The smaller, the sooner it is left out; those of 9 never.
    pub(crate) weight: u8,
    pub(crate) is_right: bool,
    /// Of its text the end matters, as of a path.
    pub(crate) keeps_end: bool,
}

impl Column {
    /// Text in this many columns.
    pub(crate) const fn new(title: &'static str, wide: u16, weight: u8) -> Self {
        Column { title, wide, takes_rest: false, weight, is_right: false, keeps_end: false }
    }

    pub(crate) const fn right(self) -> Self {
        Column { is_right: true, ..self }
    }

    pub(crate) const fn end(self) -> Self {
        Column { keeps_end: true, ..self }
    }

    pub(crate) const fn rest(self) -> Self {
        Column { takes_rest: true, ..self }
    }
}

/// A cell.
pub(crate) type Cell = (String, Style);

/// Where the headers are: the column and its first and last column of the screen.
pub(crate) type Headers = Vec<(usize, u16, u16)>;

/// Draws the rows that fit; `row` gives the cells of one, in the order of `columns`. Gives where the headers are.
pub(crate) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    columns: &[Column],
    sorted: usize,
    (cursor, len): (&mut Cursor, usize),
    row: impl Fn(usize) -> Vec<Cell>,
    theme: &Theme,
) -> Headers {
    let shown = layout(columns, area.width);
    let mut spans = Vec::new();
    let mut headers = Headers::new();
    let mut at = area.x;
    for (index, wide) in &shown {
        let column = &columns[*index];
        let mark = if *index == sorted { "▾" } else { "" };
        let text = in_columns(&format!("{}{mark}", column.title), *wide, column);
        headers.push((*index, at, at + wide));
        at += wide + 1;
        spans.push(Span::styled(text, theme.header()));
        spans.push(Span::raw(" "));
    }
    let mut lines = vec![Line::from(spans)];
    for number in cursor.window(usize::from(area.height.saturating_sub(1)), len) {
        let cells = row(number);
        let is_chosen = number == cursor.at;
        let mut spans = Vec::new();
        for (index, wide) in &shown {
            let Some((text, style)) = cells.get(*index) else { continue };
            spans.push(Span::styled(in_columns(text, *wide, &columns[*index]), *style));
            spans.push(Span::raw(" "));
        }
        let line = Line::from(spans);
        lines.push(if is_chosen { line.style(theme.chosen()) } else { line });
    }
    frame.render_widget(Paragraph::new(lines), area);
    headers
}

/// The columns that have room and how wide each is.
fn layout(columns: &[Column], width: u16) -> Vec<(usize, u16)> {
    let mut shown: Vec<usize> = (0..columns.len()).collect();
    let need = |shown: &[usize]| shown.iter().map(|index| columns[*index].wide + 1).sum::<u16>();
    while need(&shown) > width + 1 {
        let least = shown
            .iter()
            .copied()
            .filter(|index| columns[*index].weight < 9)
            .min_by_key(|index| columns[*index].weight);
        let Some(least) = least else { break };
        shown.retain(|index| *index != least);
    }
    let left = (width + 1).saturating_sub(need(&shown));
    let wide = |index: usize| {
        if columns[index].takes_rest { columns[index].wide + left } else { columns[index].wide }
    };
    shown.into_iter().map(|index| (index, wide(index))).collect()
}

fn in_columns(text: &str, wide: u16, column: &Column) -> String {
    let wide = usize::from(wide);
    let text = if column.keeps_end { fit_end(text, wide) } else { fit(text, wide) };
    let gap = " ".repeat(wide.saturating_sub(width(&text)));
    if column.is_right { format!("{gap}{text}") } else { format!("{text}{gap}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_least_weight_give_way_and_one_takes_the_rest() {
        let columns = [Column::new("a", 10, 9), Column::new("b", 10, 1), Column::new("c", 10, 9).rest()];
        assert_eq!(layout(&columns, 40), [(0, 10), (1, 10), (2, 18)]);
        assert_eq!(layout(&columns, 25), [(0, 10), (2, 14)]);
        assert_eq!(layout(&columns, 5), [(0, 10), (2, 10)], "those that must be there stay");
    }
}
