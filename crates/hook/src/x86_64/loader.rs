//! The jumps around `dlopen`, `dlclose`, `dlmopen` and `dlsym`: they call ours first, then go to the real function with the stack as it was. The loader looks at its
//! return address to identify the caller, so the real function must never be called from here.

use core::arch::naked_asm;

use crate::loader::{before_symbol, begin};

/// See `dlopen(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen() {
    naked_asm!(
        "push rdi", "push rsi", "push rdx",
        "lea rdi, [rsp + 24]", "mov esi, 0", "call {begin}",
        "pop rdx", "pop rsi", "pop rdi", "jmp rax",
        begin = sym begin,
    );
}

/// See `dlclose(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlclose() {
    naked_asm!(
        "push rdi", "push rsi", "push rdx",
        "lea rdi, [rsp + 24]", "mov esi, 1", "call {begin}",
        "pop rdx", "pop rsi", "pop rdi", "jmp rax",
        begin = sym begin,
    );
}

/// See `dlmopen(3)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn dlmopen() {
    naked_asm!(
        "push rdi", "push rsi", "push rdx",
        "lea rdi, [rsp + 24]", "mov esi, 2", "call {begin}",
        "pop rdx", "pop rsi", "pop rdi", "jmp rax",
        begin = sym begin,
    );
}

/// See `dlsym(3)`. Never exported: it is only patched in.
///
/// # Safety
/// As the real function.
#[unsafe(naked)]
pub unsafe extern "C" fn hooked_dlsym() {
    naked_asm!(
        "push rdi", "push rsi", "push rdx",
        "call {before}",
        "pop rdx", "pop rsi", "pop rdi", "jmp rax",
        before = sym before_symbol,
    );
}
