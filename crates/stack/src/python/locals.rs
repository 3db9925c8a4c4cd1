//! The variables of Python frames, read from memory: which objects a function that has not returned keeps. For the pass over retained objects,
//! which holds the GIL; must never be called without it.

use super::{Interpreter, Text, Visible, load};

/// No function has more variables or a deeper evaluation stack than this.
const MOST_WORDS: usize = 1 << 16;

/// A frame and the words of its variables.
#[derive(Clone, Copy, Debug)]
pub struct FrameVariables {
    /// Its code object.
    pub code: usize,
    /// The instruction, counted in code units.
    pub unit: u32,
    /// The first word: variables first, then the evaluation stack.
    pub first: usize,
    /// Words of variables; each is 0 or a live object.
    pub variables: usize,
    /// Words of the evaluation stack behind them; a word may be stale, so it may be compared but not followed.
    pub stack: usize,
}

impl FrameVariables {
    /// The object of a variable; 0 for one without a value.
    ///
    /// # Safety
    /// The frame is as it was when it was read.
    pub unsafe fn word(&self, index: usize) -> usize {
        if index >= self.variables + self.stack {
            return 0;
        }
        // SAFETY: the caller guarantees that the frame has not changed since it was read; its words are contiguous.
        unsafe { *(self.first as *const usize).add(index) & super::REFERENCE }
    }
}

impl Interpreter {
    /// Calls `visit` for each frame of a thread from the innermost outwards until it answers `false`.
    ///
    /// # Safety
    /// This thread holds the GIL, and `thread_state` is one of its interpreter's.
    pub unsafe fn each_frame_variables(
        &self,
        thread_state: *const u8,
        mut visit: impl FnMut(FrameVariables) -> bool,
    ) {
        // SAFETY: with the GIL held no other thread changes its frames.
        unsafe {
            let mut frame = self.top_frame(thread_state);
            while frame != 0 {
                if let Some(variables) = self.variables_of(frame)
                    && !visit(variables)
                {
                    return;
                }
                frame = self.previous(frame);
            }
        }
    }

    /// The variables of one frame; `None` for one that Python would not show.
    ///
    /// # Safety
    /// `frame` is a live frame and the GIL is held.
    pub unsafe fn variables_of(&self, frame: usize) -> Option<FrameVariables> {
        // SAFETY: the caller guarantees that `frame` is live and the GIL is held; a visible frame has a live code object
        // with its number of words.
        unsafe {
            let Visible { code, unit, .. } = self.visible(frame)?;
            let variables = load::<i32>(code, self.layout.code_locals()).max(0) as usize;
            let stack = load::<i32>(code, self.layout.code_stack_size()).max(0) as usize;
            let first = frame + usize::from(self.layout.frame_locals);
            (variables + stack <= MOST_WORDS).then_some(FrameVariables {
                code,
                unit,
                first,
                variables,
                stack,
            })
        }
    }

    /// Whether `address` may be the frame inside a generator: its code is the given kind of object, and it says that a generator owns it.
    ///
    /// # Safety
    /// `address` to the end of a frame is readable; the words of it may be anything.
    pub unsafe fn is_generator_frame(&self, address: usize, is_code: impl Fn(usize) -> bool) -> bool {
        // SAFETY: the caller guarantees that `address` is readable to the end of a frame; any words are accepted.
        unsafe {
            let code = load::<usize>(address, self.layout.frame_code) & super::REFERENCE;
            load::<u8>(address, self.layout.frame_owner) == super::OWNER_GENERATOR && is_code(code)
        }
    }

    /// The tuple with the names of a code object's variables: it is two words before the file's name.
    ///
    /// # Safety
    /// `code` is a live code object.
    pub unsafe fn variable_names(&self, code: usize) -> usize {
        // SAFETY: the caller guarantees that `code` is a live code object.
        unsafe { load(code, self.layout.code_file - 16) }
    }

    /// The characters of a string.
    ///
    /// # Safety
    /// `text` is 0 or a live `str`, `'a` no longer than its life.
    pub unsafe fn characters<'a>(&self, text: usize) -> Text<'a> {
        // SAFETY: the caller guarantees that `text` is 0 or a live `str` that outlives `'a`.
        unsafe { self.text(text) }
    }
}
