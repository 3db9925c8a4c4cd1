//! `stormlog flamegraph`.

use stormlog_heap_report::{HeapQuery, HeapQueryResult, PageOptions, Reading, flamegraph, is_quick};

use super::export::Format;
use super::{CaptureSelection, Output, Waiting, choose, warn_of_cut};
use crate::exit::Exit;

pub(crate) struct Options {
    pub(crate) selection: CaptureSelection,
    pub(crate) output: Output,
    /// `None`: the page.
    pub(crate) format: Option<Format>,
    pub(crate) inverted: bool,
    pub(crate) split_threads: bool,
    /// `None`: where it is quick.
    pub(crate) temporal: Option<bool>,
    pub(crate) points: usize,
    pub(crate) source: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let chosen = choose(&options.selection.capture, options.selection.pid, options.selection.ask.memory)?;
    let ending = options.format.map_or("html", Format::ending);
    let name = match options.selection.ask.query {
        HeapQuery::Peak => format!("flamegraph.{ending}"),
        HeapQuery::Leaks => format!("flamegraph-leaks.{ending}"),
        HeapQuery::Temporary(_) => format!("flamegraph-temporary.{ending}"),
        HeapQuery::At(_) | HeapQuery::Span(..) => format!("flamegraph-at.{ending}"),
        HeapQuery::AtDeath => format!("flamegraph-at-death.{ending}"),
    };
    options.output.check(&chosen.path, &name)?;
    let waiting = Waiting::for_file(&chosen.path);
    let path = chosen.path.clone();
    let is_page = options.format.is_none();
    let mut reading = Reading::with(chosen, options.selection.ask, options.points, |heap| {
        is_page && options.temporal.unwrap_or_else(|| is_quick(heap))
    })?;
    let shape = |answer: HeapQueryResult| {
        let answer = if options.selection.python_only { answer.python_only() } else { answer };
        if options.split_threads { answer.split_threads() } else { answer }
    };
    let bytes = match options.format {
        Some(format) => {
            warn_of_cut(&reading.end)?;
            let shape = |answer: HeapQueryResult| {
                let answer = shape(answer);
                if options.inverted { answer.inverted() } else { answer }
            };
            format.write(&reading, &shape(reading.answer()).held, &shape)?
        }
        None => {
            let page = PageOptions { inverted: options.inverted, source: options.source };
            flamegraph(&mut reading, shape, page)?.into_bytes()
        }
    };
    drop(waiting);
    options.output.write(&path, &name, &bytes)?;
    Ok(Exit::Ok)
}
