//! The system calls the hooks make themselves, past the hooked functions and without touching `errno`. Must never call libc.

use core::ptr::null_mut;

pub use crate::x86_64::syscall::call;

/// An error number of the kernel.
pub type Errno = i32;

/// A signal at each of this many calls in a row is not a coincidence.
const MOST_INTERRUPTIONS: usize = 100;

/// Makes a call again when a signal interrupted it: that says nothing about what was requested.
fn uninterrupted(mut call: impl FnMut() -> Result<usize, Errno>) -> Result<usize, Errno> {
    let mut answer = call();
    for _ in 0..MOST_INTERRUPTIONS {
        if answer != Err(libc::EINTR) {
            break;
        }
        answer = call();
    }
    answer
}

/// Zeroed private memory that a forked child finds zeroed again. Null when there is none.
pub fn map_private(bytes: usize) -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new anonymous mapping touches no memory in use.
    let mapped = unsafe {
        call(
            libc::SYS_mmap,
            [0, bytes, (libc::PROT_READ | libc::PROT_WRITE) as usize, flags as usize, usize::MAX, 0],
        )
    };
    let Ok(address) = mapped else { return null_mut() };
    // SAFETY: `address` and `bytes` are those of the mapping that this function just made.
    if unsafe { call(libc::SYS_madvise, [address, bytes, libc::MADV_WIPEONFORK as usize, 0, 0, 0]) }.is_err()
    {
        unmap(address as *mut u8, bytes);
        return null_mut();
    }
    address as *mut u8
}

/// Maps `bytes` of a file shared, at `at` (replacing what is there) or anywhere when null. A forked child does not get the mapping.
pub fn map_file(at: *mut u8, descriptor: i32, offset: usize, bytes: usize) -> Result<*mut u8, Errno> {
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_SHARED | fixed) as usize;
    // SAFETY: `at` is null or this library's own mapping of the same length.
    let address = unsafe {
        call(libc::SYS_mmap, [at as usize, bytes, protection, flags, descriptor as usize, offset])
    }?;
    // SAFETY: `address` and `bytes` are those of the mapping that this function just made. Should the advice fail, a child only has a mapping that it never uses.
    let _ = unsafe { call(libc::SYS_madvise, [address, bytes, libc::MADV_DONTFORK as usize, 0, 0, 0]) };
    Ok(address as *mut u8)
}

/// Makes the pages of a shared mapping ready to be written: one call instead of a fault for each. Kernels before 5.14 do it fault by fault.
pub fn populate(address: *mut u8, bytes: usize) {
    const POPULATE_WRITE: usize = 23;
    // SAFETY: only called with mappings this library made; what is in them stays.
    let _ = unsafe { call(libc::SYS_madvise, [address as usize, bytes, POPULATE_WRITE, 0, 0, 0]) };
}

/// Puts zeroed plain memory over a part of one of this library's mappings. False when there is none.
pub fn cover(page: usize, bytes: usize) -> bool {
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as usize;
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    // SAFETY: the caller only names its own mappings, in which any bytes are valid.
    unsafe { call(libc::SYS_mmap, [page, bytes, protection, flags, usize::MAX, 0]) }.is_ok()
}

/// Bytes of an open file.
pub fn length(descriptor: i32) -> usize {
    status(descriptor).map_or(0, |status| status.st_size as usize)
}

/// Writes `bytes` at `offset`, as far as there is room.
pub fn write_at(descriptor: i32, bytes: &[u8], offset: usize) {
    if offset.saturating_add(bytes.len()) as u64 > limit(libc::RLIMIT_FSIZE) {
        return;
    }
    // SAFETY: pointer and length are those of one slice, which lives through the call.
    let _ = unsafe {
        call(libc::SYS_pwrite64, [descriptor as usize, bytes.as_ptr() as usize, bytes.len(), offset, 0, 0])
    };
}

/// Gives a mapping of this library back.
pub fn unmap(address: *mut u8, bytes: usize) {
    // SAFETY: only called with mappings this library made and no longer uses.
    let _ = unsafe { call(libc::SYS_munmap, [address as usize, bytes, 0, 0, 0, 0]) };
}

/// A path or other text that ends with a zero byte.
pub fn open(path: &[u8], flags: i32, mode: u32) -> Result<i32, Errno> {
    if path.last() != Some(&0) {
        return Err(libc::EINVAL);
    }
    let flags = (flags | libc::O_CLOEXEC) as usize;
    let arguments = [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags, mode as usize, 0, 0];
    // SAFETY: the path is zero-terminated, as was just checked.
    uninterrupted(|| unsafe { call(libc::SYS_openat, arguments) }).map(|descriptor| descriptor as i32)
}

