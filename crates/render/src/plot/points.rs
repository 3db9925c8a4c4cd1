//! Dots: one a pair of values.

use super::figure::{Panel, Points};
use super::layout::Entry;
use super::lines::finite;
use super::scene::{Frame, PALETTE, Scene};
use super::ticks::Scale;

/// Beyond this many, dots only hide each other.
const MOST: usize = 20_000;

pub(super) fn scales(
    panel: &Panel,
    content: &Points,
    x_ticks: usize,
    y_ticks: usize,
) -> (Scale, Scale, Vec<Entry>) {
    let (x, y) =
        finite(&content.points).fold((0.0_f64, 0.0_f64), |(x, y), point| (x.max(point.0), y.max(point.1)));
    let scale = |axis, to: f64, ticks| Scale::of(axis, 0.0, to * 1.05, ticks, false);
    (scale(&panel.x, x, x_ticks), scale(&panel.y, y, y_ticks), Vec::new())
}

pub(super) fn draw(scene: &mut Scene, content: &Points, frame: &Frame) {
    let every = content.points.len().div_ceil(MOST).max(1);
    for (x, y) in finite(&content.points).step_by(every) {
        let share = |value: f64, (from, to): (f64, f64)| ((value - from) / (to - from)).clamp(0.0, 1.0);
        scene.circle(frame.at(share(x, frame.x), share(y, frame.y)), 4.0, PALETTE[0], 0.6);
    }
}
