//! CPython 3.11 to 3.13: this thread's state read from memory, which takes a tenth of the time of a call into CPython. Must not be used in a
//! thread before it has been compared with what CPython returns there.
//!
//! Python keeps the state under a key of thread-specific data, and the GNU C library keeps the values of the first keys in the thread's own
//! descriptor, next to each other. Their offset in the descriptor is found by storing a known value under a key of our own.

use super::{Interpreter, load, this_thread};

/// Offsets of the fields that are read in `_PyRuntime`.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuntimeOffsets {
    runtime: usize,
    /// The interpreter that was made last.
    interpreter: u16,
    /// The key: 1 in the lower half when it is made, its number in the upper.
    key: u16,
    /// How far behind the beginning of a thread's descriptor the value of key 0 is.
    first_value: usize,
}

/// The number of keys whose values glibc keeps in the thread descriptor, each after its sequence number.
const KEYS: usize = 32;
const STRIDE: usize = 16;

impl RuntimeOffsets {
    /// For `version`, whose `_PyRuntime` is at `runtime`. `None` where states have to be requested.
    pub fn of(version: u32, runtime: usize) -> Option<Self> {
        let (interpreter, key) = match version >> 16 {
            0x030b => (40, 592),
            0x030c => (40, 1544),
            0x030d => (632, 2160),
            _ => return None, // 3.14 has no key
        };
        let first_value = first_value();
        (runtime != 0 && first_value != 0).then_some(Self { runtime, interpreter, key, first_value })
    }
}

/// The address of one thread's state, and the values that must be unchanged for it to be valid. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct OwnState {
    places: [usize; 2],
    key: usize,
    interpreter: usize,
    state: usize,
}

impl OwnState {
    /// No address.
    pub const NOWHERE: Self = Self { places: [0; 2], key: 0, interpreter: 0, state: 0 };

    /// This thread's state; null where CPython must be called instead.
    ///
    /// # Safety
    /// It is of [`Interpreter::own_state`] in this thread, and no code object of Python has died since: so Python was not ended and begun again.
    #[inline(always)]
    pub unsafe fn read(&self) -> *const u8 {
        let [key, interpreter] = self.places;
        // SAFETY: all of it is in memory that is there as long as the process or this thread.
        unsafe {
            let same = load::<usize>(key, 0) == self.key && load::<usize>(interpreter, 0) == self.interpreter;
            if same { load(self.state, 0) } else { core::ptr::null() }
        }
    }
}

impl Interpreter {
    /// Where the state of this thread is, if it can be read without asking and reading gives `own`, which Python said it is.
    ///
    /// # Safety
    /// `own` is what Python just said; this interpreter runs in this process.
    pub unsafe fn own_state(&self, own: *const u8) -> Option<OwnState> {
        let (Some(at), Some((first, next))) = (self.own_places, self.interpreters) else { return None };
        let places = [at.key, at.interpreter].map(|offset| at.runtime + usize::from(offset));
        // SAFETY: the runtime lives as long as the process and is longer than that; the functions read the list's head and its link.
        let (key, interpreter, alone) = unsafe {
            let [key, interpreter]: [usize; 2] = places.map(|place| load(place, 0));
            let head = first();
            (key, interpreter, interpreter != 0 && head.addr() == interpreter && next(head).is_null())
        };
        let number = key >> 32;
        // With several interpreters a thread may have several states.
        if own.is_null() || !alone || key as u32 != 1 || number >= KEYS {
            return None;
        }
        let state = this_thread() as usize + at.first_value + number * STRIDE;
        // SAFETY: the place is one of the values in this thread's descriptor.
        let agrees = unsafe { load::<*const u8>(state, 0) } == own;
        agrees.then_some(OwnState { places, key, interpreter, state })
    }
}

/// How far behind the beginning of a thread's descriptor the value of key 0 is; 0 when that is not known.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn first_value() -> usize {
    /// The part of the descriptor in which to look, in every version of the library: the values are in the middle of it.
    const LOOK: core::ops::Range<usize> = 0x100..0x600;
    static MARKS: [u8; 2] = [0; 2];
    let mut key = 0;
    // SAFETY: the call writes one `pthread_key_t` to `key`, a local; there is no destructor to run.
    if unsafe { libc::pthread_key_create(&raw mut key, None) } != 0 {
        return 0;
    }
    let descriptor = this_thread() as usize;
    // SAFETY: the descriptor is longer than the part that is read.
    let word = |at: usize| unsafe { core::ptr::read_volatile((descriptor + at) as *const usize) };
    let set = |mark: *const u8| {
        // SAFETY: `pthread_key_create` made `key`, and it is deleted only after the last call.
        unsafe { libc::pthread_setspecific(key, mark.cast()) == 0 }
    };
    let mark = |number: usize| MARKS.as_ptr().wrapping_add(number);
    let mut found = 0;
    if set(mark(0)) {
        let mut places = LOOK.step_by(size_of::<usize>()).filter(|at| word(*at) == mark(0) as usize);
        if let (Some(at), None) = (places.next(), places.next())
            && set(mark(1))
            && word(at) == mark(1) as usize
            && (key as usize) < KEYS
        {
            found = at - key as usize * STRIDE;
        }
    }
    set(core::ptr::null());
    // SAFETY: `pthread_key_create` made `key` in this function, and nothing reads it after this.
    unsafe { libc::pthread_key_delete(key) };
    found
}

#[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
fn first_value() -> usize {
    0
}

#[cfg(all(test, target_arch = "x86_64", target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_keys_are_where_they_are_found() {
        let first = first_value();
        assert_ne!(first, 0, "not this C library?");
        for value in 1..4_usize {
            let mut key = 0;
            // SAFETY: a key of our own, and its place in this thread's descriptor.
            unsafe {
                assert_eq!(libc::pthread_key_create(&raw mut key, None), 0);
                assert_eq!(libc::pthread_setspecific(key, value as *const _), 0);
                let read =
                    move || *((this_thread() as usize + first + key as usize * STRIDE) as *const usize);
                assert_eq!(read(), value);
                assert_eq!(std::thread::spawn(read).join().unwrap(), 0, "another thread has none");
            }
        }
    }
}