/// Takes a file's name away; the path ends with a zero byte.
pub fn remove(path: &[u8]) {
    if path.last() == Some(&0) {
        // SAFETY: the path is zero-terminated, as was just checked.
        let _ = unsafe { call(libc::SYS_unlink, [path.as_ptr() as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Closes a descriptor of this library.
pub fn close(descriptor: i32) {
    // SAFETY: this system call takes numbers only; the kernel reads and writes no memory of the process.
    let _ = unsafe { call(libc::SYS_close, [descriptor as usize, 0, 0, 0, 0, 0]) };
}

/// Reads into `buffer`; how many bytes there were.
pub fn read(descriptor: i32, buffer: &mut [u8]) -> usize {
    let arguments = [descriptor as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0];
    // SAFETY: pointer and length are those of one slice, which lives through the call.
    uninterrupted(|| unsafe { call(libc::SYS_read, arguments) }).unwrap_or(0)
}

/// Writes to `descriptor`, once; used for the one line on standard error.
pub fn write(descriptor: i32, text: &[u8]) {
    // SAFETY: pointer and length are those of one slice, which lives through the call.
    let _ =
        unsafe { call(libc::SYS_write, [descriptor as usize, text.as_ptr() as usize, text.len(), 0, 0, 0]) };
}

/// Reads a whole small file (`/proc`) into `buffer`, as far as it fits.
pub fn read_file<'a>(path: &[u8], buffer: &'a mut [u8]) -> &'a [u8] {
    let Ok(descriptor) = open(path, libc::O_RDONLY, 0) else { return &[] };
    let mut length = 0;
    while length < buffer.len() {
        match read(descriptor, &mut buffer[length..]) {
            0 => break,
            more => length += more,
        }
    }
    close(descriptor);
    &buffer[..length]
}

/// Device and inode of an open file: tells whether a descriptor is still ours.
pub fn identity(descriptor: i32) -> Option<(u64, u64)> {
    status(descriptor).map(|status| (status.st_dev, status.st_ino))
}

fn status(descriptor: i32) -> Option<libc::stat> {
    // SAFETY: all zeroes is a valid `stat`, which the kernel fills.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel writes one `stat` to `status`, which has its type and lives through the call.
    unsafe { call(libc::SYS_fstat, [descriptor as usize, &raw mut status as usize, 0, 0, 0, 0]) }.ok()?;
    Some(status)
}

/// Makes sure that the bytes are there on disk, so that writing to a mapping of them cannot fail.
pub fn reserve(descriptor: i32, offset: usize, bytes: usize) -> Result<(), Errno> {
    // A file that is to grow beyond what the program may write gets the program a signal that ends it.
    if offset.saturating_add(bytes) as u64 > limit(libc::RLIMIT_FSIZE) {
        return Err(libc::EFBIG);
    }
    // SAFETY: this system call takes numbers only; the kernel reads and writes no memory of the process.
    match uninterrupted(|| unsafe {
        call(libc::SYS_fallocate, [descriptor as usize, 0, offset, bytes, 0, 0])
    }) {
        Ok(_) => Ok(()),
        Err(libc::EOPNOTSUPP) if fill(descriptor, offset, bytes) => Ok(()),
        Err(other) => Err(other),
    }
}

/// Writes zeroes, so that the pages are in memory before they are mapped: one call costs a quarter of a page fault for each. False when not
/// all could be written.
pub fn fill(descriptor: i32, offset: usize, bytes: usize) -> bool {
    static NOTHING: [u8; 4096] = [0; 4096];
    const MOST: usize = 16;
    let piece = |length| libc::iovec { iov_base: NOTHING.as_ptr().cast_mut().cast(), iov_len: length };
    let mut done = 0;
    while done < bytes {
        let mut pieces = [const { libc::iovec { iov_base: null_mut(), iov_len: 0 } }; MOST];
        let mut left = bytes - done;
        for place in &mut pieces {
            *place = piece(left.min(NOTHING.len()));
            left -= place.iov_len;
        }
        let arguments = [descriptor as usize, pieces.as_ptr() as usize, MOST, offset + done, 0, 0];
        // SAFETY: the kernel only reads the pieces, each no longer than `NOTHING`.
        let written = uninterrupted(|| unsafe { call(libc::SYS_pwritev, arguments) });
        match written {
            Ok(0) | Err(_) => return false,
            Ok(more) => done += more,
        }
    }
    true
}

/// What this process may use of something, at most; all there is where that cannot be known.
pub fn limit(resource: libc::__rlimit_resource_t) -> u64 {
    limits(resource).0
}

/// The limit of this process, and the one up to which it may raise it.
pub fn limits(resource: libc::__rlimit_resource_t) -> (u64, u64) {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the kernel writes one `rlimit` to `limit`, which lives through the call.
    let _ = unsafe { call(libc::SYS_prlimit64, [0, resource as usize, 0, &raw mut limit as usize, 0, 0]) };
    (limit.rlim_cur, limit.rlim_max)
}

/// Sets both; false where that is not allowed.
pub fn set_limits(resource: libc::__rlimit_resource_t, soft: u64, hard: u64) -> bool {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: the kernel reads one `rlimit` from `limit`, which lives through the call.
    unsafe { call(libc::SYS_prlimit64, [0, resource as usize, &raw const limit as usize, 0, 0, 0]) }.is_ok()
}

/// A second descriptor of the same file, the first that is free from `number` on.
pub fn duplicate_from(descriptor: i32, number: usize) -> Result<i32, Errno> {
    // SAFETY: this system call takes numbers only; the kernel reads and writes no memory of the process.
    unsafe { call(libc::SYS_fcntl, [descriptor as usize, libc::F_DUPFD_CLOEXEC as usize, number, 0, 0, 0]) }
        .map(|descriptor| descriptor as i32)
}

/// This process.
pub fn process() -> u32 {
    // SAFETY: this system call takes no arguments and touches no memory of the process.
    unsafe { call(libc::SYS_getpid, [0; 6]) }.unwrap_or(0) as u32
}

/// This thread.
pub fn thread() -> u64 {
    // SAFETY: this system call takes no arguments and touches no memory of the process.
    unsafe { call(libc::SYS_gettid, [0; 6]) }.unwrap_or(0) as u64
}

/// The kernel's name of this thread, zero-terminated; all zeroes where it is not known.
pub fn thread_name() -> [u8; 16] {
    let mut name = [0_u8; 16];
    // SAFETY: the buffer has the sixteen bytes that this call writes at most.
    let _ = unsafe {
        call(libc::SYS_prctl, [libc::PR_GET_NAME as usize, name.as_mut_ptr() as usize, 0, 0, 0, 0])
    };
    name
}

/// Lets another thread run.
pub fn give_way() {
    // SAFETY: this system call takes no arguments and touches no memory of the process.
    let _ = unsafe { call(libc::SYS_sched_yield, [0; 6]) };
}

/// After this, what every other thread of the process had stored is seen here, and they see what was stored here.
pub fn barrier() {
    const REGISTER: usize = 1 << 4;
    const PRIVATE_EXPEDITED: usize = 1 << 3;
    // SAFETY: this system call takes numbers only; the kernel reads and writes no memory of the process.
    unsafe {
        let _ = call(libc::SYS_membarrier, [REGISTER, 0, 0, 0, 0, 0]);
        if call(libc::SYS_membarrier, [PRIVATE_EXPEDITED, 0, 0, 0, 0, 0]).is_err() {
            pause(10_000_000);
        }
    }
}

/// Sleeps.
pub fn pause(nanoseconds: i64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    // SAFETY: the kernel reads one `timespec` from `time`, which lives through the call.
    let _ = unsafe { call(libc::SYS_nanosleep, [&raw const time as usize, 0, 0, 0, 0, 0]) };
}

/// Random bytes, or what the clock and the address space give when there are none.
pub fn random() -> u64 {
    let mut bytes = [0_u8; 8];
    // SAFETY: the kernel writes at most 8 bytes, the length of `bytes`.
    let got = unsafe {
        call(libc::SYS_getrandom, [bytes.as_mut_ptr() as usize, 8, libc::GRND_NONBLOCK as usize, 0, 0, 0])
    };
    if got == Ok(8) {
        u64::from_ne_bytes(bytes)
    } else {
        (&raw const bytes as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(process())
    }
}

/// Changes the protection of whole pages.
pub fn protect(page: usize, bytes: usize, protection: i32) -> Result<(), Errno> {
    // SAFETY: the caller only names pages of relocation tables; changing their protection loses nothing.
    unsafe { call(libc::SYS_mprotect, [page, bytes, protection as usize, 0, 0, 0]) }.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_call_is_repeated_a_bounded_number_of_times() {
        let mut left = 3;
        let answer = uninterrupted(|| {
            left -= 1;
            if left > 0 { Err(libc::EINTR) } else { Ok(7) }
        });
        assert_eq!((answer, left), (Ok(7), 0));
        assert_eq!(uninterrupted(|| Err(libc::EINTR)), Err(libc::EINTR));
        assert_eq!(uninterrupted(|| Err(libc::ENOSPC)), Err(libc::ENOSPC));
    }
}
