//! Native walks, compared with the C runtime's own unwinder.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::{LazyLock, Mutex};

use stormlog_stack::native::{NativeStack, Registers, Unwinder};

use crate::{Frame, Tree, cpu_time, frames, give};

static UNWINDER: LazyLock<&'static Unwinder> = LazyLock::new(|| Unwinder::new().unwrap());
static NATIVE_TREE: LazyLock<Mutex<Tree>> = LazyLock::new(|| Mutex::new(Tree::default()));
static PROBLEM: Mutex<String> = Mutex::new(String::new());

thread_local! {
    static STACK: Box<UnsafeCell<NativeStack>> = Box::new(UnsafeCell::new(NativeStack::new()));
}

unsafe extern "C" {
    fn _Unwind_Backtrace(visit: extern "C" fn(*mut c_void, *mut c_void) -> c_int, data: *mut c_void)
    -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

extern "C" fn visit(context: *mut c_void, found: *mut c_void) -> c_int {
    // SAFETY: the unwinder's own context, valid during this call.
    let ip = unsafe { _Unwind_GetIP(context) } as u64;
    if ip != 0 {
        // SAFETY: `compare` hands its vector over and waits for the walk.
        unsafe { (*found.cast::<Vec<u64>>()).push(ip) };
    }
    0
}

/// Compares the kept walk with the C runtime's, from the caller of this function outwards.
#[inline(never)]
pub fn compare() -> bool {
    let registers = Registers::capture();
    let mut theirs: Vec<u64> = Vec::new();
    // SAFETY: `visit` takes the vector it is given here, which lives on.
    unsafe { _Unwind_Backtrace(visit, (&raw mut theirs).cast()) };
    let mut tree = NATIVE_TREE.lock().unwrap();
    let node =
        // SAFETY: the cell is this thread's alone; nothing in the walk asks for it again.
        STACK.with(|stack| unsafe { (*stack.get()).current(&registers, *UNWINDER, &(0..0), &mut *tree) });
    let ours = frames(&tree, node);
    let cut = ours.iter().position(|frame| *frame == Frame::Truncated);
    // both begin in this function, at different calls
    let ours: Vec<u64> = ours
        .iter()
        .skip(1)
        .filter_map(|frame| if let Frame::Native(ip) = frame { Some(*ip) } else { None })
        .collect();
    let theirs = &theirs[1..];
    let same = match cut {
        None => ours == theirs,
        Some(_) => ours.len() > 100 && theirs.len() > ours.len() && ours == theirs[..ours.len()],
    };
    if !same {
        let mut problem = PROBLEM.lock().unwrap();
        if problem.is_empty() {
            let at = ours.iter().zip(theirs).position(|(ours, theirs)| ours != theirs);
            *problem =
                format!("ours {} theirs {} cut {cut:?} first difference {at:?}\n", ours.len(), theirs.len());
            for (name, list) in [("ours", &ours[..]), ("theirs", theirs)] {
                for ip in list.iter().take(at.unwrap_or(ours.len().min(theirs.len())) + 3) {
                    problem.push_str(&format!("{name} {ip:x} {}\n", name_of(*ip)));
                }
            }
        }
    }
    same
}

/// The native frames from the caller of this function outwards.
#[inline(never)]
pub fn walk() -> Vec<Frame> {
    let mut tree = NATIVE_TREE.lock().unwrap();
    let registers = Registers::capture();
    let node =
        // SAFETY: the cell is this thread's alone; nothing in the walk asks for it again.
        STACK.with(|stack| unsafe { (*stack.get()).current(&registers, *UNWINDER, &(0..0), &mut *tree) });
    frames(&tree, node).split_off(1)
}

fn name_of(ip: u64) -> String {
    // SAFETY: a C structure for which zeroes are a value.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: looks the address up, never follows it.
    if unsafe { libc::dladdr(ip as *const c_void, &mut info) } == 0 {
        return String::new();
    }
    let text = |name: *const std::ffi::c_char| {
        if name.is_null() {
            String::new()
        } else {
            // SAFETY: the loader's own text, not null.
            unsafe { std::ffi::CStr::from_ptr(name) }.to_string_lossy().into_owned()
        }
    };
    format!("{} {} +{:x}", text(info.dli_fname), text(info.dli_sname), ip - info.dli_fbase as u64)
}

#[unsafe(no_mangle)]
pub extern "C" fn probe_native() -> c_int {
    c_int::from(compare())
}

#[unsafe(no_mangle)]
pub extern "C" fn probe_refresh() {
    UNWINDER.refresh();
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_native_problem(out: *mut u8, room: usize) -> usize {
    // SAFETY: the caller (the test, through ctypes) passes a buffer of `room` bytes, as `give` requires.
    unsafe { give(&PROBLEM.lock().unwrap(), out, room) }
}

/// From inside a signal handler, on the thread's stack (0) or one of its own (1).
#[unsafe(no_mangle)]
pub extern "C" fn probe_native_in_signal(own_stack: c_int) -> c_int {
    static SAME: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(-1);
    extern "C" fn handler(_signal: c_int) {
        SAME.store(i32::from(compare()), std::sync::atomic::Ordering::SeqCst);
    }
    // SAFETY: the handler only walks; its stack outlives the signal, which is raised and done with in here.
    unsafe {
        let mut memory = vec![0u8; 1 << 20];
        let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        if own_stack != 0 {
            libc::sigaltstack(&stack, std::ptr::null_mut());
            action.sa_flags = libc::SA_ONSTACK;
        }
        libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut());
        libc::raise(libc::SIGUSR2);
        let off = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        libc::sigaltstack(&off, std::ptr::null_mut());
    }
    SAME.load(std::sync::atomic::Ordering::SeqCst)
}

/// A recursion in C of `depth` frames, some of them with a variable-size frame.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn probe_native_deep(depth: c_int) -> c_int {
    let room = std::hint::black_box([depth; 9]);
    let same = if depth == 0 { probe_native() } else { probe_native_deep(depth - 1) };
    std::hint::black_box(room);
    same & probe_native()
}

