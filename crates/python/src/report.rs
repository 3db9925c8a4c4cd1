//! A report of the caller, checked by the catalog's rules: `stormlog.report`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString};
use stormlog_catalog::report_check::{self, ReportNumber, ReportValue};

use crate::record::as_dict;

struct PythonValue<'py>(Bound<'py, PyAny>);

impl PythonValue<'_> {
    /// A text without lone surrogates; with one it is what replaces them.
    fn text_of(text: PyResult<Bound<'_, PyString>>) -> String {
        text.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

impl ReportValue for PythonValue<'_> {
    fn is_null(&self) -> bool {
        self.0.is_none()
    }

    fn text(&self) -> Option<String> {
        self.0.cast::<PyString>().ok().map(|text| text.to_string_lossy().into_owned())
    }

    fn number(&self) -> Option<ReportNumber> {
        if self.0.is_instance_of::<PyBool>() {
            return None;
        }
        if self.0.is_instance_of::<PyInt>() {
            let largest = if self.0.lt(0).unwrap_or(false) { i128::MIN } else { i128::MAX };
            return Some(ReportNumber::Whole(self.0.extract().unwrap_or(largest)));
        }
        self.0.cast::<PyFloat>().ok().map(|float| ReportNumber::Float(float.value()))
    }

    fn items(&self) -> Option<Vec<Self>> {
        self.0.cast::<PyList>().ok().map(|list| list.iter().map(PythonValue).collect())
    }

    fn entries(&self) -> Option<Vec<(Result<String, String>, Self)>> {
        let items: Bound<'_, PyDict> = as_dict(&self.0).ok()??;
        let entry = |(key, value): (Bound<'_, PyAny>, _)| {
            let text = Self::text_of(key.str());
            (if key.is_instance_of::<PyString>() { Ok(text) } else { Err(text) }, PythonValue(value))
        };
        Some(items.iter().map(entry).collect())
    }

    fn shown(&self) -> String {
        Self::text_of(self.0.str())
    }

    fn quoted(&self) -> String {
        Self::text_of(self.0.repr())
    }
}

/// Checks a report: `ValueError` for the first rule it breaks.
#[pyfunction]
fn check_report(report: Bound<'_, PyAny>) -> PyResult<()> {
    report_check::check(&PythonValue(report)).map_err(|error| PyValueError::new_err(error.to_string()))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("REPORT_FORMAT", report_check::FORMAT)?;
    module.add("REPORT_SCHEMA_VERSION", report_check::SCHEMA_VERSION)?;
    module.add("REPORT_SEVERITIES", report_check::SEVERITIES.to_vec())?;
    module.add(
        "VERDICT_STATUSES",
        report_check::STATUSES.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
    )?;
    module.add_function(wrap_pyfunction!(check_report, module)?)
}
