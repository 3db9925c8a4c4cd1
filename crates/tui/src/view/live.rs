//! The live view: the process, one plot, one table, keys at the bottom.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use stormlog_model::format_bytes;
use stormlog_model::memory::Memory;
use stormlog_model::text::{format_whole_seconds, grouped};

use crate::read::source::Excerpt;
use crate::state::live::{LiveState, Order};
use crate::state::reading::{Process, ProcessRow};
use crate::text::{clean, fit, fit_end, width};
use crate::view::frame::{keys, place, popup, too_small};
use crate::view::theme::Theme;
use crate::view::{help, plot, source};

/// Only named where there are several memories.
const MEMORY_KEY: &str = "m";

const KEYS: &[(&str, &str)] = &[
    ("?", "help"),
    ("q", "leave"),
    ("o t a", "order"),
    ("/", "filter"),
    ("< >", "thread"),
    (MEMORY_KEY, "memory"),
    ("Space", "pause"),
    ("Enter", "source"),
    ("p", "process"),
];

/// Draws everything; without the keys where there is no keyboard.
pub(crate) fn draw(
    frame: &mut Frame<'_>,
    state: &mut LiveState,
    excerpt: Option<&Excerpt>,
    theme: &Theme,
    has_keys: bool,
) {
    let area = frame.area();
    if area.width < 20 || area.height < 5 {
        return too_small(frame);
    }
    let head = head_lines(state, area.width, theme);
    let notes = note_lines(state, area, theme);
    let rows = |lines: &[Line<'_>]| u16::try_from(lines.len()).unwrap_or(0);
    let pane = if excerpt.is_some() { (area.height / 3).max(3) } else { 0 };
    // On a small screen the source takes the place of the plot.
    let plot = if area.height >= 16 && (pane == 0 || area.height >= 36) { area.height / 3 } else { 0 };
    let parts = Layout::vertical([
        Constraint::Length(rows(&head)),
        Constraint::Length(plot),
        Constraint::Length(rows(&notes)),
        Constraint::Min(2),
        Constraint::Length(pane),
        Constraint::Length(u16::from(state.reading.output.is_some() && area.height >= 12)),
        Constraint::Length(u16::from(has_keys)),
    ]);
    let [top, middle, news, table, below, output, foot] = parts.areas(area);
    frame.render_widget(Paragraph::new(head), top);
    if let Some(process) = &state.reading.chosen {
        plot::draw(frame, middle, process, theme);
    }
    frame.render_widget(Paragraph::new(notes), news);
    draw_table(frame, table, state, theme);
    if let Some(excerpt) = excerpt {
        source::draw(frame, below, excerpt, theme);
    }
    if let Some(printed) = &state.reading.output {
        let text = format!("printed  {}", clean(printed));
        let line = Line::styled(fit(&text, usize::from(output.width)).into_owned(), theme.faint());
        frame.render_widget(Paragraph::new(line), output);
    }
    if has_keys {
        let line = if state.filter.is_open {
            Line::from(format!("/{}▏", state.filter.text))
        } else {
            let has_several = state.memories().len() > 1;
            let shown = KEYS.iter().filter(|(key, _)| *key != MEMORY_KEY || has_several);
            keys(&shown.copied().collect::<Vec<_>>(), foot.width, theme)
        };
        frame.render_widget(Paragraph::new(line), foot);
    }
    if state.processes.is_some() {
        draw_processes(frame, state, theme);
    }
    if state.shows_help {
        help::draw(frame, help::LIVE, theme);
    }
}

/// Who it is; how much it holds; how it ended.
fn head_lines(state: &LiveState, columns: u16, theme: &Theme) -> Vec<Line<'static>> {
    let columns = usize::from(columns);
    let reading = &state.reading;
    let at = state.process_at();
    let name = reading.processes.get(at).map(process_name).unwrap_or_default();
    let several = match reading.processes.len() {
        0 | 1 => String::new(),
        count => format!("  process {} of {count}", at + 1),
    };
    let paused = if state.is_paused { "  PAUSED" } else { "" };
    let room = columns.saturating_sub(width(&several) + width(paused));
    let mut lines = vec![Line::from(vec![
        Span::styled(fit(&name, room).into_owned(), theme.title()),
        Span::styled(several, theme.faint()),
        Span::styled(paused, theme.found()),
    ])];
    let Some(process) = &reading.chosen else {
        lines.push(Line::styled(fit("waiting for the first record…", columns).into_owned(), theme.faint()));
        return lines;
    };
    lines.push(figures(process, reading.processes.get(at), columns, theme));
    lines.extend(memories(state, columns, theme));
    let state_line = match (&process.ended, &process.phase) {
        (Some(ended), _) => Some((format!("ended: {}", clean(ended)), theme.title())),
        (None, Some(phase)) => Some((format!("phase {}", clean(phase)), theme.faint())),
        _ => None,
    };
    lines.extend(state_line.map(|(text, style)| Line::styled(fit(&text, columns).into_owned(), style)));
    let behind = process.heap.as_ref().and_then(|heap| heap.behind_seconds).filter(|seconds| *seconds >= 1.0);
    lines.extend(behind.map(|seconds| {
        let text = format!("catching up: {} of the recording to be read", format_whole_seconds(seconds));
        Line::styled(fit(&text, columns).into_owned(), theme.found())
    }));
    let trouble = process.trouble.as_ref();
    lines.extend(trouble.map(|text| Line::styled(fit(&clean(text), columns).into_owned(), theme.found())));
    lines
}

