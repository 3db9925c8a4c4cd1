//! The ranks of a job as a picture: what is missing or odd on top, then one line a rank with its memory over time.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use stormlog_model::format_bytes;
use stormlog_node::{JobRank, JobRow};

use super::frame::popup;
use super::overview::{SOON_SECONDS, UNKNOWN, growth_words, limit_words};
use super::table::{Column, Drawn, cell, head, laid_out, row};
use crate::state::ranks::{RankSort, RanksState};
use crate::text::{clean, fit};
use crate::view::theme::Theme;

const HEAT: &str = "MEMORY OVER TIME";
/// From empty to the highest of all ranks.
const LEVELS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
/// More columns show nothing more: a history has fewer spans.
const WIDEST_HEAT: usize = 128;
/// Numbers of ranks that are listed on a line.
const MOST_LISTED: usize = 64;

const COLUMNS: &[Column<RankSort>] = &[
    Column { key: Some(RankSort::Rank), title: "RANK", width: 6, is_right: true, from: 0 },
    Column { key: Some(RankSort::State), title: "STATE", width: 10, is_right: false, from: 0 },
    Column { key: Some(RankSort::Now), title: "NOW", width: 10, is_right: true, from: 0 },
    Column { key: Some(RankSort::Peak), title: "PEAK", width: 11, is_right: true, from: 0 },
    Column { key: Some(RankSort::Growth), title: "GROWTH", width: 14, is_right: true, from: 96 },
    Column { key: Some(RankSort::Urgency), title: "LIMIT IN", width: 11, is_right: true, from: 0 },
    Column { key: Some(RankSort::Attempts), title: "STARTS", width: 6, is_right: true, from: 108 },
    Column { key: None, title: "PID", width: 8, is_right: true, from: 150 },
    Column { key: Some(RankSort::Host), title: "HOST", width: 18, is_right: false, from: 124 },
    Column { key: None, title: HEAT, width: 0, is_right: false, from: 0 },
];

pub(crate) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    state: &mut RanksState,
    theme: &Theme,
) -> Drawn<RankSort> {
    let wide = usize::from(area.width);
    let Some(jobs) = &state.jobs else {
        frame.render_widget(Paragraph::new("reading …").style(theme.faint()), area);
        return Drawn::default();
    };
    let (count, at) = (jobs.len(), state.job_at());
    let Some(job) = state.shown_job() else {
        let text = "no ranks recorded here; record a job with `torchrun … --no-python stormlog run -- python3 train.py`";
        frame.render_widget(Paragraph::new(fit(text, wide).into_owned()), area);
        return Drawn::default();
    };
    let mut lines = head_lines(job, at.unwrap_or(0), count, wide, theme);
    let columns = laid_out(COLUMNS, wide);
    let (header, headers) = head(&columns, state.sort, theme);
    let header_row = area.y + u16::try_from(lines.len()).unwrap_or(0);
    lines.push(header);
    let height = usize::from(area.height).saturating_sub(lines.len());
    let len = state.len();
    let rows = state.cursor.window(height, len);
    let Some(job) = state.shown_job() else { return Drawn::default() };
    let scale = Scale::of(job);
    for at in rows.clone() {
        let Some(rank) = state.rank_at(at) else { continue };
        let style = if at == state.cursor.at { theme.chosen() } else { style_of(job, rank, theme) };
        let text =
            row(&columns, |index| text_of(job, rank, columns[index].0.title, columns[index].1, &scale));
        lines.push(Line::styled(text, style));
    }
    frame.render_widget(Paragraph::new(lines), area);
    draw_chooser(frame, state, theme);
    Drawn { header_row, left: area.x, headers, first_row: header_row + 1, rows }
}

/// The job in words.
fn head_lines(job: &JobRow, at: usize, count: usize, wide: usize, theme: &Theme) -> Vec<Line<'static>> {
    let mut words = vec![format!("job {}", clean(&job.name))];
    if count > 1 {
        words.push(format!("{} of {count}", at + 1));
    }
    let world = job.world_size.max(job.ranks.len() as u64);
    words.push(format!("{} of {world} ranks", world - (job.missing.len() as u64).min(world)));
    words.push(if job.is_living { "living".to_owned() } else { "ended".to_owned() });
    if job.runs > 1 {
        words.push(format!("{} run directories", job.runs));
    }
    words.push(if job.is_of_devices { "device memory".to_owned() } else { "host memory".to_owned() });
    let mut lines = vec![Line::styled(fit(&words.join(" · "), wide).into_owned(), theme.title())];
    if !job.missing.is_empty() {
        let text = format!("missing ranks: {}", ranges(&job.missing));
        lines.push(Line::styled(fit(&text, wide).into_owned(), theme.found()));
    }
    let odd: Vec<u64> = job
        .ranks
        .iter()
        .filter(|rank| rank.is_outlier)
        .filter_map(|rank| u64::try_from(rank.rank).ok())
        .collect();
    if let Some(typical) = job.typical_peak.filter(|_| !odd.is_empty()) {
        let text = format!("◆ peak differs from the median {}: rank {}", format_bytes(typical), ranges(&odd));
        lines.push(Line::styled(fit(&text, wide).into_owned(), theme.found()));
    }
    lines
}

