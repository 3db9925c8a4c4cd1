//! Heap captures for callers that are no command line: the same answers as `stormlog stats`, `table` and `flamegraph`, as text.

use std::path::Path;

use stormlog_heap_report::{MOMENTS, PageOptions, Question, Reading, find, flamegraph, is_quick, rows};

fn read(path: &Path, question: Question) -> Result<Reading, String> {
    Reading::of(path, None, question).map_err(|error| error.to_string())
}

fn question(mode: &str) -> Result<Question, String> {
    mode.parse().map_err(|error: stormlog_heap_report::ViewError| error.to_string())
}

/// The figures of the capture at `path`, as JSON.
pub fn stats_json(path: &Path) -> Result<String, String> {
    let reading = read(path, Question::Peak)?;
    reading.stats.json().map_err(|error| error.to_string())
}

/// What each stack holds for `mode` (`peak`, `leaks`, `temporary`, `at:SECONDS`, `at-death`), as a JSON array of rows
/// `{"stack", "own_bytes", "total_bytes", "count"}`, the largest first.
pub fn stacks_json(path: &Path, mode: &str) -> Result<String, String> {
    let held = read(path, question(mode)?)?.holdings();
    serde_json::to_string(&rows::stacks(&held)).map_err(|error| error.to_string())
}

/// The flame graph for `mode`, as one page.
pub fn flamegraph_page(path: &Path, mode: &str, inverted: bool) -> Result<String, String> {
    let chosen = find(path, None).map_err(|error| error.to_string())?;
    let reading =
        Reading::with(chosen, question(mode)?, MOMENTS, is_quick).map_err(|error| error.to_string())?;
    Ok(flamegraph(&reading, reading.answer(), PageOptions { inverted, source: true }))
}
