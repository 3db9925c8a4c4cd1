//! Driver-level GPU allocations as CUPTI tells them: who takes the device's memory beside PyTorch's allocator.
//!
//! CUPTI is loaded when somebody asks for it, never linked. Its callback runs inside the program's own allocations, on
//! any thread and under whatever locks that thread holds (PyTorch's allocator's, for one): it must never touch the
//! interpreter, wait for anything but our own short lock, or panic. Which library a stack belongs to is found out when
//! the report is asked for.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libloading::{Library, Symbol};
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;

mod books;

use books::{Books, Counts, here, owner};

const DRIVER: u32 = 1;
const RUNTIME: u32 = 2;
const RESOURCE: u32 = 3;
const MODULE_LOADED: u32 = 6;
const SLOT_TAKEN: c_int = 39;
const ENTER: c_int = 0;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: u32 = 1;

/// What the arguments of a function are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    /// Where the address goes, and the size.
    Allocate,
    /// Where the address and the width of a row go, the wanted width, and the rows.
    AllocateRows,
    /// Where the handle goes, the size, and the properties.
    Create,
    /// The address.
    Free,
    /// The handle.
    Release,
}

use Call::{Allocate, AllocateRows, Create, Free, Release};

/// Functions by domain and number, which never change. A call of the runtime may be told twice, as the driver's too;
/// an address counts once all the same.
const CALLS: [(u32, u32, Call); 20] = [
    (DRIVER, 243, Allocate),     // cuMemAlloc_v2
    (DRIVER, 598, Allocate),     // cuMemAllocAsync
    (DRIVER, 599, Allocate),     // cuMemAllocAsync_ptsz
    (DRIVER, 611, Allocate),     // cuMemAllocFromPoolAsync
    (DRIVER, 612, Allocate),     // cuMemAllocFromPoolAsync_ptsz
    (DRIVER, 244, AllocateRows), // cuMemAllocPitch_v2
    (DRIVER, 549, Create),       // cuMemCreate
    (DRIVER, 245, Free),         // cuMemFree_v2
    (DRIVER, 600, Free),         // cuMemFreeAsync
    (DRIVER, 601, Free),         // cuMemFreeAsync_ptsz
    (DRIVER, 550, Release),      // cuMemRelease
    (RUNTIME, 20, Allocate),     // cudaMalloc
    (RUNTIME, 373, Allocate),    // cudaMallocAsync
    (RUNTIME, 374, Allocate),    // cudaMallocAsync_ptsz
    (RUNTIME, 391, Allocate),    // cudaMallocFromPoolAsync
    (RUNTIME, 392, Allocate),    // cudaMallocFromPoolAsync_ptsz
    (RUNTIME, 21, AllocateRows), // cudaMallocPitch
    (RUNTIME, 22, Free),         // cudaFree
    (RUNTIME, 375, Free),        // cudaFreeAsync
    (RUNTIME, 376, Free),        // cudaFreeAsync_ptsz
];

/// `CUpti_CallbackData`, as far as it is read.
#[repr(C)]
struct CallbackData {
    site: c_int,
    function_name: *const c_char,
    arguments: *const usize,
    returned: *const c_int,
    symbol_name: *const c_char,
    context: *mut c_void,
}

/// `CUpti_ResourceData`.
#[repr(C)]
struct ResourceData {
    context: *mut c_void,
    handle: *mut c_void,
    descriptor: *const ModuleData,
}

/// `CUpti_ModuleResourceData`, as far as it is read.
#[repr(C)]
struct ModuleData {
    number: u32,
    bytes: usize,
}

type Told = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);
type Subscribe = unsafe extern "C" fn(*mut *mut c_void, Told, *mut c_void) -> c_int;
type Unsubscribe = unsafe extern "C" fn(*mut c_void) -> c_int;
type Enable = unsafe extern "C" fn(u32, *mut c_void, u32, u32) -> c_int;
type DeviceOf = unsafe extern "C" fn(*mut c_void, *mut u32) -> c_int;

