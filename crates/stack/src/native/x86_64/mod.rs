//! What of unwinding depends on the processor: its registers, the rules compiled for them, and a step by either. Another processor is a folder beside this
//! one with the same file names.

pub mod full;
pub mod registers;
pub mod rules;
pub mod step;
