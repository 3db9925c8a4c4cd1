//! Marks in frames that wait for a call to return: an intact mark proves that neither the frame nor any frame below it has run since the mark
//! was set, so a comparison of the stack may end there. Must never write to a word that Python could read.
//!
//! The mark is the word at the end of the evaluation stack of a frame whose call runs in another Python frame. Nothing reads that word: the
//! garbage collector and the clearing of a frame stop before it. It belongs to the frame, because the result of the call is stored there.
//!
//! Why an intact mark is proof: the call consumed at least one operand, the word marked. Before the same instruction can call again, in this activation
//! of the frame or in a later one at the same address, that operand is pushed again and overwrites the mark (the depth of the evaluation
//! stack is fixed for each instruction). A call that returns overwrites it with its result. So a frame that is at the instruction that was kept and has an
//! intact mark is still in the call it was in.
//!
//! Calls that do not consume the word above the end of the stack are left out: the resumption of a generator (`for` over one), a call
//! through C, and the frames CPython inserts by itself.

use super::layout::{OWNER_THREAD, StackTop};
use super::{Interpreter, Visible, load};

/// Entries between two marks.
const SPACING: usize = 16;
/// Marks for the deepest stack that is kept whole.
const MOST: usize = super::CAPACITY / SPACING;

/// No reference to an object: those are even.
const MARK: usize = 0x5354_4f52_4d4c_4f47 | 1;

/// The marked entries of a stack, outermost first. Valid when zero.
#[repr(C)]
pub(super) struct Marks {
    count: usize,
    /// Entries up to this one have been tried.
    tried: usize,
    /// The word of the innermost mark; 0 when there is none.
    word: usize,
    marks: [Mark; MOST],
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Mark {
    entry: usize,
    word: usize,
}

impl Marks {
    pub const NONE: Self =
        Self { count: 0, tried: 0, word: 0, marks: [const { Mark { entry: 0, word: 0 } }; MOST] };

    pub fn clear(&mut self) {
        (self.count, self.tried, self.word) = (0, 0, 0);
    }

    /// The innermost entry that is marked; 0 when none is.
    #[inline(always)]
    pub fn innermost(&self) -> usize {
        self.last().map_or(0, |mark| mark.entry)
    }

    /// Whether the innermost mark is as it was set, or there is none.
    ///
    /// # Safety
    /// The frame of the innermost marked entry is alive.
    #[inline(always)]
    pub unsafe fn innermost_is_intact(&self) -> bool {
        // SAFETY: `word` is 0 or points into the frame of the innermost mark, which the caller guarantees to be alive.
        self.word == 0 || unsafe { *(self.word as *const usize) } == MARK
    }

    /// Forgets the marks of entry `from` and of those above it.
    #[inline]
    pub fn drop_from(&mut self, from: usize) {
        while self.innermost() >= from {
            self.count -= 1;
        }
        self.tried = self.tried.min(from - 1);
        self.word = self.last().map_or(0, |mark| mark.word);
    }

    /// The next entry to try, above `outermost` and below `top`.
    #[inline]
    pub fn next_place(&self, outermost: usize, top: usize) -> Option<usize> {
        let last = self.innermost().max(outermost);
        let next = (last + SPACING).max(self.tried + 1);
        (next < top && self.count < MOST).then_some(next)
    }

    /// Entry `at` was tried; `word` is where it was marked.
    #[inline]
    pub fn tried(&mut self, at: usize, word: Option<usize>) {
        self.tried = at;
        if let (Some(word), Some(slot)) = (word, self.marks.get_mut(self.count)) {
            *slot = Mark { entry: at, word };
            self.word = word;
            self.count += 1;
        }
    }

    #[inline(always)]
    fn last(&self) -> Option<&Mark> {
        self.marks.get(self.count.checked_sub(1)?)
    }
}

/// Marks a frame, where that is possible, and says where.
///
/// # Safety
/// Both are live frames of this thread, and `frame` is the predecessor of `child`.
pub(super) unsafe fn place(interpreter: &Interpreter, frame: usize, child: usize) -> Option<usize> {
    let layout = &interpreter.layout;
    let StackTop::Index(stack_top) = layout.stack_top else { return None };
    // SAFETY: live frames; a visible one has a live code object. The word is inside the frame's evaluation stack and past its end.
    unsafe {
        let called_by_c = layout.frame_entry.is_some_and(|at| load::<u8>(child, at) != 0);
        if called_by_c || load::<u8>(child, layout.frame_owner) != OWNER_THREAD {
            return None;
        }
        // The frames that CPython inserts are not visible.
        let Some(Visible { code, always: true, .. }) = interpreter.visible(frame) else { return None };
        let locals: i32 = load(code, layout.code_locals());
        let room: i32 = load(code, layout.code_stack_size());
        let end: i32 = load(frame, stack_top);
        if end < locals || end >= locals.checked_add(room)? {
            return None;
        }
        let word = frame + usize::from(layout.frame_locals) + end as usize * size_of::<usize>();
        *(word as *mut usize) = MARK;
        Some(word)
    }
}
