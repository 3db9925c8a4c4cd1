//! One word a thread, in static thread-local storage: where the thread's area is. Must stay one word (static storage is scarce
//! when a library is loaded late) and must be read without a call: Rust's own thread-locals triple the price of a hook.

use core::arch::{asm, global_asm};

global_asm!(
    ".pushsection .tbss.stormlog_hook_thread,\"awT\",@nobits",
    ".globl stormlog_hook_thread",
    ".hidden stormlog_hook_thread",
    ".type stormlog_hook_thread, @object",
    ".size stormlog_hook_thread, 8",
    ".p2align 3",
    "stormlog_hook_thread:",
    ".zero 8",
    ".popsection",
);

/// The word of this thread.
#[inline(always)]
pub fn get() -> usize {
    let word;
    // SAFETY: reads the eight bytes defined above, which every thread has from its first instruction.
    unsafe {
        asm!("mov {0}, qword ptr [rip + stormlog_hook_thread@GOTTPOFF]", "mov {0}, qword ptr fs:[{0}]",
            out(reg) word, options(readonly, nostack, preserves_flags));
    }
    word
}

/// Sets the word of this thread.
#[inline(always)]
pub fn set(word: usize) {
    // SAFETY: writes the eight bytes defined above.
    unsafe {
        asm!("mov {0}, qword ptr [rip + stormlog_hook_thread@GOTTPOFF]", "mov qword ptr fs:[{0}], {1}",
            out(reg) _, in(reg) word, options(nostack, preserves_flags));
    }
}
