//! A Python mapping as the rules see it, and an event as Python sees it.
//!
//! The rules look at JSON values, but a mapping from Python may hold anything. So each value is shown to the rules
//! as far as they look, and whatever they do not look at (nested metadata, objects of the caller) is kept and
//! given back untouched. Nothing may be rounded or replaced on the way: a number the rules cannot hold is refused.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};
use serde_json::{Map, Number, Value};
use stormlog_model::{Counter, Event, Field, Head, Record, SCHEMA_LATEST};

const CAPABILITIES: &str = "memory_capabilities";
const LEGACY_METADATA: &str = "metadata_";

/// Integers outside the schemas: those of legacy records and of session summaries.
const OTHER_INTEGERS: [&str; 13] = [
    "active_memory",
    "device_free",
    "device_total",
    "device_used",
    "ended_at_ns",
    "inactive_memory",
    "memory_allocated",
    "memory_change",
    "memory_reserved",
    "started_at_ns",
    "timestamp",
    "total_bytes",
    "total_memory",
];

/// A record handed in from Python.
pub(crate) struct Given<'py> {
    /// What the rules see.
    pub record: Record,
    /// A copy of the mapping that nobody else can change meanwhile.
    items: Bound<'py, PyDict>,
}

impl<'py> Given<'py> {
    /// Reads any mapping.
    pub fn of(mapping: &Bound<'py, PyAny>) -> PyResult<Self> {
        let Some(items) = as_dict(mapping)? else {
            return Err(PyValueError::new_err("record must be a mapping"));
        };
        let has_schema = items.contains("schema_version")?;
        let mut record = Record::with_capacity(items.len());
        for (key, value) in items.iter() {
            let name = key.str()?.to_string_lossy().into_owned();
            let shown = if name == "metadata" {
                metadata(&value, has_schema)?
            } else if name.starts_with(LEGACY_METADATA) {
                shown_or_opaque(&value)
            } else {
                top_level(&name, &value)?
            };
            record.insert(name, shown);
        }
        Ok(Given { record, items })
    }

    /// Adds a value the record does not have.
    pub fn or_insert(&mut self, key: &str, value: &Bound<'py, PyAny>) -> PyResult<()> {
        if !self.record.contains_key(key) {
            self.record.insert(key.to_owned(), top_level(key, value)?);
        }
        Ok(())
    }

    /// The metadata of the event made of this record: the caller's own objects, less what was taken out of it,
    /// plus what was inferred.
    pub fn metadata(&self, event: &Event) -> PyResult<Bound<'py, PyDict>> {
        let py = self.items.py();
        let given = match self.items.get_item("metadata")? {
            Some(value) => as_dict(&value)?,
            None => None,
        };
        let result = given.unwrap_or_else(|| PyDict::new(py));
        if !self.record.contains_key("schema_version") {
            for (key, value) in self.items.iter() {
                let Ok(key) = key.cast::<PyString>() else { continue };
                if let Some(name) = key.to_string_lossy().strip_prefix(LEGACY_METADATA) {
                    result.set_item(name, value)?;
                }
            }
            for key in result.keys() {
                let taken_out = key
                    .cast::<PyString>()
                    .is_ok_and(|key| key.to_str().is_ok_and(|name| !event.metadata.map.contains_key(name)));
                if taken_out {
                    result.del_item(key)?;
                }
            }
        }
        if event.metadata.inferred
            && let Some(capabilities) = event.metadata.map.get(CAPABILITIES)
        {
            result.set_item(CAPABILITIES, to_python(py, capabilities)?)?;
        }
        Ok(result)
    }
}

/// A fresh dictionary of a mapping; `None` when it is none.
pub(crate) fn as_dict<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyDict>>> {
    if let Ok(dict) = value.cast::<PyDict>() {
        return dict.copy().map(Some);
    }
    if value.cast::<PyMapping>().is_err() {
        return Ok(None);
    }
    let dict = value.py().get_type::<PyDict>().call1((value,))?;
    Ok(Some(dict.cast_into::<PyDict>()?))
}

/// One explicit value, under the name its errors carry.
pub(crate) fn top_level(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    match show(value) {
        Shown::Json(shown) => Ok(shown),
        Shown::Text(text) => match text.to_str() {
            Ok(text) => Ok(Value::String(text.to_owned())),
            // A lone surrogate, as in a file name that is no UTF-8: files could not hold it.
            Err(_) => Err(PyValueError::new_err(format!("{name} must be valid Unicode"))),
        },
        Shown::Huge if Field::of_name(name).is_some() || OTHER_INTEGERS.contains(&name) => {
            Err(PyValueError::new_err(format!("{name} does not fit 64 bits: {}", value.str()?)))
        }
        Shown::NotFinite if ["timestamp", "memory_mb"].contains(&name) => {
            Err(PyValueError::new_err(format!("{name} must be a finite number, not {}", value.str()?)))
        }
        Shown::Huge | Shown::NotFinite | Shown::Opaque => Ok(opaque()),
    }
}

