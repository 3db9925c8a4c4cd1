//! Heap recordings begun and ended from Python: loads the hook library into this process and keeps its capture compact.
//!
//! The library does the recording; here is only a thread that moves what it wrote into the finished file. That thread is left out of the
//! recording, and a forked child has none: what it records, into a capture of its own beside its parent's, stays as it was written, which every
//! reader takes.

use std::ffi::{CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pyo3::exceptions::PyFileExistsError;
use pyo3::prelude::*;
use pyo3::types::PyTraceback;
use serde_json::json;
use stormlog_capture::layout::{LIVE_SUFFIX, state};
use stormlog_capture::live::Live;
use stormlog_catalog::run::layout::retained_name;
use stormlog_supervise::{HeapKeeper, HeapOptions};

use crate::error::{Error, raise};

/// The functions of the hook library this knows how to call.
const VERSION: u32 = 1;
const STEP: Duration = Duration::from_millis(50);
const BY_OTHERS: &str = "this process is being recorded already, by stormlog run --heap or attach";
/// The variable with the specification that `stormlog run` gives to the preloaded library.
const HOOK_SPEC: &str = "STORMLOG_HEAP";

/// The hook library, loaded once and never unloaded: threads may be inside it at any time.
#[derive(Clone, Copy)]
struct Hook {
    start: unsafe extern "C" fn(u32, *const c_char) -> c_int,
    stop: unsafe extern "C" fn() -> c_int,
    status: unsafe extern "C" fn() -> c_int,
    ignore_thread: unsafe extern "C" fn(c_int),
    /// A library of an older version records no GPU.
    backward: Option<Backward>,
    /// Nor does it know what keeps memory.
    why: Option<Why>,
}

/// Version, order, traceback; called with the GIL held.
type Why = unsafe extern "C" fn(u32, *const c_char, *const c_void) -> c_int;

/// Called with the GIL held, in the thread that asks for a backward pass.
#[derive(Clone, Copy)]
struct Backward {
    enter: unsafe extern "C" fn() -> c_int,
    leave: unsafe extern "C" fn(c_int),
}

struct Active {
    path: PathBuf,
    over: Arc<AtomicBool>,
    keeper: JoinHandle<()>,
    /// The process that began it; a forked child has the value but not the thread.
    pid: u32,
    /// Began by itself, by `stormlog.auto`.
    is_default: bool,
}

static HOOK: OnceLock<Hook> = OnceLock::new();
static ACTIVE: Mutex<Option<Active>> = Mutex::new(None);

impl Active {
    fn is_mine(&self) -> bool {
        self.pid == std::process::id()
    }

    /// In a forked child: what is left of it there. The handle is of a thread that a child does not have, and must not be touched.
    fn inherited(self) -> PathBuf {
        std::mem::forget(self.keeper);
        self.path
    }
}

fn active() -> MutexGuard<'static, Option<Active>> {
    // What a panicking holder left is a plain value.
    ACTIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn problem(text: impl Into<String>) -> PyErr {
    raise(Error::Heap(text.into()))
}

fn hook() -> PyResult<&'static Hook> {
    if let Some(hook) = HOOK.get() {
        return Ok(hook);
    }
    let loaded = load()?;
    Ok(HOOK.get_or_init(|| loaded))
}

fn load() -> PyResult<Hook> {
    // `stormlog run --heap` has preloaded it; a second copy would record everything twice.
    if let Some(hook) = resolve(libc::RTLD_DEFAULT) {
        return Ok(hook);
    }
    let path = stormlog_hook_image::install().map_err(raise)?;
    let name = CString::new(path.into_os_string().into_vec()).map_err(|error| problem(error.to_string()))?;
    // SAFETY: our own library: its constructor does nothing unless it is preloaded.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(problem(format!(
            "the recording library {} cannot be loaded: {}",
            name.to_string_lossy(),
            last_error()
        )));
    }
    crate::cuda_driver::record_through(handle);
    resolve(handle).ok_or_else(|| problem("the recording library lacks its functions; reinstall stormlog"))
}

fn last_error() -> String {
    // SAFETY: dlerror gives null or a text that is valid until the next call of this thread.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            String::new()
        } else {
            std::ffi::CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}

