//! `new` and `delete` of C++ where an allocator has its own: they do not call `malloc`, so they are not recorded, and the capture says so.
//!
//! They are not replaced by hooks: in a program of C that loads C++ later, such as Python, a hook would precede the library that
//! throws `std::bad_alloc`.

use core::ffi::{c_char, c_void};
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::libc_symbols;

/// The path of the allocator; null when `new` ends in `malloc`.
static ALLOCATOR: AtomicPtr<c_char> = AtomicPtr::new(null_mut());

/// Looks for an allocator that has both `malloc` and `operator new`. Looks up symbols: before `main` only.
pub fn find() {
    // SAFETY: a zero-terminated literal; `dlsym` only looks the name up.
    let operator = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_Znwm".as_ptr()) };
    if operator.is_null() {
        return libc_symbols::forget_error();
    }
    let allocator = libc_symbols::MALLOC.known() as *const c_void;
    if let (Some((base, path)), Some((same, _))) = (object_of(operator), object_of(allocator))
        && base == same
    {
        ALLOCATOR.store(path, Ordering::Relaxed);
    }
}

/// The path of the allocator whose `new` and `delete` are not recorded.
pub fn unrecorded() -> Option<&'static [u8]> {
    let path = ALLOCATOR.load(Ordering::Relaxed);
    // SAFETY: the loader's text of a library that was there when the program started; such are not unloaded.
    (!path.is_null()).then(|| unsafe { libc_symbols::text(path) })
}

/// The loaded object that has an address: where it begins, and its path.
fn object_of(address: *const c_void) -> Option<(usize, *mut c_char)> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: `dladdr` fills `info` when it does not return 0, and takes any address.
    unsafe {
        if address.is_null() || libc::dladdr(address, info.as_mut_ptr()) == 0 {
            return None;
        }
        let info = info.assume_init();
        Some((info.dli_fbase as usize, info.dli_fname.cast_mut()))
    }
}
