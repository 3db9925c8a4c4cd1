//! The overview as a picture: machine, cgroups and GPUs on top, then the table of runs.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use stormlog_collect::pressure::Pressure;
use stormlog_model::format_bytes;
use stormlog_model::text::{format_duration, format_rate, format_whole_seconds};
use stormlog_node::{Cgroup, GpuProcess, GpuRow, Item, Overview};

use super::table::{Column, Drawn, bar, head, laid_out, row};
use crate::state::overview::{OverviewState, SortBy};
use crate::text::{clean, fit, fit_end};
use crate::view::theme::Theme;

/// What is not known.
pub(crate) const UNKNOWN: &str = "–";
const BAR: usize = 14;
/// A limit so near stands out.
pub(crate) const SOON_SECONDS: f64 = 600.0;

const COLUMNS: &[Column<SortBy>] = &[
    Column { key: Some(SortBy::State), title: "STATE", width: 11, is_right: false, from: 0 },
    Column { key: Some(SortBy::Urgency), title: "LIMIT IN", width: 11, is_right: true, from: 0 },
    Column { key: Some(SortBy::Growth), title: "GROWTH", width: 14, is_right: true, from: 0 },
    Column { key: Some(SortBy::Size), title: "RESIDENT", width: 10, is_right: true, from: 0 },
    Column { key: None, title: "GPU", width: 10, is_right: true, from: 130 },
    Column { key: None, title: "PEAK", width: 10, is_right: true, from: 96 },
    Column { key: Some(SortBy::Since), title: "SINCE", width: 12, is_right: true, from: 112 },
    Column { key: None, title: "PID", width: 7, is_right: true, from: 150 },
    Column { key: None, title: "JOB", width: 18, is_right: false, from: 170 },
    Column { key: None, title: "HOST", width: 18, is_right: false, from: 190 },
    Column { key: Some(SortBy::Name), title: "PROGRAM", width: 0, is_right: false, from: 0 },
];

pub(crate) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    state: &mut OverviewState,
    theme: &Theme,
) -> Drawn<SortBy> {
    let Some(overview) = &state.overview else {
        frame.render_widget(Paragraph::new("reading …").style(theme.faint()), area);
        return Drawn::default();
    };
    let columns = usize::from(area.width);
    // The list of runs has at least half of the screen.
    let room = usize::from(area.height / 2).max(3);
    let top = machine_lines(overview, columns, room, theme);
    let high = u16::try_from(top.len()).unwrap_or(0).min(area.height);
    frame.render_widget(Paragraph::new(top), Rect { height: high, ..area });
    let rest = Rect { y: area.y + high, height: area.height - high, ..area };
    draw_table(frame, rest, state, theme)
}

/// The machine in at most `room` lines, a blank one at the end.
pub(crate) fn machine_lines(
    overview: &Overview,
    columns: usize,
    room: usize,
    theme: &Theme,
) -> Vec<Line<'static>> {
    let mut lines = vec![host_line(overview, columns, theme)];
    let cgroups = overview.own_cgroup.iter().map(|own| ("cgroup (ours)", own));
    let own = overview.own_cgroup.as_ref().map(|own| own.path.clone());
    let others = overview.cgroups.iter().filter(|cgroup| Some(&cgroup.path) != own.as_ref());
    for (word, cgroup) in cgroups.chain(others.map(|cgroup| ("cgroup", cgroup))).take(3) {
        lines.push(cgroup_line(word, cgroup, columns, theme));
    }
    match &overview.gpus {
        Some(gpus) if gpus.is_empty() => {}
        None => {}
        Some(gpus) => {
            let mut left = room.saturating_sub(lines.len() + 1 + gpus.len());
            for gpu in gpus.iter().take(room.saturating_sub(lines.len() + 1)) {
                lines.push(gpu_line(gpu, columns, theme));
                for process in gpu.processes.iter().flatten().take(left.min(4)) {
                    lines.push(gpu_process_line(process, columns));
                    left -= 1;
                }
            }
        }
    }
    lines.truncate(room.saturating_sub(1));
    lines.push(Line::default());
    lines
}

