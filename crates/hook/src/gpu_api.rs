//! The C functions about the memory of devices, for the Python package and for listeners to a driver. Must never touch the interpreter but for reading this thread's
//! stack.

use core::ffi::c_int;

use crate::backward;
use crate::devices::{self, Name, Report};

/// This thread is about to call an autograd engine: what the engine's threads ask for is recorded below this thread's Python stack. Gives a token for
/// [`stormlog_gpu_leave_backward`], 0 when nothing is recorded. To be called with the GIL held.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn stormlog_gpu_enter_backward() -> c_int {
    backward::enter()
}

/// The engine has returned.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn stormlog_gpu_leave_backward(token: c_int) {
    backward::leave(token);
}

/// A block of a device's memory comes (`size` above 0) or goes (below 0), as `source` (one of `record::device_source`) reports it. `allocated` and `reserved` are what
/// its allocator counts, both 0 when that is unknown. `caller` is an address in the code that asked, or 0; it stands for a native stack where none is walked.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(clippy::too_many_arguments, reason = "the interface is plain C")]
pub extern "C" fn stormlog_gpu_report(
    address: u64,
    size: i64,
    allocated: u64,
    reserved: u64,
    kind: u8,
    index: u8,
    source: u8,
    caller: u64,
) {
    let totals = (allocated != 0 || reserved != 0).then_some((allocated, reserved));
    let device = Name { sort: kind, index, source };
    devices::report(&Report { device, block: address, bytes: size, totals, caller });
}