/// `0–3, 7`; bounded.
fn ranges(ranks: &[u64]) -> String {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    for rank in ranks {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *rank => *last = *rank,
            _ => parts.push((*rank, *rank)),
        }
    }
    let more = parts.len().saturating_sub(MOST_LISTED);
    let word = |(first, last): &(u64, u64)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}–{last}"),
    };
    let mut words: Vec<String> = parts.iter().take(MOST_LISTED).map(word).collect();
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    words.join(", ")
}

/// What the heat of all ranks is drawn by: one time, one highest value.
struct Scale {
    range_ns: Option<(u64, u64)>,
    most: u64,
}

impl Scale {
    fn of(job: &JobRow) -> Self {
        let peaks = job.ranks.iter().filter_map(|rank| job.memory(rank).history.as_ref()?.peak());
        Scale { range_ns: job.range_ns(), most: peaks.max().unwrap_or(0) }
    }

    fn heat(&self, job: &JobRow, rank: &JobRank, wide: usize) -> String {
        let Some(history) = &job.memory(rank).history else { return "…".to_owned() };
        let Some(range_ns) = self.range_ns.filter(|_| self.most > 0) else { return String::new() };
        let level = |value: Option<u64>| match value {
            None => " ",
            Some(value) => {
                let level = u128::from(value) * LEVELS.len() as u128 / (u128::from(self.most) + 1);
                LEVELS[usize::try_from(level).unwrap_or(0).min(LEVELS.len() - 1)]
            }
        };
        history.columns(range_ns, wide.min(WIDEST_HEAT)).into_iter().map(level).collect()
    }
}

fn style_of(job: &JobRow, rank: &JobRank, theme: &Theme) -> Style {
    match job.memory(rank).time_to_limit {
        Some(seconds) if seconds < SOON_SECONDS => theme.found(),
        _ if rank.is_outlier || rank.state == "silent" || rank.state == "failed" => theme.found(),
        _ => Style::new(),
    }
}

fn text_of(job: &JobRow, rank: &JobRank, title: &str, wide: usize, scale: &Scale) -> String {
    let memory = job.memory(rank);
    let bytes = |bytes: Option<u64>| bytes.map_or(UNKNOWN.to_owned(), format_bytes);
    match title {
        "RANK" => rank.rank.to_string(),
        "STATE" => rank.state.to_owned(),
        "NOW" => bytes(memory.now),
        "PEAK" if rank.is_outlier => format!("◆{}", bytes(memory.peak)),
        "PEAK" => bytes(memory.peak),
        "GROWTH" => growth_words(memory.growth),
        "LIMIT IN" => limit_words(memory.time_to_limit),
        "STARTS" => rank.attempts.max(rank.attempt.map_or(1, |attempt| attempt + 1)).to_string(),
        "PID" => rank.pid.map_or(UNKNOWN.to_owned(), |pid| pid.to_string()),
        "HOST" => rank.host.as_deref().unwrap_or_default().to_owned(),
        _ => scale.heat(job, rank, wide),
    }
}

fn draw_chooser(frame: &mut Frame<'_>, state: &mut RanksState, theme: &Theme) {
    let high = usize::from(frame.area().height).saturating_sub(6).max(1);
    let wide = usize::from(frame.area().width).saturating_sub(8);
    let (Some(jobs), Some(cursor)) = (&state.jobs, &mut state.chooser) else { return };
    let line = |at: usize| {
        let job = &jobs[at];
        let life = if job.is_living { "living" } else { "ended" };
        let text = format!("{:<6}  {:>5} ranks  {}", life, job.ranks.len(), clean(&job.name));
        let style = if at == cursor.at { theme.chosen() } else { Style::new() };
        Line::from(Span::styled(cell(&text, wide.min(60), false), style))
    };
    let shown = cursor.clone().window(high, jobs.len());
    let lines: Vec<Line<'_>> = shown.map(line).collect();
    cursor.window(high, jobs.len());
    popup(frame, "jobs", lines);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_listed_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 3, 7, 9, 10]), "0–3, 7, 9, 10");
        let many: Vec<u64> = (0..1000).map(|number| number * 2).collect();
        assert!(ranges(&many).ends_with("and 936 more"));
    }
}
