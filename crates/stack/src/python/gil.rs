//! The number of GIL hand-overs between threads, which CPython counts itself. It serves as a clock: between two of its ticks at most one
//! thread has run Python. Must not be used before it was shown to belong to a GIL that this thread holds.

use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;

use super::{Interpreter, load, symbol};

/// Where the GIL is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Gil {
    /// 3.11: in `_PyRuntime`.
    At(usize),
    /// Later: where the main interpreter says, which is in `_PyRuntime` and so is there as long as the process.
    Of { main: unsafe extern "C" fn() -> *const u8, offset: u16 },
}

/// In the GIL: microseconds after which it is requested, its last holder, whether it is held, and the count.
const INTERVAL: u16 = 0;
const HOLDER: u16 = 8;
const LOCKED: u16 = 16;
const SWITCHES: u16 = 24;
/// The longest switch interval that is believed, in microseconds: an hour.
const LONGEST_INTERVAL: u64 = 3_600_000_000;

impl Gil {
    /// The GIL of `version`, whose `_PyRuntime` is at `runtime`.
    ///
    /// # Safety
    /// `runtime` is 0 or the address of the interpreter's `_PyRuntime`, which begins with the published offsets from 3.13 on.
    pub unsafe fn of(version: u32, runtime: usize) -> Option<Self> {
        /// Where `_Py_DebugOffsets` has the interpreter's pointer to its GIL, in bytes.
        const PUBLISHED_3_13: u16 = 14 * 8;
        const PUBLISHED_3_14: u16 = 15 * 8;
        if runtime == 0 {
            return None;
        }
        // SAFETY: the caller guarantees that `runtime` is the interpreter's `_PyRuntime`, which begins with the published
        // offsets in these versions.
        let published = |at: u16| u16::try_from(unsafe { load::<u64>(runtime, at) }).ok();
        let offset = match version >> 16 {
            0x030b => return Some(Self::At(runtime + 360)),
            0x030c => 384,
            0x030d => published(PUBLISHED_3_13)?,
            0x030e => published(PUBLISHED_3_14)?,
            _ => return None,
        };
        // SAFETY: the type is that of CPython's header.
        Some(Self::Of { main: unsafe { symbol(c"PyInterpreterState_Main") }?, offset })
    }
}

impl Interpreter {
    /// Whether [`Self::gil_switches`] may yet find it.
    #[inline]
    pub fn counts_switches(&self) -> bool {
        self.gil.is_some()
    }

    /// Where the GIL's switches are counted. `None` when that is not known, or this thread has not the GIL, by which it is known.
    ///
    /// # Safety
    /// `thread_state` is what [`Self::thread_state`] just gave to this thread.
    pub unsafe fn gil_switches(&self, thread_state: *const u8) -> Option<NonNull<AtomicU64>> {
        // SAFETY: the caller guarantees that `thread_state` is this thread's. The main interpreter exists while a thread has
        // a GIL, and its GIL as long as the process.
        unsafe {
            if !self.holds_gil(thread_state) {
                return None;
            }
            let gil = match self.gil? {
                Gil::At(gil) => gil,
                Gil::Of { main, offset } => load(main().addr(), offset),
            };
            let is_ours = gil != 0
                && load::<usize>(gil, HOLDER) == thread_state.addr()
                && load::<i32>(gil, LOCKED) == 1
                && (1..=LONGEST_INTERVAL).contains(&load(gil, INTERVAL));
            NonNull::new((gil + usize::from(SWITCHES)) as *mut AtomicU64).filter(|_| is_ours)
        }
    }
}