fn resolve(handle: *mut c_void) -> Option<Hook> {
    // SAFETY: the names are C strings, and the handle is one dlsym knows.
    let find = |name: &std::ffi::CStr| unsafe { libc::dlsym(handle, name.as_ptr()) };
    let (start, stop) = (find(c"stormlog_heap_start"), find(c"stormlog_heap_stop"));
    let (status, ignore) = (find(c"stormlog_heap_status"), find(c"stormlog_heap_ignore_thread"));
    if [start, stop, status, ignore].iter().any(|found| found.is_null()) {
        return None;
    }
    let (enter, leave) = (find(c"stormlog_gpu_enter_backward"), find(c"stormlog_gpu_leave_backward"));
    let why = find(c"stormlog_why");
    // SAFETY: functions of these names in our library have these types; `start` checks the version again.
    unsafe {
        let backward = (!enter.is_null() && !leave.is_null()).then(|| Backward {
            enter: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(enter),
            leave: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int)>(leave),
        });
        Some(Hook {
            backward,
            why: (!why.is_null()).then(|| std::mem::transmute::<*mut c_void, Why>(why)),
            start: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u32, *const c_char) -> c_int>(
                start,
            ),
            stop: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(stop),
            status: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(status),
            ignore_thread: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int)>(ignore),
        })
    }
}

/// Begins a recording into `path`; what is there is only removed once it is certain that nothing is being recorded, into it or elsewhere.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "the options of `stormlog.heap.start`, by name")]
fn heap_start(
    py: Python<'_>,
    path: PathBuf,
    overwrite: bool,
    native: bool,
    python_allocators: bool,
    sample_bytes: u64,
    aggregate: bool,
    max_size: Option<u64>,
    host: bool,
    gpu: bool,
) -> PyResult<()> {
    let options = HeapOptions {
        native,
        python_allocators,
        sample_bytes,
        aggregate,
        max_size,
        skip_host: !host,
        skip_gpu: !gpu,
        drops_trivial: false,
    };
    begin(py, path, overwrite, options, false)
}

/// Begins the recording of a program that did not ask for one: what `stormlog run` records. False when it is being recorded already.
#[pyfunction]
fn heap_start_default(py: Python<'_>, path: PathBuf) -> PyResult<bool> {
    if heap_recording() {
        return Ok(false);
    }
    begin(py, path, false, HeapOptions::sampled_and_bounded(), true).map(|()| true)
}

fn begin(
    py: Python<'_>,
    path: PathBuf,
    overwrite: bool,
    options: HeapOptions,
    is_default: bool,
) -> PyResult<()> {
    if path.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b';' | b'%' | 0)) {
        return Err(problem(format!("a capture's path must not contain ';' or '%': {}", path.display())));
    }
    let hook = hook()?;
    let mut slot = active();
    // SAFETY: the hook's `status` takes no arguments and only loads an atomic; the library is never unloaded.
    let is_recording = || unsafe { (hook.status)() } != 0;
    if slot.as_ref().is_some_and(|active| active.is_default && active.is_mine()) {
        // The program's own comes first.
        if let Some(before) = slot.take() {
            finish(py, hook, before)?;
        }
    } else if is_recording() && slot.is_none() && is_default_spec() {
        // SAFETY: the hook's `stop` must not be called from inside an allocation; this is called from Python code, never from a hook.
        unsafe { (hook.stop)() };
    }
    if slot.as_ref().is_some_and(|active| active.is_mine() || is_recording()) {
        return Err(problem("this process is being recorded already: stop() that recording first"));
    }
    if is_recording() {
        return Err(problem(BY_OTHERS));
    }
    make_room(&path, overwrite)?;
    let spec =
        CString::new(options.hook_spec(&path).into_vec()).map_err(|error| problem(error.to_string()))?;
    // SAFETY: the specification is a C string, and this thread holds the GIL, so the Python allocators may be hooked.
    match unsafe { (hook.start)(VERSION, spec.as_ptr()) } {
        0 => {}
        libc::EBUSY => return Err(problem(BY_OTHERS)),
        libc::EPROTO => return Err(problem("the recording library has another version; reinstall stormlog")),
        number => {
            let error = std::io::Error::from_raw_os_error(number);
            return Err(problem(format!("cannot record into {}: {error}", path.display())));
        }
    }
    let over = Arc::new(AtomicBool::new(false));
    let keeper = keep(path.clone(), options, Arc::clone(&over), hook, is_default)?;
    let before = slot.replace(Active { path, over, keeper, pid: std::process::id(), is_default });
    before.map(Active::inherited);
    Ok(())
}

