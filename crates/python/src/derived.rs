//! The derived fields of events in any shape Python has them: objects with attributes, or mappings.

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyMapping, PyString};
use stormlog_model::{DerivedFields, DerivedInputs, SessionDerived, is_degraded_collector};

/// The derived fields of one event: `stormlog.derived_fields.DerivedFields`.
#[pyfunction]
fn derive_event<'py>(event: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let derived = derive(event)?;
    let degraded = match present(event, "collector")? {
        Some(collector) => is_degraded_collector(collector.cast::<PyString>()?.to_str()?),
        None => false,
    };
    let named = PyDict::new(event.py());
    named.set_item("allocator_gap_bytes", derived.allocator_gap_bytes)?;
    named.set_item("utilization_ratio", derived.utilization_ratio)?;
    named.set_item("fragmentation_ratio", derived.fragmentation_ratio)?;
    named.set_item("allocator_cache_ratio", derived.allocator_cache_ratio)?;
    named.set_item("is_degraded_collector", degraded)?;
    Ok(named)
}

/// The highest utilisation and the mean fragmentation over events.
#[pyfunction]
fn derive_session(events: &Bound<'_, PyAny>) -> PyResult<(Option<f64>, Option<f64>)> {
    let mut session = SessionDerived::default();
    for event in events.try_iter()? {
        session.observe(&derive(&event?)?);
    }
    Ok((session.peak_utilization_ratio(), session.avg_fragmentation_ratio()))
}

/// False only where the event says of itself that its collector cannot do this: silence is not a no.
#[pyfunction]
pub(crate) fn memory_feature_enabled(event: &Bound<'_, PyAny>, feature: &str) -> PyResult<bool> {
    let Some(metadata) = present(event, "metadata")? else { return Ok(true) };
    if metadata.cast::<PyMapping>().is_err() {
        return Ok(true);
    }
    let Some(capabilities) = present(&metadata, "memory_capabilities")? else { return Ok(true) };
    if capabilities.cast::<PyMapping>().is_err() {
        return Ok(true);
    }
    let denied = |value: Bound<'_, PyAny>| value.cast::<PyBool>().is_ok_and(|flag| !flag.is_true());
    Ok(!present(&capabilities, feature)?.is_some_and(denied))
}

pub(crate) fn derive(event: &Bound<'_, PyAny>) -> PyResult<DerivedFields> {
    let allocated = integer(event, "allocator_allocated_bytes")?;
    let mut inputs = DerivedInputs {
        allocated,
        reserved: integer(event, "allocator_reserved_bytes")?,
        inactive: integer(event, "allocator_inactive_bytes")?,
        in_use: allocated,
        total: integer(event, "device_total_bytes")?,
        fragmentation_enabled: memory_feature_enabled(event, "supports_fragmentation_analysis")?,
    };
    if inputs.inactive.is_some() && !memory_feature_enabled(event, "supports_allocator_inactive")? {
        inputs.inactive = None;
    }
    if allocated.is_none() || !memory_feature_enabled(event, "supports_allocator_allocated")? {
        inputs.in_use = integer(event, "device_used_bytes")?.or(allocated);
    }
    Ok(DerivedFields::of(&inputs))
}

/// What an event has under a name; `None` also where it has Python's None.
pub(crate) fn present<'py>(event: &Bound<'py, PyAny>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    let value = if event.cast::<PyMapping>().is_ok() {
        event.call_method1("get", (name,))?
    } else {
        match event.getattr_opt(name)? {
            Some(value) => value,
            None => return Ok(None),
        }
    };
    Ok((!value.is_none()).then_some(value))
}

/// A counter as `int()` reads it.
pub(crate) fn integer(event: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<i128>> {
    let Some(value) = present(event, name)? else { return Ok(None) };
    let number = value.py().get_type::<PyInt>().call1((value,))?;
    let number = number.extract().map_err(|_| PyOverflowError::new_err(format!("{name} is out of range")))?;
    Ok(Some(number))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(derive_event, module)?)?;
    module.add_function(wrap_pyfunction!(derive_session, module)?)?;
    module.add_function(wrap_pyfunction!(memory_feature_enabled, module)?)
}
