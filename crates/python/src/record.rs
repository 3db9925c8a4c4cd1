//! A Python mapping as the rules see it, and an event as Python sees it.
//!
//! The rules look at JSON values, but a mapping from Python may hold anything. So each value is shown to the rules
//! as far as they look, and whatever they do not look at (nested metadata, objects of the caller) is kept and
//! given back untouched. Nothing may be rounded or replaced on the way: a number the rules cannot hold is refused.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple, PyType};
use pyo3::{IntoPyObjectExt, intern};
use serde_json::{Map, Number, Value};
use stormlog_model::{Counter, Event, Field, Head, Record, SCHEMA_LATEST};

const CAPABILITIES: &str = "memory_capabilities";
const LEGACY_METADATA: &str = "metadata_";
/// Free-form data nested deeper than this, as data in itself is, is refused: the reader of a file stops there, too.
const MAX_DEPTH: usize = 100;

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
pub(crate) struct PythonRecord<'py> {
    /// What the rules see.
    pub record: Record,
    /// A copy of the mapping that no other thread can change meanwhile.
    items: Bound<'py, PyDict>,
}

impl<'py> PythonRecord<'py> {
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
        Ok(PythonRecord { record, items })
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
            // A lone surrogate, as in a file name that is not UTF-8: files could not hold it.
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

/// Stands for what is there but is not a scalar: every rule for a text, number, flag or object refuses it.
fn opaque() -> Value {
    Value::Array(Vec::new())
}

/// What becomes of a value without a JSON form.
#[derive(Clone, Copy)]
pub(crate) enum Foreign {
    /// Its text, as in `json.dumps(…, default=str)`.
    Text,
    /// What every rule refuses; a tuple, too, which is not the list that rules ask for.
    Opaque,
    /// An error.
    Refused,
}

/// Free-form data of the caller as JSON.
pub(crate) fn free_form(value: &Bound<'_, PyAny>, foreign: Foreign) -> PyResult<Record> {
    match free_form_at(value, foreign, 0)? {
        Value::Object(record) => Ok(record),
        _ => Err(PyValueError::new_err("record must be a mapping")),
    }
}

fn free_form_at(value: &Bound<'_, PyAny>, foreign: Foreign, depth: usize) -> PyResult<Value> {
    if depth > MAX_DEPTH {
        if matches!(foreign, Foreign::Opaque) {
            return Ok(Value::Array(vec![opaque()]));
        }
        return Err(PyValueError::new_err(format!(
            "nested deeper than {MAX_DEPTH} levels, or contains itself"
        )));
    }
    match show(value) {
        Shown::Json(shown) => return Ok(shown),
        Shown::Text(text) => return Ok(text.to_string_lossy().into_owned().into()),
        Shown::Huge | Shown::NotFinite | Shown::Opaque => {}
    }
    let is_exact = matches!(foreign, Foreign::Opaque);
    if value.is_instance_of::<PyList>() || (value.is_instance_of::<PyTuple>() && !is_exact) {
        return value.try_iter()?.map(|item| free_form_at(&item?, foreign, depth + 1)).collect();
    }
    // A copy, because the text of a value may run code that changes the original.
    if let Some(items) = as_dict(value)? {
        let mut record = Record::with_capacity(items.len());
        for (key, value) in items.iter() {
            let name = key.str()?.to_string_lossy().into_owned();
            record.insert(name, free_form_at(&value, foreign, depth + 1)?);
        }
        return Ok(Value::Object(record));
    }
    match foreign {
        Foreign::Text => Ok(value.str()?.to_string_lossy().into_owned().into()),
        // A list of lists: no rule asks for one.
        Foreign::Opaque => Ok(Value::Array(vec![opaque()])),
        Foreign::Refused => Err(PyTypeError::new_err(format!(
            "not a value that can be stored: {}",
            value.repr()?.to_string_lossy()
        ))),
    }
}

/// An object of a dataclass with its fields set by name, without `__init__`: the values need no check.
pub(crate) fn instance<'py, const N: usize>(
    class: &Bound<'py, PyType>,
    fields: [(&Bound<'py, PyString>, Bound<'py, PyAny>); N],
) -> PyResult<Bound<'py, PyAny>> {
    let made = class.call_method1(intern!(class.py(), "__new__"), (class,))?;
    for (name, value) in fields {
        made.setattr(name, value)?;
    }
    Ok(made)
}

