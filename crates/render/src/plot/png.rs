//! Shapes as a PNG picture, smooth, with the letters that are inside.

use thiserror::Error;
use tiny_skia::{Color, FillRule, LineJoin, Paint, Path, PathBuilder, Pixmap, Stroke, StrokeDash, Transform};
use ttf_parser::OutlineBuilder;

use super::figure::Figure;
use super::layout;
use super::letters;
use super::scene::{Anchor, Shape};

/// More pixels than this are a mistake, or an attack.
const MOST_PIXELS: f64 = 100e6;

/// Why there is no picture.
#[derive(Debug, Error)]
pub enum PngError {
    /// It would be too large to hold.
    #[error("a picture of {width} by {height} pixels is too large; use a smaller scale, or SVG")]
    Size {
        /// Pixels across.
        width: f64,
        /// Pixels down.
        height: f64,
    },
    /// It could not be packed.
    #[error("the picture could not be written as PNG: {0}")]
    Encode(String),
}

impl Figure {
    /// The figure as a PNG file; `scale` 2 has twice the pixels each way and is sharp in print.
    pub fn png(&self, scale: f64) -> Result<Vec<u8>, PngError> {
        let scene = layout::scene(self);
        let (width, height) = ((scene.width * scale).ceil(), (scene.height * scale).ceil());
        let size = || PngError::Size { width, height };
        if !(width >= 1.0 && height >= 1.0 && width * height <= MOST_PIXELS) {
            return Err(size());
        }
        let mut pixels = Pixmap::new(width as u32, height as u32).ok_or_else(size)?;
        let whole = Transform::from_scale(scale as f32, scale as f32);
        for shape in &scene.shapes {
            paint(&mut pixels, shape, whole);
        }
        pixels.encode_png().map_err(|error| PngError::Encode(error.to_string()))
    }
}

fn paint(pixels: &mut Pixmap, shape: &Shape, whole: Transform) {
    match shape {
        Shape::Line { points, colour, width, is_dashed, .. } => {
            let stroke = Stroke {
                width: *width as f32,
                line_join: LineJoin::Round,
                dash: if *is_dashed { StrokeDash::new(vec![6.0, 4.0], 0.0) } else { None },
                ..Stroke::default()
            };
            if let Some(path) = path(points, false) {
                pixels.stroke_path(&path, &ink(colour, 1.0), &stroke, whole, None);
            }
        }
        Shape::Area { points, colour, opacity, .. } => {
            if let Some(path) = path(points, true) {
                pixels.fill_path(&path, &ink(colour, *opacity), FillRule::Winding, whole, None);
            }
        }
        Shape::Rect { x, y, width, height, colour, opacity } => {
            let corner = tiny_skia::Rect::from_xywh(*x as f32, *y as f32, *width as f32, *height as f32);
            if let Some(rect) = corner {
                let path = PathBuilder::from_rect(rect);
                pixels.fill_path(&path, &ink(colour, *opacity), FillRule::Winding, whole, None);
            }
        }
        Shape::Circle { x, y, radius, colour, opacity } => {
            if let Some(path) = PathBuilder::from_circle(*x as f32, *y as f32, *radius as f32) {
                pixels.fill_path(&path, &ink(colour, *opacity), FillRule::Winding, whole, None);
            }
        }
        Shape::Text { x, y, size, colour, anchor, turned, text } => {
            let shift = match anchor {
                Anchor::Start => 0.0,
                Anchor::Middle => -letters::width(text, *size) / 2.0,
                Anchor::End => -letters::width(text, *size),
            };
            let mut outline = Outline(PathBuilder::new());
            letters::outline(text, *size, &mut outline);
            let place = whole
                .pre_translate(*x as f32, *y as f32)
                .pre_concat(Transform::from_rotate(-*turned as f32))
                .pre_translate(shift as f32, 0.0);
            if let Some(path) = outline.0.finish() {
                pixels.fill_path(&path, &ink(colour, 1.0), FillRule::Winding, place, None);
            }
        }
    }
}

fn path(points: &[(f64, f64)], is_closed: bool) -> Option<Path> {
    let mut builder = PathBuilder::new();
    for (index, (x, y)) in points.iter().enumerate() {
        if index == 0 { builder.move_to(*x as f32, *y as f32) } else { builder.line_to(*x as f32, *y as f32) }
    }
    if is_closed {
        builder.close();
    }
    builder.finish()
}

fn ink(colour: &str, opacity: f64) -> Paint<'static> {
    let part = |from: usize| {
        colour.get(from..from + 2).and_then(|text| u8::from_str_radix(text, 16).ok()).unwrap_or(0)
    };
    let mut paint = Paint { anti_alias: true, ..Paint::default() };
    let alpha = (opacity.clamp(0.0, 1.0) * 255.0).round() as u8;
    paint.set_color(Color::from_rgba8(part(1), part(3), part(5), alpha));
    paint
}

struct Outline(PathBuilder);

impl OutlineBuilder for Outline {
    fn move_to(&mut self, x: f32, y: f32) {
        self.0.move_to(x, y);
    }
    fn line_to(&mut self, x: f32, y: f32) {
        self.0.line_to(x, y);
    }
    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.0.quad_to(x1, y1, x, y);
    }
    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.0.cubic_to(x1, y1, x2, y2, x, y);
    }
    fn close(&mut self) {
        self.0.close();
    }
}
