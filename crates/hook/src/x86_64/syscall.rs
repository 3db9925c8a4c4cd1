//! The system call itself. Must never touch `errno`.

use core::arch::asm;

use crate::sys::Errno;

/// Makes a system call; a negative answer is an error number.
///
/// # Safety
/// The arguments must be right for the call.
#[inline]
pub unsafe fn call(number: i64, arguments: [usize; 6]) -> Result<usize, Errno> {
    let answer: isize;
    // SAFETY: the kernel's calling convention; the caller answers for the arguments.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => answer, in("rdi") arguments[0], in("rsi") arguments[1],
            in("rdx") arguments[2], in("r10") arguments[3], in("r8") arguments[4], in("r9") arguments[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    if (-4095..0).contains(&answer) { Err(-answer as Errno) } else { Ok(answer as usize) }
}
