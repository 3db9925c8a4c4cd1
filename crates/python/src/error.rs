//! The only place that turns our errors into Python exceptions: one enum, one conversion from every library error.
//!
//! What the operating system refused is the `OSError` its number stands for (`FileNotFoundError`, `PermissionError`, …);
//! a value or a file with the wrong content is a `ValueError` whose text is the whole sentence; what cannot be done now
//! is a `RuntimeError`. Errors about heap captures are also a `HeapError`, the class that callers of `stormlog.heap`
//! catch.

use std::io;
use std::path::Path;

use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use stormlog_alert::alerts::ThresholdError;
use stormlog_analyze::rank_diagnostics::RankFilterError;
use stormlog_capture::CaptureError;
use stormlog_catalog::captures::CaptureSearchError;
use stormlog_catalog::query::QueryError;
use stormlog_catalog::request::RequestError;
use stormlog_collect::CollectError;
use stormlog_cupti::CuptiError;
use stormlog_heap::HeapError as ReadError;
use stormlog_heap_report::ViewError;
use stormlog_model::Problem;
use stormlog_model::memory::UnknownMemory;
use stormlog_model::phases::PhaseError;
use stormlog_postmortem::bundle::BundleError;
use stormlog_render::plot::PngError;
use stormlog_store::StoreError;
use stormlog_store::sink::SinkError;
use stormlog_torch::{SettingsError, SnapshotError};
use stormlog_track::StartError;

use crate::heap_error::HeapErrorKind;

/// Every error that can cross into Python.
pub(crate) enum Error {
    /// A rule that a record or a value breaks.
    Problem(Problem),
    RankFilter(RankFilterError),
    Store(StoreError),
    Sink(SinkError),
    Query(QueryError),
    Request(RequestError),
    Collect(CollectError),
    Start(StartError),
    Bundle(BundleError),
    Phase(PhaseError),
    Threshold(ThresholdError),
    Snapshot(SnapshotError),
    Settings(SettingsError),
    Figure(PngError),
    Cupti(CuptiError),
    /// A heap capture that cannot be read.
    Capture(ViewError),
    /// A recording library that cannot be installed.
    HookImage(stormlog_hook_image::Error),
    /// A heap recording that cannot be started or stopped; the text is the whole sentence.
    Heap(String),
    /// The name of a memory that is not one.
    Memory(UnknownMemory),
    /// A text that is not the JSON it has to be.
    Json(serde_json::Error),
}

macro_rules! from {
    ($($variant:ident: $error:ty),* $(,)?) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Error::$variant(error)
            }
        })*
    };
}

from! {
    Problem: Problem,
    RankFilter: RankFilterError,
    Store: StoreError,
    Sink: SinkError,
    Query: QueryError,
    Request: RequestError,
    Collect: CollectError,
    Start: StartError,
    Bundle: BundleError,
    Phase: PhaseError,
    Threshold: ThresholdError,
    Snapshot: SnapshotError,
    Settings: SettingsError,
    Figure: PngError,
    Cupti: CuptiError,
    Capture: ViewError,
    HookImage: stormlog_hook_image::Error,
    Memory: UnknownMemory,
    Json: serde_json::Error,
}

/// For `map_err`: any library error as the exception it stands for.
pub(crate) fn raise(error: impl Into<Error>) -> PyErr {
    error.into().into()
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        match error {
            Error::Query(QueryError::Interrupted) => PyKeyboardInterrupt::new_err(()),
            Error::Query(error) => PyValueError::new_err(error.to_string()),
            Error::Problem(problem) => PyValueError::new_err(problem.message),
            Error::Request(RequestError::Io { path, source }) => from_io(&path, &source),
            Error::Request(error) => PyRuntimeError::new_err(error.to_string()),
            Error::RankFilter(error) => PyValueError::new_err(error.to_string()),
            Error::Store(error) => from_store(error),
            Error::Sink(error) => from_sink(error),
            Error::Start(StartError::Sink(error)) => from_sink(error),
            Error::Start(error) => PyRuntimeError::new_err(error.to_string()),
            Error::Collect(CollectError::Io { path, source }) => from_io(&path, &source),
            Error::Collect(error) => PyOSError::new_err(error.to_string()),
            Error::Bundle(error) => PyOSError::new_err(error.to_string()),
            // Python makes its own class `PhaseProtocolError` of the `RuntimeError`.
            Error::Phase(PhaseError::EmptyName) => PyValueError::new_err(PhaseError::EmptyName.to_string()),
            Error::Phase(error) => PyRuntimeError::new_err(error.to_string()),
            Error::Threshold(error) => PyValueError::new_err(error.to_string()),
            Error::Snapshot(SnapshotError::Open { path, source }) => from_io(&path, &source),
            Error::Snapshot(error) => PyValueError::new_err(error.to_string()),
            Error::Settings(error) => PyValueError::new_err(error.to_string()),
            Error::Figure(error) => PyValueError::new_err(error.to_string()),
            Error::Cupti(error @ CuptiError::Load { .. }) => PyOSError::new_err(error.to_string()),
            Error::Cupti(error) => PyRuntimeError::new_err(error.to_string()),
            Error::Capture(error) => from_capture(&error),
            Error::HookImage(error) => HeapErrorKind::Recording.new_err(error.to_string()),
            Error::Heap(sentence) => HeapErrorKind::Recording.new_err(sentence),
            Error::Memory(error) => HeapErrorKind::Value.new_err(error.to_string()),
            Error::Json(error) => PyValueError::new_err(format!("not JSON: {error}")),
        }
    }
}

