//! The heap of this process itself. The GNU C library gives every thread an arena of its own and keeps what was freed; a supervisor that lives as
//! long as its program would keep what its busiest minute took.

/// Shares one arena among the threads and gives freed memory back early. For processes with little to allocate at once; called before threads start.
pub fn keep_small() {
    /// Freed memory above this goes back to the kernel, and a request above it is a mapping of its own.
    #[cfg(target_env = "gnu")]
    const GIVE_BACK: libc::c_int = 64 << 10;
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two numbers and changes parameters of the allocator, which locks itself.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TRIM_THRESHOLD, GIVE_BACK);
        libc::mallopt(libc::M_MMAP_THRESHOLD, GIVE_BACK);
    }
}
