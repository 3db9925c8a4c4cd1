//! A coloured table: rows and columns with names, cells from light to dark.

use super::figure::{Heat, Panel};
use super::layout::{BODY, Entry, SMALL};
use super::letters::{fitting, width};
use super::scene::{Anchor, Frame, INK, PAPER, Scene};
use super::ticks::Scale;

const ROW: f64 = 30.0;
/// Pale yellow to dark red, readable in grey as well.
const COLOURS: [(f64, f64, f64); 4] =
    [(255.0, 250.0, 220.0), (253.0, 200.0, 110.0), (235.0, 100.0, 60.0), (128.0, 10.0, 38.0)];

pub(super) fn scales(panel: &Panel, _: &Heat) -> (Scale, Scale, Vec<Entry>) {
    let named =
        |label: &str| Scale { from: 0.0, to: 1.0, ticks: Vec::new(), label: label.to_owned(), unit: 1.0 };
    (named(&panel.x.label), named(&panel.y.label), Vec::new())
}

pub(super) fn widest(content: &Heat, room: f64) -> f64 {
    let widest = content.rows.iter().map(|name| width(name, SMALL)).fold(0.0, f64::max);
    widest.min(room * 0.35)
}

pub(super) fn height(content: &Heat) -> f64 {
    let rows = content.shares.len().max(1) as f64;
    (rows * ROW).min(1600.0)
}

pub(super) fn room_below(content: &Heat) -> f64 {
    let names = if content.columns.is_empty() { 4.0 } else { SMALL + 8.0 };
    names + if content.scale.is_some() { 30.0 } else { 0.0 }
}

/// The colour of a share, and whether ink on it must be light.
fn colour(share: f64) -> (String, bool) {
    let at = share.clamp(0.0, 1.0) * (COLOURS.len() - 1) as f64;
    let index = (at.floor() as usize).min(COLOURS.len() - 2);
    let (low, high, part) = (COLOURS[index], COLOURS[index + 1], at - index as f64);
    let mix = |from: f64, to: f64| (from + (to - from) * part).round() as u8;
    let (red, green, blue) = (mix(low.0, high.0), mix(low.1, high.1), mix(low.2, high.2));
    (format!("#{red:02x}{green:02x}{blue:02x}"), share > 0.62)
}

pub(super) fn draw(scene: &mut Scene, content: &Heat, frame: &Frame) {
    let columns = content.shares.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let (wide, tall) = (frame.width / columns as f64, frame.height / content.shares.len().max(1) as f64);
    for (row, shares) in content.shares.iter().enumerate() {
        let top = frame.top + tall * row as f64;
        if let Some(name) = content.rows.get(row) {
            let name = fitting(name, SMALL, widest(content, f64::MAX).min(frame.left - 20.0));
            scene.text((frame.left - 8.0, top + tall / 2.0 + SMALL * 0.36), SMALL, Anchor::End, &name);
        }
        for (column, share) in shares.iter().copied().enumerate().filter(|(_, share)| share.is_finite()) {
            let left = frame.left + wide * column as f64;
            let (fill, is_dark) = colour(share);
            scene.rect((left + 0.5, top + 0.5), (wide - 1.0, tall - 1.0), &fill, 1.0);
            let text = content.texts.get(row).and_then(|texts| texts.get(column));
            if let Some(text) = text.filter(|text| width(text, SMALL) < wide - 4.0 && tall > SMALL) {
                let middle = (left + wide / 2.0, top + tall / 2.0 + SMALL * 0.36);
                scene.coloured(middle, SMALL, Anchor::Middle, if is_dark { PAPER } else { INK }, text);
            }
        }
    }
    for (column, name) in content.columns.iter().enumerate().take(columns) {
        let middle = frame.left + wide * (column as f64 + 0.5);
        let name = fitting(name, SMALL, wide - 4.0);
        scene.text((middle, frame.bottom() + SMALL + 6.0), SMALL, Anchor::Middle, &name);
    }
    if let Some((least, most)) = &content.scale {
        scale(scene, frame, least, most, if content.columns.is_empty() { 14.0 } else { SMALL + 18.0 });
    }
}

/// The bar that says what the colours mean.
fn scale(scene: &mut Scene, frame: &Frame, least: &str, most: &str, below: f64) {
    const STEPS: usize = 40;
    let (y, wide) = (frame.bottom() + below, 160.0);
    let left = frame.right() - wide - width(most, SMALL) - 8.0;
    for step in 0..STEPS {
        let x = left + wide * step as f64 / STEPS as f64;
        scene.rect(
            (x, y),
            (wide / STEPS as f64 + 0.3, 10.0),
            &colour(step as f64 / (STEPS - 1) as f64).0,
            1.0,
        );
    }
    scene.text((left - 8.0, y + BODY * 0.75), SMALL, Anchor::End, least);
    scene.text((left + wide + 8.0, y + BODY * 0.75), SMALL, Anchor::Start, most);
}
