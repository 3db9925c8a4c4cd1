//! The Python stack of a backward pass. The threads of an autograd engine run no Python, and another thread's frames cannot be walked; so the thread that calls the engine leaves its
//! own stack here while it waits, and what the engine's threads ask for is put below it. Must never guess: with several callers inside the stack is unknown, and says so.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use stormlog_capture::record::mark;

use crate::injected::code;
use crate::session::{self, EPOCH};
use crate::stacks;
use crate::sys;
use crate::thread::{Inside, Thread};

/// Callers whose stacks are kept at once.
const CALLERS: usize = 8;
/// Frames that are kept of a stack, the innermost.
const DEPTH: usize = 256;

/// A caller that is not yet done publishing.
const COMING: u32 = u32::MAX;
/// Bits of a token for the place of its stack; all of them: it has none.
const PLACE_BITS: u32 = 4;
const NO_PLACE: u32 = (1 << PLACE_BITS) - 1;

/// The callers that are inside. All zeroes: none.
#[repr(C)]
pub struct Backward {
    /// By place: the token of the caller there, or 0.
    tokens: [AtomicU32; CALLERS],
    /// By place: the kernel's number of the caller's thread, or 0.
    threads: [AtomicU64; CALLERS],
    /// Callers that found no place.
    more: AtomicU32,
    next: AtomicU32,
    stacks: [Stack; CALLERS],
}

#[repr(C)]
struct Stack {
    /// Frames, and whether outer ones were left out.
    length: AtomicU32,
    truncated: AtomicU32,
    /// From the innermost: code id and what [`stacks::detail`] makes of the instruction.
    frames: [AtomicU64; DEPTH],
}

/// What a thread of the engine made of a stack last time. All zeroes: nothing.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LastBackward {
    token: u32,
    node: u32,
    gaps: u32,
}

impl LastBackward {
    /// None.
    pub const NONE: Self = Self { token: 0, node: 0, gaps: 0 };
}

/// Whether a thread is one of the engine's. All zeroes: not asked for yet.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum EngineThread {
    Unasked = 0,
    No,
    Yes,
}

/// The beginning of the names that PyTorch gives to the threads of its engine, before anything runs in them.
const ENGINE: &[u8] = b"pt_autograd_";

/// Who is inside.
enum Inner {
    No,
    One { place: usize, token: u32 },
    Several,
}

impl Backward {
    /// Forgets all; only while nothing is recorded. Tokens given out before stay void.
    pub fn clear(&self) {
        for token in &self.tokens {
            token.store(0, Ordering::Relaxed);
        }
        for thread in &self.threads {
            thread.store(0, Ordering::Relaxed);
        }
        self.more.store(0, Ordering::Relaxed);
    }

    fn token(&self, place: u32) -> u32 {
        let number = self.next.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        // A positive `int`, and neither 0 nor `COMING`.
        ((number << PLACE_BITS) | place) & i32::MAX as u32
    }

