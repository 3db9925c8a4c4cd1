//! Runs and processes for `stormlog.catalog`, and the names of a run directory for the modules that write into one.

use std::path::PathBuf;

use pyo3::prelude::*;
use stormlog_catalog::run::layout::{self, SessionName, Viewpoint};
use stormlog_catalog::run::{self, RunRecord};
use stormlog_postmortem::Cause;

use crate::error::raise;

/// A run of `stormlog run`: what was started, when, how it ended, and its processes.
#[pyclass(frozen, get_all, module = "stormlog._native.catalog")]
struct Run {
    /// Its directory.
    path: PathBuf,
    /// The name of the directory.
    id: String,
    /// ``running``, ``completed``, ``interrupted`` or ``unknown``.
    status: &'static str,
    /// The program and its arguments, without secrets.
    command: Vec<String>,
    /// The machine's name.
    host: Option<String>,
    /// The process that was started.
    pid: Option<u32>,
    /// The process that supervised it.
    supervisor_pid: Option<u32>,
    /// Nanoseconds since 1970.
    started_at_ns: Option<i64>,
    /// Nanoseconds since 1970.
    ended_at_ns: Option<i64>,
    /// What ended the program, as a sentence.
    verdict: Option<String>,
    /// The program itself first, then in the order they started.
    processes: Vec<Py<Process>>,
    /// What could not be read, a sentence each.
    problems: Vec<String>,
}

/// A process and all that was recorded about it.
#[pyclass(frozen, get_all, module = "stormlog._native.catalog")]
struct Process {
    /// The run's directory; None for a recording without one.
    run: Option<PathBuf>,
    /// Its number; None where no file has it.
    pid: Option<u32>,
    /// Clock ticks between boot and its start: with the number, which process it is.
    start_ticks: Option<u64>,
    /// What the user would call it.
    program: Option<String>,
    /// Whether it is the process that the run started.
    is_root: bool,
    /// Samples: from outside first, then from inside, then of each device.
    sessions: Vec<Py<ProcessSession>>,
    /// Heap captures, that of the last program it became first.
    captures: Vec<PathBuf>,
    /// The evidence of its death, and of errors that it survived.
    bundles: Vec<PathBuf>,
    /// Snapshots of PyTorch's allocator, which are parts of bundles.
    snapshots: Vec<PathBuf>,
    /// Exceptions that it reported.
    exceptions: Vec<PathBuf>,
    /// How it ended.
    end: Py<ProcessEnd>,
    /// When its first session began, nanoseconds since 1970.
    started_at_ns: Option<i64>,
    /// When its last session ended, if all have.
    ended_at_ns: Option<i64>,
    /// Most bytes resident.
    peak_rss_bytes: Option<u64>,
    /// Most bytes on its heap.
    heap_peak_bytes: Option<u64>,
}

/// Samples of a process, taken in one way.
#[pyclass(frozen, get_all, module = "stormlog._native.catalog")]
struct ProcessSession {
    /// Its directory, or the file that has it.
    path: PathBuf,
    /// ``outside``, ``inside`` or ``cuda0``; None where it is unknown.
    viewpoint: Option<String>,
    /// None where its manifest is missing or damaged, as are the others.
    session_id: Option<String>,
    /// ``running``, ``completed``, ``interrupted`` or ``incomplete``.
    status: Option<&'static str>,
    /// Nanoseconds since 1970.
    started_at_ns: Option<i64>,
    /// Nanoseconds since 1970.
    ended_at_ns: Option<i64>,
    /// The machine's name.
    host: Option<String>,
    /// The job's name.
    job_id: Option<String>,
    /// Rank over the whole job.
    rank: Option<i64>,
    /// Rank on this machine.
    local_rank: Option<i64>,
    /// Number of ranks.
    world_size: Option<i64>,
}

/// How a process ended.
#[pyclass(frozen, get_all, module = "stormlog._native.catalog")]
struct ProcessEnd {
    /// ``running``, ``completed`` (exit status 0), ``failed`` or ``unknown``.
    state: &'static str,
    /// The exit status, where it was seen.
    exit_code: Option<i32>,
    /// The number of the signal, where there was one.
    signal: Option<i32>,
    /// What ended it, as a word.
    cause: Option<&'static str>,
    /// The same as a sentence.
    verdict: Option<String>,
}

#[pymethods]
impl Run {
    fn __repr__(&self) -> String {
        format!("<Run {} {}, {} processes>", self.id, self.status, self.processes.len())
    }
}

#[pymethods]
impl Process {
    fn __repr__(&self) -> String {
        let pid = self.pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
        format!("<Process {pid} {}>", self.program.as_deref().unwrap_or("of unknown name"))
    }
}

impl Process {
    fn of(py: Python<'_>, process: run::Process) -> PyResult<Py<Self>> {
        let (started_at_ns, ended_at_ns) = (process.started_at_ns(), process.ended_at_ns());
        let sessions = process.sessions.into_iter().map(|session| Py::new(py, ProcessSession::of(session)));
        Py::new(
            py,
            Process {
                run: process.run,
                pid: process.pid,
                start_ticks: process.start_ticks,
                program: process.program,
                is_root: process.is_root,
                sessions: sessions.collect::<PyResult<_>>()?,
                captures: process.captures,
                bundles: process.bundles,
                snapshots: process.snapshots,
                exceptions: process.exceptions,
                end: Py::new(py, ProcessEnd::of(process.end))?,
                started_at_ns,
                ended_at_ns,
                peak_rss_bytes: process.peak_rss_bytes,
                heap_peak_bytes: process.heap_peak_bytes,
            },
        )
    }
}

