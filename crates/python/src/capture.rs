//! Heap captures read for Python: the answers of `stormlog stats`, `table` and `flamegraph`, as objects.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use pyo3::types::PyAny;
use stormlog_heap_report::{
    Ask, HeapQuery, MOMENTS, PageOptions, Reading, ViewError, find, flamegraph, forecast, is_quick, rows,
};

use stormlog_model::stacks::Frame;

use crate::error::{Error, raise};
use crate::record::to_python;

/// One frame of a stack.
#[pyclass(frozen, get_all, module = "stormlog._native.heap")]
#[derive(Clone)]
pub(crate) struct HeapFrame {
    function: String,
    file: String,
    line: u32,
}

impl From<Frame> for HeapFrame {
    fn from(frame: Frame) -> Self {
        HeapFrame { function: frame.function, file: frame.file, line: frame.line }
    }
}

/// What one stack holds.
#[pyclass(frozen, get_all, module = "stormlog._native.heap")]
struct HeapStack {
    stack: Vec<HeapFrame>,
    own_bytes: u64,
    total_bytes: u64,
    count: u64,
}

impl From<rows::Row> for HeapStack {
    fn from(row: rows::Row) -> Self {
        let frame = |place: rows::CodeLocation| HeapFrame {
            function: place.function,
            file: place.file,
            line: place.line,
        };
        HeapStack {
            stack: row.stack.into_iter().map(frame).collect(),
            own_bytes: row.own_bytes,
            total_bytes: row.total_bytes,
            count: row.count,
        }
    }
}

/// The statistics of a capture: what `stormlog stats --json` prints, with `--memory` where one is named.
#[pyfunction]
fn heap_stats<'py>(py: Python<'py>, path: PathBuf, memory: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
    let stats = py.detach(|| -> Result<serde_json::Value, Error> {
        let memory = memory.map(str::parse).transpose()?;
        let reading = Reading::of(&path, None, Ask { query: HeapQuery::Peak, memory })?;
        let mut stats = reading.stats().clone();
        forecast(&mut stats, &reading.chosen.path);
        Ok(serde_json::from_str(&stats.json()?)?)
    });
    to_python(py, &stats?)
}

/// What each stack holds for `mode` (`peak`, `leaks`, `temporary`, `at:SECONDS`, `at-death`), the largest first.
#[pyfunction]
fn heap_stacks(py: Python<'_>, path: PathBuf, mode: &str) -> PyResult<Vec<HeapStack>> {
    let read = || -> Result<Vec<HeapStack>, ViewError> {
        let held = Reading::of(&path, None, mode.parse::<HeapQuery>()?)?.stack_profile();
        Ok(rows::stacks(&held).into_iter().map(HeapStack::from).collect())
    };
    py.detach(read).map_err(raise)
}

/// The flame graph of a capture for `mode`, as one page.
#[pyfunction]
fn heap_flamegraph(py: Python<'_>, path: PathBuf, mode: &str, inverted: bool) -> PyResult<String> {
    py.detach(|| page(&path, mode, inverted)).map_err(raise)
}

fn page(path: &Path, mode: &str, inverted: bool) -> Result<String, ViewError> {
    let query: HeapQuery = mode.parse()?;
    let mut reading = Reading::with(find(path, None)?, query, MOMENTS, is_quick)?;
    flamegraph(&mut reading, |answer| answer, PageOptions { inverted, source: true })
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<HeapFrame>()?;
    module.add_class::<HeapStack>()?;
    module.add_function(wrap_pyfunction!(heap_stats, module)?)?;
    module.add_function(wrap_pyfunction!(heap_stacks, module)?)?;
    module.add_function(wrap_pyfunction!(heap_flamegraph, module)?)
}
