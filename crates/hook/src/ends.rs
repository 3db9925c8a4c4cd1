//! The run's file of ends: a line for what only the process itself knows of an end, of its own or of another process. Must never allocate, touch `errno`, or
//! take long: it is called before a signal is sent and after a request got no memory, also in a signal handler, on a small stack.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

use stormlog_model::layout::{ENDS_FILE, ENDS_MAX_BYTES, ENDS_OF_A_FAILED_REQUEST, RUN_VARIABLE};

use crate::libc_symbols;
use crate::options::Text;
use crate::retention::line::Line;
use crate::session;
use crate::sys;

/// Bytes of a line: a word, four numbers and their spaces.
const LINE: usize = 112;
/// Between two lines about failed requests: a program may try again all day, and the last one is what matters.
const FAILED_EVERY_NS: u64 = 1_000_000_000;

/// The path of the file, with the zero byte that ends it; empty where the program is not part of a run.
struct Path(UnsafeCell<Text>);
// SAFETY: written by `remember` alone, before the program has a second thread.
unsafe impl Sync for Path {}

static PATH: Path = Path(UnsafeCell::new(Text::EMPTY));
/// When the last line about a failed request was written.
static LAST_FAILED: AtomicU64 = AtomicU64::new(0);

/// Keeps where the file is. Before `main` only.
pub fn remember() {
    let mut name = [0_u8; 64];
    let length = RUN_VARIABLE.len().min(name.len() - 1);
    name[..length].copy_from_slice(&RUN_VARIABLE.as_bytes()[..length]);
    // SAFETY: before `main` there is one thread, and the environment is as the kernel made it; the name ends with a zero byte.
    unsafe {
        let run = libc_symbols::text(libc::getenv(name.as_ptr().cast()));
        if run.is_empty() {
            return;
        }
        let path = &mut *PATH.0.get();
        for part in [run, b"/", ENDS_FILE.as_bytes(), b"\0"] {
            path.push(part);
        }
    }
}

/// Whether the program is part of a run.
pub fn is_kept() -> bool {
    path().last() == Some(&0)
}

/// The directory of the run; `None` where the program is not part of one.
pub fn run() -> Option<&'static [u8]> {
    path().strip_suffix(&[0])?.strip_suffix(ENDS_FILE.as_bytes())?.strip_suffix(b"/")
}

fn path() -> &'static [u8] {
    // SAFETY: PATH is written before `main`, when there is one thread, and only read since.
    unsafe { (*PATH.0.get()).bytes() }
}

/// Writes one line: a word, and numbers whose sign is given. `most` bounds the file.
pub fn write(word: &str, numbers: [(bool, u64); 4], most: u64) {
    if !is_kept() {
        return;
    }
    let Ok(descriptor) = sys::open(path(), libc::O_WRONLY | libc::O_APPEND | libc::O_NOFOLLOW, 0) else {
        return;
    };
    if (sys::length(descriptor) as u64) < most {
        let mut room = [0; LINE];
        let mut line = Line::new(&mut room);
        line.push(word.as_bytes());
        for (is_negative, number) in numbers {
            line.push(if is_negative { b" -" } else { b" " }).number(number);
        }
        line.push(b"\n");
        sys::write(descriptor, line.text());
    }
    sys::close(descriptor);
}

/// Notes that a request got no memory: a program that handles the error and exits with a status failed because of that.
#[cold]
pub fn failed_request(is_device: bool, bytes: u64) {
    let now = session::realtime_ns();
    if now.saturating_sub(LAST_FAILED.swap(now, Ordering::Relaxed)) < FAILED_EVERY_NS {
        return;
    }
    let numbers = [u64::from(sys::process()), u64::from(is_device), bytes, now];
    write(ENDS_OF_A_FAILED_REQUEST, numbers.map(|number| (false, number)), ENDS_MAX_BYTES / 2);
}
