//! Shapes as SVG text. Must never put a caller's text in unescaped.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::figure::Figure;
use super::layout;
use super::scene::{Anchor, Scene, Shape};
use stormlog_model::text::{escape_markup, inert_text};

impl Figure {
    /// The figure as an SVG file.
    #[must_use]
    pub fn svg(&self) -> String {
        text(&layout::scene(self), &self.title)
    }
}

impl Figure {
    /// The SVG as an address that an image can have: for Markdown, which takes no other markup.
    #[must_use]
    pub fn svg_address(&self) -> String {
        format!("data:image/svg+xml;base64,{}", STANDARD.encode(self.svg()))
    }
}

/// Writing into a string cannot fail, so what `write!` says is not asked.
pub(super) fn text(scene: &Scene, title: &str) -> String {
    let (width, height) = (number(scene.width), number(scene.height));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"DejaVu Sans, Verdana, sans-serif\" role=\"img\"><title>{}</title>\n",
        escape_markup(&inert_text(title))
    );
    for shape in &scene.shapes {
        write_shape(&mut out, shape);
    }
    out.push_str("</svg>\n");
    out
}

fn write_shape(out: &mut String, shape: &Shape) {
    match shape {
        Shape::Line { points, colour, width, is_dashed, of } => {
            let dashes = if *is_dashed { " stroke-dasharray=\"6 4\"" } else { "" };
            let _ = writeln!(
                out,
                "<path d=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{}\" stroke-linejoin=\"round\"{dashes}{}/>",
                path(points),
                number(*width),
                name("line", *of)
            );
        }
        Shape::Area { points, colour, opacity, of } => {
            let _ = writeln!(
                out,
                "<path d=\"{}Z\" fill=\"{colour}\"{}{}/>",
                path(points),
                seen(*opacity),
                name("area", *of)
            );
        }
        Shape::Rect { x, y, width, height, colour, opacity } => {
            let _ = writeln!(
                out,
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{colour}\"{}/>",
                number(*x),
                number(*y),
                number(*width),
                number(*height),
                seen(*opacity)
            );
        }
        Shape::Circle { x, y, radius, colour, opacity } => {
            let _ = writeln!(
                out,
                "<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{colour}\"{}/>",
                number(*x),
                number(*y),
                number(*radius),
                seen(*opacity)
            );
        }
        Shape::Text { x, y, size, colour, anchor, turned, text } => {
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            let (x, y) = (number(*x), number(*y));
            let turn = match turned {
                0.0 => String::new(),
                turned => format!(" transform=\"rotate({} {x} {y})\"", number(-turned)),
            };
            let _ = writeln!(
                out,
                "<text x=\"{x}\" y=\"{y}\" font-size=\"{}\" fill=\"{colour}\" text-anchor=\"{anchor}\"{turn}>{}</text>",
                number(*size),
                escape_markup(&inert_text(text))
            );
        }
    }
}

fn path(points: &[(f64, f64)]) -> String {
    let mut out = String::with_capacity(points.len() * 12);
    for (index, (x, y)) in points.iter().enumerate() {
        out.push(if index == 0 { 'M' } else { 'L' });
        let _ = write!(out, "{} {}", number(*x), number(*y));
    }
    out
}

fn name(kind: &str, of: Option<(usize, usize)>) -> String {
    of.map(|(panel, series)| format!(" id=\"{kind}-{panel}-{series}\"")).unwrap_or_default()
}

fn seen(opacity: f64) -> String {
    if opacity >= 1.0 { String::new() } else { format!(" fill-opacity=\"{}\"", number(opacity)) }
}

/// Two places are a hundredth of a pixel.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