fn host_line(overview: &Overview, columns: usize, theme: &Theme) -> Line<'static> {
    let host = &overview.host;
    let used = host.total.zip(host.available).map(|(total, available)| total.saturating_sub(available));
    let mut tail = pressure_words(host.pressure.as_ref());
    if let Some((total, used)) = host.swap_total.zip(host.swap_used).filter(|(total, _)| *total > 0) {
        tail.push_str(&format!("  swap {} of {}", format_bytes(used), format_bytes(total)));
    }
    amount_line("host", used, host.total, &tail, columns, theme)
}

fn cgroup_line(word: &str, cgroup: &Cgroup, columns: usize, theme: &Theme) -> Line<'static> {
    let kills = cgroup.events.oom_kill.filter(|kills| *kills > 0);
    let kills = kills.map(|kills| format!("  {kills} OOM kills")).unwrap_or_default();
    let tail = format!("{kills}{}  {}", pressure_words(cgroup.pressure.as_ref()), clean(&cgroup.path));
    amount_line(word, cgroup.working_set.or(cgroup.usage), cgroup.limit, &tail, columns, theme)
}

fn gpu_line(gpu: &GpuRow, columns: usize, theme: &Theme) -> Line<'static> {
    let busy = gpu.busy_percent.map(|busy| format!("  {busy} % busy")).unwrap_or_default();
    let count = gpu.processes.as_ref().map(|all| match all.len() {
        1 => "  1 process".to_owned(),
        count => format!("  {count} processes"),
    });
    let unified = if gpu.is_unified { "  host memory" } else { "" };
    let name = gpu.name.as_deref().map(clean).unwrap_or_default();
    let tail = format!("{busy}{}{unified}  {name}", count.unwrap_or_default());
    amount_line(&format!("GPU {}", gpu.index), gpu.used, gpu.total, &tail, columns, theme)
}

fn gpu_process_line(process: &GpuProcess, columns: usize) -> Line<'static> {
    let used = process.used.map_or(UNKNOWN.to_owned(), format_bytes);
    let user = process.user.as_deref().map_or("not visible from here".into(), clean);
    let command = process.command.join(" ");
    let text = format!("    {used:>10}  {:>7}  {user}  {}", process.pid, clean(&command));
    Line::raw(fit(&text, columns).into_owned())
}

/// `host  12.30 GiB of 62.70 GiB ████░░░░  …`
fn amount_line(
    word: &str,
    used: Option<u64>,
    total: Option<u64>,
    tail: &str,
    columns: usize,
    theme: &Theme,
) -> Line<'static> {
    let of = total.map(|total| format!(" of {}", format_bytes(total))).unwrap_or_default();
    let amount = format!("{}{of}", used.map_or(UNKNOWN.to_owned(), format_bytes));
    let share =
        used.zip(total).filter(|(_, total)| *total > 0).map(|(used, total)| used as f64 / total as f64);
    let drawn = share.map_or(" ".repeat(BAR), |share| bar(share, BAR));
    let percent = share.map(|share| format!("{:>4.0} %", 100.0 * share)).unwrap_or_default();
    let lead = format!("{word:<13} {amount:<24} ");
    let style = share.filter(|share| *share >= 0.9).map_or(theme.heap(), |_| theme.found());
    let left = columns.saturating_sub(39 + BAR + 6);
    Line::from(vec![
        Span::raw(lead),
        Span::styled(drawn, style),
        Span::raw(percent),
        Span::raw(fit(tail, left).into_owned()),
    ])
}

