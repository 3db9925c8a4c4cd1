//! The C library's functions behind the hooks: the next ones in the chain when preloaded, those the program uses otherwise. Must never be
//! looked up through the hooks themselves.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::hooks;

/// What a hooked function is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Memory of the host.
    Memory,
    /// Processes, threads and libraries.
    Process,
    /// What a framework reports of a device's memory: defined by the framework's library, which [`crate::framework`] looks for.
    Framework,
}

/// One hooked function: its name and, once looked up, the real one.
pub struct Function {
    name: &'static CStr,
    group: Group,
    real: AtomicUsize,
}

/// The C library has no such function.
const MISSING: usize = 1;

impl Function {
    const fn new(name: &'static CStr, group: Group) -> Self {
        Self { name, group, real: AtomicUsize::new(0) }
    }

    /// The real function; 0 when there is none, or it is just being looked up.
    #[inline(always)]
    pub fn get(&self) -> usize {
        let real = self.real.load(Ordering::Relaxed);
        if real > MISSING { real } else { look_up(self, true) }
    }

    /// Name of the function.
    pub fn name(&self) -> &'static CStr {
        self.name
    }

    /// What the function is about.
    pub fn group(&self) -> Group {
        self.group
    }

    /// The real function is this one; 0: there is none.
    pub fn set(&self, real: usize) {
        self.real.store(real, Ordering::Release);
    }

    /// The real function, if it is known; else 0.
    pub fn known(&self) -> usize {
        let real = self.real.load(Ordering::Acquire);
        if real > MISSING { real } else { 0 }
    }
}

macro_rules! functions {
    ($($group:ident { $($constant:ident $name:literal $hook:path;)* })*) => {
        $($(#[doc = concat!("`", $name, "`")]
        pub static $constant: Function = Function::new(
            match CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            },
            Group::$group,
        );)*)*
        /// Every hooked function with its hook.
        pub fn all() -> impl Iterator<Item = (&'static Function, usize)> {
            [$($((&$constant, $hook as *const () as usize)),*),*].into_iter()
        }
    };
}

functions! {
    Memory {
        MALLOC "malloc" hooks::malloc;
        CALLOC "calloc" hooks::calloc;
        REALLOC "realloc" hooks::realloc;
        REALLOCARRAY "reallocarray" hooks::reallocarray;
        FREE "free" hooks::free;
        CFREE "cfree" hooks::cfree;
        FREE_SIZED "free_sized" hooks::free_sized;
        FREE_ALIGNED_SIZED "free_aligned_sized" hooks::free_aligned_sized;
        POSIX_MEMALIGN "posix_memalign" crate::x86_64::callers::posix_memalign;
        ALIGNED_ALLOC "aligned_alloc" hooks::aligned_alloc;
        MEMALIGN "memalign" hooks::memalign;
        VALLOC "valloc" hooks::valloc;
        PVALLOC "pvalloc" hooks::pvalloc;
        MMAP "mmap" crate::mappings::mmap;
        MMAP64 "mmap64" crate::mappings::mmap64;
        MUNMAP "munmap" crate::mappings::munmap;
        MREMAP "mremap" crate::mappings::mremap;
        BRK "brk" crate::mappings::brk;
        SBRK "sbrk" crate::mappings::sbrk;
    }
    Process {
        PRCTL "prctl" crate::process::prctl;
        SETNAME "pthread_setname_np" crate::process::pthread_setname_np;
        EXIT "_exit" crate::process::_exit;
        EXIT_C99 "_Exit" crate::process::_Exit;
        QUICK_EXIT "quick_exit" crate::process::quick_exit;
        EXECVE "execve" crate::exec::execve;
        EXECV "execv" crate::exec::execv;
        EXECVP "execvp" crate::exec::execvp;
        EXECVPE "execvpe" crate::exec::execvpe;
        FEXECVE "fexecve" crate::exec::fexecve;
        EXECL "execl" crate::x86_64::exec::execl;
        EXECLP "execlp" crate::x86_64::exec::execlp;
        EXECLE "execle" crate::x86_64::exec::execle;
        POSIX_SPAWN "posix_spawn" crate::exec::posix_spawn;
        POSIX_SPAWNP "posix_spawnp" crate::exec::posix_spawnp;
        KILL "kill" crate::kill::kill;
        KILLPG "killpg" crate::kill::killpg;
        SIGACTION "sigaction" crate::sigbus::sigaction;
        SIGNAL "signal" crate::sigbus::signal;
        DLOPEN "dlopen" crate::x86_64::loader::dlopen;
        DLMOPEN "dlmopen" crate::x86_64::loader::dlmopen;
        DLCLOSE "dlclose" crate::x86_64::loader::dlclose;
        DLSYM "dlsym" crate::x86_64::loader::hooked_dlsym;
    }
    Framework {
        MEMORY_USAGE "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE" crate::x86_64::framework::memory_usage;
        OUT_OF_MEMORY "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE" crate::x86_64::framework::out_of_memory;
    }
}

