//! The coarse clock, and a check without a call that it has not moved. Must never rely on the check for long: the words it reads
//! are a hint, and are compared with the clock itself every few events.
//!
//! A call takes longer than writing a record. But the kernel keeps the coarse time as two words in a page that every process may read;
//! their offsets in it are not part of the kernel's interface, so they are searched for by value. Where they are not found (a time namespace, another
//! kind of kernel), the clock is called at each event.

use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::sys;

/// Seconds and nanoseconds of the coarse clock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Time {
    pub second: u64,
    pub nanosecond: u64,
}

impl Time {
    /// No time of any clock.
    pub const NEVER: Self = Self { second: 0, nanosecond: u64::MAX };

    pub fn nanoseconds(self) -> u64 {
        self.second.wrapping_mul(1_000_000_000).wrapping_add(self.nanosecond)
    }
}

type Words = [AtomicU64; 2];
/// Where the kernel keeps the coarse time, or [`NOWHERE`].
static WORDS: AtomicPtr<Words> = AtomicPtr::new((&raw const NOWHERE).cast_mut());
/// A time that no clock shows.
static NOWHERE: Words = [AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX - 1)];
/// Searches of the page, each repeated because the clock moved during the one before.
const ATTEMPTS: usize = 4;
const PAGE: usize = 4096;

/// What counts the turns of Python's threads, once that is known; a word that stays before.
static TURNS: AtomicPtr<AtomicU64> = AtomicPtr::new((&raw const NO_TURNS).cast_mut());
static NO_TURNS: AtomicU64 = AtomicU64::new(0);
/// How often another thread began to report a device's memory.
static MORE_TURNS: AtomicU64 = AtomicU64::new(0);

/// How often the GIL, or a device, has gone from one thread to another.
#[inline(always)]
pub fn turn() -> u64 {
    // SAFETY: the word is in memory that is there as long as the process.
    let turns = unsafe { &*TURNS.load(Ordering::Relaxed) }.load(Ordering::Relaxed);
    turns.wrapping_add(MORE_TURNS.load(Ordering::Relaxed))
}

/// Begins a turn without a change of the GIL: another thread starts to report a device's memory. Its records get a later [`turn`] than those of the
/// thread before it, so a reader can order them.
pub fn begin_turn() {
    MORE_TURNS.fetch_add(1, Ordering::AcqRel);
}

/// Turns are counted here from now on.
pub fn follow(turns: &'static AtomicU64) {
    TURNS.store(core::ptr::from_ref(turns).cast_mut(), Ordering::Relaxed);
}

/// Whether turns are counted at all.
#[inline(always)]
pub fn has_turns() -> bool {
    !core::ptr::eq(TURNS.load(Ordering::Relaxed), &raw const NO_TURNS)
}

/// Asks the exact clock that the coarse one is a reading of: nanoseconds.
pub fn exactly() -> u64 {
    ask(libc::CLOCK_MONOTONIC).nanoseconds()
}

/// Asks the coarse clock.
#[inline]
pub fn now() -> Time {
    ask(libc::CLOCK_MONOTONIC_COARSE)
}

#[inline]
fn ask(clock: libc::clockid_t) -> Time {
    let mut now = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the clock exists on every kernel this runs on, so the call fills `now`.
    let now = unsafe {
        libc::clock_gettime(clock, now.as_mut_ptr());
        now.assume_init()
    };
    Time { second: now.tv_sec as u64, nanosecond: now.tv_nsec as u64 }
}

/// True when the coarse clock shows the nanoseconds of `time`. Seconds are not compared, so this may be wrong, very rarely, until
/// the next comparison.
#[inline(always)]
pub fn stands_at(time: Time) -> bool {
    words()[1].load(Ordering::Relaxed) == time.nanosecond
}

#[inline(always)]
fn words() -> &'static Words {
    // SAFETY: two words of a page that stays mapped as long as the process, or of this library.
    unsafe { &*WORDS.load(Ordering::Relaxed) }
}

