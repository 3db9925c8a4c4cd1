//! The memory of one pass: a mapping of its own, so that the program's allocator is not asked when it may have nothing left. Given back when the
//! pass ends. Must never grow.

use core::cell::Cell;
use core::mem::{align_of, size_of};

use crate::sys;

/// Bytes of a pass; pages that are not used cost address space only.
pub const BYTES: usize = 10 << 20;

/// A mapping from which arrays are taken.
pub struct Region {
    start: *mut u8,
    used: Cell<usize>,
}

impl Region {
    /// A new one; `None` when there is no memory.
    pub fn new() -> Option<Self> {
        let start = sys::map_private(BYTES);
        (!start.is_null()).then_some(Region { start, used: Cell::new(0) })
    }

    /// An array of zeroed values; `None` when the region is used up.
    ///
    /// All zeroes must be a value of `T`.
    #[allow(clippy::mut_from_ref, reason = "each array is taken once and overlaps no other")]
    pub fn array<T: Zeroed>(&self, length: usize) -> Option<&mut [T]> {
        let at = self.used.get().next_multiple_of(align_of::<T>());
        let end = at.checked_add(length.checked_mul(size_of::<T>())?)?;
        if end > BYTES {
            return None;
        }
        self.used.set(end);
        // SAFETY: the bytes are in the mapping, zeroed, aligned, and were not given out before; zeroes are a `T`.
        Some(unsafe { core::slice::from_raw_parts_mut(self.start.add(at).cast::<T>(), length) })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        sys::unmap(self.start, BYTES);
    }
}

/// Types of which all zeroes is a value.
///
/// # Safety
/// A value of the type whose bytes are all zero is valid.
pub unsafe trait Zeroed: Copy {}
// SAFETY: an integer, valid when zeroed.
unsafe impl Zeroed for u8 {}
// SAFETY: an integer, valid when zeroed.
unsafe impl Zeroed for u32 {}
// SAFETY: an integer, valid when zeroed.
unsafe impl Zeroed for u64 {}
// SAFETY: an integer, valid when zeroed.
unsafe impl Zeroed for usize {}
// SAFETY: both fields are integers, valid when zeroed.
unsafe impl Zeroed for (usize, usize) {}