pub(super) fn process_name(process: &ProcessRow) -> String {
    let rank = process.rank.map(|rank| format!("rank {rank} ")).unwrap_or_default();
    format!("{rank}{} (pid {})", clean(&process.name), process.pid)
}

fn figures(process: &Process, row: Option<&ProcessRow>, columns: usize, theme: &Theme) -> Line<'static> {
    let is_wide = columns >= 70;
    let mut parts: Vec<(String, Style)> = Vec::new();
    if let Some(heap) = &process.heap {
        let about = if heap.is_sampled { "about " } else { "" };
        let blocks =
            if columns >= 100 { format!(" in {} blocks", grouped(heap.count)) } else { String::new() };
        let peak = if is_wide { format!(", peak {}", format_bytes(heap.peak)) } else { String::new() };
        parts.push((
            format!(
                "{} {} {about}{}{blocks}{peak}",
                plot::HEAP,
                memory_name(heap.memory),
                format_bytes(heap.bytes)
            ),
            theme.heap(),
        ));
        if let Some(reserved) = heap.reserved.filter(|_| is_wide) {
            parts.push((format!("reserved {}", format_bytes(reserved)), theme.heap()));
        }
    }
    if let Some(rss) = row.and_then(|row| row.rss_bytes) {
        let peak = process.rss_peak.filter(|_| is_wide);
        let peak = peak.map(|peak| format!(", peak {}", format_bytes(peak))).unwrap_or_default();
        parts.push((format!("{} rss {}{peak}", plot::RSS, format_bytes(rss)), theme.rss()));
    }
    if let Some(seconds) = process.seconds {
        parts.push((format!("for {}", format_whole_seconds(seconds)), theme.faint()));
    }
    let mut left = columns;
    let mut spans = Vec::new();
    for (text, style) in parts {
        let gap = if spans.is_empty() { 0 } else { 3 };
        if gap + width(&text) > left {
            break;
        }
        left -= gap + width(&text);
        if gap > 0 {
            spans.push(Span::raw(" · "));
        }
        spans.push(Span::styled(text, style));
    }
    Line::from(spans)
}

/// The host's is the heap: of its other memory nothing is recorded here.
pub(super) fn memory_name(memory: Memory) -> String {
    match memory {
        Memory::Host => "heap".to_owned(),
        device => device.to_string(),
    }
}

/// All memories, where there are several: the shown one marked.
pub(super) fn memories(state: &LiveState, columns: usize, theme: &Theme) -> Option<Line<'static>> {
    let shown = state.reading.chosen.as_ref()?.heap.as_ref()?.memory;
    let rows = state.memories();
    let mut left = columns.checked_sub(8).filter(|_| rows.len() > 1)?;
    let mut spans = vec![Span::styled("memory ", theme.faint())];
    for row in rows {
        let text = format!(" {} {} ", row.memory.title(), format_bytes(row.bytes));
        left = match left.checked_sub(width(&text)) {
            Some(left) => left,
            None => break,
        };
        let style = if row.memory == shown { theme.chosen() } else { theme.faint() };
        spans.push(Span::styled(text, style));
    }
    Some(Line::from(spans))
}

/// The last things that happened, newest first.
fn note_lines(state: &LiveState, area: Rect, theme: &Theme) -> Vec<Line<'static>> {
    let most = usize::from(area.height / 12).min(3);
    let notes = state.reading.chosen.as_ref().map(|process| &process.notes[..]).unwrap_or_default();
    let line = |note: &crate::state::reading::Note| {
        let ago = state.reading.at_ns.saturating_sub(note.at_ns) as f64 / 1e9;
        let text = format!("{} ago  {}", format_whole_seconds(ago), clean(&note.text));
        Line::styled(fit(&text, usize::from(area.width)).into_owned(), theme.level(note.level))
    };
    notes.iter().rev().take(most).map(line).collect()
}