/// Percent of the last ten seconds in which some and all tasks waited; empty where the kernel does not measure it.
fn pressure_words(pressure: Option<&Pressure>) -> String {
    let percent = |stall: Option<stormlog_collect::pressure::Stall>| stall.and_then(|stall| stall.avg10);
    match pressure.map(|pressure| (percent(pressure.some), percent(pressure.full))) {
        Some((Some(some), Some(full))) => format!("  pressure {some:.1}/{full:.1} %"),
        Some((Some(some), None)) => format!("  pressure {some:.1} %"),
        _ => String::new(),
    }
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, state: &mut OverviewState, theme: &Theme) -> Drawn<SortBy> {
    if area.height < 2 {
        return Drawn::default();
    }
    let columns = laid_out(COLUMNS, usize::from(area.width));
    let (header, headers) = head(&columns, state.sort, theme);
    let height = usize::from(area.height).saturating_sub(2);
    let len = state.len();
    let rows = state.cursor.window(height, len);
    let mut lines = vec![count_line(state, usize::from(area.width), theme), header];
    let at_ns = state.overview.as_ref().map_or(0, |overview| overview.at_ns);
    for at in rows.clone() {
        let Some(item) = state.item(at) else { continue };
        let text = row(&columns, |index| text_of(item, columns[index].0.title, at_ns));
        let style = if at == state.cursor.at { theme.chosen() } else { style_of(item, theme) };
        lines.push(Line::styled(text, style));
    }
    frame.render_widget(Paragraph::new(lines), area);
    Drawn { header_row: area.y + 1, left: area.x, headers, first_row: area.y + 2, rows }
}

/// What the table has, and what it has not.
fn count_line(state: &OverviewState, columns: usize, theme: &Theme) -> Line<'static> {
    let Some(overview) = &state.overview else { return Line::default() };
    let mut text = format!("{} running, {} ended", overview.living.len(), overview.ended.len());
    if overview.unread > 0 {
        text.push_str(&format!(", {} not read yet", overview.unread));
    }
    if !state.filter.text.is_empty() {
        text.push_str(&format!("; {} match \"{}\"", state.len(), clean(&state.filter.text)));
    }
    if overview.living.is_empty() && overview.ended.is_empty() && overview.unread == 0 {
        text = "nothing recorded here; record a program with `stormlog run -- python3 train.py`".to_owned();
    }
    if let Some(problem) = overview.problems.first() {
        text = clean(problem).into_owned();
    }
    Line::styled(fit(&text, columns).into_owned(), theme.title())
}

fn style_of(item: &Item, theme: &Theme) -> Style {
    match item.time_to_limit() {
        Some(seconds) if seconds < SOON_SECONDS => theme.found(),
        _ if !item.is_living() => theme.faint(),
        _ => Style::new(),
    }
}

fn text_of(item: &Item, title: &str, at_ns: u64) -> String {
    let bytes = |bytes: Option<u64>| bytes.map_or(UNKNOWN.to_owned(), format_bytes);
    match title {
        "STATE" => item.state().to_owned(),
        "LIMIT IN" => limit_words(item.time_to_limit()),
        "GROWTH" => growth_words(item.growth()),
        "RESIDENT" => bytes(item.resident().or_else(|| item.peak().filter(|_| !item.is_living()))),
        "GPU" => bytes(item.device()),
        "PEAK" => bytes(item.peak()),
        "SINCE" => {
            let since = item.ended_at_ns().or(item.started_at_ns());
            let ago = since.map(|since| i128::from(at_ns) - i128::from(since)).filter(|ago| *ago >= 0);
            ago.map_or(UNKNOWN.to_owned(), |ago| format_whole_seconds(ago as f64 / 1e9))
        }
        "PID" => item.pid().map_or(UNKNOWN.to_owned(), |pid| pid.to_string()),
        "JOB" => item.job().unwrap_or_default().to_owned(),
        "HOST" => item.host().unwrap_or_default().to_owned(),
        _ => match item.verdict().filter(|verdict| !verdict.is_empty()) {
            Some(verdict) => format!("{}: {verdict}", item.name()),
            None => format!("{}  {}", item.name(), fit_end(&item.path().display().to_string(), 60)),
        },
    }
}

/// Seconds to a limit.
pub(crate) fn limit_words(seconds: Option<f64>) -> String {
    seconds.map_or(UNKNOWN.to_owned(), format_duration)
}

/// Growth; what shrinks or stays has none.
pub(crate) fn growth_words(rate: Option<f64>) -> String {
    // Less than a page a minute is noise of the kernel's own counters.
    rate.filter(|rate| *rate * 60.0 >= 4096.0).map_or(UNKNOWN.to_owned(), format_rate)
}
