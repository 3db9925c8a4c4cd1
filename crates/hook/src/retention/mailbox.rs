//! Questions of the supervisor: a word in the header of the live file that it counts up. A writer looks at it when the clock has moved, so that it costs a
//! load every few milliseconds. It is inside an allocation then: it must never allocate or run the pass, and has CPython call us at its next safe moment.

use core::mem::transmute;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use stormlog_model::layout::{RETAINED_PREFIX, RETAINED_SUFFIX};

use super::python::{Pending, pending_calls};
use super::{LINE, WAITING, line::Line, wait_for};
use crate::{code_end, ends, session, sys};

/// Milliseconds for which a forecast may stop the program: less than it notices.
const FORECAST_MS: u64 = 50;

/// Questions that were met; counted from 0 in each file.
static MET: AtomicU64 = AtomicU64::new(0);
/// CPython's function, once it is known.
static PENDING_CALLS: AtomicUsize = AtomicUsize::new(0);

/// Finds the function of CPython's. Looks a symbol up, so never inside an allocation.
pub fn prepare() {
    if let Some(call) = pending_calls() {
        PENDING_CALLS.store(call as usize, Ordering::Relaxed);
    }
}

/// Looks whether there is a question.
#[inline]
pub fn look() {
    let asked = session::questions();
    if asked != MET.load(Ordering::Relaxed) {
        meet(asked);
    }
}

#[cold]
#[inline(never)]
fn meet(asked: u64) {
    let before = MET.swap(asked, Ordering::AcqRel);
    let call = PENDING_CALLS.load(Ordering::Relaxed);
    // A child begins with a file of its own, whose word is 0; and what is shared with a parent is not ours to answer.
    if asked <= before || call == 0 || !session::is_own_process() || code_end::has_come() {
        return;
    }
    let Some(run) = ends::run() else { return };
    if WAITING.is_taken.swap(true, Ordering::Acquire) {
        return;
    }
    // SAFETY: taken by this thread until the call that follows.
    let place: &mut [u8; LINE] = unsafe { &mut *WAITING.order.get() };
    place.fill(0);
    let mut order = Line::new(&mut place[..LINE - 1]);
    order.push(b"reason=forecast;ms=").number(FORECAST_MS).push(b";path=").push(run).push(b"/");
    order.push(RETAINED_PREFIX.as_bytes()).number(u64::from(sys::process())).push(RETAINED_SUFFIX.as_bytes());
    // SAFETY: the address of CPython's function of this type. It takes a lock that CPython holds for a few instructions, in which it allocates nothing.
    wait_for(unsafe { transmute::<usize, Pending>(call) });
}
