//! Requests to this process and the snapshots that answer them: the files are `catalog::request`'s, the snapshot is `heap-report`'s.
//!
//! Called from a thread that watches for requests, from the program's own threads, and after a signal. Must never wait for another process.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use stormlog_catalog::request::{self, Answer, Listener, SignalState, State};
use stormlog_collect::process::ProcessReader;
use stormlog_files::Directory;
use stormlog_heap_report::snapshot::{self, MemorySnapshot};
use stormlog_model::Problem;
use stormlog_pidfd::NoticeError;
use stormlog_store::wall_ns;

use crate::device_blocks::capture_in_run;
use crate::error::{from_io, raise};
use crate::heap::{own_capture, unrecorded};

/// A larger capture is not read inside the program.
const LARGE_CAPTURE: u64 = 256 << 20;

/// A request to this process.
#[pyclass(frozen, get_all, module = "stormlog._native.requests")]
struct Request {
    id: String,
    kind: &'static str,
    at_step: Option<u64>,
    heap_seconds: Option<f64>,
    asked_by: String,
    expires_at_ns: Option<i64>,
}

/// The requests to this process, below the directory of its run.
#[pyclass(frozen, module = "stormlog._native.requests")]
struct Inbox(request::Inbox);

#[pymethods]
impl Inbox {
    #[new]
    fn new(run: PathBuf) -> Self {
        Inbox(request::Inbox::own(&run))
    }

    /// Takes every request that is there; each is handed out once.
    fn take(&self) -> Vec<Request> {
        let request = |found: request::Request| Request {
            id: found.id,
            kind: found.kind.as_str(),
            at_step: found.at_step,
            heap_seconds: found.heap_seconds,
            asked_by: found.asked_by,
            expires_at_ns: found.expires_at_ns,
        };
        self.0.take().into_iter().map(request).collect()
    }
}

/// Writes what became of a request.
#[pyfunction]
#[pyo3(signature = (run, id, state, *, path=None, reason=None, step=None))]
fn answer_request(
    run: PathBuf,
    id: String,
    state: &str,
    path: Option<PathBuf>,
    reason: Option<String>,
    step: Option<u64>,
) -> PyResult<()> {
    let state = State::of_word(state).map_err(raise)?;
    let answered_at_ns = wall_ns() as i64;
    let answer = Answer { id, pid: std::process::id(), state, path, reason, step, answered_at_ns };
    answer.write(&run).map_err(raise)
}

/// Shows that this process takes requests, with what became of the signal that asks for a snapshot.
#[pyfunction]
#[pyo3(signature = (run, rank, signal=None, signal_state=None))]
fn show_listener(run: PathBuf, rank: u64, signal: Option<i32>, signal_state: Option<&str>) -> PyResult<()> {
    let signal_state = signal_state.map(SignalState::of_word);
    let listener = Listener { signal, signal_state, ..Listener::own(rank) };
    listener.show(&run).map_err(raise)
}

/// This process takes requests no more.
#[pyfunction]
fn hide_listener(run: PathBuf) {
    Listener::own(0).hide(&run);
}

/// Has arrivals of a signal written to an eventfd; why not, otherwise: `taken` by the program, or `unfit`.
#[pyfunction]
fn install_notice(signal: i32, descriptor: i32) -> Option<&'static str> {
    match stormlog_pidfd::install_notice(signal, descriptor) {
        Ok(()) => None,
        Err(NoticeError::Taken) => Some("taken"),
        Err(NoticeError::Unfit) => Some("unfit"),
    }
}

/// Whether the signal is still ours.
#[pyfunction]
fn is_notice_installed(signal: i32) -> bool {
    stormlog_pidfd::is_notice_installed(signal)
}

/// The number of a signal by its name.
#[pyfunction]
fn signal_number(name: &str) -> Option<i32> {
    stormlog_pidfd::signal_number(name)
}

/// Makes the private directory of a snapshot of this process, in a run.
#[pyfunction]
fn new_snapshot_directory(run: PathBuf, id: &str) -> PyResult<PathBuf> {
    let made = request::new_snapshot_directory(&run, std::process::id(), id).map_err(raise)?;
    Ok(made.path().to_owned())
}

/// One memory of this process.
#[pyclass(frozen, get_all, module = "stormlog._native.requests")]
#[derive(Clone)]
struct MemoryTotal {
    /// ``host`` or ``cuda:0``.
    memory: String,
    /// Bytes in use.
    bytes: u64,
    /// Bytes that the framework's allocator holds; None for the host.
    reserved_bytes: Option<u64>,
    /// Bytes that it holds and has not given out.
    free_in_cache_bytes: Option<u64>,
}

/// What memory is for.
#[pyclass(frozen, get_all, module = "stormlog._native.requests")]
#[derive(Clone)]
struct Component {
    /// ``weights``, ``kv_cache``, ``activations``, …
    component: String,
    /// ``host`` or ``cuda:0``.
    memory: String,
    /// Bytes it takes there.
    bytes: u64,
    /// Number of tensors.
    count: u64,
}

