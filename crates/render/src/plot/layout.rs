//! A figure turned into shapes: titles, panels in rows, axes, legends. What a panel shows is drawn by its own file.

use super::figure::{Content, Figure, Panel};
use super::letters::{fitting, width};
use super::scene::{Anchor, Frame, GRID, INK, PAPER, QUIET, Scene};
use super::ticks::Scale;
use super::{bars, heat, lines, points};

const MARGIN: f64 = 24.0;
const TITLE: f64 = 20.0;
const HEAD: f64 = 14.0;
pub(super) const BODY: f64 = 12.5;
pub(super) const SMALL: f64 = 11.5;
const LEGEND_ROW: f64 = 20.0;
const GAP: f64 = 22.0;

/// An entry of a legend.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) colour: String,
    pub(super) sign: Sign,
}

/// What is before the name of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    Line,
    Dashes,
    Block,
    Triangle,
    None,
}

/// A panel's axes and words, before it has a place.
struct Prepared<'a> {
    panel: &'a Panel,
    x: Scale,
    y: Scale,
    legend: Vec<Vec<Entry>>,
    left: f64,
    bottom: f64,
}

/// The shapes of a figure.
pub(super) fn scene(figure: &Figure) -> Scene {
    let columns = figure.columns.clamp(1, 8);
    let is_small = columns > 2;
    let page = if columns > 1 { 1400.0 } else { 1200.0 };
    let room = (page - 2.0 * MARGIN - GAP * (columns as f64 - 1.0)) / columns as f64;
    let mut prepared: Vec<Prepared<'_>> =
        figure.panels.iter().map(|panel| prepare(panel, room, is_small)).collect();
    // Frames below each other begin at one line.
    let left = prepared.iter().map(|panel| panel.left).fold(0.0, f64::max);
    prepared.iter_mut().for_each(|panel| panel.left = left);

    let mut scene = Scene { width: page, ..Scene::default() };
    let mut top = MARGIN;
    let mut words = Scene::default();
    let wide = page - 2.0 * MARGIN;
    if !figure.title.is_empty() {
        top += TITLE;
        words.coloured((MARGIN, top), TITLE, Anchor::Start, INK, &fitting(&figure.title, TITLE, wide));
        top += 6.0;
    }
    if !figure.subtitle.is_empty() {
        top += HEAD;
        words.text((MARGIN, top), HEAD - 1.0, Anchor::Start, &fitting(&figure.subtitle, HEAD - 1.0, wide));
        top += 4.0;
    }
    top += 10.0;
    for (row, panels) in prepared.chunks(columns).enumerate() {
        let inner = panels.iter().map(|panel| height_of(panel, prepared.len(), is_small)).fold(0.0, f64::max);
        let head = panels.iter().map(head_of).fold(0.0, f64::max);
        for (column, panel) in panels.iter().enumerate() {
            let x = MARGIN + (room + GAP) * column as f64;
            let frame = Frame {
                left: x + panel.left,
                top: top + head,
                width: (room - panel.left - 8.0).max(10.0),
                height: inner,
                x: (panel.x.from, panel.x.to),
                y: (panel.y.from, panel.y.to),
            };
            draw(&mut words, panel, frame, (x, top), row * columns + column, is_small);
        }
        let bottom = panels.iter().map(|panel| panel.bottom).fold(0.0, f64::max);
        top += head + inner + bottom + GAP;
    }
    scene.height = (top - GAP + MARGIN).max(2.0 * MARGIN).ceil();
    scene.rect((0.0, 0.0), (scene.width, scene.height), PAPER, 1.0);
    scene.shapes.append(&mut words.shapes);
    scene.frames = words.frames;
    scene
}

fn prepare(panel: &Panel, room: f64, is_small: bool) -> Prepared<'_> {
    let (x_ticks, y_ticks) = if is_small { (4, 3) } else { (10, 5) };
    let (x, y, mut legend) = match &panel.content {
        Content::Lines(content) => lines::scales(panel, content, x_ticks, y_ticks),
        Content::Bars(content) => bars::scales(panel, content, x_ticks, y_ticks),
        Content::Points(content) => points::scales(panel, content, x_ticks, y_ticks),
        Content::Heat(content) => heat::scales(panel, content),
    };
    if is_small {
        legend.clear();
    }
    let widest = match &panel.content {
        Content::Heat(content) => heat::widest(content, room),
        _ => y.ticks.iter().map(|(_, text)| width(text, SMALL)).fold(0.0, f64::max),
    };
    let label = if y.label.is_empty() { 0.0 } else { BODY + 8.0 };
    let left = widest + label + 10.0;
    let below = match &panel.content {
        Content::Bars(content) => bars::room_below(content, room - left),
        Content::Heat(content) => heat::room_below(content),
        _ => SMALL + 8.0,
    };
    let bottom = below + if x.label.is_empty() { 0.0 } else { BODY + 8.0 };
    Prepared { panel, x, y, legend: rows(legend, room), left, bottom }
}

