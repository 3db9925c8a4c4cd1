//! A GPU as its driver sees it: all processes, not only this one.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use stormlog_collect::{Collector, Gpu as Device, Roots, find_gpu};

/// Used, free, total, and what the driver keeps for itself.
type Memory = (Option<u64>, Option<u64>, Option<u64>, Option<u64>);

/// One device, found by its id. Asking it neither touches CUDA nor waits for the device.
#[pyclass(frozen, module = "stormlog._native.cuda")]
struct Gpu {
    device: Mutex<Device>,
}

#[pymethods]
impl Gpu {
    /// The device of that id (`GPU-…` or `MIG-…`); `None` without a driver or such a device.
    #[staticmethod]
    fn find(py: Python<'_>, uuid: &str) -> Option<Self> {
        let device = py.detach(|| find_gpu(&Roots::default(), uuid))?;
        Some(Gpu { device: Mutex::new(device) })
    }

    /// Its memory in bytes; `None` when the driver does not answer.
    fn memory(&self, py: Python<'_>) -> Option<Memory> {
        py.detach(|| {
            let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
            let sample = device.sample().ok()?.sample;
            Some((sample.used, sample.free, sample.total, sample.driver_reserved))
        })
    }

    /// The processes on it and the bytes each holds; `None` when the driver does not tell.
    fn processes(&self, py: Python<'_>) -> Option<Vec<(u32, Option<u64>)>> {
        py.detach(|| {
            let device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
            let found = device.processes().ok()?;
            Some(found.into_iter().map(|process| (process.pid, process.used)).collect())
        })
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Gpu>()
}
