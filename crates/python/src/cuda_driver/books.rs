//! What the driver told so far, and whose it is.
//!
//! Written inside the program's own allocations: nothing here waits, and what grows is bounded. Libraries are named afterwards.

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};

/// Frames of a stack, and how much is remembered at most; the rest is counted.
const FRAMES: usize = 24;
const MOST_LIVE: usize = 1 << 20;
const MOST_STACKS: usize = 1 << 14;
/// Libraries that allocate for others: the caller is who we look for. With ours, whose callback is the innermost frame.
const BETWEEN: [&str; 5] = ["libcuda.so", "libcudart", "libcupti", "libnvidia-", "_native."];

pub(super) type Stack = [usize; FRAMES];

struct Live {
    device: i32,
    bytes: u64,
    stack: usize,
}

/// What was told so far.
#[derive(Default)]
pub(super) struct Books {
    /// By address, or by handle where there is no address yet; the two are numbers of different kinds.
    live: HashMap<(bool, usize), Live>,
    stacks: Vec<Stack>,
    number_of: HashMap<Stack, usize>,
    allocations: u64,
    frees: u64,
    lost: u64,
    modules: u64,
    module_bytes: u64,
}

/// Allocations, frees, those lost for want of room; modules that were loaded and their bytes.
pub(super) type Counts = (u64, u64, u64, u64, u64);

impl Books {
    /// Memory was taken by the driver for this stack.
    pub(super) fn take(&mut self, key: (bool, usize), device: i32, bytes: u64, stack: &Stack) {
        let known = self.number_of.get(stack).copied();
        if self.live.len() >= MOST_LIVE || (known.is_none() && self.stacks.len() >= MOST_STACKS) {
            self.lost += 1;
            return;
        }
        let stack = known.unwrap_or_else(|| {
            self.stacks.push(*stack);
            self.number_of.insert(*stack, self.stacks.len() - 1);
            self.stacks.len() - 1
        });
        if self.live.insert(key, Live { device, bytes, stack }).is_none() {
            self.allocations += 1;
        }
    }

    /// It was given back; what was never told is not missed.
    pub(super) fn give_back(&mut self, key: (bool, usize)) {
        if self.live.remove(&key).is_some() {
            self.frees += 1;
        }
    }

    /// A module of kernels was loaded.
    pub(super) fn load(&mut self, bytes: u64) {
        self.modules += 1;
        self.module_bytes += bytes;
    }

    /// What is held now, bytes and pieces, by device and stack.
    pub(super) fn held(&self) -> HashMap<(i32, Stack), (u64, u64)> {
        let mut sums: HashMap<(i32, Stack), (u64, u64)> = HashMap::new();
        for live in self.live.values() {
            let stack = self.stacks.get(live.stack).copied().unwrap_or([0; FRAMES]);
            let sum = sums.entry((live.device, stack)).or_default();
            *sum = (sum.0 + live.bytes, sum.1 + 1);
        }
        sums
    }

    pub(super) fn counts(&self) -> Counts {
        (self.allocations, self.frees, self.lost, self.modules, self.module_bytes)
    }
}

/// The stack of this thread, as addresses.
pub(super) fn here() -> Stack {
    let mut frames = [std::ptr::null_mut(); FRAMES];
    // SAFETY: writes at most as many frames as there is room for. It was called once before there was a subscriber, so
    // the unwinder is loaded.
    unsafe { libc::backtrace(frames.as_mut_ptr(), FRAMES as c_int) };
    frames.map(|frame| frame as usize)
}

/// The innermost library of a stack that allocates for itself.
pub(super) fn owner(stack: &Stack) -> String {
    for frame in stack.iter().filter(|frame| **frame != 0) {
        // SAFETY: all zeros is a valid `Dl_info`.
        let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: an address that is in no library is answered with 0.
        if unsafe { libc::dladdr(*frame as *const c_void, &raw mut found) } == 0 || found.dli_fname.is_null()
        {
            continue;
        }
        // SAFETY: the loader's own text.
        let path = unsafe { CStr::from_ptr(found.dli_fname) }.to_string_lossy();
        let name = path.rsplit('/').next().unwrap_or_default();
        if !BETWEEN.iter().any(|part| name.starts_with(part)) {
            return name.to_owned();
        }
    }
    "unknown".to_owned()
}
