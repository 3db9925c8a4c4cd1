//! The source around a line.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph};

use crate::read::source::Excerpt;
use crate::text::fit_end;
use crate::view::theme::Theme;

/// Draws an excerpt with its line in the middle.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, excerpt: &Excerpt, theme: &Theme) {
    let title = fit_end(&excerpt.title, usize::from(area.width).saturating_sub(4)).into_owned();
    let block = Block::new().borders(Borders::TOP).title(format!(" {title} "));
    let room = usize::from(area.height.saturating_sub(1));
    let lines: Vec<Line<'_>> = match &excerpt.lines {
        Err(reason) => vec![Line::styled(reason.as_str(), theme.faint())],
        Ok(lines) => {
            let middle = lines.iter().position(|(number, _)| *number == excerpt.line).unwrap_or(0);
            let first = middle.saturating_sub(room / 2).min(lines.len().saturating_sub(room));
            let row = |(number, text): &(u32, String)| {
                let style = if *number == excerpt.line { theme.chosen() } else { Default::default() };
                Line::from(vec![
                    Span::styled(format!("{number:>6} "), theme.faint()),
                    Span::styled(text.clone(), style),
                ])
            };
            lines.iter().skip(first).take(room).map(row).collect()
        }
    };
    frame.render_widget(Paragraph::new(lines).block(block), area);
}
