//! Lines over time: series, a limit, phases behind them, alerts above them.

use super::figure::{Band, Lines, Mark, MarkKind, Panel, Series};
use super::layout::{BODY, Entry, SMALL, Sign};
use super::letters::{fitting, width};
use super::scene::{Anchor, Frame, INK, PALETTE, QUIET, Scene, Shape};
use super::ticks::Scale;

const LIMIT: &str = "#b42318";
/// The ground of a band.
const BAND: &str = "#8896a5";
/// A limit this far above everything would press the lines flat: it is given in words instead.
const FAR_LIMIT: f64 = 3.0;
const STRIP: f64 = 16.0;
/// More phases than this are a loop: their stretches are tinted, not named one by one.
const NAMED_PHASES: usize = 8;

pub(super) fn colour_of(series: &[Series], index: usize) -> String {
    if let Some(own) = series[index].colour.clone().filter(|own| is_colour(own)) {
        return own;
    }
    if series.len() <= PALETTE.len() {
        return PALETTE[index].to_owned();
    }
    // Many ranks: along a scale from blue to orange, so that neighbours are alike and an odd one stands out by its line.
    let share = index as f64 / (series.len() - 1) as f64;
    let mix = |from: f64, to: f64| (from + (to - from) * share).round() as u8;
    format!("#{:02x}{:02x}{:02x}", mix(31.0, 217.0), mix(111.0, 115.0), mix(178.0, 13.0))
}

/// `#rrggbb`: a caller's text goes nowhere else.
fn is_colour(text: &str) -> bool {
    text.len() == 7 && text.starts_with('#') && text[1..].bytes().all(|byte| byte.is_ascii_hexdigit())
}

pub(super) fn finite(points: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> + '_ {
    points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite())
}

pub(super) fn scales(
    panel: &Panel,
    content: &Lines,
    x_ticks: usize,
    y_ticks: usize,
) -> (Scale, Scale, Vec<Entry>) {
    let all = || content.series.iter().flat_map(|series| finite(&series.points));
    let (mut first, mut last, mut low, mut high) =
        (f64::INFINITY, f64::NEG_INFINITY, 0.0_f64, f64::NEG_INFINITY);
    let ends = |band: &Band| {
        let low = band.points.iter().map(|(x, low, _)| (*x, *low));
        let all: Vec<(f64, f64)> = low.chain(band.points.iter().map(|(x, _, high)| (*x, *high))).collect();
        finite(&all).collect::<Vec<_>>()
    };
    let banded: Vec<(f64, f64)> = content.band.iter().flat_map(ends).collect();
    for (x, y) in all().chain(banded) {
        (first, last) = (first.min(x), last.max(x));
        (low, high) = (low.min(y), high.max(y));
    }
    let limit = content.limit.as_ref().filter(|limit| limit.at.is_finite());
    let is_far = limit.is_some_and(|limit| limit.at > high * FAR_LIMIT);
    if let Some(limit) = limit.filter(|_| !is_far) {
        high = high.max(limit.at);
    }
    let x = Scale::of(&panel.x, first, last, x_ticks, true);
    // Alerts and phase names have their own room above the lines.
    let y = Scale::of(&panel.y, low, high * 1.04, y_ticks, false);
    (x, y, legend(content, is_far))
}

fn legend(content: &Lines, is_far: bool) -> Vec<Entry> {
    let series = content.series.iter().enumerate().filter(|(_, series)| !series.name.is_empty());
    let series = series.map(|(index, series)| Entry {
        name: fitting(&series.name, BODY, 260.0),
        colour: colour_of(&content.series, index),
        sign: if series.dashed { Sign::Dashes } else { Sign::Line },
    });
    // A few lines come first; of many, some will not be named, and what happened must be.
    let is_crowded = content.series.len() > PALETTE.len();
    let mut entries: Vec<Entry> = if is_crowded { Vec::new() } else { series.clone().collect() };
    if let Some(band) = content.band.as_ref().filter(|band| !band.name.is_empty()) {
        let name = fitting(&band.name, BODY, 260.0);
        entries.push(Entry { name, colour: BAND.to_owned(), sign: Sign::Block });
    }
    if let Some(limit) = &content.limit {
        let name = if is_far { format!("{} (far above)", limit.name) } else { limit.name.clone() };
        entries.push(Entry { name, colour: LIMIT.to_owned(), sign: Sign::Dashes });
    }
    for moment in content.moments.iter().take(3) {
        entries.push(Entry { name: moment.name.clone(), colour: INK.to_owned(), sign: Sign::Dashes });
    }
    for (name, kind, count) in counted(&content.marks) {
        let name = if count == 1 { name.to_owned() } else { format!("{name} × {count}") };
        let name = fitting(&name, BODY, 300.0);
        entries.push(Entry { name, colour: mark_colour(kind).to_owned(), sign: Sign::Triangle });
    }
    let names = phase_names(content);
    for (index, name) in names.iter().take(NAMED_PHASES).enumerate() {
        let name = fitting(name, BODY, 220.0);
        entries.push(Entry { name, colour: phase_colour(index).to_owned(), sign: Sign::Block });
    }
    if names.len() > NAMED_PHASES {
        let name = format!("{} more phases", names.len() - NAMED_PHASES);
        entries.push(Entry { name, colour: QUIET.to_owned(), sign: Sign::Block });
    }
    if is_crowded {
        entries.extend(series);
    }
    entries
}

