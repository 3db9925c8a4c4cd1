//! Lanes on one axis of time: a bar for each column, names and values at the cursor on the left, phases and alerts above, the time below.
//!
//! Bars begin at 0. The counters of one memory have one scale, so that they can be compared; what is used of a limit is drawn against the limit.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use stormlog_model::{Severity, format_bytes};
use stormlog_story::lanes::LIMIT;
use stormlog_story::{Lane, Line as Counter, LineKind, Mark, Stretch};

use crate::state::axis::{Axis, value_at};
use crate::state::process::ProcessState;
use crate::state::reading::Level;
use crate::text::{clean, fit, width};
use crate::view::local_time::LocalTime;
use crate::view::theme::Theme;

/// Columns for names and values.
const GUTTER: u16 = 28;
/// Columns for a value.
const VALUE: usize = 10;
const BARS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
/// Rows of a lane, at most: more rows go to the lines below.
const MOST_ROWS: u16 = 5;

/// Which rows there are for a state, and how high each lane is.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaneLayout {
    has_phases: bool,
    has_steps: bool,
    has_marks: bool,
    shown: u16,
    rows: u16,
}

impl LaneLayout {
    /// As much as fits into `most` rows.
    pub(super) fn of(state: &ProcessState, most: u16) -> Self {
        let lanes = state.lanes();
        let is_any = |is_step: bool| {
            lanes.is_some_and(|lanes| lanes.stretches.iter().any(|stretch| stretch.is_step == is_step))
        };
        let has_marks = lanes.is_some_and(|lanes| !lanes.marks.is_empty());
        let strips = u16::from(is_any(false)) + u16::from(is_any(true)) + u16::from(has_marks) + 1;
        let count = u16::try_from(state.counters().len()).unwrap_or(u16::MAX);
        let room = most.saturating_sub(strips).max(1);
        let shown = count.min(room);
        let rows = (room / shown.max(1)).clamp(1, MOST_ROWS);
        LaneLayout { has_phases: is_any(false), has_steps: is_any(true), has_marks, shown, rows }
    }

    pub(super) fn height(&self) -> u16 {
        let strips = u16::from(self.has_phases) + u16::from(self.has_steps) + u16::from(self.has_marks);
        if self.shown == 0 { 0 } else { strips + self.shown * self.rows + 1 }
    }
}

/// Draws the lanes and remembers where, for clicks.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    state: &mut ProcessState,
    layout: LaneLayout,
    time: &LocalTime,
    theme: &Theme,
) {
    let gutter = GUTTER.min(area.width / 2);
    let plot = Rect { x: area.x + gutter, width: area.width.saturating_sub(gutter), ..area };
    (state.plot.column, state.plot.width) = (plot.x, plot.width);
    (state.plot.top, state.plot.bottom) = (area.y, area.y + area.height);
    let Some(lanes) = state.lanes() else { return };
    let mut row = Rows { area, gutter: usize::from(gutter), at: area.y };
    let columns = usize::from(plot.width);
    if layout.has_phases {
        let name = format!("phase {}", state.phase().map(clean).unwrap_or_default());
        let cells = strip(&lanes.stretches, &state.axis, columns);
        row.draw(frame, &name, "", Line::styled(cells, theme.faint()), theme);
    }
    if layout.has_steps {
        let value = state.step().map(|(at, of)| format!("{at} of {of}")).unwrap_or_default();
        let cells = steps(&lanes.stretches, &state.axis, columns);
        row.draw(frame, "steps", &value, Line::styled(cells, theme.faint()), theme);
    }
    if layout.has_marks {
        let line = marks(&lanes.marks, &state.axis, columns, theme);
        row.draw(frame, "alerts", &lanes.marks.len().to_string(), line, theme);
    }
    let counters = state.counters();
    for (lane, counter) in counters.iter().take(usize::from(layout.shown)) {
        draw_counter(frame, &mut row, state, (lane, counter), layout.rows, theme);
    }
    let hidden = counters.len().saturating_sub(usize::from(layout.shown));
    let more = if hidden > 0 { format!("{hidden} more lanes: enlarge") } else { String::new() };
    row.draw(frame, &more, "", Line::styled(ruler(state, time, columns), theme.faint()), theme);
    if let Some(column) = state.axis.column_of(state.axis.at(), columns) {
        let x = plot.x + u16::try_from(column).unwrap_or(0);
        for y in area.y..row.at.saturating_sub(1) {
            if let Some(cell) = frame.buffer_mut().cell_mut((x, y)) {
                cell.set_style(theme.chosen());
            }
        }
    }
}

