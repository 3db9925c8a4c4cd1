//! Driver-level GPU allocations: the listener of `stormlog-cupti` as a Python class, and its way into the heap recording of this
//! process.

use std::ffi::c_void;

use pyo3::prelude::*;
use stormlog_cupti::{Holding, Listener, Report, ReportFn};

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
        // `stormlog run` has preloaded the hook library.
        record_through(libc::RTLD_DEFAULT);
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

/// Has driver events written into the recording of the hook library behind this handle, where it has the function for them.
pub(crate) fn record_through(handle: *mut c_void) {
    // SAFETY: the name is a C string, and the handle is one dlsym knows.
    let report = unsafe { libc::dlsym(handle, c"stormlog_gpu_report".as_ptr()) };
    if !report.is_null() {
        // SAFETY: the function of this name in our library has this type, and the library is never unloaded.
        stormlog_cupti::record_with(unsafe { std::mem::transmute::<*mut c_void, ReportFn>(report) });
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<CudaDriverEvents>()?;
    module.add_class::<CudaDriverHolding>()?;
    module.add_class::<CudaDriverReport>()
}