/// Legend entries in as many rows as they need; at most three, and the rest is counted.
fn rows(entries: Vec<Entry>, room: f64) -> Vec<Vec<Entry>> {
    const MOST: usize = 3;
    let mut rows: Vec<Vec<Entry>> = Vec::new();
    let (mut used, total) = (f64::MAX, entries.len());
    for (index, entry) in entries.into_iter().enumerate() {
        let wide = entry_width(&entry);
        let reserve = if rows.len() == MOST { 120.0 } else { 0.0 };
        if used + wide + reserve > room {
            if rows.len() == MOST {
                let name = format!("… and {} more", total - index);
                let rest = Entry { name, colour: QUIET.to_owned(), sign: Sign::None };
                if let Some(last) = rows.last_mut() {
                    last.push(rest);
                }
                return rows;
            }
            rows.push(Vec::new());
            used = 0.0;
        }
        used += wide;
        if let Some(last) = rows.last_mut() {
            last.push(entry);
        }
    }
    rows
}

fn entry_width(entry: &Entry) -> f64 {
    let sign = if entry.sign == Sign::None { 0.0 } else { 26.0 };
    sign + width(&entry.name, BODY) + 20.0
}

fn head_of(panel: &Prepared<'_>) -> f64 {
    let title = if panel.panel.title.is_empty() { 0.0 } else { HEAD + 8.0 };
    title + LEGEND_ROW * panel.legend.len() as f64 + 9.0
}

fn height_of(panel: &Prepared<'_>, count: usize, is_small: bool) -> f64 {
    match &panel.panel.content {
        Content::Heat(content) => heat::height(content),
        _ if is_small => 130.0,
        _ if count == 1 => 430.0,
        _ if count == 2 => 290.0,
        _ => 210.0,
    }
}

fn draw(
    scene: &mut Scene,
    panel: &Prepared<'_>,
    frame: Frame,
    (x, top): (f64, f64),
    index: usize,
    is_small: bool,
) {
    let mut y = top;
    if !panel.panel.title.is_empty() {
        let (size, room) = (if is_small { BODY } else { HEAD }, frame.right() - x);
        y += HEAD + 2.0;
        scene.coloured((x, y), size, Anchor::Start, INK, &fitting(&panel.panel.title, size, room));
        y += 6.0;
    }
    for row in &panel.legend {
        legend(scene, row, (x, y + LEGEND_ROW * 0.5));
        y += LEGEND_ROW;
    }
    if !matches!(panel.panel.content, Content::Heat(_)) {
        axes(scene, panel, &frame);
    }
    label(scene, panel, &frame, x);
    match &panel.panel.content {
        Content::Lines(content) => lines::draw(scene, content, &frame, index, is_small),
        Content::Bars(content) => bars::draw(scene, content, &frame, panel.y.unit),
        Content::Points(content) => points::draw(scene, content, &frame),
        Content::Heat(content) => heat::draw(scene, content, &frame),
    }
    scene.frames.push(frame);
}

fn legend(scene: &mut Scene, entries: &[Entry], (x, middle): (f64, f64)) {
    let mut at = x;
    for entry in entries {
        let colour = entry.colour.as_str();
        match entry.sign {
            Sign::Line => scene.rect((at, middle - 1.5), (18.0, 3.0), colour, 1.0),
            Sign::Dashes => scene.line(vec![(at, middle), (at + 19.0, middle)], colour, 2.0, true),
            Sign::Block => scene.rect((at + 2.0, middle - 6.0), (14.0, 12.0), colour, 0.45),
            Sign::Triangle => lines::triangle(scene, (at + 9.0, middle - 5.0), colour),
            Sign::None => {}
        }
        let sign = if entry.sign == Sign::None { 0.0 } else { 26.0 };
        scene.coloured((at + sign, middle + BODY * 0.36), BODY, Anchor::Start, INK, &entry.name);
        at += entry_width(entry);
    }
}

fn axes(scene: &mut Scene, panel: &Prepared<'_>, frame: &Frame) {
    for (value, text) in &panel.y.ticks {
        let (_, y) = frame.at(0.0, panel.y.share(*value));
        scene.line(vec![(frame.left, y), (frame.right(), y)], GRID, 1.0, false);
        scene.text((frame.left - 7.0, y + SMALL * 0.36), SMALL, Anchor::End, text);
    }
    let has_names = matches!(&panel.panel.content, Content::Bars(content) if content.edges.is_empty());
    for (value, text) in panel.x.ticks.iter().filter(|_| !has_names) {
        let (x, _) = frame.at(panel.x.share(*value), 0.0);
        scene.line(vec![(x, frame.top), (x, frame.bottom())], GRID, 1.0, false);
        // The last number may not leave the picture.
        let half = width(text, SMALL) / 2.0;
        let x = x.min(frame.right() + 8.0 - half);
        scene.text((x, frame.bottom() + SMALL + 6.0), SMALL, Anchor::Middle, text);
    }
    scene.line(vec![(frame.left, frame.bottom()), (frame.right(), frame.bottom())], QUIET, 1.0, false);
}

fn label(scene: &mut Scene, panel: &Prepared<'_>, frame: &Frame, x: f64) {
    let middle = frame.top + frame.height / 2.0;
    let text = fitting(&panel.y.label, BODY, frame.height + 30.0);
    scene.turned((x + BODY, middle), BODY, Anchor::Middle, QUIET, 90.0, &text);
    let below = frame.bottom() + panel.bottom - 6.0;
    scene.text((frame.left + frame.width / 2.0, below), BODY, Anchor::Middle, &panel.x.label);
}
