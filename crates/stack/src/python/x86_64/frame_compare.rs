//! Compares kept frames with living ones, two words at a time.
//! On 3.11 what is compared are two words side by side, in the frame as in the entry: one load each. This loop is most of the cost of an
//! allocation under a deep stack.

use core::arch::x86_64::{
    __m128i, _mm_cmpeq_epi8, _mm_load_si128, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128,
    _mm_setzero_si128, _mm_xor_si128,
};

use crate::python::layout::Layout;
use crate::python::load;
use crate::python::stack::Entry;

const PAIR: usize = Layout::V3_11.frame_previous as usize;
const _: () = assert!(Layout::V3_11.frame_instruction as usize == PAIR + 8);
const FLAG: u16 = match Layout::V3_11.frame_entry {
    Some(at) => at,
    None => 0,
};
const _: () = assert!(FLAG > 0);

/// # Safety
/// As for `as_kept` of `python/frame_compare.rs`, with the layout of 3.11.
#[inline(always)]
pub(in crate::python) unsafe fn as_kept<const COMPARED: bool>(
    end: *const Entry,
    mut at: *const Entry,
) -> bool {
    // SAFETY: the caller guarantees that the entries exist and their frames can be read; an entry begins with the two words
    // and is aligned to them.
    unsafe {
        let difference = |at: *const Entry| {
            let now = _mm_loadu_si128(((*at).frame + PAIR) as *const __m128i);
            _mm_xor_si128(now, _mm_load_si128(at.cast()))
        };
        let flag = |at: *const Entry| match COMPARED {
            true => load::<u8>((*at).frame, FLAG) ^ u8::from((*at).entry),
            false => 0,
        };
        let (mut all, mut flags) = (_mm_setzero_si128(), 0);
        while at.addr() >= end.addr() + 3 * size_of::<Entry>() {
            let two = _mm_or_si128(difference(at), difference(at.sub(1)));
            let more = _mm_or_si128(difference(at.sub(2)), difference(at.sub(3)));
            all = _mm_or_si128(all, _mm_or_si128(two, more));
            flags |= (flag(at) | flag(at.sub(1))) | (flag(at.sub(2)) | flag(at.sub(3)));
            at = at.sub(4);
        }
        while at >= end {
            all = _mm_or_si128(all, difference(at));
            flags |= flag(at);
            at = at.sub(1);
        }
        flags == 0 && _mm_movemask_epi8(_mm_cmpeq_epi8(all, _mm_setzero_si128())) == 0xffff
    }
}
