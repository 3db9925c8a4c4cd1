//! What the screens share: a line of keys at the bottom, a text box in the middle, a place in the code in this many columns.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};
use stormlog_model::stacks;

use crate::text::{clean, fit, fit_end, short_name, short_path, width};
use crate::view::theme::Theme;

/// Keys and what they do, as many as fit.
pub(crate) fn keys(keys: &[(&'static str, &'static str)], columns: u16, theme: &Theme) -> Line<'static> {
    let mut left = usize::from(columns);
    let mut spans = Vec::new();
    for (key, does) in keys {
        let need = width(key) + width(does) + 3;
        if need > left + 2 {
            break;
        }
        left = left.saturating_sub(need);
        spans.push(Span::styled(*key, theme.key()));
        spans.push(Span::raw(format!(" {does}  ")));
    }
    Line::from(spans)
}

/// A box over the middle of the screen.
pub(crate) fn popup(frame: &mut Frame<'_>, title: &str, lines: Vec<Line<'_>>) {
    let whole = frame.area();
    let wide = lines.iter().map(Line::width).max().unwrap_or(0).max(width(title) + 2) + 4;
    let wide = u16::try_from(wide).unwrap_or(u16::MAX).min(whole.width);
    let high = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(whole.height);
    let area = Rect::new((whole.width - wide) / 2, (whole.height - high) / 2, wide, high);
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(format!(" {title} "));
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

/// Function and place in at most this many columns. The end of a path matters more than its beginning.
pub(crate) fn place(at: &stacks::Frame, columns: usize) -> (String, String) {
    let function = clean(&short_name(&at.function)).into_owned();
    let file = clean(short_path(&at.file)).into_owned();
    let place = if at.line == 0 || file.is_empty() { file } else { format!("{file}:{}", at.line) };
    if width(&function) + 2 + width(&place) <= columns {
        return (function, place);
    }
    let for_place = width(&place).min(columns / 2);
    let function = fit(&function, columns.saturating_sub(for_place + 2)).into_owned();
    let rest = columns.saturating_sub(width(&function) + 2);
    let place = if rest < 4 { String::new() } else { fit_end(&place, rest).into_owned() };
    (function, place)
}

/// The one line of a small screen that says it is too small for more.
pub(crate) fn too_small(frame: &mut Frame<'_>) {
    frame.render_widget(Paragraph::new("enlarge the terminal, q quits"), frame.area());
}
