//! Whose code a frame is and which frame of a stack is responsible, for Python: the rule of `stormlog_model::own_code`.

use pyo3::prelude::*;
use stormlog_model::own_code::{OwnCode, Strongest};

/// Whether code in `file` is the program's own: not an installed package's, the standard library's, PyTorch's or Stormlog's.
#[pyfunction]
fn is_own_code(file: &str) -> bool {
    OwnCode::default().source(file).is_own()
}

/// The place of the responsible frame in a stack of files given the innermost first; `None` of an empty one.
#[pyfunction]
fn responsible_frame(files: Vec<String>) -> Option<usize> {
    let own_code = OwnCode::default();
    Strongest::of(0..files.len(), |at| own_code.source(&files[*at]))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(is_own_code, module)?)?;
    module.add_function(wrap_pyfunction!(responsible_frame, module)?)
}