/// A line that holds memory.
#[pyclass(frozen, get_all, module = "stormlog._native.requests")]
#[derive(Clone)]
struct HeldLine {
    /// ``host`` or ``cuda:0``.
    memory: String,
    /// Bytes that were allocated there and are not freed.
    bytes: u64,
    /// The source file.
    file: String,
    /// The line in it.
    line: u32,
    /// The function that the line is in.
    function: String,
}

/// The memory of this process at one moment. `str()` of it is the answer in a few lines.
#[pyclass(frozen, get_all, module = "stormlog._native.requests")]
struct Snapshot {
    /// The directory it was written to.
    path: PathBuf,
    /// Bytes in use in all memories.
    total: u64,
    /// The process.
    pid: u32,
    /// The step of the program, where `stormlog.step` counts them.
    step: Option<u64>,
    /// The host and each device, with what is in use.
    memories: Vec<MemoryTotal>,
    /// What device memory is for.
    components: Vec<Component>,
    /// The lines that hold most; None where no heap is recorded.
    holders: Option<Vec<HeldLine>>,
    /// What limits the answer, a sentence each.
    notes: Vec<String>,
    /// The answer in a few lines of text.
    lines: Vec<String>,
}

#[pymethods]
impl Snapshot {
    fn __str__(&self) -> String {
        self.lines.join("\n")
    }

    fn __repr__(&self) -> String {
        format!("Snapshot(path={:?}, total={})", self.path.display().to_string(), self.total)
    }
}

impl Snapshot {
    fn of(path: PathBuf, found: MemorySnapshot) -> Self {
        let total = |row: &snapshot::MemoryTotal| MemoryTotal {
            memory: row.memory.clone(),
            bytes: row.bytes,
            reserved_bytes: row.reserved_bytes,
            free_in_cache_bytes: row.free_in_cache_bytes,
        };
        let component = |row: &snapshot::Component| Component {
            component: row.component.clone(),
            memory: row.memory.clone(),
            bytes: row.bytes,
            count: row.count,
        };
        let held = |row: &snapshot::HeldLine| HeldLine {
            memory: row.memory.clone(),
            bytes: row.bytes,
            file: row.file.clone(),
            line: row.line,
            function: row.function.clone(),
        };
        Snapshot {
            path,
            total: found.total_bytes(),
            pid: found.pid,
            step: found.step,
            memories: found.memories.iter().map(total).collect(),
            components: found.components.iter().map(component).collect(),
            holders: found.holders.as_ref().map(|rows| rows.iter().map(held).collect()),
            lines: found.lines(),
            notes: found.notes,
        }
    }
}

/// Completes a snapshot of this process by what its own recording knows, and writes it into its directory. `content` is the file as far as Python knows it.
#[pyfunction]
fn finish_snapshot(py: Python<'_>, directory: PathBuf, content: &[u8]) -> PyResult<Snapshot> {
    let mut found = MemorySnapshot::parse(content)
        .ok_or_else(|| raise(Problem::whole("not the content of a snapshot")))?;
    py.detach(|| {
        unrecorded(|| {
            let rss = ProcessReader::this().and_then(|mut reader| reader.memory()).ok();
            if let Some(memory) = rss {
                let host = snapshot::MemoryTotal {
                    memory: "host".to_owned(),
                    bytes: memory.rss,
                    ..snapshot::MemoryTotal::default()
                };
                found.memories.insert(0, host);
            }
            match own_capture().or_else(capture_in_run) {
                Some(capture) if size_of_capture(&capture) > LARGE_CAPTURE => found.notes.push(format!(
                    "the heap capture is too large for the program to read itself; run `stormlog snapshot {}`",
                    directory.display()
                )),
                Some(capture) => found.add_heap(&capture),
                None if found.holders.is_none() => found.notes.push(
                    "lines are unknown: the heap of this process is not recorded".to_owned(),
                ),
                None => {}
            }
            Directory::open(&directory).and_then(|open| found.write(&open))
        })
    })
    .map_err(|error| from_io(&directory, &error))?;
    Ok(Snapshot::of(directory, found))
}

/// What a capture and its live file take on disk.
fn size_of_capture(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let live = stormlog_capture::live::Live::path_of(path);
    [path, live.as_path()]
        .iter()
        .filter_map(|file| std::fs::metadata(file).ok())
        .map(|file| file.blocks() * 512)
        .sum()
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("SNAPSHOT_FORMAT", snapshot::FORMAT)?;
    module.add("SNAPSHOT_VERSION", snapshot::VERSION)?;
    module.add_class::<Request>()?;
    module.add_class::<Inbox>()?;
    module.add_class::<MemoryTotal>()?;
    module.add_class::<Component>()?;
    module.add_class::<HeldLine>()?;
    module.add_class::<Snapshot>()?;
    module.add_function(wrap_pyfunction!(answer_request, module)?)?;
    module.add_function(wrap_pyfunction!(show_listener, module)?)?;
    module.add_function(wrap_pyfunction!(hide_listener, module)?)?;
    module.add_function(wrap_pyfunction!(install_notice, module)?)?;
    module.add_function(wrap_pyfunction!(is_notice_installed, module)?)?;
    module.add_function(wrap_pyfunction!(signal_number, module)?)?;
    module.add_function(wrap_pyfunction!(new_snapshot_directory, module)?)?;
    module.add_function(wrap_pyfunction!(finish_snapshot, module)?)
}
