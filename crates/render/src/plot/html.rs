//! A figure as one page: the SVG itself, which any browser shows without a script, and beside it the data for reading values
//! under the pointer and for looking closer.

use serde::Serialize;

use super::figure::{Content, Figure, Lines, Panel};
use super::scene::Frame;
use super::{layout, lines, svg};
use crate::page::Template;

const TEMPLATE: Template = Template {
    html: concat!(include_str!("../../assets/head.html"), include_str!("../../assets/plot/page.html")),
    style: include_str!("../../assets/plot/style.css"),
    scripts: &[include_str!("../../assets/say.js"), include_str!("../../assets/plot/main.js")],
};

/// Points of a series that the page keeps: beyond it, looking closer shows no more.
const MOST_POINTS: usize = 20_000;

#[derive(Serialize)]
struct Shown {
    /// Put into the page by a parser that runs no script; every text in it is escaped.
    svg: String,
    panels: Vec<ShownPanel>,
}

#[derive(Serialize)]
struct ShownPanel {
    frame: Frame,
    x: super::Measure,
    y: super::Measure,
    /// What is at moments (phases, alerts) is drawn once and would not move along.
    can_look_closer: bool,
    series: Vec<ShownSeries>,
}

#[derive(Serialize)]
struct ShownSeries {
    name: String,
    colour: String,
    points: Vec<(f64, f64)>,
    labels: Vec<String>,
    is_line: bool,
}

impl Figure {
    /// The figure as one interactive HTML file.
    #[must_use]
    pub fn page(&self) -> String {
        let scene = layout::scene(self);
        let panels = self.panels.iter().zip(scene.frames.iter().cloned()).map(|(panel, frame)| ShownPanel {
            frame,
            x: panel.x.measure,
            y: panel.y.measure,
            can_look_closer: can_look_closer(panel),
            series: series(panel),
        });
        let shown = Shown { svg: svg::text(&scene, &self.title), panels: panels.collect() };
        TEMPLATE.fill(&self.title, &shown)
    }
}

fn can_look_closer(panel: &Panel) -> bool {
    let Content::Lines(content) = &panel.content else { return false };
    let Lines { phases, marks, moments, dots, .. } = content;
    phases.is_empty() && marks.is_empty() && moments.is_empty() && dots.is_empty()
}

fn series(panel: &Panel) -> Vec<ShownSeries> {
    match &panel.content {
        Content::Lines(content) => content
            .series
            .iter()
            .enumerate()
            .map(|(index, series)| {
                let every = series.points.len().div_ceil(MOST_POINTS).max(1);
                ShownSeries {
                    name: series.name.clone(),
                    colour: lines::colour_of(&content.series, index),
                    points: lines::finite(&series.points).step_by(every).collect(),
                    labels: series.labels.iter().step_by(every).cloned().collect(),
                    is_line: true,
                }
            })
            .collect(),
        Content::Points(content) => vec![ShownSeries {
            name: panel.title.clone(),
            colour: super::scene::PALETTE[0].to_owned(),
            points: lines::finite(&content.points).take(MOST_POINTS).collect(),
            labels: content.labels.clone(),
            is_line: false,
        }],
        Content::Bars(_) | Content::Heat(_) => Vec::new(),
    }
}
