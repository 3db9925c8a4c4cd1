//! Shapes at places: all that SVG and PNG have to know. One unit is a pixel of the picture at its own size.

/// The paper and the ink.
pub(super) const PAPER: &str = "#ffffff";
pub(super) const INK: &str = "#1f2933";
pub(super) const QUIET: &str = "#52606d";
pub(super) const GRID: &str = "#e4e7eb";
/// Distinguishable also with colour blindness.
pub(super) const PALETTE: [&str; 8] =
    ["#1f6fb2", "#d9730d", "#2a8f5c", "#a23b9a", "#c0392b", "#6b5b95", "#8a6d1f", "#17808f"];

/// A shape.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shape {
    Line {
        points: Vec<(f64, f64)>,
        colour: String,
        width: f64,
        is_dashed: bool,
        /// Panel and series, for the page.
        of: Option<(usize, usize)>,
    },
    Area {
        points: Vec<(f64, f64)>,
        colour: String,
        opacity: f64,
        of: Option<(usize, usize)>,
    },
    Rect {
        x: f64,
        y: f64,
        width: f64,
        height: f64,
        colour: String,
        opacity: f64,
    },
    Circle {
        x: f64,
        y: f64,
        radius: f64,
        colour: String,
        opacity: f64,
    },
    Text {
        x: f64,
        /// The baseline of the letters.
        y: f64,
        size: f64,
        colour: &'static str,
        anchor: Anchor,
        /// Degrees, against the clock.
        turned: f64,
        text: String,
    },
}

/// Which part of a text is at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Scene {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) shapes: Vec<Shape>,
    /// Where the data of each panel are.
    pub(super) frames: Vec<Frame>,
}

/// The part of a panel that data are drawn on, and what its numbers mean there.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) x: (f64, f64),
    pub(super) y: (f64, f64),
}

impl Frame {
    pub(super) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    pub(super) fn right(&self) -> f64 {
        self.left + self.width
    }

    /// A place by shares of the frame, from its lower left corner.
    pub(super) fn at(&self, x: f64, y: f64) -> (f64, f64) {
        (self.left + x * self.width, self.bottom() - y * self.height)
    }
}

impl Scene {
    pub(super) fn text(&mut self, place: (f64, f64), size: f64, anchor: Anchor, text: &str) {
        self.coloured(place, size, anchor, QUIET, text);
    }

    pub(super) fn coloured(
        &mut self,
        (x, y): (f64, f64),
        size: f64,
        anchor: Anchor,
        colour: &'static str,
        text: &str,
    ) {
        self.turned((x, y), size, anchor, colour, 0.0, text);
    }

    pub(super) fn turned(
        &mut self,
        (x, y): (f64, f64),
        size: f64,
        anchor: Anchor,
        colour: &'static str,
        turned: f64,
        text: &str,
    ) {
        if !text.is_empty() {
            self.shapes.push(Shape::Text { x, y, size, colour, anchor, turned, text: text.to_owned() });
        }
    }

    pub(super) fn line(&mut self, points: Vec<(f64, f64)>, colour: &str, width: f64, is_dashed: bool) {
        self.shapes.push(Shape::Line { points, colour: colour.to_owned(), width, is_dashed, of: None });
    }

    pub(super) fn rect(
        &mut self,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        colour: &str,
        opacity: f64,
    ) {
        self.shapes.push(Shape::Rect { x, y, width, height, colour: colour.to_owned(), opacity });
    }

    pub(super) fn circle(&mut self, (x, y): (f64, f64), radius: f64, colour: &str, opacity: f64) {
        self.shapes.push(Shape::Circle { x, y, radius, colour: colour.to_owned(), opacity });
    }
}