impl ProcessSession {
    fn of(session: run::ProcessSession) -> Self {
        let summary = session.summary.as_ref();
        ProcessSession {
            path: session.path.clone(),
            viewpoint: session.viewpoint.map(run::viewpoint_word),
            session_id: summary.map(|summary| summary.session_id.clone()),
            status: summary.map(|summary| summary.status.as_str()),
            started_at_ns: summary.map(|summary| summary.started_at_ns),
            ended_at_ns: summary.and_then(|summary| summary.ended_at_ns),
            host: summary.map(|summary| summary.host.clone()),
            job_id: summary.and_then(|summary| summary.job_id.clone()),
            rank: summary.map(|summary| summary.rank),
            local_rank: summary.map(|summary| summary.local_rank),
            world_size: summary.map(|summary| summary.world_size),
        }
    }
}

impl ProcessEnd {
    fn of(end: run::ProcessEnd) -> Self {
        let state = end.as_str();
        match end {
            run::ProcessEnd::Failed(facts)
            | run::ProcessEnd::Deliberate(facts)
            | run::ProcessEnd::Unknown(facts) => {
                let run::EndFacts { exit_code, signal, cause, verdict, .. } = facts;
                ProcessEnd { state, exit_code, signal, cause: cause.map(Cause::as_str), verdict }
            }
            _ => ProcessEnd { state, exit_code: None, signal: None, cause: None, verdict: None },
        }
    }
}

/// The runs at a path, oldest first. Those whose supervisor was killed are finished first, as far as this user may.
#[pyfunction]
fn find_runs(py: Python<'_>, path: PathBuf) -> PyResult<Vec<Run>> {
    let found = py.detach(|| {
        drop(run::finish_abandoned(&path));
        run::runs(&path)
    });
    let found = found.map_err(raise)?;
    let of = |run: run::Run| {
        let processes = run.processes.into_iter().map(|process| Process::of(py, process));
        Ok(Run {
            path: run.path,
            id: run.id,
            status: run.status.as_str(),
            command: run.record.command,
            host: run.record.host,
            pid: run.record.pid,
            supervisor_pid: run.supervisor_pid,
            started_at_ns: run.record.started_at_ns,
            ended_at_ns: run.record.ended_at_ns,
            verdict: run.record.verdict,
            processes: processes.collect::<PyResult<_>>()?,
            problems: run.problems,
        })
    };
    found.runs.into_iter().map(of).collect()
}

/// Every process at a path, of runs and of recordings without one.
#[pyfunction]
fn find_processes(py: Python<'_>, path: PathBuf) -> PyResult<Vec<Py<Process>>> {
    let found = py.detach(|| {
        drop(run::finish_abandoned(&path));
        run::processes(&path, &|| true)
    });
    found.map_err(raise)?.processes.into_iter().map(|process| Process::of(py, process)).collect()
}

/// The directory, in a run, of what this process records of itself: of its host memory where `device` is negative.
#[pyfunction]
fn session_directory(run: PathBuf, rank: u64, device: i64) -> PathBuf {
    let viewpoint = u32::try_from(device).map_or(Viewpoint::Inside, Viewpoint::Cuda);
    let pid = std::process::id();
    run.join(SessionName { rank, pid, start_ticks: None, viewpoint }.to_string())
}

/// The first of `directory`, `directory-2`, … that has no recording yet.
#[pyfunction]
fn unused_directory(directory: PathBuf) -> PathBuf {
    let mut path = directory.clone();
    let mut number = 1;
    while path.join(layout::SESSION_FILE).exists() || path.join(layout::RING_FILE).exists() {
        number += 1;
        let mut name = directory.clone().into_os_string();
        name.push(format!("-{number}"));
        path = name.into();
    }
    path
}

/// Milliseconds between two samples of a run; None where it does not tell.
#[pyfunction]
fn run_interval_ms(run: PathBuf) -> Option<u64> {
    RunRecord::read(&run).ok()??.interval_ms
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Run>()?;
    module.add_class::<Process>()?;
    module.add_class::<ProcessSession>()?;
    module.add_class::<ProcessEnd>()?;
    module.add("RUN_VARIABLE", layout::RUN_VARIABLE)?;
    module.add("RUNS_VARIABLE", layout::RUNS_VARIABLE)?;
    module.add("CAPTURE_FILE", layout::CAPTURE_FILE)?;
    module.add("JAX_FILE", layout::JAX_FILE)?;
    module.add("JAX_PEAK_PROFILE", layout::JAX_PEAK_PROFILE)?;
    module.add("JAX_END_PROFILE", layout::JAX_END_PROFILE)?;
    module.add("JAX_PROFILE", stormlog_catalog::frameworks::JAX_PROFILE)?;
    module.add("RUNS_DIRECTORY", layout::RUNS_DIRECTORY)?;
    module.add("DUMPS_DIRECTORY", layout::DUMPS_DIRECTORY)?;
    module.add_function(wrap_pyfunction!(find_runs, module)?)?;
    module.add_function(wrap_pyfunction!(find_processes, module)?)?;
    module.add_function(wrap_pyfunction!(session_directory, module)?)?;
    module.add_function(wrap_pyfunction!(unused_directory, module)?)?;
    module.add_function(wrap_pyfunction!(run_interval_ms, module)?)
}