/// Whether the preloaded library records what `stormlog run` records without being asked: a bounded sample, which gives way to a recording that the
/// program asks for.
fn is_default_spec() -> bool {
    let spec = std::env::var_os(HOOK_SPEC).unwrap_or_default();
    let has = |part: &[u8]| spec.as_bytes().split(|byte| *byte == b';').any(|word| word.starts_with(part));
    has(b"sample=") && has(b"max=")
}

/// Removes the capture at `path` if it may: also one that is a live file alone, all that a killed program has left.
fn make_room(path: &Path, overwrite: bool) -> PyResult<()> {
    let live = Live::path_of(path);
    for old in [path, &live] {
        if !old.exists() {
            continue;
        }
        if !overwrite {
            let text = format!("{} exists; pass overwrite=True, or choose another path", old.display());
            return Err(PyFileExistsError::new_err(text));
        }
        std::fs::remove_file(old)?;
    }
    Ok(())
}

fn keep(
    path: PathBuf,
    options: HeapOptions,
    over: Arc<AtomicBool>,
    hook: &'static Hook,
    is_default: bool,
) -> PyResult<JoinHandle<()>> {
    let started = thread::Builder::new().name("stormlog-heap".into()).spawn(move || {
        // SAFETY: the library is never unloaded (`Hook`), so the function exists; it takes an integer and changes only this thread's flag.
        unsafe { (hook.ignore_thread)(1) };
        let mut keeper = HeapKeeper::for_capture(&path, options);
        while !over.load(Ordering::Acquire) {
            keeper.step();
            thread::park_timeout(STEP);
        }
        let (pid, cause) = (std::process::id(), json!({"cause": "stopped"}));
        // The program asked for no recording here, so its end must not wait for the file to become small.
        if is_default {
            keeper.finish_at_exit(pid, &cause);
        } else {
            keeper.finish(pid, &cause);
        }
    });
    started.map_err(|error| {
        // SAFETY: the library is never unloaded (`Hook`), so the function exists; it takes no arguments, and this caller began the recording.
        unsafe { (hook.stop)() };
        problem(format!("no thread could be started: {error}"))
    })
}

/// Ends the recording and gives its path.
#[pyfunction]
fn heap_stop(py: Python<'_>) -> PyResult<PathBuf> {
    let hook = hook()?;
    let nothing = || problem("nothing is being recorded: start() a recording first");
    let taken = active().take().ok_or_else(nothing)?;
    if !taken.is_mine() {
        return stop_in_child(hook, &taken.inherited()).ok_or_else(nothing);
    }
    finish(py, hook, taken)
}

/// Has the recording library report what keeps this process's memory into the directory; false where it cannot. `traceback` is one whose frames count as
/// running; `milliseconds` is the time that the look may take.
#[pyfunction]
#[pyo3(signature = (reason, directory, traceback = None, milliseconds = None))]
fn report_retained(
    reason: &str,
    directory: PathBuf,
    traceback: Option<Bound<'_, PyTraceback>>,
    milliseconds: Option<u32>,
) -> PyResult<bool> {
    let path = directory.join(retained_name(&std::process::id().to_string()));
    let time = milliseconds.map(|time| format!("ms={time};")).unwrap_or_default();
    let mut spec = format!("reason={reason};{time}path=").into_bytes();
    spec.extend_from_slice(path.as_os_str().as_encoded_bytes());
    let spec = CString::new(spec).map_err(|error| problem(error.to_string()))?;
    let Some(why) = hook()?.why else { return Ok(false) };
    let traceback = traceback.map_or(std::ptr::null(), |traceback| traceback.as_ptr().cast_const().cast());
    // SAFETY: a C string and a live traceback or none; Python calls this with the GIL held, and it is not released.
    Ok(unsafe { why(VERSION, spec.as_ptr(), traceback) } == 0)
}

/// Ends the recording that began by itself, if one did; in a forked child, its share of it.
#[pyfunction]
fn heap_stop_default(py: Python<'_>) -> PyResult<()> {
    let Some(hook) = HOOK.get() else { return Ok(()) };
    let Some(taken) = active().take_if(|active| active.is_default) else { return Ok(()) };
    match taken.is_mine() {
        true => finish(py, hook, taken).map(|_| ()),
        false => {
            stop_in_child(hook, &taken.inherited());
            Ok(())
        }
    }
}

