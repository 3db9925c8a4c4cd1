//! What is to be seen, without a word about where: the values a caller fills in, in bytes, seconds and plain numbers.

use serde::{Deserialize, Serialize};

/// Panels under one title.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figure {
    /// Head line.
    pub title: String,
    /// The line below it: of what, and what was left out.
    pub subtitle: String,
    /// Panels in a row; 0 is one.
    pub columns: usize,
    /// In reading order.
    pub panels: Vec<Panel>,
}

/// One pair of axes and what is drawn on it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Panel {
    /// Its head line; may be empty.
    pub title: String,
    /// Along the bottom.
    pub x: Axis,
    /// Along the left side.
    pub y: Axis,
    /// What is drawn.
    pub content: Content,
}

/// An axis; its unit is added to the label.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Axis {
    /// `Memory`, `Time since the start`.
    pub label: String,
    /// What its numbers are.
    pub measure: Measure,
    /// Where it ends; else where the data end.
    pub end: Option<f64>,
}

impl Axis {
    /// An axis as long as its data.
    #[must_use]
    pub fn new(label: &str, measure: Measure) -> Self {
        Axis { label: label.to_owned(), measure, end: None }
    }
}

/// What numbers are, which decides their unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// B, KiB, MiB, GiB …
    Bytes,
    /// ms, s, min, h.
    Seconds,
    /// As they are.
    #[default]
    Number,
}

/// What is drawn on a panel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Values over time.
    Lines(Lines),
    /// A bar a name, or a histogram.
    Bars(Bars),
    /// One dot a pair.
    Points(Points),
    /// A coloured table.
    Heat(Heat),
}

impl Default for Content {
    fn default() -> Self {
        Content::Lines(Lines::default())
    }
}

/// Values over time, and what happened meanwhile.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lines {
    /// The lines.
    pub series: Vec<Series>,
    /// From the least to the greatest of many lines that are not drawn one by one.
    pub band: Option<Band>,
    /// A level that must not be passed.
    pub limit: Option<Rule>,
    /// Stretches with a name.
    pub phases: Vec<Phase>,
    /// Moments at which something was said.
    pub marks: Vec<Mark>,
    /// Moments worth a line from top to bottom.
    pub moments: Vec<Rule>,
    /// Points worth a name.
    pub dots: Vec<Dot>,
}

/// From the least to the greatest value at each moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Band {
    /// Its name in the legend.
    pub name: String,
    /// Time, least and greatest, by time.
    pub points: Vec<(f64, f64, f64)>,
}

/// One line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Time and value, by time.
    pub points: Vec<(f64, f64)>,
    /// Whether the ground below it is tinted.
    pub fill: bool,
    /// Whether it is drawn in dashes: a line that was computed, not measured.
    pub dashed: bool,
    /// Its colour; else the next of the palette.
    pub colour: Option<String>,
    /// What each point is, for the page: as many as points, or none.
    pub labels: Vec<String>,
}

/// A named level or moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// What it is.
    pub name: String,
    /// Where.
    pub at: f64,
}

/// A stretch of time with a name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// `train / forward`.
    pub name: String,
    /// Its start.
    pub from: f64,
    /// Its end.
    pub to: f64,
}

/// How bad a mark is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MarkKind {
    /// Worth knowing.
    Note,
    /// A warning.
    Warning,
    /// A critical alert, an error, a death.
    Critical,
}

/// A moment at which something was said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// `warning`, `out of memory`; the same names are counted together in the legend.
    pub name: String,
    /// When.
    pub at: f64,
    /// How bad.
    pub kind: MarkKind,
}

/// A point with a name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Dot {
    /// What it is.
    pub name: String,
    /// Where.
    pub x: f64,
    /// How much.
    pub y: f64,
}

/// A bar a name. With `edges` (one more than values) it is a histogram along the x axis.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bars {
    /// The names, in order.
    pub names: Vec<String>,
    /// The lengths.
    pub values: Vec<f64>,
    /// The borders of a histogram.
    pub edges: Vec<f64>,
}

/// One dot a pair.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Points {
    /// x and y.
    pub points: Vec<(f64, f64)>,
    /// What each is: as many as points, or none.
    pub labels: Vec<String>,
}

/// A coloured table: light is little.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Heat {
    /// Names of the rows; may be empty.
    pub rows: Vec<String>,
    /// Names of the columns; may be empty.
    pub columns: Vec<String>,
    /// Rows of values from 0 to 1 that choose the colour; what is not finite stays empty.
    pub shares: Vec<Vec<f64>>,
    /// What is written into each cell; may be empty.
    pub texts: Vec<Vec<String>>,
    /// What the colours mean: least, most.
    pub scale: Option<(String, String)>,
}
