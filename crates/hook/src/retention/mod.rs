//! What keeps the memory of a Python program: a sample of its objects, each with its path to a variable, a module, a class or a function.
//!
//! ```text
//! sweep ─► sampler ─► graph (a sweep a step) ─► holders ─► path_describer ─► report ─► retained-PID.json
//! kinds, tensors        roots
//! ```
//!
//! Runs with the GIL held and stops the program meanwhile, so it is bounded: by a deadline, and by memory of its own. It must never run in a signal
//! handler or inside `malloc`, run code of the program, keep a reference after it, or print. Not for builds without the GIL.

mod graph;
mod holders;
mod kinds;
pub(crate) mod line;
pub(crate) mod mailbox;
mod path_describer;
mod python;
mod region;
mod relations;
mod report;
mod roots;
mod sampler;
mod sweep;
mod tensors;

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use stormlog_stack::python::Unsupported;

use crate::api::VERSION;
use crate::libc_symbols;
use crate::session::EPOCH;
use crate::thread;
use graph::Graph;
use holders::Holders;
use kinds::Kinds;
use line::Line;
use python::Python;
use region::Region;
use report::{Report, store};
use roots::Roots;
use sampler::{MEMORIES, MOST_SAMPLES, Sampler};
use sweep::{clock, now_ns, walk};

/// Milliseconds of a pass unless the user allows more or less.
const TIME_MS: u64 = 1000;
const LONGEST_MS: u64 = 60_000;
/// Tenths of the time that the first walk may take: a sample without paths is worth nothing.
const SAMPLING_TENTHS: u64 = 4;
const TEXT: usize = 3 << 20;
const LINE: usize = 2048;
/// The variable that switches it off (`off`), or has the milliseconds that it may take.
const SWITCH: &CStr = c"STORMLOG_WHY";

static BUSY: AtomicBool = AtomicBool::new(false);

/// What is requested: `reason=exit;ms=1000;path=/run/retained-77.json`, the path last.
pub struct Order<'o> {
    reason: &'o [u8],
    /// Milliseconds, where the caller allows less than usual.
    ms: Option<u64>,
    path: &'o [u8],
}

impl<'o> Order<'o> {
    fn parse(text: &'o [u8]) -> Option<Self> {
        let at = text.windows(5).position(|part| part == b"path=")?;
        let mut order = Order { reason: b"request", ms: None, path: &text[at + 5..] };
        for option in text[..at].split(|byte| *byte == b';').filter(|option| !option.is_empty()) {
            let equals = option.iter().position(|byte| *byte == b'=')?;
            let (name, value) = (&option[..equals], &option[equals + 1..]);
            match name {
                b"reason" => order.reason = value,
                b"ms" => {
                    order.ms =
                        Some(core::str::from_utf8(value).ok()?.parse::<u64>().ok()?.clamp(1, LONGEST_MS));
                }
                _ => return None,
            }
        }
        (!order.path.is_empty()).then_some(order)
    }

    /// The file and that of the draft beside it, both terminated.
    fn files(&self, path: &mut Line<'_>, draft: &mut Line<'_>) {
        draft.push(self.path).push(b".tmp\0");
        path.push(self.path).push(b"\0");
    }
}

/// Looks what keeps the program's memory and writes the report. 0, or an error number: `EPROTO` (the caller knows another version), `EINVAL` (an order
/// that is not known), `ECANCELED` (switched off), `ENOTSUP` (this Python is not supported), `EPERM` (the GIL is not held), `EBUSY` (a pass is at
/// work), or why the file could not be written.
///
/// # Safety
/// `order` is a C string; `traceback` is null or a live traceback, whose frames count as running. Call it with the GIL held, outside of any allocation.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn stormlog_why(version: u32, order: *const c_char, traceback: *const c_void) -> c_int {
    if version != VERSION {
        return libc::EPROTO;
    }
    // SAFETY: the caller guarantees that `order` is a C string.
    let text = unsafe { libc_symbols::text(order) };
    // SAFETY: the caller guarantees that the GIL is held and `traceback` is null or a live traceback.
    match alone(|| unsafe { look(text, traceback as usize) }) {
        Ok(()) => 0,
        Err(error) => error,
    }
}

/// The same at the next moment at which the main thread runs Python code. For a debugger, which stops threads anywhere. 0, or an error number
/// (`EAGAIN`: too many calls wait already).
///
/// # Safety
/// `order` is a C string.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn stormlog_why_soon(version: u32, order: *const c_char) -> c_int {
    if version != VERSION {
        return libc::EPROTO;
    }
    // SAFETY: the caller guarantees that `order` is a C string.
    let text = unsafe { libc_symbols::text(order) };
    if Order::parse(text).is_none() || text.len() >= LINE {
        return libc::EINVAL;
    }
    let Some(call) = python::pending_calls() else { return libc::ENOTSUP };
    if WAITING.is_taken.swap(true, Ordering::Acquire) {
        return libc::EBUSY;
    }
    // SAFETY: taken by this thread until the call that follows.
    unsafe {
        let place = &mut *WAITING.order.get();
        place.fill(0);
        place[..text.len()].copy_from_slice(text);
    }
    wait_for(call)
}

/// Has CPython call for the order that this thread has put there. 0, or `EAGAIN`.
fn wait_for(call: python::Pending) -> c_int {
    // SAFETY: CPython's function; it may be called without the GIL.
    if unsafe { call(waited, core::ptr::null_mut()) } != 0 {
        WAITING.is_taken.store(false, Ordering::Release);
        return libc::EAGAIN;
    }
    0
}

