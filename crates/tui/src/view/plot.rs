//! Memory over time: the heap as a fine line, resident memory as dots, so that they differ without colours too.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType};
use stormlog_model::format_bytes;
use stormlog_model::memory::Memory;
use stormlog_model::text::format_whole_seconds;

use crate::state::reading::Process;
use crate::view::theme::Theme;

/// How the curves look, for the words that name them.
pub(super) const HEAP: &str = "⠒";
pub(super) const RSS: &str = "•";

/// Draws both curves of a process.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, process: &Process, theme: &Theme) {
    let heap = process.heap.as_ref().map(|heap| heap.curve.points()).unwrap_or_default();
    let is_host = process.heap.as_ref().is_none_or(|heap| heap.memory == Memory::Host);
    // Resident memory says nothing about a device's.
    let rss = if is_host { process.rss.points() } else { &[] };
    let times = heap.iter().chain(rss).map(|(at, _)| *at);
    let (Some(first), Some(last)) = (times.clone().min(), times.max()) else { return };
    let most = heap.iter().chain(rss).map(|(_, bytes)| *bytes).max().unwrap_or(0).max(1);
    let seconds = last.saturating_sub(first) as f64 / 1e9;
    let scaled = |points: &[(u64, u64)]| -> Vec<(f64, f64)> {
        points.iter().map(|(at, bytes)| (at.saturating_sub(first) as f64 / 1e9, *bytes as f64)).collect()
    };
    let (heap, rss) = (scaled(heap), scaled(rss));
    let mut curves = Vec::new();
    if !rss.is_empty() {
        let curve = Dataset::default().marker(Marker::Dot).style(theme.rss()).data(&rss);
        curves.push(curve.graph_type(GraphType::Scatter));
    }
    if !heap.is_empty() {
        let curve = Dataset::default().marker(Marker::Braille).style(theme.heap()).data(&heap);
        curves.push(curve.graph_type(GraphType::Line));
    }
    let middle = if area.height >= 8 { vec![Line::from(format_bytes(most / 2))] } else { Vec::new() };
    let labels: Vec<Line<'_>> =
        std::iter::once(Line::from("0")).chain(middle).chain([Line::from(format_bytes(most))]).collect();
    let ago = vec![
        Line::from(format!("{} ago", format_whole_seconds(seconds))),
        Line::from(if process.ended.is_some() { "end" } else { "now" }),
    ];
    let chart = Chart::new(curves)
        .x_axis(Axis::default().bounds([0.0, seconds.max(0.001)]).labels(ago).style(theme.faint()))
        .y_axis(Axis::default().bounds([0.0, most as f64 * 1.05]).labels(labels).style(theme.faint()))
        .legend_position(None);
    frame.render_widget(chart, area);
}