    /// A place for this thread: that of an earlier call whose end was lost to an interrupt, if there is one. Others do not see it yet.
    fn claim(&self, thread: u64) -> Option<usize> {
        let is_mine = |owner: &AtomicU64| owner.load(Ordering::Acquire) == thread;
        if let Some(mine) = self.threads.iter().position(is_mine) {
            self.tokens[mine].store(COMING, Ordering::Release);
            return Some(mine);
        }
        let is_free = |token: &AtomicU32| {
            token.compare_exchange(0, COMING, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let place = self.tokens.iter().position(is_free)?;
        self.threads[place].store(thread, Ordering::Release);
        Some(place)
    }

    fn inner(&self) -> Inner {
        let mut only = Inner::No;
        if self.more.load(Ordering::Acquire) > 0 {
            return Inner::Several;
        }
        for (place, token) in self.tokens.iter().enumerate() {
            let token = token.load(Ordering::Acquire);
            if token == 0 || token == COMING {
                continue;
            }
            if !matches!(only, Inner::No) {
                return Inner::Several;
            }
            only = Inner::One { place, token };
        }
        only
    }
}

/// Publishes this thread's Python stack. Gives a token to end that with, 0 when nothing was published. The caller holds the GIL.
pub fn enter() -> c_int {
    if EPOCH.load(Ordering::Acquire) == 0 || !session::options().gpu {
        return 0;
    }
    let Some(state) = session::current() else { return 0 };
    let backward = &state.backward;
    let Some(mut inside) = Inside::enter_report() else { return 0 };
    let thread = inside.record(|thread| thread.writer.thread);
    let Some(place) = backward.claim(thread) else {
        backward.more.fetch_add(1, Ordering::AcqRel);
        return backward.token(NO_PLACE) as c_int;
    };
    let stack = &backward.stacks[place];
    inside.record(|thread| publish(thread, stack));
    let token = backward.token(place as u32);
    backward.tokens[place].store(token, Ordering::Release);
    token as c_int
}

fn publish(thread: &mut Thread, stack: &Stack) {
    let (mut length, mut truncated) = (0, 0);
    stacks::each_code(thread, |id, detail| {
        if matches!(id, code::LEFT_OUT | code::UNRECORDED) {
            return true;
        }
        let Some(frame) = stack.frames.get(length) else {
            truncated = 1;
            return false;
        };
        frame.store(u64::from(id) << 32 | u64::from(detail), Ordering::Relaxed);
        length += 1;
        true
    });
    stack.length.store(length as u32, Ordering::Relaxed);
    stack.truncated.store(truncated, Ordering::Relaxed);
}

/// The caller with this token has left.
pub fn leave(token: c_int) {
    let (Ok(token @ 1..), Some(state)) = (u32::try_from(token), session::current()) else { return };
    let place = token & NO_PLACE;
    if place == NO_PLACE {
        let one_less = |more: u32| more.checked_sub(1);
        let _ = state.backward.more.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_less);
        return;
    }
    let Backward { tokens, threads, .. } = &state.backward;
    // Another recording, or a forked child, knows nothing of it.
    if let (Some(mine), Some(thread)) = (tokens.get(place as usize), threads.get(place as usize))
        && mine.load(Ordering::Acquire) == token
    {
        thread.store(0, Ordering::Release);
        mine.store(0, Ordering::Release);
    }
}

/// The node for what Python code asks for that a thread of the engine runs (a function of the program, a compiled region): the thread's own frames
/// below the caller's, where that is known. `own` is the node of its own frames alone.
pub fn below_caller(thread: &mut Thread, own: u32) -> u32 {
    if thread.engine == EngineThread::Unasked {
        let is_engine = sys::thread_name().starts_with(ENGINE);
        thread.engine = if is_engine { EngineThread::Yes } else { EngineThread::No };
    }
    if thread.engine == EngineThread::No {
        return own;
    }
    let caller = node(thread);
    if caller == 0 {
        return own;
    }
    let (mut frames, mut length) = ([0; DEPTH], 0);
    stacks::each_code(thread, |id, detail| {
        if matches!(id, code::LEFT_OUT | code::UNRECORDED) {
            return true;
        }
        let Some(frame) = frames.get_mut(length) else { return false };
        *frame = u64::from(id) << 32 | u64::from(detail);
        length += 1;
        true
    });
    stacks::below(thread, caller, &frames[..length])
}

/// The node for what a thread without Python frames asks for; 0 when no one runs backward.
pub fn node(thread: &mut Thread) -> u32 {
    let Some(state) = session::current() else { return 0 };
    let (place, token) = match state.backward.inner() {
        Inner::No => return 0,
        Inner::Several => return stacks::mark(thread, 0, mark::BACKWARD_AMBIGUOUS),
        Inner::One { place, token } => (place, token),
    };
    let last = thread.backward;
    if (last.token, last.gaps) == (token, thread.writer.gaps) {
        return last.node;
    }
    let stack = &state.backward.stacks[place];
    let mut frames = [0; DEPTH];
    let length = (stack.length.load(Ordering::Relaxed) as usize).min(DEPTH);
    for (frame, kept) in frames.iter_mut().zip(&stack.frames[..length]) {
        *frame = kept.load(Ordering::Relaxed);
    }
    let truncated = stack.truncated.load(Ordering::Relaxed) != 0;
    fence(Ordering::Acquire);
    if state.backward.tokens[place].load(Ordering::Relaxed) != token {
        // It left meanwhile: then this thread does not work for it, and another may be here already.
        return stacks::mark(thread, 0, mark::BACKWARD_AMBIGUOUS);
    }
    let outer = stacks::from_codes(thread, truncated, &frames[..length]);
    let node = stacks::mark(thread, outer, mark::BACKWARD);
    thread.backward = LastBackward { token, node, gaps: thread.writer.gaps };
    node
}
