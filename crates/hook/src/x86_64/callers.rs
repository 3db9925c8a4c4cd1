//! Hooks that need their caller's address: the return address is on top of the stack at their first instruction only, so they are a jump with one argument more.

use core::arch::naked_asm;

use crate::hooks::posix_memalign_from;

/// See `posix_memalign(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn posix_memalign() {
    naked_asm!("mov rcx, qword ptr [rsp]", "jmp {hook}", hook = sym posix_memalign_from);
}
