//! Which addresses around the stack pointer may be read.
//!
//! Asked of the kernel (`/proc/self/maps`, with plain system calls) when a stack pointer is seen outside the range known so far: a new thread, a signal's own
//! stack, a coroutine's. The C library's `pthread_getattr_np` would allocate.

use core::ffi::c_int;

/// A readable range of memory: what of it is above the stack pointer is the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// First address.
    pub low: u64,
    /// The address after the last.
    pub high: u64,
}

/// The kernel grows the main stack downwards as it is used; up to here it need not be asked again.
const MAIN_STACK: u64 = 8 << 20;

impl Bounds {
    /// Whether `size` bytes at `address` are inside; at least one.
    #[inline(always)]
    pub fn has(&self, address: u64, size: u64) -> bool {
        // one comparison: below the first address the difference wraps
        address.wrapping_sub(self.low) < (self.high.saturating_sub(self.low)).saturating_sub(size - 1)
    }

    /// The mapped range around `sp`; empty when the kernel does not tell.
    #[cold]
    pub fn around(sp: u64) -> Self {
        // SAFETY: `errno` belongs to the program; it is put back below.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: glibc returns the address of this thread's `errno`, valid while the thread runs.
        let saved = unsafe { *errno };
        // SAFETY: a terminated path; no file is created.
        let file = unsafe { libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        let mut found = Self::default();
        if file >= 0 {
            found = search(file, sp);
            // SAFETY: `file` was opened by this function and is not used after this.
            unsafe { libc::close(file) };
        }
        // SAFETY: the pointer is this thread's own `errno`.
        unsafe { *errno = saved };
        found
    }
}

/// Reads lines of `low-high perms ... name`.
fn search(file: c_int, sp: u64) -> Bounds {
    let mut buffer = [0u8; 2048];
    let mut line = Line::default();
    loop {
        // SAFETY: the buffer is writable for its length.
        let count = unsafe { libc::read(file, buffer.as_mut_ptr().cast(), buffer.len()) };
        let Some(bytes) = usize::try_from(count).ok().and_then(|count| buffer.get(..count)) else {
            return Bounds::default();
        };
        if bytes.is_empty() {
            return Bounds::default();
        }
        for &byte in bytes {
            if let Some(bounds) = line.feed(byte) {
                if bounds.low <= sp && sp < bounds.high {
                    return bounds;
                }
                if bounds.low > sp {
                    return Bounds::default(); // the lines are in order
                }
            }
        }
    }
}

/// A line as far as it was read.
#[derive(Default)]
struct Line {
    numbers: [u64; 2],
    part: usize,
    readable: bool,
    last: [u8; 7],
}

impl Line {
    fn feed(&mut self, byte: u8) -> Option<Bounds> {
        if byte == b'\n' {
            let done = core::mem::take(self);
            let [mut low, high] = done.numbers;
            if &done.last == b"[stack]" {
                low = low.min(high.saturating_sub(MAIN_STACK));
            }
            return done.readable.then_some(Bounds { low, high });
        }
        self.last.rotate_left(1);
        self.last[6] = byte;
        match (self.part, byte) {
            (0, b'-') | (1, b' ') => self.part += 1,
            (0 | 1, _) => {
                let digit = (byte as char).to_digit(16).unwrap_or(0);
                if let Some(number) = self.numbers.get_mut(self.part) {
                    *number = *number << 4 | u64::from(digit);
                }
            }
            (2, _) => {
                self.readable = byte == b'r';
                self.part += 1;
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::Bounds;

    #[test]
    fn has_what_lies_wholly_inside() {
        let edges = [0, 1, 7, 8, 9, 100, 107, 108, 109, u64::MAX - 8, u64::MAX - 7, u64::MAX];
        for low in edges {
            for high in edges {
                for address in edges {
                    let end = u128::from(address) + 8;
                    let inside = address >= low && end <= u128::from(high);
                    assert_eq!(Bounds { low, high }.has(address, 8), inside, "{address} in {low}..{high}");
                }
            }
        }
    }
}