struct Watch {
    books: Mutex<Books>,
    device_of: DeviceOf,
}

impl Watch {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn device(&self, context: *mut c_void) -> i32 {
        let mut device = 0;
        // SAFETY: the context is the one CUPTI named in this callback, and the number is ours.
        let is_known = !context.is_null() && unsafe { (self.device_of)(context, &raw mut device) } == 0;
        if is_known { i32::try_from(device).unwrap_or(-1) } else { -1 }
    }
}

/// CUPTI's callback.
unsafe extern "C" fn told(watch: *mut c_void, domain: u32, number: u32, data: *const c_void) {
    // SAFETY: what was handed over at the subscription: a `Watch` that is never freed.
    let watch = unsafe { &*watch.cast::<Watch>() };
    if domain == RESOURCE {
        // SAFETY: CUPTI hands over this structure for the domain, and for a loaded module its descriptor.
        let descriptor = unsafe { (*data.cast::<ResourceData>()).descriptor };
        if number == MODULE_LOADED && !descriptor.is_null() {
            // SAFETY: as above; it lives as long as the callback.
            watch.books().load(unsafe { (*descriptor).bytes } as u64);
        }
        return;
    }
    let Some((_, _, call)) = CALLS.iter().find(|row| (row.0, row.1) == (domain, number)) else { return };
    // SAFETY: CUPTI hands over this structure for both domains of calls.
    let data = unsafe { &*data.cast::<CallbackData>() };
    if data.arguments.is_null() {
        return;
    }
    // SAFETY: the arguments of each function in the list are words, as many as `Call` says.
    let word = |place: usize| unsafe { *data.arguments.add(place) };
    // SAFETY: only for arguments that say where a result goes, after the call has succeeded.
    let result = |place: usize| unsafe { *(word(place) as *const usize) };
    // Freed is told before it happens, when nobody can have the address again; taken is told afterwards.
    match (call, data.site == ENTER) {
        (Free, true) => watch.books().give_back((false, word(0))),
        (Release, true) => watch.books().give_back((true, word(0))),
        (Allocate | AllocateRows | Create, false) => {
            // SAFETY: what a call returned is there when it has ended.
            if data.returned.is_null() || unsafe { *data.returned } != 0 || word(0) == 0 {
                return;
            }
            let mut device = watch.device(data.context);
            let bytes = match call {
                AllocateRows => result(1).saturating_mul(word(3)),
                _ => word(1),
            };
            if *call == Create {
                // SAFETY: `CUmemAllocationProp` begins with two numbers, then what kind of place and which one.
                let place = unsafe { *(word(2) as *const [u32; 4]) };
                if place[2] != ON_DEVICE {
                    return;
                }
                device = i32::try_from(place[3]).unwrap_or(-1);
            }
            let (key, stack) = ((*call == Create, result(0)), here());
            watch.books().take(key, device, bytes as u64, &stack);
        }
        _ => {}
    }
}

/// Why there are no events.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("{path}: {error}")]
    Load { path: String, error: libloading::Error },
    #[error(
        "another tool (Nsight, a profiler) holds the only place for listeners that CUPTI has; run without it, or without --cuda-driver"
    )]
    Taken,
    #[error("CUPTI refused with error {0}")]
    Cupti(c_int),
}

impl From<Refused> for PyErr {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Load { .. } => PyOSError::new_err(refused.to_string()),
            Refused::Taken | Refused::Cupti(_) => PyRuntimeError::new_err(refused.to_string()),
        }
    }
}

/// Listens from its making until `stop`. There can be one in a process.
#[pyclass(frozen, module = "stormlog._native")]
struct CudaDriverEvents {
    watch: Arc<Watch>,
    subscriber: AtomicPtr<c_void>,
    unsubscribe: Unsubscribe,
}

