//! Allocator snapshots for Python: the reports of `stormlog-torch`, as dictionaries that `stormlog.torch_snapshot` makes
//! classes of.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Serialize;
use stormlog_torch::{AllocatorSettings, Recording, ReportOptions, Snapshot, SnapshotError, SnapshotMoment};

use crate::error::raise;
use crate::record::to_python;

/// A snapshot, read once and asked often. It never changes, so threads may share it.
#[pyclass(frozen, module = "stormlog._native.torch")]
struct TorchSnapshot {
    snapshot: Snapshot,
}

/// Reads a snapshot; nothing in the file is executed.
#[pyfunction]
fn load_torch_snapshot(py: Python<'_>, path: PathBuf) -> PyResult<TorchSnapshot> {
    match py.detach(|| stormlog_torch::load(&path)) {
        Ok(snapshot) => Ok(TorchSnapshot { snapshot }),
        Err(error @ SnapshotError::Open { .. }) => Err(raise(error)),
        Err(error) => Err(PyValueError::new_err(format!("{}: {error}", path.display()))),
    }
}

/// Bytes, or a text such as "24GiB".
#[derive(FromPyObject)]
enum Size {
    Bytes(u64),
    Text(String),
}

fn bytes(size: Option<Size>) -> PyResult<Option<u64>> {
    match size {
        None => Ok(None),
        Some(Size::Bytes(bytes)) => Ok(Some(bytes)),
        Some(Size::Text(text)) => match stormlog_model::parse_bytes(&text) {
            Some(bytes) => Ok(Some(bytes)),
            None => {
                Err(PyValueError::new_err(format!("expected a size such as 512MiB or 24GiB, got {text:?}")))
            }
        },
    }
}

/// A report as dictionaries and lists; made while other threads may run.
fn objects<'py, T: Serialize>(
    py: Python<'py>,
    report: impl FnOnce() -> T + Send,
) -> PyResult<Bound<'py, PyAny>> {
    let value = py.detach(|| serde_json::to_value(report())).map_err(raise)?;
    to_python(py, &value)
}

#[pymethods]
impl TorchSnapshot {
    fn device_count(&self) -> usize {
        self.snapshot.device_count()
    }

    fn event_count(&self, device: usize) -> usize {
        self.snapshot.event_count(device)
    }

    /// `stormlog snapshot --json`.
    fn report<'py>(
        &self,
        py: Python<'py>,
        top: usize,
        device_total: Option<Size>,
        advise: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = ReportOptions { top, device_total: bytes(device_total)?, advise };
        objects(py, || stormlog_torch::report(&self.snapshot, &options))
    }

    /// `stormlog replay --json`; each text is one set of settings.
    fn replay<'py>(
        &self,
        py: Python<'py>,
        settings: Vec<String>,
        limit: Option<Size>,
        search: bool,
        device: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let limit = bytes(limit)?;
        let settings: Result<Vec<_>, _> =
            settings.iter().map(|text| AllocatorSettings::default().with(text)).collect();
        let settings = settings.map_err(raise)?;
        if let Some(problem) = self.snapshot.replay_problem(device) {
            return Err(PyValueError::new_err(problem));
        }
        objects(py, || stormlog_torch::replay_report(&self.snapshot, device, &settings, limit, search))
    }

    /// `stormlog diff --json`: from this one to `after`, at a moment as `--at` takes it; of all devices, or of one.
    fn diff<'py>(
        &self,
        py: Python<'py>,
        after: &TorchSnapshot,
        at: &str,
        device: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Ok(at) = at.parse::<SnapshotMoment>();
        let found = py.detach(|| {
            let recordings = |snapshot| match device {
                Some(device) => vec![Recording::new(snapshot, device)],
                None => Recording::all(snapshot),
            };
            stormlog_torch::diff(&recordings(&self.snapshot), &recordings(&after.snapshot), &at)
        });
        let found = found.map_err(|error| PyValueError::new_err(error.to_string()))?;
        objects(py, || found)
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TorchSnapshot>()?;
    module.add_function(wrap_pyfunction!(load_torch_snapshot, module)?)
}