/// What a head holds, as Python objects that several events may share.
pub(crate) struct HeadObjects {
    session_id: Py<PyAny>,
    event_type: Py<PyAny>,
    collector: Py<PyAny>,
    sampling_interval_ms: Py<PyAny>,
    pid: Py<PyAny>,
    host: Py<PyAny>,
    device_id: Py<PyAny>,
    job_id: Py<PyAny>,
    rank: Py<PyAny>,
    local_rank: Py<PyAny>,
    world_size: Py<PyAny>,
}

impl HeadObjects {
    pub(crate) fn of(py: Python<'_>, head: &Head) -> PyResult<Self> {
        let identity = &head.identity;
        Ok(HeadObjects {
            session_id: (&head.session_id).into_py_any(py)?,
            event_type: (&head.event_type).into_py_any(py)?,
            collector: (&head.collector).into_py_any(py)?,
            sampling_interval_ms: head.sampling_interval_ms.into_py_any(py)?,
            pid: head.pid.into_py_any(py)?,
            host: (&head.host).into_py_any(py)?,
            device_id: head.device_id.into_py_any(py)?,
            job_id: identity.job_id.as_deref().into_py_any(py)?,
            rank: identity.rank.into_py_any(py)?,
            local_rank: identity.local_rank.into_py_any(py)?,
            world_size: identity.world_size.into_py_any(py)?,
        })
    }
}

/// An event of the Python class. Setting 23 attributes by name costs 0.2 µs an event more than a tuple that Python
/// unpacks (1.4 against 1.2 µs), in the order of the class, so that all events share their keys.
pub(crate) fn event_object<'py>(
    class: &Bound<'py, PyType>,
    event: &Event,
    head: &HeadObjects,
    metadata: Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    let counter = |counter| event.counters.get(counter).into_bound_py_any(py);
    let of_head = |value: &Py<PyAny>| value.bind(py).clone();
    let fields = [
        (intern!(py, "schema_version"), SCHEMA_LATEST.number().into_bound_py_any(py)?),
        (intern!(py, "session_id"), of_head(&head.session_id)),
        (intern!(py, "timestamp_ns"), event.timestamp_ns.into_bound_py_any(py)?),
        (intern!(py, "event_type"), of_head(&head.event_type)),
        (intern!(py, "collector"), of_head(&head.collector)),
        (intern!(py, "sampling_interval_ms"), of_head(&head.sampling_interval_ms)),
        (intern!(py, "pid"), of_head(&head.pid)),
        (intern!(py, "host"), of_head(&head.host)),
        (intern!(py, "device_id"), of_head(&head.device_id)),
        (intern!(py, "allocator_allocated_bytes"), counter(Counter::Allocated)?),
        (intern!(py, "allocator_reserved_bytes"), counter(Counter::Reserved)?),
        (intern!(py, "allocator_active_bytes"), counter(Counter::Active)?),
        (intern!(py, "allocator_inactive_bytes"), counter(Counter::Inactive)?),
        (intern!(py, "allocator_change_bytes"), event.counters.change().into_bound_py_any(py)?),
        (intern!(py, "device_used_bytes"), counter(Counter::Used)?),
        (intern!(py, "device_free_bytes"), counter(Counter::Free)?),
        (intern!(py, "device_total_bytes"), counter(Counter::Total)?),
        (intern!(py, "context"), event.context.as_deref().into_bound_py_any(py)?),
        (intern!(py, "job_id"), of_head(&head.job_id)),
        (intern!(py, "rank"), of_head(&head.rank)),
        (intern!(py, "local_rank"), of_head(&head.local_rank)),
        (intern!(py, "world_size"), of_head(&head.world_size)),
        (intern!(py, "metadata"), metadata.into_any()),
    ];
    instance(class, fields)
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
