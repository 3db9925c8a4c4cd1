//! A long text under a title, and where in it one is.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Paragraph};

use crate::state::page::Page;
use crate::text::fit;
use crate::view::theme::Theme;

pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, page: &mut Page, theme: &Theme) {
    let (columns, rows) = (usize::from(area.width), usize::from(area.height.saturating_sub(1)));
    let (lines, above, below) = page.window(columns, rows);
    let title = fit(&page.title, columns.saturating_sub(24)).into_owned();
    let mut block =
        Block::new().borders(Borders::TOP).title(Line::styled(format!(" {title} "), theme.title()));
    if above + below > 0 {
        let place = format!(" {above} above, {below} below ");
        block = block.title(Line::styled(place, theme.faint()).right_aligned());
    }
    let lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).block(block), area);
}
