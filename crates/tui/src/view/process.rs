//! One process: its identity and what happened, its lanes, and what held the memory at the cursor.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use stormlog_model::format_bytes;
use stormlog_model::text::{format_whole_seconds, grouped};

use crate::read::source::Excerpt;
use crate::state::process::{Pane, ProcessState};
use crate::text::{clean, fit, width, wrap};
use crate::view::lanes::{self, LaneLayout};
use crate::view::local_time::LocalTime;
use crate::view::theme::Theme;
use crate::view::{flame, live, source, tree};

/// Rows that the part below the lanes has at least.
const LEAST_BELOW: u16 = 7;
/// Lines of the answer on a low screen.
const FEW_LINES: usize = 3;
const TALL: u16 = 30;

/// Draws everything.
pub(crate) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    state: &mut ProcessState,
    excerpt: Option<&Excerpt>,
    time: &LocalTime,
    theme: &Theme,
) {
    if let Some(trouble) = &state.trouble {
        let lines = wrap(&clean(trouble), usize::from(area.width), usize::from(area.height));
        frame.render_widget(Paragraph::new(lines.into_iter().map(Line::from).collect::<Vec<_>>()), area);
        return;
    }
    let head = head_lines(state, area, theme);
    let head_rows = u16::try_from(head.len()).unwrap_or(0).min(area.height);
    let below = area.height.saturating_sub(head_rows);
    // Lanes have half of what is left, more on a tall screen, and never what the lines need.
    let share = if area.height >= TALL { below / 5 * 3 } else { below / 2 };
    let most = share.max(below.saturating_sub(LEAST_BELOW).min(8));
    let layout = LaneLayout::of(state, most);
    let pane = if excerpt.is_some() { (area.height / 4).max(3) } else { 0 };
    let parts = Layout::vertical([
        Constraint::Length(head_rows),
        Constraint::Length(layout.height().min(below)),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(pane),
    ]);
    let [top, middle, title, body, foot] = parts.areas(area);
    frame.render_widget(Paragraph::new(head), top);
    lanes::draw(frame, middle, state, layout, time, theme);
    frame.render_widget(Paragraph::new(moment_line(state, usize::from(title.width), time, theme)), title);
    draw_pane(frame, body, state, theme);
    if let Some(excerpt) = excerpt {
        source::draw(frame, foot, excerpt, theme);
    }
    if state.live.processes.is_some() {
        live::draw_processes(frame, &mut state.live, theme);
    }
}

/// Name and state; the answer of a process that has ended, or how near its limit it is; what was last reported.
fn head_lines(state: &ProcessState, area: Rect, theme: &Theme) -> Vec<Line<'static>> {
    let columns = usize::from(area.width);
    let reading = &state.live.reading;
    let at = state.live.process_at();
    let Some(process) = state.process() else {
        let text = if reading.title.is_empty() {
            "No process is chosen: Enter on a run or a process in the overview (1) shows it here.".to_owned()
        } else if state.has_looked() {
            format!("No sample and no capture of a process is at {}.", clean(&reading.title))
        } else {
            format!("reading {}…", clean(&reading.title))
        };
        return vec![Line::styled(fit(&text, columns).into_owned(), theme.faint())];
    };
    let name = reading.processes.get(at).map(live::process_name).unwrap_or_default();
    let several = match reading.processes.len() {
        0 | 1 => String::new(),
        count => format!("  process {} of {count} (p)", at + 1),
    };
    let seconds = process.seconds.map(format_whole_seconds).unwrap_or_default();
    let life = match &process.ended {
        Some(ended) if state.answer.is_empty() => format!("  ended: {}", clean(ended)),
        Some(_) => format!("  ended after {seconds}"),
        None => format!("  running for {seconds}"),
    };
    let room = columns.saturating_sub(width(&several) + width(&life));
    let mut lines = vec![Line::from(vec![
        Span::styled(fit(&name, room).into_owned(), theme.title()),
        Span::raw(life),
        Span::styled(several, theme.faint()),
    ])];
    let most = if area.height >= TALL { usize::MAX } else { FEW_LINES };
    let mut push = |text: String, style| lines.push(Line::styled(fit(&text, columns).into_owned(), style));
    for line in state.answer.iter().take(most) {
        push(clean(line).into_owned(), ratatui::style::Style::new());
    }
    if process.ended.is_none()
        && let Some(usage) = state.usage()
    {
        push(usage, ratatui::style::Style::new());
    }
    let behind = process.heap.as_ref().and_then(|heap| heap.behind_seconds).filter(|seconds| *seconds >= 1.0);
    if let Some(seconds) = behind {
        push(
            format!("catching up: {} of the recording to be read", format_whole_seconds(seconds)),
            theme.found(),
        );
    }
    if let Some(trouble) = &process.trouble {
        push(clean(trouble).into_owned(), theme.found());
    }
    if let Some(mark) = state.mark() {
        let text = if mark.text.is_empty() { &mark.name } else { &mark.text };
        push(format!("{}: {}", clean(&mark.name), clean(text)), theme.level(lanes::level_of(mark)));
    }
    if let Some(printed) = reading.output.as_ref().filter(|_| area.height >= TALL) {
        push(format!("printed  {}", clean(printed)), theme.faint());
    }
    lines
}

