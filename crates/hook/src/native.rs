//! Native stacks and the modules their addresses belong to. Must never unwind through this library's own frames into a record.

use core::ops::Range;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use stormlog_capture::record::definition;
use stormlog_stack::native::{LoadedModule, NativeStack, Registers, Unwinder, each_module};

use crate::loader_lock;
use crate::session;
use crate::sys;
use crate::thread::{Inside, Thread};
use crate::writer::Writer;

/// Most modules whose unloading is noticed.
const MAX_MODULES: usize = 2048;

static UNWINDER: AtomicPtr<Unwinder> = AtomicPtr::new(null_mut());
static BUSY: AtomicBool = AtomicBool::new(false);
/// The addresses of this library.
static START: AtomicU64 = AtomicU64::new(0);
static END: AtomicU64 = AtomicU64::new(0);

/// The modules in the stream: load address (0: none here) and a fingerprint that distinguishes it from another module loaded there. All zeroes: none.
#[repr(C)]
pub struct Written {
    modules: [(AtomicU64, AtomicU64); MAX_MODULES],
}

impl Written {
    /// Nothing is written; only while nothing is recorded.
    pub fn clear(&self) {
        for (bias, _) in &self.modules {
            bias.store(0, Ordering::Relaxed);
        }
    }
}

/// Gets ready to unwind, once a process. False when there is no memory for it.
pub fn prepare() -> bool {
    if !UNWINDER.load(Ordering::Acquire).is_null() {
        return true;
    }
    let here = prepare as *const () as u64;
    each_module(|module| {
        if (module.start..module.end).contains(&here) {
            START.store(module.start, Ordering::Relaxed);
            END.store(module.end, Ordering::Relaxed);
        }
    });
    let Some(unwinder) = Unwinder::new() else { return false };
    UNWINDER.store(core::ptr::from_ref(unwinder).cast_mut(), Ordering::Release);
    true
}

/// The node of this thread's native stack, 0 when none is wanted.
#[inline(always)]
pub fn current(stack: &mut NativeStack, tree: &mut impl stormlog_stack::Nodes) -> u32 {
    if !session::options().native {
        return 0;
    }
    let registers = Registers::capture();
    // SAFETY: null, or the one unwinder that `prepare` publishes and that is never freed.
    let Some(unwinder) = (unsafe { UNWINDER.load(Ordering::Acquire).as_ref() }) else { return 0 };
    let hidden = Range { start: START.load(Ordering::Relaxed), end: END.load(Ordering::Relaxed) };
    stack.current(&registers, unwinder, &hidden, tree)
}

/// A forked child has this thread alone.
pub fn after_fork() {
    BUSY.store(false, Ordering::Release);
}

/// Libraries were loaded or unloaded: unwind rules are read again, and the stream lists the modules.
pub fn libraries_changed(thread: &mut Thread) {
    // SAFETY: null, or the one unwinder that `prepare` publishes and that is never freed.
    let unwinder = unsafe { UNWINDER.load(Ordering::Acquire).as_ref() };
    let (true, Some(unwinder), Some(state)) = (session::options().native, unwinder, session::current())
    else {
        return;
    };
    while BUSY.swap(true, Ordering::Acquire) {
        sys::give_way();
    }
    unwinder.refresh();
    write(&state.written, &mut thread.writer);
    BUSY.store(false, Ordering::Release);
}

/// Ensures that the stream names the library with code at `address`, for a stack of that one frame. False: it is not loaded.
pub fn name_module_of(inside: &mut Inside, address: u64) -> bool {
    let Some(state) = session::current() else { return false };
    if session::options().native {
        return true; // the stack is walked, and the libraries are followed
    }
    let mut is_loaded = false;
    loader_lock::with(|| {
        each_module(|module| is_loaded |= (module.start..module.end).contains(&address));
        if is_loaded && !BUSY.swap(true, Ordering::Acquire) {
            inside.record_quietly(|thread| write(&state.written, &mut thread.writer));
            BUSY.store(false, Ordering::Release);
        }
    });
    is_loaded
}

/// Writes the modules that are new, and those that are gone.
fn write(written: &Written, writer: &mut Writer) {
    let mut seen = [false; MAX_MODULES];
    each_module(|module| {
        // Load address 0 is the program's own, built for a fixed place; 0 marks an empty entry here.
        let (key, print) = (module.bias ^ 1, print(&module));
        let at =
            |wanted: u64| written.modules.iter().position(|(bias, _)| bias.load(Ordering::Relaxed) == wanted);
        let known = at(key);
        let Some(place) = known.or_else(|| at(0)) else { return };
        seen[place] = true;
        let (bias, looks) = &written.modules[place];
        if (known.is_none() || looks.load(Ordering::Relaxed) != print) && define(writer, &module) {
            looks.store(print, Ordering::Relaxed);
            bias.store(key, Ordering::Relaxed);
        }
    });
    for ((bias, _), seen) in written.modules.iter().zip(seen) {
        let key = bias.load(Ordering::Relaxed);
        if key != 0 && !seen {
            writer.definition(definition::MODULE_GONE, key ^ 1, &[]);
            bias.store(0, Ordering::Relaxed);
        }
    }
}

fn define(writer: &mut Writer, module: &LoadedModule<'_>) -> bool {
    let mut own = [0; 4096];
    let mut path = module.path.to_bytes();
    if path.is_empty() {
        let link = b"/proc/self/exe\0";
        // SAFETY: `link` ends with a zero byte, and the length passed is that of `own`, which the kernel fills.
        let length = unsafe {
            sys::call(
                libc::SYS_readlink,
                [link.as_ptr() as usize, own.as_mut_ptr() as usize, own.len(), 0, 0, 0],
            )
        };
        path = &own[..length.unwrap_or(0)];
    }
    let build_id = &module.build_id[..module.build_id.len().min(255)];
    let one = 1_u32.to_le_bytes();
    let (start, end) = (module.start.to_le_bytes(), module.end.to_le_bytes());
    writer.definition(
        definition::MODULE,
        module.bias,
        &[&one, &start, &end, &[build_id.len() as u8], build_id, path],
    )
}

/// A fingerprint that distinguishes two modules at one address.
fn print(module: &LoadedModule<'_>) -> u64 {
    let bytes = module.path.to_bytes().iter().chain(module.build_id);
    bytes.fold(module.end ^ module.start << 16, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
