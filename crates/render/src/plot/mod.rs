//! Pictures of memory: lines over time, bars, points and heat maps, as SVG, PNG or one interactive page.
//!
//! A [`Figure`] says what is to be seen in bytes and seconds; `layout` turns it into shapes once, and SVG and PNG draw the same
//! shapes, so they cannot disagree. No drawing library: what we need of one is some axes, and ours look the same on a machine
//! without fonts, for the letters (a subset of DejaVu Sans) are inside. Must never fail: what is not finite is left out.

mod band;
mod bars;
mod figure;
mod heat;
mod html;
mod layout;
mod letters;
mod lines;
mod png;
mod points;
mod scene;
mod svg;
mod ticks;

pub use band::median_and_range;
pub use figure::{
    Axis, Band, Bars, Content, Dot, Figure, Heat, Lines, Mark, MarkKind, Measure, Panel, Phase, Points, Rule,
    Series,
};
pub use png::PngError;