/// Asks the clock, and no longer believes the hint if it differs.
pub fn now_and_check() -> Time {
    let time = now();
    let differs = || {
        let [second, nanosecond] = words();
        (second.load(Ordering::Relaxed), nanosecond.load(Ordering::Relaxed)) != (time.second, time.nanosecond)
    };
    if differs() && now() == time && differs() {
        WORDS.store((&raw const NOWHERE).cast_mut(), Ordering::Relaxed);
    }
    time
}

/// Looks for the words, once a recording.
pub fn find() {
    let page = shared_page();
    if page.is_null() {
        return;
    }
    // SAFETY: the first page of that mapping is always there and readable.
    let words = unsafe { core::slice::from_raw_parts(page, PAGE / size_of::<u64>()) };
    for _ in 0..ATTEMPTS {
        let time = now();
        let at = |at: &usize| {
            words.get(*at..at + 2).is_some_and(|pair| {
                pair[0].load(Ordering::Relaxed) == time.second
                    && pair[1].load(Ordering::Relaxed) == time.nanosecond
            })
        };
        let mut found = (0..words.len()).filter(at);
        if let (Some(at), None, true) = (found.next(), found.next(), now() == time) {
            WORDS.store((&raw const words[at]).cast_mut().cast(), Ordering::Relaxed);
            return;
        }
    }
}

/// The page the kernel shares with every process for telling the time; null when there is none.
fn shared_page() -> *const AtomicU64 {
    let Ok(descriptor) = sys::open(b"/proc/self/maps\0", libc::O_RDONLY, 0) else { return null_mut() };
    let mut buffer = [0; PAGE];
    let mut have = 0;
    let mut address = 0;
    loop {
        let more = sys::read(descriptor, &mut buffer[have..]);
        have += more;
        let mut rest = &buffer[..have];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            address = address_of_shared_page(&rest[..end]).unwrap_or(address);
            rest = &rest[end + 1..];
        }
        let left = rest.len();
        if more == 0 || address != 0 {
            break;
        }
        buffer.copy_within(have - left..have, 0);
        // A line longer than the buffer is none we look for.
        have = if left == buffer.len() { 0 } else { left };
    }
    sys::close(descriptor);
    address as *const AtomicU64
}

fn address_of_shared_page(line: &[u8]) -> Option<usize> {
    let range = line.strip_suffix(b" [vvar]")?;
    let end = range.iter().position(|byte| *byte == b'-')?;
    range[end..].windows(3).any(|text| text == b" r-").then_some(())?;
    usize::from_str_radix(core::str::from_utf8(&range[..end]).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_shared_page_is_known() {
        let line = b"7ffd5b1f2000-7ffd5b1f6000 r--p 00000000 00:00 0                          [vvar]";
        assert_eq!(address_of_shared_page(line), Some(0x7ffd_5b1f_2000));
        for other in [
            b"7ffd5b1f2000-7ffd5b1f6000 r--p 00000000 00:00 0                          [vdso]".as_slice(),
            b"7ffd5b1f2000-7ffd5b1f6000 ---p 00000000 00:00 0                          [vvar]",
            b" [vvar]",
            b"",
        ] {
            assert_eq!(address_of_shared_page(other), None);
        }
    }

    #[test]
    fn the_hint_agrees_with_the_clock_or_is_given_up() {
        find();
        for _ in 0..200 {
            let time = now();
            let stands = stands_at(time);
            // Where it says so, the clock was there at that moment; it can only have gone on since.
            assert!(!stands || now().nanoseconds() >= time.nanoseconds());
            if !core::ptr::eq(words(), &NOWHERE) && now() == time {
                assert!(stands || now() != time, "the hint is behind");
            }
            sys::pause(100_000);
        }
        static ELSEWHERE: Words = [AtomicU64::new(1), AtomicU64::new(2)];
        WORDS.store((&raw const ELSEWHERE).cast_mut(), Ordering::Relaxed);
        for _ in 0..3 {
            now_and_check();
        }
        assert!(core::ptr::eq(words(), &NOWHERE), "a wrong hint is given up");
        assert!(!stands_at(now()));
    }
}
