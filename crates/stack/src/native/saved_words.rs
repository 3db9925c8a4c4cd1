//! The words of the stack that decided the kept frames, each with its address. Must never read a word that is not shown to be live.

use super::x86_64::step::UnwoundFrame;

/// Return address, `bp` and `sp`.
pub(super) const EACH: usize = 3;

#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct SavedWord {
    address: u64,
    word: u64,
}

impl SavedWord {
    /// Whether the word is as it was.
    ///
    /// # Safety
    /// The address can be read.
    #[inline(always)]
    unsafe fn is_unchanged(&self) -> bool {
        // SAFETY: the caller guarantees that the address can be read.
        unsafe { (self.address as *const u64).read_unaligned() == self.word }
    }
}

/// Those of all kept frames but the innermost, the outermost frame's first. A frame has at most [`EACH`].
#[repr(C)]
pub(super) struct SavedWords<const CAPACITY: usize> {
    all: [SavedWord; CAPACITY],
}

impl<const CAPACITY: usize> SavedWords<CAPACITY> {
    pub const NONE: Self = Self { all: [SavedWord { address: 0, word: 0 }; CAPACITY] };

    /// Puts those of a frame at `place`; the place after them. `needs_bp`: its `bp` decides something.
    ///
    /// # Safety
    /// `place + EACH` is at most the capacity.
    #[inline(always)]
    pub unsafe fn put(&mut self, place: usize, found: &UnwoundFrame, needs_bp: bool) -> usize {
        let UnwoundFrame { state, bp_at, sp_at, .. } = *found;
        let mut next = place;
        // SAFETY: at most EACH (three) words are written, and the caller guarantees that `place + EACH` is within the capacity.
        unsafe {
            let all = self.all.as_mut_ptr();
            *all.add(next) = SavedWord { address: state.sp.wrapping_sub(8), word: state.ip };
            next += 1;
            if needs_bp && bp_at != 0 {
                *all.add(next) = SavedWord { address: bp_at, word: state.bp };
                next += 1;
            }
            if sp_at != 0 {
                *all.add(next) = SavedWord { address: sp_at, word: state.sp };
                next += 1;
            }
        }
        next
    }

    /// Whether the first `count` are as they were.
    ///
    /// # Safety
    /// `count` is at most the capacity, and the frame that the last of them was read from is live and in the state it had then. (So its words are live; if
    /// they are as they were, so is the state of its caller, whose words are then live too; and so on outwards.)
    #[inline(always)]
    pub unsafe fn are_unchanged(&self, count: usize) -> bool {
        let mut left = count;
        // SAFETY: below the count; each word is read only after those further in were found to be as they were.
        unsafe {
            let all = self.all.as_ptr();
            let same = |place: usize| (*all.add(place)).is_unchanged();
            // four at a time, for there are some thirty
            while left >= 4 {
                left -= 4;
                if !(same(left + 3) && same(left + 2) && same(left + 1) && same(left)) {
                    return false;
                }
            }
            while left > 0 {
                left -= 1;
                if !same(left) {
                    return false;
                }
            }
        }
        true
    }

    /// Whether those from `first` up to `end`, of one frame, are as they were.
    ///
    /// # Safety
    /// As for [`Self::are_unchanged`].
    #[inline(always)]
    pub unsafe fn are_unchanged_between(&self, first: usize, end: usize) -> bool {
        // SAFETY: the caller guarantees that the addresses of the saved words can be read; the indices are below their number.
        (first..end).all(|place| unsafe { (*self.all.as_ptr().add(place)).is_unchanged() })
    }
}
