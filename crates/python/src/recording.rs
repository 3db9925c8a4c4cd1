//! Recording telemetry of this process into files that survive its death.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::Value;
use stormlog_collect::process::ProcessReader;
use stormlog_model::{
    Defaults, Identity, Interner, Record, SessionStatus, SessionSummary, event_from_record,
};
use stormlog_store::recording::{Recorder as Inner, RecorderConfig};
use stormlog_track::{LimitOptions, MemoryLimits, ProcessSession};

use crate::error::raise;
use crate::record::{Foreign, free_form};
use crate::session::GivenSession;

/// An open recording; `None` once closed.
#[pyclass(name = "Recorder", module = "stormlog._native.telemetry", frozen)]
struct Recorder {
    state: Mutex<Option<State>>,
}

struct State {
    session: ProcessSession,
    process: Process,
    summary: SessionSummary,
    interval: Duration,
    interner: Interner,
}

/// This process, and the limits above it.
struct Process {
    pid: u32,
    reader: Option<ProcessReader>,
    limits: MemoryLimits,
}

impl Process {
    fn this() -> Self {
        let pid = process::id();
        let options = LimitOptions { limit_as: None, pace: Duration::from_secs(1), is_thorough: false };
        Process { pid, reader: ProcessReader::this().ok(), limits: MemoryLimits::of(pid, options) }
    }
}

impl State {
    fn new(recorder: Inner) -> Self {
        let summary = recorder.summary().clone();
        let (process, interval) = (Process::this(), Duration::ZERO);
        let session = session_of(&summary, process.pid, interval, Some(recorder));
        State { session, process, summary, interval, interner: Interner::default() }
    }

    /// Events of a forked child are its own, and events say how often they are taken.
    fn renew(&mut self, interval: Duration) {
        if self.process.pid != process::id() {
            self.process = Process::this();
        } else if self.interval == interval {
            return;
        }
        self.interval = interval;
        let recorder = self.session.take_recorder();
        self.session = session_of(&self.summary, self.process.pid, interval, recorder);
    }

    fn sample(&mut self, event_type: &str, context: Option<&str>) -> bool {
        let rss = self.process.reader.as_mut().and_then(|reader| self.session.read_memory(reader));
        self.process.limits.look(Instant::now(), rss.unwrap_or(0), None);
        self.session.record(event_type, rss, &self.process.limits, context)
    }
}

/// The session of the process `pid` in a recording with this summary.
fn session_of(
    summary: &SessionSummary,
    pid: u32,
    interval: Duration,
    recorder: Option<Inner>,
) -> ProcessSession {
    let number = |rank: i64| rank.try_into().unwrap_or_default();
    let identity = Identity {
        job_id: summary.job_id.clone(),
        rank: number(summary.rank),
        local_rank: number(summary.local_rank),
        world_size: number(summary.world_size),
    };
    let summary = SessionSummary { pid: pid.into(), ..summary.clone() };
    ProcessSession::new(&summary, &identity, interval, Record::new(), recorder)
}

#[pymethods]
impl Recorder {
    #[new]
    fn new(
        py: Python<'_>,
        directory: OsString,
        summary: GivenSession,
        ring_slots: u64,
        keep_log: bool,
    ) -> PyResult<Self> {
        // One made by hand may break the rules that files keep.
        let summary = SessionSummary::from_record(&summary.summary()?.to_record()).map_err(raise)?;
        let config = RecorderConfig { ring_slots, keep_log, ..RecorderConfig::default() };
        let recorder =
            py.detach(|| Inner::create(&PathBuf::from(directory), summary, &config)).map_err(raise)?;
        Ok(Recorder { state: Mutex::new(Some(State::new(recorder))) })
    }

    /// Records an event in its object form. `False` when it was lost, which the files count.
    fn append(&self, record: &Bound<'_, PyAny>) -> PyResult<bool> {
        let record = free_form(record, Foreign::Refused)?;
        self.with(|state| {
            let session = state.summary.session_id.clone();
            let defaults = Defaults { session_id: Some(&session), ..Defaults::default() };
            let event = event_from_record(&record, &defaults, &mut state.interner).map_err(raise)?;
            if event.head.session_id != session {
                return Err(PyValueError::new_err(format!(
                    "the event belongs to session {}",
                    event.head.session_id
                )));
            }
            Ok(state.session.recorder().is_some_and(|recorder| recorder.append(&event)))
        })
    }

    /// Records this process's resident memory now, as of a sampling every `interval_s` seconds. `False` when it was lost.
    fn sample(&self, event_type: &str, context: Option<&str>, interval_s: f64) -> PyResult<bool> {
        let interval = Duration::try_from_secs_f64(interval_s)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        self.with(|state| {
            state.renew(interval);
            Ok(state.sample(event_type, context))
        })
    }

    /// Records and bytes lost so far, and why.
    fn loss(&self) -> PyResult<(u64, u64, Option<String>)> {
        self.with(|state| {
            let loss = state.session.recorder().map(|recorder| recorder.loss()).unwrap_or_default();
            Ok((loss.records, loss.bytes, loss.reason.map(|reason| format!("{reason:?}"))))
        })
    }

    /// Ends the session. A second time does nothing.
    fn close(&self, py: Python<'_>, status: &str, ended_at_ns: i64) -> PyResult<()> {
        let status = SessionStatus::parse(&Value::from(status)).map_err(raise)?;
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner).take();
        match state.and_then(|mut state| state.session.take_recorder()) {
            Some(recorder) => py.detach(|| recorder.close(status, ended_at_ns)).map_err(raise),
            None => Ok(()),
        }
    }
}

impl Recorder {
    fn with<T>(&self, work: impl FnOnce(&mut State) -> PyResult<T>) -> PyResult<T> {
        match self.state.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(state) => work(state),
            None => Err(PyValueError::new_err("the recording is closed")),
        }
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Recorder>()
}
