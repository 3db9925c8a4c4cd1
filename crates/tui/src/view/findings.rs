//! The list of findings, and on a tall screen the chosen one below it.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Wrap};
use stormlog_model::{Severity, format_bytes};
use stormlog_story::{FindingRow, clock};

use crate::state::findings::{FindingsState, JudgedRecording, short};
use crate::state::reading::Level;
use crate::text::{clean, fit, short_path};
use crate::view::listing::{self, Cell, Column, Headers};
use crate::view::page;
use crate::view::theme::Theme;

/// From this height on the chosen finding is shown below the list.
const TALL: u16 = 18;
/// Most lines of it.
const PREVIEW: u16 = 14;

const COLUMNS: [Column; 7] = [
    Column::new("SEVERITY", 8, 9),
    Column::new("KIND", 14, 5),
    Column::new("FINDING", 30, 9).rest(),
    Column::new("PROCESS", 16, 7),
    Column::new("MEMORY", 15, 8).right(),
    Column::new("HELD BY", 24, 6).end(),
    Column::new("WHEN", 20, 4),
];

/// Draws the view; gives where the headers and the first row are.
pub(crate) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    state: &mut FindingsState,
    theme: &Theme,
) -> (Headers, Rect) {
    if let Some(page) = &mut state.page {
        page::draw(frame, area, page, theme);
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
    let row =
        |line: usize| state.at(line).map(|(recording, row)| cells(recording, row, theme)).unwrap_or_default();
    let headers = listing::draw(frame, list, &COLUMNS, state.sort as usize, rows, row, theme);
    state.cursor = cursor;
    if let Some(mut text) = state.text().filter(|_| preview > 0) {
        page::draw(frame, below, &mut text, theme);
    }
    (headers, list)
}

fn headline(state: &FindingsState) -> String {
    let look = &state.look;
    let count = match state.len() {
        1 => "1 finding".to_owned(),
        count => format!("{count} findings"),
    };
    let mut line = match &look.subject {
        Some(path) if look.judged.is_empty() => format!("analysing {}", clean(&short(path))),
        Some(path) => format!("{count} in {}", clean(&short(path))),
        None if look.found == 0 => "no runs".to_owned(),
        None => {
            let (done, wanted) = (look.judged.len(), look.wanted);
            let runs = if wanted == 1 { "run" } else { "runs" };
            let older = look.found - look.wanted;
            let older = if older > 0 { format!("; {older} older, m analyses more") } else { String::new() };
            format!("{count} · analysed {done} of {wanted} {runs}{older}")
        }
    };
    if !state.filter.text.is_empty() {
        line.push_str(&format!(" · filter {}", clean(&state.filter.text)));
    }
    line
}

/// Why there are no rows, and what to do next.
fn nothing(state: &FindingsState) -> Vec<String> {
    let look = &state.look;
    if state.is_empty_yet || (look.judged.is_empty() && look.wanted > 0) {
        return vec!["reading the recordings".to_owned()];
    }
    if !state.filter.text.is_empty() {
        return vec!["No finding contains the filter. Esc removes it.".to_owned()];
    }
    let mut lines = match &look.subject {
        None if look.found == 0 => vec![
            "No runs were recorded here.".to_owned(),
            "Record one with `stormlog run -- python3 train.py`, or name their directory: `stormlog tui DIR`.".to_owned(),
        ],
        None => vec!["Nothing is wrong with the runs that were analysed.".to_owned()],
        Some(_) => vec!["Nothing is wrong with this recording. a shows all runs.".to_owned()],
    };
    for problem in look.judged.iter().filter(|_| look.subject.is_some()).flat_map(|one| &one.problems).take(8)
    {
        lines.push(clean(problem).into_owned());
    }
    lines
}

fn cells(recording: &JudgedRecording, row: &FindingRow, theme: &Theme) -> Vec<Cell> {
    let finding = &row.finding;
    let level = match finding.severity {
        Severity::Critical => Level::Critical,
        Severity::Warning => Level::Warning,
        Severity::Info => Level::Info,
    };
    let plain = |text: String| (clean(&text).into_owned(), Style::new());
    let faint = |text: String| (clean(&text).into_owned(), theme.faint());
    let program = row.program.as_deref().map(short_path).unwrap_or_default();
    let number = match (row.rank, row.pid) {
        (Some(rank), _) => format!(" rank {rank}"),
        (None, Some(pid)) => format!(" {pid}"),
        (None, None) => String::new(),
    };
    let size = row.bytes.map(format_bytes).unwrap_or_default();
    let memory = row.memory.map(|memory| memory.to_string()).unwrap_or_default();
    let holder = row.held_by.as_deref().map(short_path).unwrap_or_default();
    let when = row.at_ns.and_then(|at| clock(at.into())).unwrap_or_else(|| recording.name.clone());
    vec![
        (finding.severity.as_str().to_owned(), theme.level(level)),
        plain(finding.kind.replace('_', " ")),
        plain(finding.title.clone()),
        plain(format!("{program}{number}").trim().to_owned()),
        plain(format!("{memory} {size}").trim().to_owned()),
        plain(holder.to_owned()),
        faint(when),
    ]
}