fn from_store(error: StoreError) -> PyErr {
    match error {
        StoreError::Io { path, source } => from_io(&path, &source),
        StoreError::Missing { path } => from_io(&path, &missing()),
        other => PyValueError::new_err(other.to_string()),
    }
}

fn from_sink(error: SinkError) -> PyErr {
    match error {
        SinkError::Io { path: Some(path), source } => from_io(&path, &source),
        SinkError::Io { path: None, source } => match number_and_text(&source) {
            (Some(number), text) => PyOSError::new_err((number, text)),
            (None, text) => PyOSError::new_err(text),
        },
        SinkError::Store(error) => from_store(error),
        other => PyValueError::new_err(other.to_string()),
    }
}

/// A capture that is missing, unreadable, damaged or too new: each has a class of its own, and all are `HeapError`.
fn from_capture(error: &ViewError) -> PyErr {
    match error {
        ViewError::Heap(ReadError::Capture(CaptureError::Io { path, source })) => {
            let kind = match source.kind() {
                io::ErrorKind::NotFound => HeapErrorKind::Missing,
                io::ErrorKind::PermissionDenied => HeapErrorKind::Permission,
                _ => HeapErrorKind::Io,
            };
            match number_and_text(source) {
                (Some(number), text) => kind.new_err((number, text, path.as_os_str().to_owned())),
                (None, text) => HeapErrorKind::Io.new_err(format!("{}: {text}", path.display())),
            }
        }
        ViewError::Search(CaptureSearchError::NotThere { path }) => {
            let (number, text) = number_and_text(&missing());
            HeapErrorKind::Missing.new_err((number, text, path.as_os_str().to_owned()))
        }
        ViewError::Search(CaptureSearchError::Empty { path })
        | ViewError::Heap(ReadError::NoCapture { path }) => {
            HeapErrorKind::Missing.new_err((libc::ENOENT, error.to_string(), path.as_os_str().to_owned()))
        }
        ViewError::Heap(
            ReadError::Capture(CaptureError::Newer { .. } | CaptureError::Older { .. })
            | ReadError::MemrayVersion { .. },
        ) => HeapErrorKind::Version.new_err(error.to_string()),
        ViewError::Heap(
            ReadError::Capture(CaptureError::Foreign { .. } | CaptureError::Damaged { .. })
            | ReadError::NothingLeft { .. }
            | ReadError::Memray { .. }
            | ReadError::Import(_),
        ) => HeapErrorKind::Format.new_err(error.to_string()),
        ViewError::InvalidQuery { .. } | ViewError::Heap(ReadError::NoMemory { .. }) => {
            HeapErrorKind::Value.new_err(error.to_string())
        }
        _ => HeapErrorKind::Recording.new_err(error.to_string()),
    }
}

/// Called with a number, `OSError` picks the subclass (`FileNotFoundError`, …) by itself.
pub(crate) fn from_io(path: &Path, error: &io::Error) -> PyErr {
    match number_and_text(error) {
        (Some(number), text) => PyOSError::new_err((number, text, path.as_os_str().to_owned())),
        (None, text) => PyOSError::new_err(format!("{}: {text}", path.display())),
    }
}

fn missing() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

/// The system's number and its sentence without that number.
fn number_and_text(error: &io::Error) -> (Option<i32>, String) {
    let text = error.to_string();
    let Some(number) = error.raw_os_error() else { return (None, text) };
    let plain = text.strip_suffix(&format!(" (os error {number})")).unwrap_or(&text);
    (Some(number), plain.to_owned())
}
