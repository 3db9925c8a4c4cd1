//! Figures, described by Python as JSON, drawn here.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use stormlog_render::plot::Figure;

use crate::error::raise;

/// A figure as `png`, `svg` or `html`. `scale` is for PNG: pixels for each unit of the picture.
#[pyfunction]
fn draw_figure<'py>(py: Python<'py>, figure: &str, form: &str, scale: f64) -> PyResult<Bound<'py, PyBytes>> {
    let drawn = py.detach(|| -> PyResult<Vec<u8>> {
        let figure: Figure = serde_json::from_str(figure).map_err(raise)?;
        match form {
            "png" => figure.png(scale).map_err(raise),
            "svg" => Ok(figure.svg().into_bytes()),
            "html" => Ok(figure.page().into_bytes()),
            other => Err(PyValueError::new_err(format!(
                "unknown format {other}: a figure is drawn as png, svg or html"
            ))),
        }
    })?;
    Ok(PyBytes::new(py, &drawn))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(draw_figure, module)?)
}
