//! The registers that unwinding needs, and how they are read.

use core::arch::naked_asm;
use core::mem::MaybeUninit;

/// The registers of a frame that unwinding may need: what functions preserve for their callers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Registers {
    /// Where the frame continues: a return address.
    pub ip: u64,
    /// The stack pointer there.
    pub sp: u64,
    /// `rbp`, the frame pointer where there is one.
    pub bp: u64,
    /// `rbx`.
    pub bx: u64,
    /// `r12` to `r15`.
    pub r12_15: [u64; 4],
}

impl Registers {
    /// The registers of the calling function, as they are when this returns.
    #[inline(always)]
    pub fn capture() -> Self {
        let mut registers = MaybeUninit::uninit();
        // SAFETY: writes the eight words of `registers`.
        unsafe {
            capture(registers.as_mut_ptr());
            registers.assume_init()
        }
    }
}

/// # Safety
/// `out` can be written.
#[unsafe(naked)]
unsafe extern "C" fn capture(out: *mut Registers) {
    naked_asm!(
        "mov rax, [rsp]",
        "mov [rdi], rax",
        "lea rax, [rsp + 8]",
        "mov [rdi + 8], rax",
        "mov [rdi + 16], rbp",
        "mov [rdi + 24], rbx",
        "mov [rdi + 32], r12",
        "mov [rdi + 40], r13",
        "mov [rdi + 48], r14",
        "mov [rdi + 56], r15",
        "ret",
    )
}