static LOOKING: AtomicBool = AtomicBool::new(false);

static IS_PRELOADED: AtomicBool = AtomicBool::new(false);

/// True when the program's `malloc` is this library's. Known from [`prepare`] on.
pub fn is_preloaded() -> bool {
    IS_PRELOADED.load(Ordering::Relaxed)
}

/// Looks every function up. `in_hook`: another allocator may be in the middle of its work, so nothing here may ask for memory.
#[cold]
#[inline(never)]
fn look_up(wanted: &Function, in_hook: bool) -> usize {
    if wanted.real.load(Ordering::Acquire) == MISSING {
        return 0;
    }
    if LOOKING.swap(true, Ordering::Acquire) {
        // `dlsym` itself wants memory (or another thread is at it, which can only be at the very start).
        return 0;
    }
    let errno = errno();
    // SAFETY: a zero-terminated literal; `dlsym` only looks the name up.
    let global = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) };
    let mut preloaded = core::ptr::eq(global, hooks::malloc as *const c_void);
    if !preloaded && is_stub(global as usize) {
        // A program built for a fixed address has its own stub for `malloc`; it has none for this.
        // SAFETY: a zero-terminated literal; `dlsym` only looks the name up.
        let other = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pvalloc".as_ptr()) };
        preloaded = core::ptr::eq(other, hooks::pvalloc as *const c_void);
    }
    IS_PRELOADED.store(preloaded, Ordering::Relaxed);
    for (function, hook) in all() {
        // Not every C library has these, and a symbol that is not found costs an allocation and a message; `free` does the same.
        let optional =
            [&CFREE, &FREE_SIZED, &FREE_ALIGNED_SIZED].iter().any(|one| core::ptr::eq(*one, function));
        if function.group == Group::Framework {
            continue;
        } else if optional && preloaded {
            function.real.store(MISSING, Ordering::Release);
        } else if optional && in_hook {
            continue;
        } else if function.known() == 0 {
            function.real.store(find(function.name, hook, preloaded).max(MISSING), Ordering::Release);
        }
    }
    forget_error();
    set_errno(errno);
    LOOKING.store(false, Ordering::Release);
    wanted.known()
}

/// Clears the message of a symbol that was not found: the program must not find it, and the C library frees it inside its next `dlsym`.
pub fn forget_error() {
    // SAFETY: always safe; the second call frees what the first one gave.
    unsafe {
        libc::dlerror();
        libc::dlerror();
    }
}

/// Looks all of them up, outside of any allocation.
pub fn prepare() {
    look_up(&MALLOC, false);
}

fn find(name: &CStr, hook: usize, preloaded: bool) -> usize {
    let handle = if preloaded { libc::RTLD_NEXT } else { libc::RTLD_DEFAULT };
    // SAFETY: a terminated name; looking up changes nothing.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) } as usize;
    if found != hook && found != 0 && !is_stub(found) {
        return found;
    }
    if preloaded {
        return 0;
    }
    // A program not built as position-independent code may replace a function by its own jump to it, which goes through a slot
    // that is patched; and a library that is loaded late sees its own exports last. Both times the one meant is that of the
    // libraries this one depends on.
    // SAFETY: a terminated name; the lookup changes nothing.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) as usize }
}

/// True for an address that is only a program's jump to a function: the symbol there is not defined by it.
fn is_stub(address: usize) -> bool {
    const WITH_SYMBOL: c_int = 1;
    unsafe extern "C" {
        fn dladdr1(
            address: *const c_void,
            info: *mut libc::Dl_info,
            extra: *mut *mut c_void,
            flags: c_int,
        ) -> c_int;
    }
    // SAFETY: all zeroes is valid; both are filled by the call, the symbol only when there is one.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        let mut symbol = core::ptr::null_mut();
        let known = dladdr1(address as *const c_void, &raw mut info, &raw mut symbol, WITH_SYMBOL);
        known != 0 && !symbol.is_null() && (*symbol.cast::<libc::Elf64_Sym>()).st_shndx == 0
    }
}

/// `errno` of this thread.
#[inline]
pub fn errno() -> c_int {
    // SAFETY: the C library returns the address of this thread's `errno`, which is valid as long as the thread runs.
    unsafe { *libc::__errno_location() }
}

/// Sets `errno`.
#[inline]
pub fn set_errno(value: c_int) {
    // SAFETY: the C library returns the address of this thread's `errno`, which is valid as long as the thread runs.
    unsafe { *libc::__errno_location() = value }
}

/// The text of a C string, without its end; empty for null.
///
/// # Safety
/// `text` is null or a C string that lives long enough.
pub unsafe fn text<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: the caller guarantees that `text` is a C string that outlives `'a`; null was handled above.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}
