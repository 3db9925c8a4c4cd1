//! This process's memory, read at once: for snapshots, and for the true peak inside a call.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use stormlog_collect::CollectError;
use stormlog_collect::host::HostReader;
use stormlog_collect::process::{PeakWindow, ProcessReader};

use crate::error::raise;

/// Readings of this process. A forked child reads itself.
#[pyclass(frozen, module = "stormlog._native.tracking")]
struct ProcessProbe {
    state: Mutex<(u32, ProcessReader)>,
}

/// RSS at the start, the mark before, whether the mark was reset.
type Window = (u64, Option<u64>, bool);

#[pymethods]
impl ProcessProbe {
    #[new]
    fn new() -> PyResult<Self> {
        let reader = ProcessReader::this().map_err(raise)?;
        Ok(ProcessProbe { state: Mutex::new((std::process::id(), reader)) })
    }

    /// RSS and address space in bytes.
    fn memory(&self) -> PyResult<(u64, u64)> {
        self.with(|reader| reader.memory()).map(|memory| (memory.rss, memory.vms))
    }

    /// The highest RSS since the process started or the mark was reset.
    fn peak_rss(&self) -> PyResult<Option<u64>> {
        self.with(|reader| reader.status()).map(|status| status.peak_rss)
    }

    /// Starts a stretch whose peak is wanted.
    fn begin_peak(&self) -> PyResult<Window> {
        let window = self.with(|reader| reader.begin_peak())?;
        Ok((window.rss_before, window.peak_before, window.is_exact))
    }

    /// RSS now, and the peak of the stretch; `None` when the kernel does not tell.
    fn end_peak(&self, window: Window) -> PyResult<(u64, Option<u64>)> {
        let (rss_before, peak_before, is_exact) = window;
        let window = PeakWindow { rss_before, peak_before, is_exact };
        let peak = self.with(|reader| reader.end_peak(&window))?;
        Ok((peak.rss_after, peak.peak_rss))
    }
}

impl ProcessProbe {
    fn with<T>(&self, read: impl FnOnce(&mut ProcessReader) -> Result<T, CollectError>) -> PyResult<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = std::process::id();
        if state.0 != pid {
            *state = (pid, ProcessReader::this().map_err(raise)?);
        }
        read(&mut state.1).map_err(raise)
    }
}

/// The machine's memory and what programs can still get of it; `None` where the system does not tell.
#[pyfunction]
fn host_memory(py: Python<'_>) -> (Option<u64>, Option<u64>) {
    let memory = py.detach(|| HostReader::open().and_then(|mut reader| reader.memory()).ok());
    memory.map_or((None, None), |memory| (memory.total, memory.available))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ProcessProbe>()?;
    module.add_function(wrap_pyfunction!(host_memory, module)?)
}
