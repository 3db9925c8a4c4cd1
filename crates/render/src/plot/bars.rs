//! Bars: one a name, with its value on it, or a histogram along the axis.

use super::figure::{Bars, Panel};
use super::layout::{Entry, SMALL};
use super::letters::{fitting, width};
use super::scene::{Anchor, Frame, INK, PALETTE, QUIET, Scene};
use super::ticks::Scale;

/// Names longer than their bars are written aslant.
const TILT: f64 = 35.0;
const LONGEST: f64 = 150.0;

pub(super) fn scales(
    panel: &Panel,
    content: &Bars,
    x_ticks: usize,
    y_ticks: usize,
) -> (Scale, Scale, Vec<Entry>) {
    let most = content.values.iter().copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
    let (first, last) = match (content.edges.first(), content.edges.last()) {
        (Some(first), Some(last)) => (*first, *last),
        _ => (0.0, content.values.len().max(1) as f64),
    };
    let mut x = Scale::of(&panel.x, first, last, x_ticks, true);
    if content.edges.is_empty() {
        x.label.clone_from(&panel.x.label);
    }
    (x, Scale::of(&panel.y, 0.0, most * 1.08, y_ticks, false), Vec::new())
}

fn slot(content: &Bars, room: f64) -> f64 {
    room / content.values.len().max(1) as f64
}

fn is_tilted(content: &Bars, room: f64) -> bool {
    content.names.iter().any(|name| width(name, SMALL) > slot(content, room) - 6.0)
}

/// How much the names need below the axis.
pub(super) fn room_below(content: &Bars, room: f64) -> f64 {
    if content.edges.is_empty() && is_tilted(content, room) {
        let longest = content.names.iter().map(|name| width(name, SMALL).min(LONGEST)).fold(0.0, f64::max);
        longest * TILT.to_radians().sin() + SMALL + 12.0
    } else {
        SMALL + 8.0
    }
}

pub(super) fn draw(scene: &mut Scene, content: &Bars, frame: &Frame, unit: f64) {
    let height = |value: f64| ((value - frame.y.0) / (frame.y.1 - frame.y.0)).clamp(0.0, 1.0) * frame.height;
    let slot = slot(content, frame.width);
    let is_histogram = !content.edges.is_empty();
    let is_tilted = is_tilted(content, frame.width);
    // Names that would overlap are left out, every n-th stays.
    let every = (if is_tilted { (SMALL * 1.3 / slot).ceil() } else { 1.0 }).max(1.0) as usize;
    for (index, value) in content.values.iter().copied().enumerate() {
        if !value.is_finite() {
            continue;
        }
        let tall = height(value);
        let inset = if is_histogram { 0.5 } else { (slot * 0.16).min(26.0) };
        let left = frame.left + slot * index as f64 + inset;
        let wide = (slot - 2.0 * inset).max(0.5);
        scene.rect((left, frame.bottom() - tall), (wide, tall), PALETTE[0], 0.85);
        let middle = left + wide / 2.0;
        if is_histogram {
            continue;
        }
        let text = said(value / unit);
        if width(&text, SMALL) <= slot {
            scene.coloured((middle, frame.bottom() - tall - 5.0), SMALL, Anchor::Middle, INK, &text);
        }
        let Some(name) = content.names.get(index).filter(|_| index % every == 0) else { continue };
        let below = frame.bottom() + SMALL + 6.0;
        if is_tilted {
            let name = fitting(name, SMALL, LONGEST);
            scene.turned((middle + 4.0, below), SMALL, Anchor::End, QUIET, TILT, &name);
        } else {
            scene.text((middle, below), SMALL, Anchor::Middle, name);
        }
    }
}

fn said(value: f64) -> String {
    if value == 0.0 || value.abs() >= 100.0 {
        format!("{value:.0}")
    } else if value.abs() >= 0.01 {
        format!("{value:.2}")
    } else {
        format!("{value:.1e}")
    }
}
