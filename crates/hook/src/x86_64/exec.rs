//! The functions of any number of arguments: `execl`, `execlp`, `execle`.

use core::arch::naked_asm;

use crate::exec::{execl_row, execle_row, execlp_row};

/// A function of any number of texts: those in registers are pushed below those on the stack, where the return address was, and so all are in a row.
macro_rules! of_any_number {
    ($(#[$about:meta])* $name:ident, $row:ident) => {
        $(#[$about])*
        ///
        /// # Safety
        /// As the real function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                "pop r11", "push r9", "push r8", "push rcx", "push rdx", "push rsi", "push r11",
                "lea rsi, [rsp + 8]", "call {row}",
                "pop r11", "add rsp, 40", "push r11", "ret",
                row = sym $row,
            );
        }
    };
}

of_any_number!(/// See `execl(3)`.
    execl, execl_row);
of_any_number!(/// See `execlp(3)`.
    execlp, execlp_row);
of_any_number!(/// See `execle(3)`.
    execle, execle_row);