/// Device, library, bytes and pieces of what is not given back.
type Row = (i32, String, u64, u64);
#[pymethods]
impl CudaDriverEvents {
    /// Loads the library of that name or path and subscribes; `OSError` when it cannot be loaded, `RuntimeError` when
    /// CUPTI refuses.
    #[new]
    fn new(py: Python<'_>, library: &str) -> PyResult<Self> {
        Ok(py.detach(|| subscribed(library))?)
    }

    /// Gives the place to whoever wants it; what was told stays.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| {
            let subscriber = self.subscriber.swap(std::ptr::null_mut(), Ordering::AcqRel);
            if !subscriber.is_null() {
                // SAFETY: CUPTI's own handle, given back once.
                unsafe { (self.unsubscribe)(subscriber) };
            }
        });
    }

    #[getter]
    fn is_on(&self) -> bool {
        !self.subscriber.load(Ordering::Acquire).is_null()
    }

    /// What is held now by device and library, and the counts.
    fn report(&self, py: Python<'_>) -> (Vec<Row>, Counts) {
        py.detach(|| {
            let (sums, counts) = {
                let books = self.watch.books();
                (books.held(), books.counts())
            };
            let mut rows: HashMap<(i32, String), (u64, u64)> = HashMap::new();
            for ((device, stack), (bytes, pieces)) in sums {
                let row = rows.entry((device, owner(&stack))).or_default();
                *row = (row.0 + bytes, row.1 + pieces);
            }
            let rows =
                rows.into_iter().map(|((device, library), (bytes, pieces))| (device, library, bytes, pieces));
            (rows.collect(), counts)
        })
    }
}

fn subscribed(library: &str) -> Result<CudaDriverEvents, Refused> {
    let failed = |error| Refused::Load { path: library.to_owned(), error };
    // SAFETY: CUPTI, or what the user named in its place; its initialisers are those of any library.
    let cupti = unsafe { Library::new(library) }.map_err(failed)?;
    // SAFETY: the four functions have these types in every CUPTI there is.
    let (subscribe, unsubscribe, enable, device_of): (Subscribe, Unsubscribe, Enable, DeviceOf) = unsafe {
        (
            *function(&cupti, c"cuptiSubscribe").map_err(failed)?,
            *function(&cupti, c"cuptiUnsubscribe").map_err(failed)?,
            *function(&cupti, c"cuptiEnableCallback").map_err(failed)?,
            *function(&cupti, c"cuptiGetDeviceId").map_err(failed)?,
        )
    };
    // It stays: a callback may be under way in another thread at any time.
    std::mem::forget(cupti);
    // The unwinder is loaded now, not in the callback.
    here();
    let watch = Arc::new(Watch { books: Mutex::default(), device_of });
    let mut subscriber = std::ptr::null_mut();
    // SAFETY: the watch is never freed, for one count of it is given away here.
    match unsafe { subscribe(&raw mut subscriber, told, Arc::into_raw(Arc::clone(&watch)) as *mut c_void) } {
        0 => {}
        SLOT_TAKEN => return Err(Refused::Taken),
        code => return Err(Refused::Cupti(code)),
    }
    let wanted = CALLS.iter().map(|row| (row.0, row.1)).chain([(RESOURCE, MODULE_LOADED)]);
    for (domain, number) in wanted {
        // SAFETY: the handle is CUPTI's own. A function that an older CUPTI does not know is refused, and costs itself.
        unsafe { enable(1, subscriber, domain, number) };
    }
    Ok(CudaDriverEvents { watch, subscriber: AtomicPtr::new(subscriber), unsubscribe })
}

/// # Safety
/// The function must have this type.
unsafe fn function<'a, T>(library: &'a Library, name: &CStr) -> Result<Symbol<'a, T>, libloading::Error> {
    // SAFETY: as the caller promises.
    unsafe { library.get(name.to_bytes_with_nul()) }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<CudaDriverEvents>()
}
