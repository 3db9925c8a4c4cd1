//! The resolver of an indirect function, which the loader calls while it relocates libraries (`sanitizer.rs` says why).

use core::arch::global_asm;

use crate::sanitizer::{decide, nothing};

global_asm!(
    ".pushsection .text.stormlog_early,\"ax\",@progbits",
    ".hidden stormlog_early",
    ".globl stormlog_early",
    ".type stormlog_early, @gnu_indirect_function",
    "stormlog_early:",
    "push rbp",
    "call {decide}",
    "lea rax, [rip + {nothing}]",
    "pop rbp",
    "ret",
    ".size stormlog_early, . - stormlog_early",
    ".popsection",
    decide = sym decide,
    nothing = sym nothing,
);