/// Marks of one name together, the worst first.
fn counted(marks: &[Mark]) -> Vec<(&str, MarkKind, usize)> {
    let mut found: Vec<(&str, MarkKind, usize)> = Vec::new();
    for mark in marks {
        match found.iter_mut().find(|(name, _, _)| *name == mark.name) {
            Some(known) => (known.1, known.2) = (known.1.max(mark.kind), known.2 + 1),
            None => found.push((&mark.name, mark.kind, 1)),
        }
    }
    found.sort_by_key(|found| std::cmp::Reverse(found.1));
    found
}

fn phase_names(content: &Lines) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for phase in &content.phases {
        if !names.contains(&phase.name.as_str()) && names.len() < 64 {
            names.push(&phase.name);
        }
    }
    names
}

fn phase_colour(index: usize) -> &'static str {
    const TINTS: [&str; 6] = ["#7fb3d5", "#f5b971", "#8fc9a5", "#c79bc9", "#d9a39a", "#9fb8c8"];
    TINTS[index % TINTS.len()]
}

fn mark_colour(kind: MarkKind) -> &'static str {
    match kind {
        MarkKind::Note => "#6b7280",
        MarkKind::Warning => "#c77700",
        MarkKind::Critical => "#b42318",
    }
}

pub(super) fn draw(scene: &mut Scene, content: &Lines, frame: &Frame, panel: usize, is_small: bool) {
    let place = |x: f64, y: f64| {
        frame.at((x - frame.x.0) / (frame.x.1 - frame.x.0), (y - frame.y.0) / (frame.y.1 - frame.y.0))
    };
    phases(scene, content, frame);
    if let Some(band) = &content.band {
        let low = band.points.iter().map(|(x, low, _)| (*x, *low));
        let high = band.points.iter().rev().map(|(x, _, high)| (*x, *high));
        let edge: Vec<(f64, f64)> = low.chain(high).collect();
        let points: Vec<(f64, f64)> = finite(&edge).map(|(x, y)| place(x, y)).collect();
        if points.len() > 3 {
            scene.shapes.push(Shape::Area { points, colour: BAND.to_owned(), opacity: 0.25, of: None });
        }
    }
    for (index, series) in content.series.iter().enumerate() {
        let colour = colour_of(&content.series, index);
        let points = thinned(finite(&series.points).map(|(x, y)| place(x, y)), frame);
        if points.is_empty() {
            continue;
        }
        let of = Some((panel, index));
        if series.fill {
            let mut ground = points.clone();
            ground.insert(0, (points[0].0, frame.bottom()));
            ground.push((points[points.len() - 1].0, frame.bottom()));
            scene.shapes.push(Shape::Area { points: ground, colour: colour.clone(), opacity: 0.12, of });
        }
        if let [only] = points.as_slice() {
            scene.circle(*only, 3.0, &colour, 1.0);
        }
        let width = if is_small {
            1.4
        } else if content.series.len() > PALETTE.len() {
            1.3
        } else {
            1.9
        };
        scene.shapes.push(Shape::Line { points, colour, width, is_dashed: series.dashed, of });
    }
    if content.series.iter().all(|series| finite(&series.points).next().is_none()) {
        let middle = (frame.left + frame.width / 2.0, frame.top + frame.height / 2.0);
        scene.text(middle, BODY, Anchor::Middle, "no data");
    }
    if let Some(limit) = content.limit.as_ref().filter(|limit| limit.at.is_finite() && limit.at <= frame.y.1)
    {
        let (_, y) = place(frame.x.0, limit.at);
        scene.line(vec![(frame.left, y), (frame.right(), y)], LIMIT, 1.4, true);
    }
    for moment in content.moments.iter().filter(|moment| inside(frame, moment.at)) {
        let (x, _) = place(moment.at, 0.0);
        scene.line(vec![(x, frame.top), (x, frame.bottom())], INK, 1.3, true);
    }
    let mut shown: Vec<(f64, MarkKind)> = Vec::new();
    for mark in content.marks.iter().filter(|mark| inside(frame, mark.at)) {
        let (x, _) = place(mark.at, 0.0);
        // Alerts that come with every sample are one mark a few pixels wide.
        if shown.iter().rev().take(8).any(|(at, kind)| (at - x).abs() < 3.0 && *kind == mark.kind) {
            continue;
        }
        shown.push((x, mark.kind));
        let colour = mark_colour(mark.kind);
        scene.line(vec![(x, frame.top), (x, frame.bottom())], colour, 0.8, false);
        triangle(scene, (x, frame.top), colour);
    }
    for dot in content.dots.iter().filter(|dot| inside(frame, dot.x) && dot.y.is_finite()) {
        let at = place(dot.x, dot.y);
        scene.circle(at, 5.0, LIMIT, 1.0);
        let wide = width(&dot.name, BODY);
        let is_left = at.0 + 10.0 + wide > frame.right();
        let (x, anchor) = if is_left { (at.0 - 10.0, Anchor::End) } else { (at.0 + 10.0, Anchor::Start) };
        scene.coloured((x, (at.1 - 8.0).max(frame.top + BODY)), BODY, anchor, LIMIT, &dot.name);
    }
}

