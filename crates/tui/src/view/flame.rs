//! A flame graph in cells: the caller above what it calls, each frame as wide as its share.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use stormlog_model::format_bytes;
use stormlog_model::text::grouped;

use crate::state::flame::FlameState;
use crate::text::{clean, fit, short_name, width};
use crate::view::frame::place;
use crate::view::theme::Theme;

/// Draws it; gives row, first column, last column and node of each frame, for clicks.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    state: &FlameState,
    theme: &Theme,
) -> Vec<(u16, u16, u16, u32)> {
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(chosen_line(state, usize::from(area.width), theme)), head);
    if state.is_empty() {
        frame.render_widget(Paragraph::new("nothing is allocated").style(theme.faint()), body);
        return Vec::new();
    }
    let mut cells = Vec::new();
    let rows = state.rows(usize::from(body.width), usize::from(body.height));
    for (y, row) in (body.y..).zip(&rows) {
        for cell in row {
            let x = body.x + u16::try_from(cell.column).unwrap_or(0);
            let wide = u16::try_from(cell.width).unwrap_or(0);
            let name = match state.frame(cell.node) {
                Some(frame) => clean(&short_name(&frame.function)).into_owned(),
                None => "everything".to_owned(),
            };
            let text = format!("▏{name} {}", format_bytes(state.weight(cell.node).bytes));
            let text = fit(&text, cell.width).into_owned();
            let pad = " ".repeat(cell.width.saturating_sub(width(&text)));
            let style = if cell.node == state.chosen() {
                theme.chosen()
            } else {
                theme.share(state.share(cell.node))
            };
            let line = Line::styled(format!("{text}{pad}"), style);
            frame.render_widget(Paragraph::new(line), Rect { x, y, width: wide, height: 1 });
            cells.push((y, x, x.saturating_add(wide), cell.node));
        }
    }
    cells
}

/// The chosen frame in full.
fn chosen_line(state: &FlameState, columns: usize, theme: &Theme) -> Line<'static> {
    let node = state.chosen();
    let weight = state.weight(node);
    let size = format!(
        "{:.1}%  {} in {} blocks  ",
        state.share(node) * 100.0,
        format_bytes(weight.bytes),
        grouped(weight.count)
    );
    let room = columns.saturating_sub(width(&size));
    let (function, at) = match state.frame(node) {
        Some(frame) => place(frame, room),
        None => ("everything".to_owned(), String::new()),
    };
    let pad = columns.saturating_sub(width(&size) + width(&function) + width(&at) + 2);
    Line::from(vec![Span::raw(size), Span::raw(function), Span::raw(format!("  {at}{}", " ".repeat(pad)))])
        .style(theme.header())
}
