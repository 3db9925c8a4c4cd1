//! What the test programs share.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "each test program uses its part; a panic is the report"
)]

use std::sync::atomic::AtomicU64;

use stormlog_ring::{LogReader, ReadStats, RingReader};

/// A record as a test compares it.
pub type Owned = (u8, Vec<u8>);

/// Everything the reader can return now.
pub fn drain(reader: &mut LogReader) -> Vec<Owned> {
    let mut all = Vec::new();
    while let Some(record) = reader.next() {
        all.push((record.kind, record.payload.to_vec()));
    }
    all
}

/// The window of a ring, and what was met while reading it.
pub fn window(reader: &mut RingReader) -> (Vec<Owned>, ReadStats) {
    let (mut all, mut records) = (Vec::new(), reader.records());
    while let Some(record) = records.next() {
        all.push((record.kind, record.payload.to_vec()));
    }
    let stats = records.stats();
    (all, stats)
}

/// Words shared with forked children and with programs that map the same file.
pub struct SharedWords(*const AtomicU64, usize);

// SAFETY: the memory is reached only as atomics and is never unmapped.
unsafe impl Send for SharedWords {}
// SAFETY: the memory is reached only as atomics and is never unmapped.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Maps `count` words of `file`, which is made long enough.
    pub fn new(file: &std::fs::File, count: usize) -> Self {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        file.set_len((count * 8) as u64).unwrap();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start =
            unsafe { mmap(std::ptr::null_mut(), count * 8, access, MapFlags::SHARED, file, 0) }.unwrap();
        SharedWords(start.cast(), count)
    }
}

impl std::ops::Deref for SharedWords {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: `new` mapped this many words, zeroed at first, and nothing unmaps or truncates them.
        unsafe { std::slice::from_raw_parts(self.0, self.1) }
    }
}

/// Runs `child` in a forked child and returns its pid. The child ends with status 0, or 1 when it panicked.
pub fn fork(child: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child runs only `child`, which the tests keep to appending, and leaves by `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
            // SAFETY: ends this process without running anything that belongs to the parent.
            unsafe { libc::_exit(i32::from(outcome.is_err())) }
        }
        pid => {
            assert!(pid > 0, "fork failed");
            pid
        }
    }
}

/// Waits for a child and returns its raw wait status.
pub fn wait(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: `status` is valid for the call.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    status
}

/// Runs the test `name` in a process of its own, since signals, limits and descriptors belong to a process.
pub fn isolated(name: &str, body: impl FnOnce()) {
    const VARIABLE: &str = "STORMLOG_TEST_ISOLATED";
    if std::env::var(VARIABLE).is_ok_and(|now| now == name) {
        return body();
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(VARIABLE, name)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr));
}
