//! The exception classes of heap recordings and captures.
//!
//! `HeapError` is the class that programs catch. What is wrong with a capture has a class of its own, which is also
//! the built-in that a caller expects: `FileNotFoundError`, `PermissionError`, `OSError` or `ValueError`.

use pyo3::create_exception;
use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyPermissionError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

create_exception!(
    stormlog.heap,
    HeapError,
    PyRuntimeError,
    "A heap recording that could not be started or stopped, or a capture that could not be read."
);

/// What went wrong, as the class that is raised for it.
#[derive(Clone, Copy)]
pub(crate) enum HeapErrorKind {
    /// A recording that could not be started or stopped, or a query that a capture cannot answer: `HeapError`.
    Recording,
    /// There is no capture at the path.
    Missing,
    /// The capture may not be read.
    Permission,
    /// The system refused for another reason.
    Io,
    /// Not a capture, or a damaged one.
    Format,
    /// A capture of a release that is newer than this one.
    Version,
    /// An unknown query.
    Value,
}

/// The classes beside `HeapError`, made once.
struct Classes {
    missing: Py<PyType>,
    permission: Py<PyType>,
    io: Py<PyType>,
    format: Py<PyType>,
    version: Py<PyType>,
    value: Py<PyType>,
}

static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();

fn classes(py: Python<'_>) -> PyResult<&Classes> {
    CLASSES.get_or_try_init(py, || {
        let heap = py.get_type::<HeapError>();
        // The built-in comes first: its constructor takes the number, the text and the path.
        let both = |name, doc, other: Bound<'_, PyType>| class(name, doc, PyTuple::new(py, [&other, &heap])?);
        let format = both(
            "CaptureFormatError",
            "Not a heap capture, or a damaged one.",
            py.get_type::<PyValueError>(),
        )?;
        let of_format = PyTuple::new(py, [format.bind(py)])?;
        Ok(Classes {
            missing: both(
                "CaptureNotFoundError",
                "There is no heap capture at the path.",
                py.get_type::<PyFileNotFoundError>(),
            )?,
            permission: both(
                "CapturePermissionError",
                "The capture may not be read.",
                py.get_type::<PyPermissionError>(),
            )?,
            io: both("CaptureIOError", "The capture could not be read.", py.get_type::<PyOSError>())?,
            value: both(
                "HeapValueError",
                "An argument that is not one of the known values.",
                py.get_type::<PyValueError>(),
            )?,
            version: class(
                "CaptureVersionError",
                "A capture that was written by a newer release; upgrade stormlog to read it.",
                of_format,
            )?,
            format,
        })
    })
}

/// A class with these bases, made as a `class` statement would: `PyErr::new_type` takes one base only.
fn class(name: &str, doc: &str, bases: Bound<'_, PyTuple>) -> PyResult<Py<PyType>> {
    let py = bases.py();
    let attributes = PyDict::new(py);
    attributes.set_item("__module__", "stormlog.heap")?;
    attributes.set_item("__doc__", doc)?;
    let made = py.get_type::<PyType>().call1((name, bases, attributes))?;
    Ok(made.cast_into::<PyType>()?.unbind())
}

impl HeapErrorKind {
    /// The exception with these constructor arguments.
    pub(crate) fn new_err<A>(self, arguments: A) -> PyErr
    where
        A: pyo3::PyErrArguments + Send + Sync + 'static,
    {
        Python::attach(|py| match self.class(py) {
            Ok(class) => PyErr::from_type(class, arguments),
            Err(error) => error,
        })
    }

    fn class<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyType>> {
        let classes = classes(py)?;
        let class = match self {
            HeapErrorKind::Recording => return Ok(py.get_type::<HeapError>()),
            HeapErrorKind::Missing => &classes.missing,
            HeapErrorKind::Permission => &classes.permission,
            HeapErrorKind::Io => &classes.io,
            HeapErrorKind::Format => &classes.format,
            HeapErrorKind::Version => &classes.version,
            HeapErrorKind::Value => &classes.value,
        };
        Ok(class.bind(py).clone())
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let classes = classes(py)?;
    module.add("HeapError", py.get_type::<HeapError>())?;
    module.add("CaptureNotFoundError", &classes.missing)?;
    module.add("CapturePermissionError", &classes.permission)?;
    module.add("CaptureIOError", &classes.io)?;
    module.add("CaptureFormatError", &classes.format)?;
    module.add("CaptureVersionError", &classes.version)?;
    module.add("HeapValueError", &classes.value)
}