fn inside(frame: &Frame, x: f64) -> bool {
    x >= frame.x.0 && x <= frame.x.1
}

/// A mark that points down at a moment.
pub(super) fn triangle(scene: &mut Scene, (x, y): (f64, f64), colour: &str) {
    let points = vec![(x - 5.0, y), (x + 5.0, y), (x, y + 9.0)];
    scene.shapes.push(Shape::Area { points, colour: colour.to_owned(), opacity: 1.0, of: None });
}

fn phases(scene: &mut Scene, content: &Lines, frame: &Frame) {
    let names = phase_names(content);
    let share = |at: f64| ((at - frame.x.0) / (frame.x.1 - frame.x.0)).clamp(0.0, 1.0);
    let mut end = f64::NEG_INFINITY;
    for phase in content.phases.iter().filter(|phase| phase.from.is_finite() && phase.to.is_finite()) {
        let index = names.iter().position(|name| *name == phase.name).unwrap_or(0);
        let colour = if index < NAMED_PHASES { phase_colour(index) } else { QUIET };
        let (from, to) =
            (frame.left + share(phase.from) * frame.width, frame.left + share(phase.to) * frame.width);
        // Thousands of turns of a loop are drawn once a pixel.
        if to < end + 0.7 {
            continue;
        }
        let from = from.max(end);
        end = to.max(from + 0.7);
        scene.rect((from, frame.top), (end - from, frame.height), colour, 0.10);
        scene.rect((from, frame.top), (end - from, STRIP), colour, 0.45);
        let name = fitting(&phase.name, SMALL, end - from - 8.0);
        if name == phase.name || name.chars().count() > 6 {
            scene.coloured((from + 4.0, frame.top + STRIP - 4.0), SMALL, Anchor::Start, INK, &name);
        }
    }
}

/// As many points as can be seen: the first, least, greatest and last of each half pixel.
fn thinned(points: impl Iterator<Item = (f64, f64)>, frame: &Frame) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    let mut group: Vec<(f64, f64)> = Vec::new();
    let mut column = i64::MIN;
    let flush = |group: &mut Vec<(f64, f64)>, kept: &mut Vec<(f64, f64)>| {
        if group.len() <= 4 {
            kept.append(group);
            return;
        }
        let by = |least: bool| {
            (0..group.len())
                .reduce(|a, b| if (group[b].1 < group[a].1) == least { b } else { a })
                .unwrap_or(0)
        };
        let mut chosen = [0, by(true), by(false), group.len() - 1];
        chosen.sort_unstable();
        let mut before = usize::MAX;
        for index in chosen {
            if index != before {
                kept.push(group[index]);
            }
            before = index;
        }
        group.clear();
    };
    for point in points {
        let here = ((point.0 - frame.left) * 2.0).floor() as i64;
        if here != column {
            flush(&mut group, &mut kept);
            column = here;
        }
        group.push(point);
    }
    flush(&mut group, &mut kept);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_points_become_what_can_be_seen_and_keep_their_spike() {
        let frame = Frame { width: 1000.0, height: 100.0, ..Frame::default() };
        let point = |i: u32| (f64::from(i) / 1000.0, if i == 654_321 { 99.0 } else { 10.0 });
        let kept = thinned((0..1_000_000).map(point), &frame);
        assert!(kept.len() <= 8010, "{}", kept.len());
        assert!(kept.iter().any(|(_, y)| *y == 99.0));
        assert!(kept.is_sorted_by(|a, b| a.0 <= b.0));
    }

    #[test]
    fn only_colours_are_taken_for_colours() {
        assert!(is_colour("#12aBcd"));
        assert!(!is_colour("#12abc\"") && !is_colour("red") && !is_colour("#12345é"));
    }
}
