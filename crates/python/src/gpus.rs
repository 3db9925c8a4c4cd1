//! A GPU as its driver sees it: all processes, not only this one.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use stormlog_collect::{Collector, Gpu as Device, Roots, find_gpu};

/// The memory of a device in bytes; unknown is `None`. `driver_reserved` is what the driver keeps for itself.
#[pyclass(frozen, get_all, module = "stormlog._native.cuda")]
struct GpuMemory {
    used: Option<u64>,
    free: Option<u64>,
    total: Option<u64>,
    driver_reserved: Option<u64>,
}

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
    fn memory(&self, py: Python<'_>) -> Option<GpuMemory> {
        py.detach(|| {
            let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
            let sample = device.sample().ok()?.sample;
            Some(GpuMemory {
                used: sample.used,
                free: sample.free,
                total: sample.total,
                driver_reserved: sample.driver_reserved,
            })
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
    module.add_class::<Gpu>()?;
    module.add_class::<GpuMemory>()
}
