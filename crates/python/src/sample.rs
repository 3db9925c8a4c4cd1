//! A sample of a device, and what a collector answers with: the classes that cross in both directions.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use stormlog_track::{DeviceSample, Sampled};

/// The memory of a device or process at one moment, in bytes; what is not known is `None`.
#[pyclass(frozen, get_all, from_py_object, module = "stormlog._native.tracking")]
#[derive(Clone)]
pub(crate) struct Sample {
    device_id: i64,
    allocated: Option<u64>,
    reserved: Option<u64>,
    used: Option<u64>,
    free: Option<u64>,
    total: Option<u64>,
    active: Option<u64>,
    inactive: Option<u64>,
}

#[pymethods]
impl Sample {
    #[new]
    #[pyo3(signature = (device_id, *, allocated=None, reserved=None, used=None, free=None, total=None, active=None, inactive=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python constructor, one for each field")]
    fn new(
        device_id: i64,
        allocated: Option<u64>,
        reserved: Option<u64>,
        used: Option<u64>,
        free: Option<u64>,
        total: Option<u64>,
        active: Option<u64>,
        inactive: Option<u64>,
    ) -> Self {
        Sample { device_id, allocated, reserved, used, free, total, active, inactive }
    }
}

impl From<DeviceSample> for Sample {
    fn from(sample: DeviceSample) -> Self {
        let DeviceSample { device_id, used, free, total, allocated, reserved, active, inactive, .. } = sample;
        Sample { device_id, allocated, reserved, used, free, total, active, inactive }
    }
}

impl From<Sample> for DeviceSample {
    fn from(sample: Sample) -> Self {
        let Sample { device_id, allocated, reserved, used, free, total, active, inactive } = sample;
        DeviceSample {
            device_id,
            used,
            free,
            total,
            allocated,
            reserved,
            active,
            inactive,
            ..DeviceSample::default()
        }
    }
}

/// One reading of a collector: the sample, the fields it could not fill, why it failed, and other numbers by name.
#[pyclass(frozen, get_all, from_py_object, module = "stormlog._native.tracking")]
#[derive(Clone)]
pub(crate) struct Reading {
    sample: Option<Sample>,
    partial_fields: Vec<String>,
    error: Option<String>,
    facts: BTreeMap<String, i64>,
}

#[pymethods]
impl Reading {
    #[new]
    #[pyo3(signature = (sample, *, partial_fields=Vec::new(), error=None, facts=BTreeMap::new()))]
    fn new(
        sample: Option<Sample>,
        partial_fields: Vec<String>,
        error: Option<String>,
        facts: BTreeMap<String, i64>,
    ) -> Self {
        Reading { sample, partial_fields, error, facts }
    }
}

impl From<Sampled> for Reading {
    fn from(sampled: Sampled) -> Self {
        let Sampled { sample, partial_fields, error, .. } = sampled;
        Reading { sample: sample.map(Sample::from), partial_fields, error, facts: BTreeMap::new() }
    }
}

impl From<Reading> for Sampled {
    fn from(reading: Reading) -> Self {
        let Reading { sample, partial_fields, error, facts } = reading;
        Sampled {
            sample: sample.map(DeviceSample::from),
            partial_fields,
            error,
            facts: facts.into_iter().map(|(name, number)| (name, number.into())).collect(),
            ..Sampled::default()
        }
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Sample>()?;
    module.add_class::<Reading>()
}