/// The rows of the area, from the top down.
struct Rows {
    area: Rect,
    gutter: usize,
    at: u16,
}

impl Rows {
    fn draw(&mut self, frame: &mut Frame<'_>, name: &str, value: &str, cells: Line<'_>, theme: &Theme) {
        if self.at >= self.area.y + self.area.height {
            return;
        }
        let row = Rect { y: self.at, height: 1, ..self.area };
        self.at += 1;
        let room = self.gutter.saturating_sub(1);
        let value = fit(value, room);
        let name = fit(name, room.saturating_sub(width(&value) + usize::from(!value.is_empty())));
        let pad = room.saturating_sub(width(&name) + width(&value));
        let mut spans = vec![Span::raw(name.into_owned()), Span::raw(" ".repeat(pad))];
        spans.push(Span::styled(value.into_owned(), theme.title()));
        spans.push(Span::raw(" "));
        spans.extend(cells.spans.into_iter().map(|span| span.patch_style(cells.style)));
        frame.render_widget(Paragraph::new(Line::from(spans)), row);
    }
}

fn draw_counter(
    frame: &mut Frame<'_>,
    rows: &mut Rows,
    state: &ProcessState,
    (lane, counter): (&Lane, &Counter),
    height: u16,
    theme: &Theme,
) {
    let columns = usize::from(state.plot.width);
    let values = state.axis.columns(&counter.time, &counter.bytes, columns);
    let scale = scale(state, lane, columns);
    let value = value_at(&counter.time, &counter.bytes, state.axis.at());
    let value = value.map(|bytes| format!("{:>VALUE$}", format_bytes(bytes))).unwrap_or_default();
    let style = style_of(lane, counter, theme);
    for row in 0..height {
        let below = usize::from(height - 1 - row) * 8;
        let cell = |value: &Option<u64>| {
            let Some(value) = value else { return BARS[0] };
            let part = (u128::from(*value) * u128::from(height) * 8).div_ceil(u128::from(scale));
            BARS[usize::try_from(part).unwrap_or(usize::MAX).saturating_sub(below).min(8)]
        };
        let bars: String = values.iter().map(cell).collect();
        let (name, value) = match row {
            0 => (counter_name(lane, counter), value.as_str()),
            1 => (format!("  to {}", format_bytes(scale)), ""),
            _ => (String::new(), ""),
        };
        rows.draw(frame, &name, value, Line::styled(bars, style), theme);
    }
}

/// The value of a full bar: the limit where that is what the lane is about, else the highest that is shown of the memory.
fn scale(state: &ProcessState, lane: &Lane, columns: usize) -> u64 {
    if let Some(limit) = lane.limit.as_ref().filter(|_| lane.memory == LIMIT) {
        return limit.bytes.max(1);
    }
    let shown = lane.lines.iter().flat_map(|line| state.axis.columns(&line.time, &line.bytes, columns));
    shown.flatten().max().unwrap_or(0).max(1)
}

fn counter_name(lane: &Lane, counter: &Counter) -> String {
    match (lane.memory.as_str(), &lane.limit) {
        ("host", _) => clean(&counter.name).into_owned(),
        (LIMIT, Some(limit)) => format!("limit {}", format_bytes(limit.bytes)),
        (LIMIT, None) => "all processes".to_owned(),
        (memory, _) => {
            let name = match counter.kind {
                LineKind::Hidden => "hidden",
                _ => counter.name.strip_prefix("device ").unwrap_or(&counter.name),
            };
            clean(&format!("{memory} {name}")).into_owned()
        }
    }
}