pub(super) fn draw_table(frame: &mut Frame<'_>, area: Rect, state: &mut LiveState, theme: &Theme) {
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let columns = usize::from(area.width);
    let Some(process) = &state.reading.chosen else { return };
    let Some(heap) = &process.heap else {
        let word = "Its heap is not recorded: start it with `stormlog run --heap` to see which lines hold the memory.";
        frame.render_widget(Paragraph::new(Line::styled(word, theme.faint())).wrap(Default::default()), area);
        return;
    };
    let whole = heap.bytes.max(1);
    frame.render_widget(Paragraph::new(table_head(state, columns, theme)), head);
    if state.rows.is_empty() {
        let word =
            if state.filter.text.is_empty() { "nothing is allocated" } else { "no line contains that" };
        frame.render_widget(Paragraph::new(Line::styled(word, theme.faint())), body);
        return;
    }
    let window = state.cursor.window(usize::from(body.height), state.rows.len());
    let lines: Vec<Line<'_>> = window
        .map(|at| {
            let held = &state.lines()[state.rows[at]];
            let cells = [format_bytes(held.own_bytes), format_bytes(held.total_bytes), grouped(held.count)];
            let sizes = numbers(columns, state.order, &cells);
            let (function, at_line) = place(&held.frame, columns.saturating_sub(width(&sizes)));
            let pad = columns.saturating_sub(width(&sizes) + width(&function) + width(&at_line) + 2);
            let shown = match state.order {
                Order::Own => held.own_bytes,
                Order::Total | Order::Count => held.total_bytes,
            };
            let line = Line::from(vec![
                Span::styled(sizes, theme.share(shown as f64 / whole as f64)),
                Span::raw(function),
                Span::styled(format!("  {at_line}{}", " ".repeat(pad)), theme.faint()),
            ]);
            if at == state.cursor.at { line.patch_style(theme.chosen()) } else { line }
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), body);
}

/// Own, total and count; only the one that orders the lines where names would have no room else.
fn numbers(columns: usize, order: Order, [own, total, count]: &[String; 3]) -> String {
    match (columns, order) {
        (70.., _) => format!("{own:>11} {total:>11} {count:>10}  "),
        (_, Order::Own) => format!("{own:>10}  "),
        (_, Order::Total) => format!("{total:>10}  "),
        (_, Order::Count) => format!("{count:>10}  "),
    }
}

fn table_head(state: &LiveState, columns: usize, theme: &Theme) -> Line<'static> {
    let name =
        |order: Order, text: &str| if state.order == order { format!("▾{text}") } else { text.to_owned() };
    let (own, total, count) =
        (name(Order::Own, "OWN"), name(Order::Total, "TOTAL"), name(Order::Count, "COUNT"));
    let thread = match state.thread() {
        Some((at, thread)) => {
            let name = thread.name.as_ref().map(|name| format!(" {}", clean(name))).unwrap_or_default();
            format!("thread {at} of {}: {}{name}", state.threads().len(), thread.id)
        }
        None if state.wish().thread.is_some() => "reading…".to_owned(),
        None => match state.threads().len() {
            0 | 1 => String::new(),
            count => format!("all {count} threads"),
        },
    };
    let filter =
        if state.filter.text.is_empty() { String::new() } else { format!("  /{}", state.filter.text) };
    let left = numbers(columns, state.order, &[own, total, count]) + "LINE";
    let right = format!("{thread}{filter}");
    let right = fit_end(&right, columns.saturating_sub(width(&left) + 2)).into_owned();
    let pad = columns.saturating_sub(width(&left) + width(&right));
    Line::styled(format!("{left}{}{right}", " ".repeat(pad)), theme.header())
}

pub(super) fn draw_processes(frame: &mut Frame<'_>, state: &mut LiveState, theme: &Theme) {
    let whole = frame.area();
    let rows = &state.reading.processes;
    let Some(cursor) = &mut state.processes else { return };
    let window = cursor.window(usize::from(whole.height.saturating_sub(4)), rows.len());
    let lines: Vec<Line<'_>> = window
        .map(|at| {
            let row = &rows[at];
            let rss = row.rss_bytes.map(format_bytes).unwrap_or_else(|| "?".to_owned());
            let life = if row.is_running { "runs " } else { "ended" };
            let heap = if row.has_heap { "heap" } else { "    " };
            let text = format!(" {rss:>11}  {life}  {heap}  {} ", process_name(row));
            let line = Line::from(fit(&text, usize::from(whole.width.saturating_sub(4))).into_owned());
            if at == cursor.at { line.patch_style(theme.chosen()) } else { line }
        })
        .collect();
    popup(frame, "processes", lines);
}
