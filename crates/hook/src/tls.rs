//! What the word of a thread (`x86_64/tls.rs`) means when it is not the address of the thread's area.

pub use crate::x86_64::tls::{get, set};

/// No area yet.
pub const FRESH: usize = 0;
/// Events of this thread are not recorded: it is the recorder's own, or is just being set up.
pub const IGNORED: usize = 1;
/// The thread is ending: its destructor has run, but it may still allocate.
pub const ENDING: usize = 2;