fn finish(py: Python<'_>, hook: &Hook, ended: Active) -> PyResult<PathBuf> {
    let Active { path, over, keeper, .. } = ended;
    // SAFETY: the hook's `stop` must not be called from inside an allocation; this is called from Python code, never from a hook. `ESRCH` (ended already) and `EAGAIN` (one slot not quite full) lose nothing.
    unsafe { (hook.stop)() };
    over.store(true, Ordering::Release);
    keeper.thread().unpark();
    let joined = py.detach(|| keeper.join());
    joined.map_err(|_| {
        problem(format!("{}: the capture could not be completed; it can be read as it is", path.display()))
    })?;
    Ok(path)
}

/// In a child that was forked while its parent was recorded into `path`: ends the child's own recording and gives its path. None when it ended before.
fn stop_in_child(hook: &Hook, path: &Path) -> Option<PathBuf> {
    let mine = captures_beside(path).find(|capture| is_recorded_by_me(capture));
    // SAFETY: the hook's `stop` must not be called from inside an allocation; this is called from Python code, never from a hook.
    let ended = unsafe { (hook.stop)() };
    // A child that asked for nothing since the fork has no capture.
    (ended != libc::ESRCH).then(|| mine.unwrap_or_else(|| path.to_owned()))
}

/// Captures that are being written, of which `path` is one or would be: the library adds a number where a name is taken.
pub(crate) fn captures_beside(path: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = path.parent().and_then(|directory| std::fs::read_dir(directory).ok());
    entries.into_iter().flatten().filter_map(|entry| {
        let live = entry.ok()?.path();
        let capture = live.as_os_str().as_bytes().strip_suffix(LIVE_SUFFIX.as_bytes())?;
        capture.starts_with(path.as_os_str().as_bytes()).then(|| OsStr::from_bytes(capture).into())
    })
}

pub(crate) fn is_recorded_by_me(capture: &Path) -> bool {
    let header = Live::open(&Live::path_of(capture)).and_then(|live| live.header());
    header.is_ok_and(|header| header.pid == std::process::id() && header.state == state::RUNNING)
}

/// Whether this process is being recorded, by whatever way.
#[pyfunction]
fn heap_recording() -> bool {
    // SAFETY: the hook's `status` takes no arguments and only loads an atomic; the library is never unloaded.
    known().is_some_and(|hook| unsafe { (hook.status)() } != 0)
}

/// The capture that was begun here, by this process, and is being written.
pub(crate) fn own_capture() -> Option<PathBuf> {
    active().as_ref().filter(|active| active.is_mine()).map(|active| active.path.clone())
}

/// Does something whose memory is not recorded.
pub(crate) fn unrecorded<T>(work: impl FnOnce() -> T) -> T {
    let Some(ignore) = known().map(|hook| hook.ignore_thread) else { return work() };
    // SAFETY: the library is never unloaded (`Hook`), so the function exists; it takes an integer and changes only this thread's flag.
    unsafe { ignore(1) };
    let done = work();
    // SAFETY: the library's function takes a number and touches only the flag of this thread.
    unsafe { ignore(0) };
    done
}

/// The library, where it is loaded already.
fn known() -> Option<Hook> {
    HOOK.get().copied().or_else(|| resolve(libc::RTLD_DEFAULT))
}

/// A backward pass begins in this thread: its stack is published for the engine's threads. 0 when nothing is recorded.
#[pyfunction]
fn enter_backward() -> c_int {
    let backward = HOOK.get().and_then(|hook| hook.backward);
    // SAFETY: this thread holds the GIL, and its own stack is all that is walked.
    backward.map_or(0, |backward| unsafe { (backward.enter)() })
}

/// The pass has ended.
#[pyfunction]
fn leave_backward(token: c_int) {
    if let Some(backward) = HOOK.get().and_then(|hook| hook.backward) {
        // SAFETY: the token is one that `enter` gave, once.
        unsafe { (backward.leave)(token) };
    }
}

/// `"24 MB"` as bytes; `None` when it is not a size.
#[pyfunction]
fn parse_size(text: &str) -> Option<u64> {
    stormlog_model::parse_bytes(text)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(heap_start, module)?)?;
    module.add_function(wrap_pyfunction!(heap_start_default, module)?)?;
    module.add_function(wrap_pyfunction!(heap_stop, module)?)?;
    module.add_function(wrap_pyfunction!(heap_stop_default, module)?)?;
    module.add_function(wrap_pyfunction!(report_retained, module)?)?;
    module.add_function(wrap_pyfunction!(enter_backward, module)?)?;
    module.add_function(wrap_pyfunction!(leave_backward, module)?)?;
    module.add_function(wrap_pyfunction!(heap_recording, module)?)?;
    module.add_function(wrap_pyfunction!(parse_size, module)?)
}