/// Which memory at which moment the part below is about.
fn moment_line(state: &ProcessState, columns: usize, time: &LocalTime, theme: &Theme) -> Line<'static> {
    let Some(heap) = state.heap() else { return Line::default() };
    let (from, to) = state.axis.window();
    let column_ms = (to - from) / u64::from(state.plot.width.max(1));
    let is_over = state.process().is_some_and(|process| process.ended.is_some());
    let when = match heap.moment_ns.filter(|_| heap.at_ns.is_some()) {
        Some(moment) => {
            let at = moment / 1_000_000;
            let since = at.saturating_sub(state.axis.whole().0) as f64 / 1e3;
            format!(
                "at {} (after {})",
                time.clock(at, column_ms.min(999)),
                stormlog_model::format_duration(since)
            )
        }
        None if heap.at_ns.is_some() => "at the cursor".to_owned(),
        None if is_over => "at the end".to_owned(),
        None => "now".to_owned(),
    };
    let about = if heap.is_sampled { "about " } else { "" };
    let blocks = if columns >= 70 { format!(" in {} blocks", grouped(heap.count)) } else { String::new() };
    let reading = if state.is_current() { "" } else { "  reading…" };
    let hidden = match &state.pane {
        Pane::Tree(Some(tree)) => tree::hidden_words(tree.hidden),
        Pane::Flame(Some(flame)) => tree::hidden_words(flame.hidden),
        _ => "",
    };
    let size = if heap.past_trouble.is_some() {
        String::new()
    } else {
        format!(": {about}{}{blocks}", format_bytes(heap.bytes))
    };
    let text = format!("{} {when}{size}{hidden}{reading}", live::memory_name(heap.memory));
    let mut spans = vec![Span::styled(fit(&text, columns).into_owned(), theme.title())];
    let left = columns.saturating_sub(width(&text) + 2);
    let count = state.live.memories().len();
    if let Some(memories) = live::memories(&state.live, left, theme) {
        spans.push(Span::raw("  "));
        match memories.spans.len() > count {
            true => spans.extend(memories.spans),
            // A part of the list would pass for all of it.
            false => spans.push(Span::styled(format!("m: {count} memories"), theme.faint())),
        }
    }
    Line::from(spans)
}

fn draw_pane(frame: &mut Frame<'_>, area: Rect, state: &mut ProcessState, theme: &Theme) {
    state.plot.head = None;
    state.cells.clear();
    let Some(process) = state.process() else { return };
    let sentence = match (&process.heap, process.is_recorded, process.ended.is_some()) {
        (Some(heap), ..) => heap.past_trouble.as_ref().map(|reason| clean(reason).into_owned()),
        (None, true, true) => {
            Some("Its heap was not recorded: `stormlog run --heap` shows which lines hold the memory.".to_owned())
        }
        (None, true, false) => Some(
            "Its heap is not recorded: start it with `stormlog run --heap` to see which lines hold the memory."
                .to_owned(),
        ),
        (None, false, _) => Some(format!(
            "This process is not recorded; memory is shown from now on. Record it with `stormlog attach {}`.",
            process.pid
        )),
    };
    if let Some(sentence) = sentence {
        let lines = wrap(&sentence, usize::from(area.width), usize::from(area.height));
        let lines: Vec<Line<'_>> = lines.into_iter().map(|line| Line::styled(line, theme.faint())).collect();
        frame.render_widget(Paragraph::new(lines), area);
        return;
    }
    match &mut state.pane {
        Pane::Lines => {
            state.plot.head = Some(area.y);
            live::draw_table(frame, area, &mut state.live, theme);
        }
        Pane::Tree(Some(tree)) => tree::draw_columns(frame, area, tree, theme),
        Pane::Flame(Some(flame)) => state.cells = flame::draw(frame, area, flame, theme),
        Pane::Tree(None) | Pane::Flame(None) => {
            frame.render_widget(Paragraph::new("reading the stacks…").style(theme.faint()), area);
        }
    }
}