/// Metadata as deep as the rules look: its own values, and those of the capabilities.
pub(crate) fn metadata(value: &Bound<'_, PyAny>, only_dict: bool) -> PyResult<Value> {
    if value.is_none() {
        return Ok(Value::Null);
    }
    if only_dict && !value.is_instance_of::<PyDict>() {
        return Ok(opaque());
    }
    let Some(items) = as_dict(value)? else { return Ok(opaque()) };
    let mut shown = Map::with_capacity(items.len());
    for (key, value) in items.iter() {
        let Ok(key) = key.cast::<PyString>() else { continue };
        let name = key.to_string_lossy().into_owned();
        let value = match name.as_str() {
            CAPABILITIES => capabilities(&value)?,
            // Only its text is ever asked for.
            "sampling_source" => Value::String(value.str()?.to_string_lossy().into_owned()),
            _ => shown_or_opaque(&value),
        };
        shown.insert(name, value);
    }
    Ok(Value::Object(shown))
}

fn capabilities(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    let Some(items) = as_dict(value)? else { return Ok(opaque()) };
    let mut shown = Map::with_capacity(items.len());
    for (key, value) in items.iter() {
        shown.insert(key.str()?.to_string_lossy().into_owned(), shown_or_opaque(&value));
    }
    Ok(Value::Object(shown))
}

enum Shown<'a, 'py> {
    Json(Value),
    Text(&'a Bound<'py, PyString>),
    Huge,
    NotFinite,
    Opaque,
}

fn show<'a, 'py>(value: &'a Bound<'py, PyAny>) -> Shown<'a, 'py> {
    if value.is_none() {
        return Shown::Json(Value::Null);
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Shown::Text(text);
    }
    if let Ok(flag) = value.cast::<PyBool>() {
        return Shown::Json(Value::Bool(flag.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        let signed = value.extract::<i64>().map(Value::from);
        let number = signed.or_else(|_| value.extract::<u64>().map(Value::from));
        return number.map_or(Shown::Huge, Shown::Json);
    }
    if let Ok(float) = value.cast::<PyFloat>() {
        return Number::from_f64(float.value()).map_or(Shown::NotFinite, |n| Shown::Json(Value::Number(n)));
    }
    Shown::Opaque
}

fn shown_or_opaque(value: &Bound<'_, PyAny>) -> Value {
    match show(value) {
        Shown::Json(shown) => shown,
        Shown::Text(text) => Value::String(text.to_string_lossy().into_owned()),
        Shown::Huge | Shown::NotFinite | Shown::Opaque => opaque(),
    }
}

/// Stands for what is there but is no scalar: every rule for a text, number, flag or object refuses it.
fn opaque() -> Value {
    Value::Array(Vec::new())
}

/// The fields of an event in the order of the Python class.
pub(crate) fn fields<'py>(
    py: Python<'py>,
    event: &Event,
    metadata: Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyTuple>> {
    counter_fields(py, event, &head_fields(py, &event.head)?, metadata)
}

/// What a head holds, in the order of the Python class.
pub(crate) fn head_fields<'py>(py: Python<'py>, head: &Head) -> PyResult<Bound<'py, PyTuple>> {
    let identity = &head.identity;
    (
        &head.session_id,
        &head.event_type,
        &head.collector,
        head.sampling_interval_ms,
        head.pid,
        &head.host,
        head.device_id,
        identity.job_id.as_deref(),
        identity.rank,
        identity.local_rank,
        identity.world_size,
    )
        .into_pyobject(py)
}

/// The fields of an event whose head is made already.
pub(crate) fn counter_fields<'py>(
    py: Python<'py>,
    event: &Event,
    head: &Bound<'py, PyTuple>,
    metadata: Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyTuple>> {
    let number = |value: Option<u64>| value.into_pyobject(py);
    let counter = |counter| number(event.counters.get(counter));
    let of_head = |index| head.get_item(index);
    let fields = [
        SCHEMA_LATEST.number().into_pyobject(py)?.into_any(),
        of_head(0)?,
        event.timestamp_ns.into_pyobject(py)?.into_any(),
        of_head(1)?,
        of_head(2)?,
        of_head(3)?,
        of_head(4)?,
        of_head(5)?,
        of_head(6)?,
        counter(Counter::Allocated)?,
        counter(Counter::Reserved)?,
        counter(Counter::Active)?,
        counter(Counter::Inactive)?,
        event.counters.change().into_pyobject(py)?,
        counter(Counter::Used)?,
        counter(Counter::Free)?,
        counter(Counter::Total)?,
        event.context.as_deref().into_pyobject(py)?,
        of_head(7)?,
        of_head(8)?,
        of_head(9)?,
        of_head(10)?,
        metadata.into_any(),
    ];
    PyTuple::new(py, fields)
}

/// A decoded JSON value as Python objects of its own.
pub(crate) fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(flag) => PyBool::new(py, *flag).to_owned().into_any(),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(signed), _) => signed.into_pyobject(py)?.into_any(),
            (_, Some(unsigned)) => unsigned.into_pyobject(py)?.into_any(),
            _ => PyFloat::new(py, number.as_f64().unwrap_or(f64::NAN)).into_any(),
        },
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Array(values) => {
            let list = PyList::empty(py);
            for value in values {
                list.append(to_python(py, value)?)?;
            }
            list.into_any()
        }
        Value::Object(map) => object_to_python(py, map)?.into_any(),
    })
}

/// A decoded JSON object as a dictionary of its own.
pub(crate) fn object_to_python<'py>(py: Python<'py>, map: &Record) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in map {
        dict.set_item(key, to_python(py, value)?)?;
    }
    Ok(dict)
}
