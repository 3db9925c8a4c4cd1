//! The views of a heap capture: options in, text or a file out. What they show is made in `stormlog-heap-report`.

pub(crate) mod captures;
pub(crate) mod diff;
pub(crate) mod export;
pub(crate) mod flamegraph;
pub(crate) mod leaks;
mod output;
pub(crate) mod parse;
pub(crate) mod sanitize;
pub(crate) mod stats;
pub(crate) mod summary;
pub(crate) mod table;
pub(crate) mod transform;
pub(crate) mod tree;
mod waiting;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use stormlog_heap_report::{Ask, Chosen, End, HeapQueryResult, Reading, find_with};
use stormlog_model::memory::Selection;
use stormlog_model::stacks::{StackProfile, Weight};

pub(crate) use output::Output;
pub(crate) use waiting::Waiting;

/// Which memory of which capture.
pub(crate) struct CaptureSelection {
    pub(crate) capture: PathBuf,
    pub(crate) pid: Option<u32>,
    pub(crate) ask: Ask,
    pub(crate) python_only: bool,
}

/// The capture at a path; says which, where there are several.
pub(crate) fn choose(path: &Path, pid: Option<u32>, memory: Option<Selection>) -> anyhow::Result<Chosen> {
    let chosen = find_with(path, pid, memory)?;
    if chosen.others > 0 {
        let (of, choose) = match pid {
            Some(pid) => (format!(" of process {pid}, one per exec() of the process"), "by its path"),
            None => (String::new(), "with --pid or by its path (`stormlog captures` lists them)"),
        };
        writeln!(
            io::stderr(),
            "Note: {} holds {} captures{of}; this is {}, {}. Choose another {choose}.",
            path.display(),
            chosen.others + 1,
            chosen.reason,
            chosen.path.display()
        )?;
    }
    Ok(chosen)
}

pub(crate) fn read(selection: &CaptureSelection) -> anyhow::Result<(Reading, StackProfile)> {
    read_answer(selection).map(|(reading, answer)| (reading, answer.held))
}

/// As [`read`], with threads and allocators.
fn read_answer(selection: &CaptureSelection) -> anyhow::Result<(Reading, HeapQueryResult)> {
    let chosen = choose(&selection.capture, selection.pid, selection.ask.memory)?;
    let _waiting = Waiting::for_file(&chosen.path);
    let reading = Reading::of(&chosen.path, None, selection.ask)?;
    let answer = answer(&reading, selection.python_only);
    Ok((reading, answer))
}

/// Says that the file was cut, for an answer that has no room for sentences.
pub(crate) fn warn_of_cut(end: &End) -> io::Result<()> {
    end.cut().map_or(Ok(()), |cut| writeln!(io::stderr(), "Note: {cut}"))
}

fn answer(reading: &Reading, python_only: bool) -> HeapQueryResult {
    let answer = reading.answer();
    if python_only { answer.python_only() } else { answer }
}

/// Bytes, and allocations where they were counted.
pub(crate) fn amount(weight: Weight) -> String {
    let bytes = stormlog_model::format_bytes(weight.bytes);
    weight.counted().map_or_else(|| bytes.clone(), |count| format!("{bytes} in {count} allocations"))
}

/// The allocations of a row, in a table of what `whole` is the sum of.
pub(crate) fn count_cell(whole: Weight, count: u64) -> String {
    whole.counted().map_or_else(|| "-".to_owned(), |_| count.to_string())
}

/// What was asked, in words, with its size: the first line of a view in a terminal; the sentences that must be seen follow.
pub(crate) fn head(out: &mut impl Write, reading: &Reading, held: &StackProfile) -> io::Result<()> {
    let whole = held.whole();
    writeln!(out, "{}: {} {}", reading.subject(), amount(whole), reading.words())?;
    for note in reading.notes() {
        writeln!(out, "  {note}")?;
    }
    if whole == Default::default() {
        writeln!(out, "{}", reading.empty())?;
    }
    Ok(())
}
