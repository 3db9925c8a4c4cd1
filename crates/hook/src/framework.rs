//! The functions of PyTorch that the hooks need: their addresses, and what they report. Its libraries are loaded with `RTLD_LOCAL`, so the functions are looked for in the
//! objects themselves. Must never change what PyTorch gets from its own functions.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use stormlog_capture::record::device_source;

use crate::devices::{self, Report, Request};
use crate::libc_symbols::{self, MEMORY_USAGE, OUT_OF_MEMORY};
use crate::loader_lock;
use crate::object::Loaded;
use crate::session;
use crate::thread::Thread;

/// Allocates the memory of CPU tensors.
const ALLOC_CPU: &CStr = c"_ZN3c109alloc_cpuEm";
/// PyTorch's library of these functions. One built into another library has them too, or is taken for none.
const LIBRARY: &[u8] = b"libc10.so";
/// PyTorch's number for the processor's own memory.
const CPU: i8 = 0;

/// The code of [`ALLOC_CPU`].
static TENSORS: AtomicUsize = AtomicUsize::new(0);
static TENSORS_LENGTH: AtomicUsize = AtomicUsize::new(0);

/// Whether code at this address asks for the memory of a CPU tensor.
#[inline(always)]
pub fn makes_tensors(caller: usize) -> bool {
    caller.wrapping_sub(TENSORS.load(Ordering::Relaxed)) < TENSORS_LENGTH.load(Ordering::Relaxed)
}

/// PyTorch's `c10::Device`, passed as it is.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Device {
    sort: i8,
    index: i8,
}

/// Called with the arguments of [`MEMORY_USAGE`], by the allocator and under its lock. Gives the real function, 0 when there is none.
pub extern "C" fn on_memory_usage(
    block: u64,
    bytes: i64,
    allocated: u64,
    reserved: u64,
    device: Device,
) -> usize {
    if let Some(device) = recorded(device) {
        devices::report(&Report { device, block, bytes, totals: Some((allocated, reserved)), caller: 0 });
    }
    real_function(&MEMORY_USAGE)
}

/// Called with the arguments of [`OUT_OF_MEMORY`].
pub extern "C" fn on_out_of_memory(bytes: i64, allocated: u64, reserved: u64, device: Device) -> usize {
    if let Some(device) = recorded(device) {
        devices::failed(&Request { device, bytes: bytes.unsigned_abs(), allocated, reserved });
    }
    real_function(&OUT_OF_MEMORY)
}

/// The device as the recording names it. CPU tensors, which are reported while PyTorch's own profiler runs, are blocks of the host's heap.
fn recorded(device: Device) -> Option<devices::Name> {
    (device.sort != CPU).then_some(devices::Name {
        sort: device.sort as u8,
        index: device.index as u8,
        source: device_source::ALLOCATOR,
    })
}

fn real_function(function: &libc_symbols::Function) -> usize {
    match function.known() {
        0 => find_and_get(function),
        known => known,
    }
}

/// Called before any look at the libraries: PyTorch is loaded, for it calls.
#[cold]
fn find_and_get(function: &libc_symbols::Function) -> usize {
    loader_lock::with(find);
    function.known()
}

/// Finds a PyTorch that is loaded already. As [`find`].
pub fn prepare() {
    find();
}

/// What is known of a loaded PyTorch.
#[derive(Default)]
struct TorchLibrary {
    is_loaded: bool,
    usage: usize,
    out_of_memory: usize,
    tensors: (usize, usize),
}

/// Looks through the loaded objects. The caller may go through the loader's list.
fn find() -> TorchLibrary {
    let mut torch = TorchLibrary::default();
    // SAFETY: `look_at` casts its data to the `TorchLibrary` that is passed here and lives until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(look_at), (&raw mut torch).cast()) };
    MEMORY_USAGE.set(torch.usage);
    OUT_OF_MEMORY.set(torch.out_of_memory);
    if TENSORS.load(Ordering::Relaxed) != torch.tensors.0 {
        TENSORS_LENGTH.store(0, Ordering::Relaxed);
        TENSORS.store(torch.tensors.0, Ordering::Relaxed);
        TENSORS_LENGTH.store(torch.tensors.1, Ordering::Relaxed);
    }
    torch
}

unsafe extern "C" fn look_at(info: *mut libc::dl_phdr_info, _: usize, torch: *mut c_void) -> c_int {
    // SAFETY: called by `find` with its result, by the loader with a loaded object.
    unsafe {
        let (object, torch) = (Loaded::new(info), &mut *torch.cast::<TorchLibrary>());
        if object.is_foreign_ground() {
            return 0;
        }
        let path = libc_symbols::text((*info).dlpi_name);
        let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        torch.is_loaded |= file.starts_with(LIBRARY);
        let address = |name| object.function(name).map_or(0, |(address, _)| address);
        if torch.usage == 0 {
            torch.usage = address(MEMORY_USAGE.name());
        }
        if torch.out_of_memory == 0 {
            torch.out_of_memory = address(OUT_OF_MEMORY.name());
        }
        if torch.tensors.1 == 0 {
            torch.tensors = object.function(ALLOC_CPU).unwrap_or_default();
        }
    }
    0
}

/// Libraries came or went; none of them is half loaded by this thread.
pub fn libraries_changed(thread: &mut Thread) {
    let torch = find();
    if !session::options().gpu {
        return;
    }
    if torch.usage != 0 {
        devices::announce(thread, devices::Reports::Made);
    } else if torch.is_loaded {
        devices::announce(thread, devices::Reports::Missing);
    }
}