/// Called with registers and a stack that make no sense.
#[unsafe(no_mangle)]
pub extern "C" fn probe_native_damaged(rounds: u64) {
    let real = Registers::capture();
    let mut tree = Tree::default();
    let mut stack = Box::new(NativeStack::new());
    let mut seed = 0x1234_5678_9abc_def1u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let mut words = [0u64; 64];
    for _ in 0..rounds {
        for word in &mut words {
            *word = match random() % 4 {
                0 => real.ip.wrapping_add(random() % 5000),
                1 => real.sp.wrapping_add(random() % 5000),
                2 => random(),
                _ => 0,
            };
        }
        let mut registers = real;
        registers.ip = real.ip.wrapping_add(random() % 100_000);
        registers.sp = words.as_ptr() as u64 + random() % 256;
        registers.bp = match random() % 3 {
            0 => random(),
            1 => registers.sp + random() % 512,
            _ => real.bp,
        };
        std::hint::black_box(stack.current(&registers, *UNWINDER, &(0..0), &mut tree));
    }
}

/// Nanoseconds for one walk of the present stack: unchanged, and with everything unwound from_scratch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_native_time(rounds: u64, from_scratch: c_int, frames_out: *mut u64) -> f64 {
    let mut tree = NATIVE_TREE.lock().unwrap();
    STACK.with(|stack| {
        // SAFETY: the cell is this thread's alone, and borrowed here only.
        let stack = unsafe { &mut *stack.get() };
        let mut node = stack.current(&Registers::capture(), *UNWINDER, &(0..0), &mut *tree);
        let start = cpu_time();
        for _ in 0..rounds {
            if from_scratch != 0 {
                stack.clear();
            }
            node = stack.current(&Registers::capture(), *UNWINDER, &(0..0), &mut *tree);
        }
        let time = (cpu_time() - start) / rounds as f64;
        // SAFETY: the caller guarantees that `frames_out` can be written to.
        unsafe { *frames_out = frames(&tree, node).len() as u64 };
        time
    })
}
