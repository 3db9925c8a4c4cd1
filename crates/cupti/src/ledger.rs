//! The driver's allocations that are alive, by the stack that made them, and which library a stack belongs to.
//!
//! Written inside the program's own allocations: nothing here waits, and what grows is bounded. Libraries are looked up
//! when a report is made.

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};

/// Frames of a stack, and the limits of what is remembered; the rest is counted as lost.
const FRAMES: usize = 24;
const MOST_LIVE: usize = 1 << 20;
const MOST_STACKS: usize = 1 << 14;
/// Libraries that allocate for others: the responsible one is their caller. `_native.` is ours, whose callback is the
/// innermost frame.
const BETWEEN: [&str; 5] = ["libcuda.so", "libcudart", "libcupti", "libnvidia-", "_native."];

pub(crate) type Stack = [usize; FRAMES];

struct Live {
    device: i32,
    bytes: u64,
    stack: usize,
}

/// What CUPTI reported so far.
#[derive(Default)]
pub(crate) struct Ledger {
    /// By address, or by handle where there is no address yet; the two are numbers of different kinds.
    live: HashMap<(bool, usize), Live>,
    stacks: Vec<Stack>,
    number_of: HashMap<Stack, usize>,
    counts: Counts,
}

/// How often the driver was called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Allocations that were recorded.
    pub allocations: u64,
    /// Frees of recorded allocations.
    pub frees: u64,
    /// Allocations that were not recorded because a limit was reached.
    pub lost: u64,
    /// Modules of kernels that were loaded.
    pub modules: u64,
    /// Their size.
    pub module_bytes: u64,
}

impl Ledger {
    /// Records an allocation that this stack made.
    pub(crate) fn allocate(&mut self, key: (bool, usize), device: i32, bytes: u64, stack: &Stack) {
        let known = self.number_of.get(stack).copied();
        if self.live.len() >= MOST_LIVE || (known.is_none() && self.stacks.len() >= MOST_STACKS) {
            self.counts.lost += 1;
            return;
        }
        let stack = known.unwrap_or_else(|| {
            self.stacks.push(*stack);
            self.number_of.insert(*stack, self.stacks.len() - 1);
            self.stacks.len() - 1
        });
        if self.live.insert(key, Live { device, bytes, stack }).is_none() {
            self.counts.allocations += 1;
        }
    }

    /// Records a free; an allocation that was never reported is ignored.
    pub(crate) fn free(&mut self, key: (bool, usize)) {
        if self.live.remove(&key).is_some() {
            self.counts.frees += 1;
        }
    }

    /// A module of kernels was loaded.
    pub(crate) fn load(&mut self, bytes: u64) {
        self.counts.modules += 1;
        self.counts.module_bytes += bytes;
    }

    /// Bytes and number of the allocations that are alive, by device and stack.
    pub(crate) fn held(&self) -> HashMap<(i32, Stack), (u64, u64)> {
        let mut sums: HashMap<(i32, Stack), (u64, u64)> = HashMap::new();
        for live in self.live.values() {
            let stack = self.stacks.get(live.stack).copied().unwrap_or([0; FRAMES]);
            let sum = sums.entry((live.device, stack)).or_default();
            *sum = (sum.0 + live.bytes, sum.1 + 1);
        }
        sums
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }
}

/// The stack of this thread, as addresses.
pub(crate) fn here() -> Stack {
    let mut frames = [std::ptr::null_mut(); FRAMES];
    // SAFETY: writes at most `FRAMES` frames, the length of the array. `Listener::subscribe` called it once before there was
    // a subscriber, so the unwinder is loaded and this allocates nothing.
    unsafe { libc::backtrace(frames.as_mut_ptr(), FRAMES as c_int) };
    frames.map(|frame| frame as usize)
}

/// The innermost library of a stack that allocates for itself; `unknown` where there is none.
pub(crate) fn owner(stack: &Stack) -> String {
    for frame in stack.iter().filter(|frame| **frame != 0) {
        // SAFETY: all zeros is a valid `Dl_info`: four null pointers or addresses.
        let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: takes any address, and returns 0 for one that is in no library.
        if unsafe { libc::dladdr(*frame as *const c_void, &raw mut found) } == 0 || found.dli_fname.is_null()
        {
            continue;
        }
        // SAFETY: the loader's own C string; it lives as long as the library, which has a frame on a stack.
        let path = unsafe { CStr::from_ptr(found.dli_fname) }.to_string_lossy();
        let name = path.rsplit('/').next().unwrap_or_default();
        if !BETWEEN.iter().any(|part| name.starts_with(part)) {
            return name.to_owned();
        }
    }
    "unknown".to_owned()
}
