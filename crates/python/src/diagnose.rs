//! The bundle of `diagnose` for the program that looks at itself: directory and report are `catalog::diagnose`'s.

use std::path::PathBuf;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Map, Value};
use stormlog_catalog::diagnose::{
    DirectoryError, ENVIRONMENT, FRAGMENTATION, Facts, HIGH_UTILIZATION, MANIFEST, MANIFEST_VERSION, REPORT,
    SUMMARY, TIMELINE, Tool, new_directory, obstacle, report,
};

use crate::record::to_python;

/// The numbers and the words of a summary that a report repeats.
#[pyclass(frozen)]
struct DiagnoseSummary {
    values: Map<String, Value>,
}

/// A number as JSON has it; what is not finite is unknown.
#[derive(FromPyObject)]
enum Metric {
    Whole(i64),
    Float(f64),
}

#[pymethods]
impl DiagnoseSummary {
    #[new]
    fn new(
        backend: Option<String>,
        risk_flags: &Bound<'_, PyDict>,
        metrics: &Bound<'_, PyDict>,
        suggestions: Vec<String>,
    ) -> PyResult<Self> {
        let mut values = Map::new();
        values.insert("backend".to_owned(), backend.into());
        let mut flags = Map::new();
        for (flag, is_raised) in risk_flags.iter() {
            flags.insert(flag.extract()?, is_raised.extract::<bool>()?.into());
        }
        for (name, number) in metrics.iter() {
            let value = match number.extract::<Option<Metric>>()? {
                Some(Metric::Whole(number)) => number.into(),
                Some(Metric::Float(number)) => number.into(),
                None => Value::Null,
            };
            values.insert(name.extract()?, value);
        }
        values.insert("risk_flags".to_owned(), Value::Object(flags));
        values.insert("suggestions".to_owned(), suggestions.into());
        Ok(DiagnoseSummary { values })
    }
}

/// What prevents a directory there, if anything.
#[pyfunction]
fn diagnose_obstacle(output: PathBuf) -> Option<PathBuf> {
    obstacle(&output)
}

/// Makes the private directory of a bundle.
#[pyfunction]
fn diagnose_directory(output: Option<PathBuf>, prefix: &str) -> PyResult<PathBuf> {
    new_directory(output.as_deref(), prefix).map_err(|error| match &error {
        DirectoryError::NotADirectory(_) => PyValueError::new_err(error.to_string()),
        DirectoryError::Create { path, source } => match source.raw_os_error() {
            Some(number) => PyOSError::new_err((number, source.to_string(), path.clone().into_os_string())),
            None => PyOSError::new_err(error.to_string()),
        },
        DirectoryError::TooMany(_) => PyOSError::new_err(error.to_string()),
    })
}

/// The report of one bundle, as a dictionary.
#[pyfunction]
#[pyo3(signature = (summary, *, tool_name, tool_version, exit_code, status, session_id, files, thresholds, error,
    generated_at_utc))]
#[expect(clippy::too_many_arguments, reason = "named arguments of one Python call")]
fn diagnose_report<'py>(
    py: Python<'py>,
    summary: &DiagnoseSummary,
    tool_name: &str,
    tool_version: &str,
    exit_code: u8,
    status: &str,
    session_id: &str,
    files: Vec<String>,
    thresholds: &Bound<'_, PyDict>,
    error: Option<&str>,
    generated_at_utc: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let mut limits: Vec<(String, f64)> = Vec::new();
    for (flag, threshold) in thresholds.iter() {
        limits.push((flag.extract()?, threshold.extract()?));
    }
    let limits: Vec<(&str, f64)> = limits.iter().map(|(flag, limit)| (flag.as_str(), *limit)).collect();
    let found = report(&Facts {
        tool: Tool { name: tool_name, version: tool_version, argv: None },
        summary: &summary.values,
        thresholds: &limits,
        session_id,
        files: &files,
        exit: (exit_code, status),
        error,
        generated_at_utc,
    });
    to_python(py, &found)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("DIAGNOSE_REPORT_FILE", REPORT)?;
    module.add("DIAGNOSE_MANIFEST_FILE", MANIFEST)?;
    module.add("DIAGNOSE_SUMMARY_FILE", SUMMARY)?;
    module.add("DIAGNOSE_ENVIRONMENT_FILE", ENVIRONMENT)?;
    module.add("DIAGNOSE_TIMELINE_FILE", TIMELINE)?;
    module.add("DIAGNOSE_MANIFEST_VERSION", MANIFEST_VERSION)?;
    module.add("DIAGNOSE_HIGH_UTILIZATION", HIGH_UTILIZATION)?;
    module.add("DIAGNOSE_FRAGMENTATION", FRAGMENTATION)?;
    module.add_class::<DiagnoseSummary>()?;
    module.add_function(wrap_pyfunction!(diagnose_obstacle, module)?)?;
    module.add_function(wrap_pyfunction!(diagnose_directory, module)?)?;
    module.add_function(wrap_pyfunction!(diagnose_report, module)?)
}
