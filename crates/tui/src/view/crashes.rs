//! The list of bundles, and on a tall screen what happened to the chosen one below it.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Wrap};
use stormlog_model::format_bytes;

use crate::state::crashes::{CrashRow, CrashesState};
use crate::state::page::Page;
use crate::text::{clean, fit};
use crate::view::listing::{self, Cell, Column, Headers};
use crate::view::page;
use crate::view::theme::Theme;

/// From this height on the chosen crash is described below the list.
const TALL: u16 = 18;
/// Most lines of it.
const PREVIEW: u16 = 6;

const COLUMNS: [Column; 6] = [
    Column::new("TIME", 20, 8),
    Column::new("PROGRAM", 16, 9),
    Column::new("RANK", 5, 5).right(),
    Column::new("CAUSE", 16, 9),
    Column::new("MEMORY", 16, 7).right(),
    Column::new("HELD BY", 12, 9).rest(),
];

/// Draws the view; gives where the headers and the list are.
pub(crate) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    state: &mut CrashesState,
    theme: &Theme,
) -> (Headers, Rect) {
    if state.opened.is_some() {
        match &mut state.page {
            Some(page) => page::draw(frame, area, page, theme),
            None => frame.render_widget(Paragraph::new("reading the bundle").style(theme.faint()), area),
        }
        return (Headers::new(), Rect::default());
    }
    let preview = if area.height >= TALL { PREVIEW.min(area.height / 3) } else { 0 };
    let [head, list, below] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(preview)])
            .areas(area);
    let columns = usize::from(area.width);
    frame.render_widget(
        Paragraph::new(Line::styled(fit(&headline(state), columns).into_owned(), theme.title())),
        head,
    );
    if state.len() == 0 {
        let lines: Vec<Line<'_>> =
            nothing(state).into_iter().map(|line| Line::styled(line, theme.faint())).collect();
        frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), list);
        return (Headers::new(), Rect::default());
    }
    let mut cursor = state.cursor;
    let rows = (&mut cursor, state.len());
    let row = |line: usize| state.at(line).map(|row| cells(row, theme)).unwrap_or_default();
    let headers = listing::draw(frame, list, &COLUMNS, state.sort as usize, rows, row, theme);
    state.cursor = cursor;
    if preview > 0
        && let Some(row) = state.chosen()
    {
        let said = row.crash.as_ref().map(|crash| crash.what_happened.as_str()).unwrap_or_default();
        let text = format!("{said}\n  bundle    {}", row.bundle.path.display());
        page::draw(frame, below, &mut Page::new("what happened", &text), theme);
    }
    (headers, list)
}

fn headline(state: &CrashesState) -> String {
    let mut line = match state.len() {
        1 => "1 crash".to_owned(),
        count => format!("{count} crashes"),
    };
    if !state.filter.text.is_empty() {
        line.push_str(&format!(" · filter {}", clean(&state.filter.text)));
    }
    if let Some(problem) = state.problems.first() {
        line.push_str(&format!(" · {}", clean(problem)));
    }
    line
}

/// Why there are no rows, and what to do next.
fn nothing(state: &CrashesState) -> Vec<String> {
    if state.is_empty_yet {
        return vec!["reading the bundles".to_owned()];
    }
    if !state.filter.text.is_empty() {
        return vec!["No bundle contains the filter. Esc removes it.".to_owned()];
    }
    let mut lines = vec![
        "No bundles here: a program that exits 0 leaves none.".to_owned(),
        "`stormlog run -- python3 train.py` leaves one when the program dies; `import stormlog.auto` at a CUDA out-of-memory error.".to_owned(),
    ];
    lines.extend(state.problems.iter().map(|problem| clean(problem).into_owned()));
    lines
}

fn cells(row: &CrashRow, theme: &Theme) -> Vec<Cell> {
    let plain = |text: String| (clean(&text).into_owned(), Style::new());
    let crash = row.crash.as_deref();
    let time = row.bundle.created_at_utc.as_deref().unwrap_or("unknown").replacen('T', " ", 1);
    let program =
        crash.and_then(|crash| crash.program.clone().or_else(|| crash.pid.map(|pid| format!("pid {pid}"))));
    let rank = crash.and_then(|crash| crash.rank).map(|rank| rank.to_string());
    let memory = crash.map(|crash| {
        let size = crash.bytes.map(format_bytes).unwrap_or_default();
        format!("{} {size}", crash.memory)
    });
    let holder = crash.and_then(|crash| crash.holder.as_ref());
    let holder = holder.map(|holder| format!("{} ({})", holder.place(), holder.size()));
    vec![
        (clean(&time).into_owned(), theme.faint()),
        plain(program.unwrap_or_else(|| "-".to_owned())),
        plain(rank.unwrap_or_default()),
        plain(row.bundle.cause.as_str().replace('_', " ")),
        plain(memory.unwrap_or_default()),
        plain(holder.unwrap_or_default()),
    ]
}
