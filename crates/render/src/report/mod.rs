//! The report of a run: the answer, memory over time in lanes on one axis, the stacks that held it at any of its moments, findings, processes and
//! environment, in one page.
//!
//! Values in, HTML out. A page never exceeds the size it is given: graphs lose moments and stacks until it fits, and say so. Must never lose a byte on
//! the way: what is left out is counted under its caller.

mod fit;
mod values;

use serde::Serialize;

use crate::flamegraph::{self, Limits};
use crate::page::Template;
use fit::STEPS;

pub use values::{
    Finding, Graph, Held, Lane, Line, LineKind, Mark, Parts, Process, Report, Rows, Rule, Stretch,
};

const TEMPLATE: Template = Template {
    html: concat!(include_str!("../../assets/head.html"), include_str!("../../assets/report/page.html")),
    style: concat!(include_str!("../../assets/page.css"), include_str!("../../assets/report/style.css")),
    scripts: &[
        include_str!("../../assets/say.js"),
        include_str!("../../assets/page.js"),
        include_str!("../../assets/flamegraph/data.js"),
        include_str!("../../assets/flamegraph/tree.js"),
        include_str!("../../assets/flamegraph/held.js"),
        include_str!("../../assets/flamegraph/graph.js"),
        include_str!("../../assets/flamegraph/detail.js"),
        include_str!("../../assets/report/axis.js"),
        include_str!("../../assets/report/lanes.js"),
        include_str!("../../assets/report/holders.js"),
        include_str!("../../assets/report/moment.js"),
        include_str!("../../assets/report/sections.js"),
        include_str!("../../assets/report/main.js"),
    ],
};

/// The size of a page that is sent by mail or kept beside a run.
pub const PAGE_BYTES: usize = 5_000_000;

#[derive(Serialize)]
struct Data<'a> {
    #[serde(flatten)]
    report: &'a Report,
    graphs: Vec<GraphData<'a>>,
}

#[derive(Serialize)]
struct GraphData<'a> {
    process: usize,
    memory: &'a str,
    offset_ms: u64,
    is_difference: bool,
    /// What of the recording is not in the page.
    left_out: Vec<String>,
    flame: flamegraph::Data<'a>,
}

/// The page, of at most `most_bytes`.
#[must_use]
pub fn page(report: &Report, most_bytes: usize) -> String {
    let mut page = String::new();
    for limits in STEPS {
        page = filled(report, limits);
        if page.len() <= most_bytes {
            return page;
        }
    }
    // Not even the smallest graphs fit beside the lanes: the lanes stay.
    let mut without = Report { graphs: Vec::new(), ..report.clone() };
    without.notes.push(
        "The stacks are not in this page: it would be too large. `stormlog report --serve` shows them."
            .to_owned(),
    );
    let smaller = filled(&without, STEPS[STEPS.len() - 1]);
    if smaller.len() < page.len() { smaller } else { page }
}

fn filled(report: &Report, limits: Limits) -> String {
    let coarse: Vec<_> =
        report.graphs.iter().map(|graph| fit::coarse(&graph.flame, limits.moments)).collect();
    let graphs = report.graphs.iter().zip(&coarse).map(|(graph, flame)| {
        let data = flamegraph::data(flame, limits);
        GraphData {
            process: graph.process,
            memory: &graph.memory,
            offset_ms: graph.offset_ms,
            is_difference: graph.is_difference,
            left_out: fit::left_out(&graph.flame, flame, limits),
            flame: data,
        }
    });
    let data = Data { graphs: graphs.collect(), report };
    TEMPLATE.fill(&report.title, &data)
}

#[cfg(test)]
mod tests;
