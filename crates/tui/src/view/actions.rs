//! The menu, the form of the chosen action with its command line, and the jobs below.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Wrap};

use crate::state::action_list::ACTIONS;
use crate::state::actions::{ActionsState, Confirmation, Focus, JobRow};
use crate::state::key::Key;
use crate::state::page::Page;
use crate::text::{clean, fit, fit_end};
use crate::view::frame::popup;
use crate::view::page;
use crate::view::theme::Theme;

/// Columns of the menu.
const MENU: u16 = 19;
/// Most lines of jobs.
const JOBS: u16 = 8;
/// Lines of output that are worth showing.
const LEAST_OUTPUT: u16 = 4;
/// Columns of the names of fields.
const NAMES: usize = 11;

/// Draws the view; gives where the menu and the rows of jobs are.
pub(crate) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    state: &mut ActionsState,
    theme: &Theme,
) -> (Rect, Rect) {
    let areas = if let (Focus::Output, Some(page)) = (state.focus, &mut state.page) {
        page::draw(frame, area, page, theme);
        (Rect::default(), Rect::default())
    } else {
        let jobs = u16::try_from(state.jobs.len()).unwrap_or(JOBS).saturating_add(1).min(JOBS);
        let menu = u16::try_from(ACTIONS.len()).unwrap_or(u16::MAX);
        // Where there is room, what the job printed is shown below.
        let spare = area.height.saturating_sub(menu + jobs);
        let spare = if state.jobs.is_empty() || spare < LEAST_OUTPUT { 0 } else { spare };
        let [top, below, rest] =
            Layout::vertical([Constraint::Min(4), Constraint::Length(jobs), Constraint::Length(spare)])
                .areas(area);
        let [menu, form] = Layout::horizontal([Constraint::Length(MENU), Constraint::Min(10)]).areas(top);
        draw_menu(frame, menu, state, theme);
        draw_form(frame, form, state, theme);
        let rows = draw_jobs(frame, below, state, theme);
        if let Some(job) = state.chosen_job().filter(|_| spare > 0) {
            let mut page = Page::new("output", &job.output);
            page.window(usize::from(rest.width), usize::from(rest.height) - 1);
            page.key(Key::End);
            page::draw(frame, rest, &mut page, theme);
        }
        (menu, rows)
    };
    if let Some(confirmation) = &state.confirmation {
        let (Confirmation::Signal { lines, .. } | Confirmation::Cancel { lines, .. }) = confirmation;
        let columns = usize::from(area.width).saturating_sub(6);
        let line = |text: &String| Line::from(format!(" {} ", fit(&clean(text), columns)));
        let mut lines: Vec<Line<'_>> = lines.iter().map(line).collect();
        lines.push(Line::default());
        lines.push(Line::from(vec![
            Span::styled(" y", theme.key()),
            Span::raw(" yes   "),
            Span::styled("n", theme.key()),
            Span::raw(" no "),
        ]));
        popup(frame, "sure?", lines);
    }
    areas
}

fn draw_menu(frame: &mut Frame<'_>, area: Rect, state: &mut ActionsState, theme: &Theme) {
    let columns = usize::from(area.width.saturating_sub(2));
    let mut lines = Vec::new();
    for at in state.menu.window(usize::from(area.height), ACTIONS.len()) {
        let text = format!(" {:<columns$}", fit(ACTIONS[at].title, columns));
        let style = match (at == state.menu.at, state.focus) {
            (true, Focus::Menu) => theme.chosen(),
            (true, _) => theme.title(),
            _ => Default::default(),
        };
        lines.push(Line::styled(text, style));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_form(frame: &mut Frame<'_>, area: Rect, state: &ActionsState, theme: &Theme) {
    let action = state.action();
    let block = Block::new().borders(Borders::LEFT).border_style(theme.faint());
    let inner = block.inner(area);
    let columns = usize::from(inner.width).saturating_sub(1);
    let mut lines = vec![Line::styled(format!(" {}", action.what), theme.title()), Line::default()];
    for (at, (field, text)) in action.fields.iter().zip(state.texts()).enumerate() {
        let is_edited = state.focus == Focus::Form && at == state.field;
        let mark = if field.is_required { "*" } else { " " };
        let name = format!(" {:<NAMES$}", format!("{}{mark}", field.name));
        // The end is where one types.
        let room = columns.saturating_sub(NAMES + 4);
        let text = fit_end(&clean(text), room).into_owned();
        let (before, after) = match (is_edited, field.choices.is_empty()) {
            (true, true) => ("", "▏"),
            (_, false) => ("‹ ", " ›"),
            (false, true) => ("", ""),
        };
        let style = if is_edited { theme.chosen() } else { Default::default() };
        lines.push(Line::from(vec![
            Span::styled(name, theme.faint()),
            Span::styled(format!("{before}{text}{after}"), style),
        ]));
    }
    lines.push(Line::default());
    lines.push(match state.deed() {
        Ok(deed) => {
            Line::from(vec![Span::styled(" $ ", theme.key()), Span::raw(clean(&deed.line()).into_owned())])
        }
        Err(problem) => Line::styled(format!(" {}", clean(&problem)), theme.found()),
    });
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block), area);
}

/// Gives where the rows are.
fn draw_jobs(frame: &mut Frame<'_>, area: Rect, state: &mut ActionsState, theme: &Theme) -> Rect {
    let running = state.running();
    let title = match state.jobs.len() {
        0 => " no jobs yet ".to_owned(),
        count => format!(" jobs: {running} running, {} ended ", count - running),
    };
    let block = Block::new().borders(Borders::TOP).border_style(theme.faint()).title(title);
    let inner = block.inner(area);
    let columns = usize::from(inner.width);
    let mut cursor = state.job;
    let row = |at: usize| -> Line<'_> {
        let job: &JobRow = &state.jobs[at];
        let last = job.output.lines().last().unwrap_or_default();
        let text = format!("{} · {} · {last}", clean(&job.words()), clean(&job.line));
        let text = fit(&clean(&text), columns).into_owned();
        let is_chosen = at == state.job.at && state.focus == Focus::Jobs;
        Line::styled(text, if is_chosen { theme.chosen() } else { Default::default() })
    };
    let lines: Vec<Line<'_>> = cursor.window(usize::from(inner.height), state.jobs.len()).map(row).collect();
    frame.render_widget(Paragraph::new(lines).block(block), area);
    state.job = cursor;
    inner
}
