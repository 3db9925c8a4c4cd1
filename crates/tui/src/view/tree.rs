//! The call tree: share, bytes and count on the left, functions on the right.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use stormlog_model::format_bytes;

use crate::read::source::Excerpt;
use crate::state::tree::{Hidden, Row, TreeState};
use crate::text::{fit, width, wrap};
use crate::view::frame::{keys, place, too_small};
use crate::view::theme::Theme;
use crate::view::{help, source};
use stormlog_model::text::grouped;

const KEYS: &[(&str, &str)] = &[
    ("?", "help"),
    ("q", "leave"),
    ("→←", "open, close"),
    ("/", "search"),
    ("h", "hide"),
    ("s", "source"),
    ("o", "order"),
    ("e", "open all"),
    ("c", "close all"),
];

/// From this height on the sentences about the recording are shown, in at most this many lines.
const ROOM_FOR_NOTES: u16 = 16;
const NOTE_LINES: usize = 3;

/// Draws everything.
pub(crate) fn draw(frame: &mut Frame<'_>, state: &mut TreeState, excerpt: Option<&Excerpt>, theme: &Theme) {
    let area = frame.area();
    if area.width < 20 || area.height < 4 {
        return too_small(frame);
    }
    let pane = if excerpt.is_some() { (area.height / 3).max(3) } else { 0 };
    let most = if area.height >= ROOM_FOR_NOTES { NOTE_LINES } else { 0 };
    let notes = wrap(&state.notes, usize::from(area.width), most);
    let parts = Layout::vertical([
        Constraint::Length(2 + u16::try_from(notes.len()).unwrap_or(0)),
        Constraint::Min(1),
        Constraint::Length(pane),
        Constraint::Length(1),
    ]);
    let [head, body, below, foot] = parts.areas(area);
    draw_head(frame, head, state, notes, theme);
    draw_rows(frame, body, state, theme);
    if let Some(excerpt) = excerpt {
        source::draw(frame, below, excerpt, theme);
    }
    frame.render_widget(Paragraph::new(foot_line(state, foot.width, theme)), foot);
    if state.shows_help {
        help::draw(frame, help::TREE, theme);
    }
}

/// Draws the columns alone, inside another screen.
pub(super) fn draw_columns(frame: &mut Frame<'_>, area: Rect, state: &mut TreeState, theme: &Theme) {
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(column_names(usize::from(area.width), theme)), head);
    draw_rows(frame, body, state, theme);
}

fn column_names(columns: usize, theme: &Theme) -> Line<'static> {
    let names = numbers(columns, ["SHARE", "BYTES", "COUNT"]) + "CALLS";
    Line::styled(format!("{names:<columns$}"), theme.header())
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, state: &TreeState, notes: Vec<String>, theme: &Theme) {
    let hidden = hidden_words(state.hidden);
    let title = fit(&state.title, usize::from(area.width).saturating_sub(width(hidden))).into_owned();
    let mut lines =
        vec![Line::from(vec![Span::styled(title, theme.title()), Span::styled(hidden, theme.faint())])];
    lines.extend(notes.into_iter().map(|note| Line::styled(note, theme.faint())));
    lines.push(column_names(usize::from(area.width), theme));
    frame.render_widget(Paragraph::new(lines), area);
}

/// What is left out, behind the title.
pub(super) fn hidden_words(hidden: Hidden) -> &'static str {
    match hidden {
        Hidden::Nothing => "",
        Hidden::Imports => "  · imports hidden",
        Hidden::Libraries => "  · libraries hidden",
    }
}

fn draw_rows(frame: &mut Frame<'_>, area: Rect, state: &mut TreeState, theme: &Theme) {
    if state.is_empty() {
        let word = "This heap holds nothing: no allocation was recorded, or all were freed.";
        frame.render_widget(Paragraph::new(word).wrap(Default::default()), area);
        return;
    }
    let window = state.cursor.window(usize::from(area.height), state.rows.len());
    let chosen = state.cursor.at;
    let lines: Vec<Line<'_>> = window
        .map(|at| {
            let line = row_line(state, state.rows[at], usize::from(area.width), theme);
            if at == chosen { line.patch_style(theme.chosen()) } else { line }
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), area);
}

fn row_line(state: &TreeState, row: Row, columns: usize, theme: &Theme) -> Line<'static> {
    let cells = state.cells(row);
    let share = format!("{:.1}%", cells.share * 100.0);
    let sizes = numbers(columns, [&share, &format_bytes(cells.bytes), &grouped(cells.count)]);
    let mark = match (cells.is_leaf, cells.is_open) {
        (true, _) => "  ",
        (false, true) => "▾ ",
        (false, false) => "▸ ",
    };
    // Deep trees must not push their names off the screen.
    let indent = (row.depth.saturating_sub(1) * 2).min(columns / 4);
    let chain = if row.is_only_child { "↳" } else { "" };
    let lead = format!("{}{chain}{mark}", " ".repeat(indent));
    let used = width(&sizes) + width(&lead);
    let (function, at) = match cells.frame {
        Some(frame) => place(frame, columns.saturating_sub(used)),
        None => {
            let rest = if cells.own > 0 {
                format!(", {} of it in no shown frame", format_bytes(cells.own))
            } else {
                String::new()
            };
            (fit(&format!("everything{rest}"), columns.saturating_sub(used)).into_owned(), String::new())
        }
    };
    let pad = columns.saturating_sub(used + width(&function) + width(&at) + 2);
    let name = if cells.is_match { theme.found() } else { Default::default() };
    Line::from(vec![
        Span::styled(sizes, theme.share(cells.share)),
        Span::raw(lead),
        Span::styled(function, name),
        Span::styled(format!("  {at}{}", " ".repeat(pad)), theme.faint()),
    ])
}

/// Share, bytes and count, as many of them as leave room for names.
fn numbers(columns: usize, [share, bytes, count]: [&str; 3]) -> String {
    match columns {
        0..46 => format!("{bytes:>10}  "),
        46..70 => format!("{share:>6} {bytes:>11}  "),
        _ => format!("{share:>6} {bytes:>11} {count:>11}  "),
    }
}

fn foot_line(state: &TreeState, columns: u16, theme: &Theme) -> Line<'static> {
    if state.search.is_open {
        return Line::from(format!("/{}▏", state.search.text));
    }
    if let Some(notice) = &state.notice {
        return Line::styled(fit(notice, usize::from(columns)).into_owned(), theme.found());
    }
    keys(KEYS, columns, theme)
}