/// A request that waits until CPython calls back in the main thread.
struct QueuedRequest {
    is_taken: AtomicBool,
    order: UnsafeCell<[u8; LINE]>,
}
// SAFETY: written by the thread that took it, read once by the one that carries it out, which gives it back.
unsafe impl Sync for QueuedRequest {}
static WAITING: QueuedRequest =
    QueuedRequest { is_taken: AtomicBool::new(false), order: UnsafeCell::new([0; LINE]) };

extern "C" fn waited(_: *mut c_void) -> c_int {
    // SAFETY: CPython calls this once for each queued request, and the next one is written only after `is_taken` was cleared.
    let text = unsafe { &*WAITING.order.get() };
    let length = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    // SAFETY: CPython calls this with the GIL held.
    let _ = alone(|| unsafe { look(&text[..length], 0) });
    WAITING.is_taken.store(false, Ordering::Release);
    0
}

/// One pass at a time, and nothing of it in a capture.
fn alone(work: impl FnOnce() -> Result<(), c_int>) -> Result<(), c_int> {
    if BUSY.swap(true, Ordering::Acquire) {
        return Err(libc::EBUSY);
    }
    let is_recorded = EPOCH.load(Ordering::Acquire) != 0 && !thread::is_ignored();
    if is_recorded {
        thread::ignore(true);
    }
    let result = work();
    if is_recorded {
        thread::ignore(false);
    }
    BUSY.store(false, Ordering::Release);
    result
}

/// # Safety
/// `traceback` is 0 or a live traceback.
unsafe fn look(text: &[u8], traceback: usize) -> Result<(), c_int> {
    // SAFETY: the environment may be changed by another thread only with the GIL, which is held.
    let switch = unsafe { libc_symbols::text(libc::getenv(SWITCH.as_ptr())) };
    if matches!(switch, b"off" | b"0") {
        return Err(libc::ECANCELED);
    }
    let order = Order::parse(text).ok_or(libc::EINVAL)?;
    let allowed = core::str::from_utf8(switch).ok().and_then(|text| text.parse::<u64>().ok());
    let time_ms = order.ms.unwrap_or(allowed.unwrap_or(TIME_MS).min(LONGEST_MS));
    let python = Python::find().map_err(|why| match why {
        Unsupported::NoPython => libc::ESRCH,
        _ => libc::ENOTSUP,
    })?;
    // SAFETY: `PyErr_Occurred` needs the GIL, which the condition before has checked.
    if !python.holds_gil() || unsafe { (python.call.has_error)() } != 0 {
        return Err(libc::EPERM);
    }
    let region = Region::new().ok_or(libc::ENOMEM)?;
    pass(&region, &python, &order, time_ms, traceback).unwrap_or(Err(libc::ENOMEM))
}

fn pass(
    region: &Region,
    python: &Python,
    order: &Order<'_>,
    time_ms: u64,
    traceback: usize,
) -> Option<Result<(), c_int>> {
    let (began, taken_at_ns) = (now_ns(), clock(libc::CLOCK_REALTIME));
    let time = time_ms * 1_000_000;
    let mut kinds = Kinds::new(region)?;
    let mut sampler = Sampler::new(region)?;
    let roots = Roots::collect(region, python, traceback)?;
    let is_sampled = walk(python, &mut kinds, &roots, &mut sampler, began + time / 10 * SAMPLING_TENTHS);
    let mut graph = Graph::new(region)?;
    let nodes = region.array::<u32>(MOST_SAMPLES * MEMORIES)?;
    let mut targets = 0;
    for (place, sample) in nodes.iter_mut().zip(sampler.samples()) {
        if let Some(node) = graph.add(sample.object) {
            *place = node as u32 + 1;
            targets = targets.max(node + 1);
        }
    }
    let is_followed = graph.follow(python, &mut kinds, &roots, targets, began + time);
    let holders = Holders::new(region, python, &mut kinds, &graph, &roots, &sampler, nodes)?;
    let report = Report {
        python,
        graph: &graph,
        roots: &roots,
        sampler: &sampler,
        holders: &holders,
        nodes,
        taken_at_ns,
        elapsed_us: (now_ns() - began) / 1000,
        is_complete: is_sampled && is_followed && !holders.is_full,
    };
    let mut out = Line::new(region.array(TEXT)?);
    let mut line = Line::new(region.array(LINE)?);
    report.write(&mut kinds, order, &mut out, &mut line);
    let mut path = Line::new(region.array(LINE * 3)?);
    let mut draft = Line::new(region.array(LINE * 3)?);
    order.files(&mut path, &mut draft);
    let (Ok(path), Ok(draft)) =
        (CStr::from_bytes_with_nul(path.text()), CStr::from_bytes_with_nul(draft.text()))
    else {
        return Some(Err(libc::ENAMETOOLONG));
    };
    Some(store(path, draft, out.text()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_read_with_its_path_last() {
        let order = Order::parse(b"reason=exit;ms=50;path=/run;1/retained-7.json").unwrap();
        assert_eq!((order.reason, order.ms), (b"exit".as_slice(), Some(50)));
        let (mut path, mut draft) = ([0; 256], [0; 256]);
        let (mut path, mut draft) = (Line::new(&mut path), Line::new(&mut draft));
        order.files(&mut path, &mut draft);
        assert_eq!(path.text(), b"/run;1/retained-7.json\0");
        assert_eq!(draft.text(), b"/run;1/retained-7.json.tmp\0");
        for wrong in [b"".as_slice(), b"path=", b"colour=red;path=/a", b"ms=x;path=/a"] {
            assert!(Order::parse(wrong).is_none());
        }
    }

    #[test]
    fn process_without_python_is_refused() {
        // SAFETY: a C string and no traceback.
        let answer = unsafe { stormlog_why(VERSION, c"path=/dev/null/x".as_ptr(), core::ptr::null()) };
        assert_eq!(answer, libc::ESRCH);
    }
}
