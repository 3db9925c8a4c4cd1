//! The letters inside: how wide a text is, and its outlines. A letter the font lacks is its empty box.

use std::sync::LazyLock;

use ttf_parser::{Face, OutlineBuilder};

static FONT: &[u8] = include_bytes!("../../assets/plot/DejaVuSans-subset.ttf");

/// The font, read. `None` cannot happen with the font that is built in; pictures would come without words.
static FACE: LazyLock<Option<Face<'static>>> = LazyLock::new(|| Face::parse(FONT, 0).ok());

/// How wide a text is at a size.
pub(super) fn width(text: &str, size: f64) -> f64 {
    FACE.as_ref().map_or(0.0, |face| text.chars().map(|letter| advance(face, letter, size)).sum())
}

fn advance(face: &Face<'_>, letter: char, size: f64) -> f64 {
    let glyph = face.glyph_index(letter).unwrap_or_default();
    f64::from(face.glyph_hor_advance(glyph).unwrap_or(0)) * scale(face, size)
}

fn scale(face: &Face<'_>, size: f64) -> f64 {
    size / f64::from(face.units_per_em())
}

/// The text, or as much of its start and end as fits with `…` between them.
pub(super) fn fitting(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let letters: Vec<char> = text.chars().collect();
    // Names differ at their ends more often than at their starts: two thirds of what fits is the end.
    let short = |kept: usize| -> String {
        let (head, tail) = (kept / 3, kept - kept / 3);
        letters[..head].iter().chain(&['…']).chain(&letters[letters.len() - tail..]).collect()
    };
    let (mut kept, mut too_many) = (0, letters.len());
    while too_many - kept > 1 {
        let middle = kept + (too_many - kept) / 2;
        if width(&short(middle), size) <= room { kept = middle } else { too_many = middle }
    }
    if kept == 0 { String::new() } else { short(kept) }
}

/// Draws a text's outlines from the origin along the x axis, y growing downwards.
pub(super) fn outline(text: &str, size: f64, into: &mut impl OutlineBuilder) {
    let Some(face) = FACE.as_ref() else { return };
    let scale = scale(face, size) as f32;
    let mut pen = 0.0;
    for letter in text.chars() {
        let glyph = face.glyph_index(letter).unwrap_or_default();
        face.outline_glyph(glyph, &mut Placed { into, pen, scale });
        pen += advance(face, letter, size) as f32;
    }
}

/// Font units to pixels at the pen.
struct Placed<'a, B> {
    into: &'a mut B,
    pen: f32,
    scale: f32,
}

impl<B> Placed<'_, B> {
    fn x(&self, x: f32) -> f32 {
        self.pen + x * self.scale
    }

    fn y(&self, y: f32) -> f32 {
        -y * self.scale
    }
}

impl<B: OutlineBuilder> OutlineBuilder for Placed<'_, B> {
    fn move_to(&mut self, x: f32, y: f32) {
        self.into.move_to(self.x(x), self.y(y));
    }
    fn line_to(&mut self, x: f32, y: f32) {
        self.into.line_to(self.x(x), self.y(y));
    }
    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.into.quad_to(self.x(x1), self.y(y1), self.x(x), self.y(y));
    }
    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.into.curve_to(self.x(x1), self.y(y1), self.x(x2), self.y(y2), self.x(x), self.y(y));
    }
    fn close(&mut self) {
        self.into.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_the_fonts_and_long_names_keep_both_ends() {
        assert!(width("Memory (GiB)", 12.0) > 60.0 && width("", 12.0) == 0.0);
        assert!(width("iii", 12.0) < width("MMM", 12.0));
        let short = fitting("transformer.layers.31.attention.forward", 12.0, 120.0);
        assert!(short.contains('…') && short.ends_with("forward"), "{short}");
        assert!(width(&short, 12.0) <= 120.0);
        assert_eq!(fitting("abc", 12.0, 0.0), "");
    }
}
