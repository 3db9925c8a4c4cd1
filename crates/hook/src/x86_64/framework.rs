//! The two functions by which PyTorch's allocators report: ours records, then jumps to PyTorch's own with the arguments as they were. No frame of this library is on the
//! stack while that runs, so a C++ exception passes as it would without us. While ours runs, its native stack can be walked: hence the `.cfi` lines.

use core::arch::naked_asm;

use crate::framework::{on_memory_usage, on_out_of_memory};

/// Calls `$record` with the arguments and jumps to the function it returns, if it returns one.
macro_rules! record_and_pass_on {
    ($record:ident) => {
        naked_asm!(
            ".cfi_startproc",
            "push rdi", "push rsi", "push rdx", "push rcx", "push r8",
            ".cfi_def_cfa_offset 48",
            "call {record}",
            "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
            ".cfi_def_cfa_offset 8",
            "test rax, rax", "jz 2f", "jmp rax", "2:", "ret",
            ".cfi_endproc",
            record = sym $record,
        )
    };
}

/// `c10::reportMemoryUsageToProfiler(void* ptr, int64_t alloc_size, size_t total_allocated, size_t total_reserved, Device device)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(export_name = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"))]
#[unsafe(naked)]
pub unsafe extern "C" fn memory_usage() {
    record_and_pass_on!(on_memory_usage)
}

/// `c10::reportOutOfMemoryToProfiler(int64_t alloc_size, size_t total_allocated, size_t total_reserved, Device device)`.
///
/// # Safety
/// As the real function.
#[cfg_attr(not(test), unsafe(export_name = "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE"))]
#[unsafe(naked)]
pub unsafe extern "C" fn out_of_memory() {
    record_and_pass_on!(on_out_of_memory)
}
