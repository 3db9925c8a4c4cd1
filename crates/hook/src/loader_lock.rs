//! The lock of the loader's list of libraries. `dl_iterate_phdr`, `dlopen` and `dlclose` hold it. fork() in another thread leaves it locked
//! forever in the child, and a hook that took it there would never return.
//!
//! So the child checks whether it is locked. The C library does not publish where the lock is; it is found by its value while this thread holds it. Where
//! it is not found, the lock is taken to be free. Must never wait.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crate::sys;

/// The beginning of glibc's `pthread_mutex_t`.
#[repr(C)]
struct Mutex {
    lock: AtomicU32,
    count: AtomicU32,
    owner: AtomicU32,
    users: AtomicU32,
    kind: AtomicU32,
}

const RECURSIVE: u32 = 1;

/// The lock, or null while it is not known.
static LOCK: AtomicPtr<Mutex> = AtomicPtr::new(null_mut());
/// It is locked for ever.
static LOCKED: AtomicBool = AtomicBool::new(false);

/// Does what goes through the list. `None`: that can never be done in this process.
pub fn with<T>(work: impl FnOnce() -> T) -> Option<T> {
    (!is_locked()).then(work)
}

/// True in a child that was forked while another thread had the list.
pub fn is_locked() -> bool {
    LOCKED.load(Ordering::Acquire)
}

/// Takes the list to be locked for ever, where that cannot be known.
pub fn give_up() {
    LOCKED.store(true, Ordering::Release);
}

/// A forked child has this thread alone, which has not got the list.
pub fn after_fork() {
    // SAFETY: null, or a mutex of the loader, which stays.
    let Some(mutex) = (unsafe { LOCK.load(Ordering::Acquire).as_ref() }) else { return };
    let locked = mutex.lock.load(Ordering::Acquire) != 0;
    if locked && !is_here(mutex.owner.load(Ordering::Acquire)) {
        give_up();
    }
}

/// True for a thread of this process.
fn is_here(thread: u32) -> bool {
    // SAFETY: signal 0 sends nothing; the call only checks that the thread exists.
    unsafe { sys::call(libc::SYS_tgkill, [sys::process() as usize, thread as usize, 0, 0, 0, 0]) }.is_ok()
}

/// Finds the lock, once a process.
pub fn prepare() {
    if is_locked() || !LOCK.load(Ordering::Acquire).is_null() {
        return;
    }
    // SAFETY: `getauxval` only reads the auxiliary vector, which the kernel filled before the first instruction.
    let loader = unsafe { libc::getauxval(libc::AT_BASE) };
    let mut search = Search { loader, thread: sys::thread() as u32, found: null_mut(), many: false };
    // SAFETY: the callback casts the pointer back to the search it was made from, which lives through the call.
    unsafe { libc::dl_iterate_phdr(Some(look_at), (&raw mut search).cast()) };
    // SAFETY: `found` is null or points to a word of the loader's own data, which is never unmapped.
    let free = unsafe { search.found.as_ref() }
        .is_some_and(|mutex| mutex.owner.load(Ordering::Acquire) != search.thread);
    if free && !search.many {
        LOCK.store(search.found, Ordering::Release);
    }
}

struct Search {
    loader: u64,
    thread: u32,
    found: *mut Mutex,
    /// More than one looked like it.
    many: bool,
}

/// Called while this thread holds the lock.
unsafe extern "C" fn look_at(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: called by `prepare` with its search, by the loader with a loaded object, whose segments are mapped.
    unsafe {
        let (info, search) = (&*info, &mut *search.cast::<Search>());
        if info.dlpi_addr != search.loader {
            return 0;
        }
        let headers = core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        let data = headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W != 0);
        for segment in data {
            let start = (info.dlpi_addr + segment.p_vaddr).next_multiple_of(8) as usize;
            let end = (info.dlpi_addr + segment.p_vaddr + segment.p_memsz) as usize - size_of::<Mutex>();
            for address in (start..end).step_by(8) {
                let mutex = &*(address as *const Mutex);
                if mutex.owner.load(Ordering::Relaxed) == search.thread
                    && mutex.kind.load(Ordering::Relaxed) == RECURSIVE
                    && mutex.lock.load(Ordering::Relaxed) != 0
                    && mutex.count.load(Ordering::Relaxed) > 0
                    && mutex.users.load(Ordering::Relaxed) > 0
                {
                    search.many |= !search.found.is_null();
                    search.found = address as *mut Mutex;
                }
            }
        }
        1
    }
}