fn style_of(lane: &Lane, counter: &Counter, theme: &Theme) -> Style {
    match (lane.memory.as_str(), counter.kind) {
        (_, LineKind::Hidden) => theme.found(),
        ("host", _) if counter.name == "heap" => theme.heap(),
        ("host", _) => theme.rss(),
        (LIMIT, _) => Style::new(),
        _ => theme.heap(),
    }
}

/// The names of phases where they begin.
fn strip(stretches: &[Stretch], axis: &Axis, columns: usize) -> String {
    let mut cells = vec![' '; columns];
    let (from, to) = axis.window();
    for stretch in stretches.iter().filter(|one| !one.is_step && one.from <= to && one.to >= from) {
        let Some(start) = axis.column_of(stretch.from.max(from), columns) else { continue };
        let end = axis.column_of(stretch.to.min(to), columns).unwrap_or(start);
        let is_begun = stretch.from >= from;
        let name = clean(&stretch.name);
        // One column a letter: wide letters would move what comes after them.
        let letters =
            name.chars().map(|letter| if width(letter.encode_utf8(&mut [0; 4])) == 1 { letter } else { '?' });
        let text = is_begun.then_some('│').into_iter().chain(letters).chain(std::iter::repeat('─'));
        for (cell, letter) in cells[start..=end].iter_mut().zip(text) {
            *cell = letter;
        }
    }
    cells.into_iter().collect()
}

/// Where steps begin; several in one column are a shade.
fn steps(stretches: &[Stretch], axis: &Axis, columns: usize) -> String {
    let mut counts = vec![0u32; columns];
    for step in stretches.iter().filter(|one| one.is_step) {
        if let Some(column) = axis.column_of(step.from, columns) {
            counts[column] += 1;
        }
    }
    counts.into_iter().map(|count| ['·', '│', '▒'][count.min(2) as usize]).collect()
}

/// Alerts and forecasts, the worst of each column.
fn marks(marks: &[Mark], axis: &Axis, columns: usize, theme: &Theme) -> Line<'static> {
    let mut cells: Vec<(char, Option<Level>)> = vec![(' ', None); columns];
    for mark in marks {
        let Some(column) = axis.column_of(mark.at, columns) else { continue };
        let level = level_of(mark);
        let letter = match (level, mark.limit_at) {
            (_, Some(_)) => '▸',
            (Level::Critical, _) => '▲',
            (Level::Warning, _) => '▴',
            (Level::Info, _) => '•',
        };
        let rank = |level: Option<Level>| level.map(|level| level as u8);
        if rank(Some(level)) >= rank(cells[column].1) {
            cells[column] = (letter, Some(level));
        }
    }
    let span = |(letter, level): (char, Option<Level>)| {
        let style = level.map(|level| theme.level(level)).unwrap_or_default();
        Span::styled(letter.to_string(), style)
    };
    Line::from(cells.into_iter().map(span).collect::<Vec<Span<'static>>>())
}

/// How bad a mark is.
pub(super) fn level_of(mark: &Mark) -> Level {
    match mark.severity.as_str() {
        severity if severity == Severity::Critical.as_str() => Level::Critical,
        severity if severity == Severity::Warning.as_str() => Level::Warning,
        _ => Level::Info,
    }
}

/// Both ends of the window, and the moment of the cursor below it.
fn ruler(state: &ProcessState, time: &LocalTime, columns: usize) -> String {
    let (from, to) = state.axis.window();
    let column_ms = (to - from) / columns.max(1) as u64;
    let mut cells = vec![' '; columns];
    let mut put = |at: usize, text: &str| {
        for (cell, letter) in cells.iter_mut().skip(at).zip(text.chars()) {
            *cell = letter;
        }
    };
    let (first, last) = (time.clock(from, column_ms), time.clock(to, column_ms));
    put(0, &first);
    put(columns.saturating_sub(last.len()), &last);
    if let Some(column) =
        state.axis.column_of(state.axis.at(), columns).filter(|_| state.axis.cursor().is_some())
    {
        let label = format!(" ▴ {} ", time.clock(state.axis.at(), column_ms));
        let at = column.saturating_sub(2).min(columns.saturating_sub(width(&label)));
        put(at, &label);
    }
    cells.into_iter().collect()
}
