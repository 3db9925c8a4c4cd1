//! `stormlog transform`: what a capture holds as a file of another tool.

use stormlog_heap_report::HeapQueryResult;

use super::export::Format;
use super::{CaptureSelection, Output, read, warn_of_cut};
use crate::exit::Exit;

pub(crate) struct Options {
    pub(crate) selection: CaptureSelection,
    pub(crate) output: Output,
    pub(crate) format: Format,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let (reading, held) = read(&options.selection)?;
    warn_of_cut(&reading.end)?;
    let python_only = options.selection.python_only;
    let shape = |answer: HeapQueryResult| if python_only { answer.python_only() } else { answer };
    let bytes = options.format.write(&reading, &held, &shape)?;
    options.output.write(&reading.chosen.path, &format!("stacks.{}", options.format.ending()), &bytes)?;
    Ok(Exit::Ok)
}
