//! Driver-level GPU allocations: the listener of `stormlog-cupti` as a Python class.

use pyo3::prelude::*;
use stormlog_cupti::{Holding, Listener, Report};

use crate::error::Error;

/// Listens from its making until `stop`. There can be one in a process.
#[pyclass(frozen, module = "stormlog._native.cuda")]
struct CudaDriverEvents {
    listener: Listener,
}

#[pymethods]
impl CudaDriverEvents {
    /// Loads the library of that name or path and subscribes; `OSError` when it cannot be loaded, `RuntimeError` when
    /// CUPTI refuses.
    #[new]
    fn new(py: Python<'_>, library: &str) -> Result<Self, Error> {
        Ok(CudaDriverEvents { listener: py.detach(|| Listener::subscribe(library))? })
    }

    /// Gives CUPTI up to another subscriber; what was reported stays.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.listener.stop());
    }

    /// Whether this still listens.
    #[getter]
    fn is_on(&self) -> bool {
        self.listener.is_on()
    }

    /// Memory held now by device and library, and the counts.
    fn report(&self, py: Python<'_>) -> CudaDriverReport {
        CudaDriverReport::new(py.detach(|| self.listener.report()))
    }
}

/// Memory that one library holds of one device.
#[pyclass(frozen, get_all, module = "stormlog._native.cuda")]
#[derive(Clone)]
struct CudaDriverHolding {
    device: i32,
    library: String,
    bytes: u64,
    pieces: u64,
}

/// What the driver reported so far.
#[pyclass(frozen, get_all, module = "stormlog._native.cuda")]
struct CudaDriverReport {
    held: Vec<CudaDriverHolding>,
    allocations: u64,
    frees: u64,
    lost: u64,
    modules: u64,
    module_bytes: u64,
}

impl CudaDriverReport {
    fn new(report: Report) -> Self {
        let Report { held, counts } = report;
        let held = held.into_iter().map(|Holding { device, library, bytes, pieces }| CudaDriverHolding {
            device,
            library,
            bytes,
            pieces,
        });
        CudaDriverReport {
            held: held.collect(),
            allocations: counts.allocations,
            frees: counts.frees,
            lost: counts.lost,
            modules: counts.modules,
            module_bytes: counts.module_bytes,
        }
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<CudaDriverEvents>()?;
    module.add_class::<CudaDriverHolding>()?;
    module.add_class::<CudaDriverReport>()
}
