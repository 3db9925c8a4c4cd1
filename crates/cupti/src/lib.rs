//! Driver-level GPU allocations of this process, as CUPTI reports them: what takes the device's memory beside PyTorch's
//! allocator.
//!
//! CUPTI is loaded when a [`Listener`] is made, never linked. Its callback runs inside the program's own allocations, on
//! any thread and under whatever locks that thread holds (PyTorch's allocator's, for one): it must never touch an
//! interpreter, wait for anything but our own short lock, or panic.
//!
//! ```text
//! CUPTI ─► on_call ─► ledger (alive, by stack) ─► report()
//!                        └─► recording: what is beside the framework's segments, into the heap recording of this process
//! ```

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libloading::{Library, Symbol};

mod ledger;
mod origin;
mod recording;

pub use ledger::Counts;
use ledger::{Ledger, Request, here};
pub use recording::{ReportFn, record_with};

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
    /// As `Allocate`, in the order of a stream, from a pool of the driver's.
    AllocateInOrder,
    /// Where the address and the width of a row go, the wanted width, and the rows.
    AllocateRows,
    /// Where the handle goes, the size, and the properties.
    Create,
    /// The address.
    Free,
    /// The handle.
    Release,
    /// Where the handle goes.
    Retain,
    /// The address, the size, the offset, and the handle.
    Map,
    /// The address and the size.
    Unmap,
}

use Call::{Allocate, AllocateInOrder, AllocateRows, Create, Free, Map, Release, Retain, Unmap};

/// Functions by domain and number, which never change. A call of the runtime may be reported twice, as the
/// driver's too; an address counts once all the same.
const CALLS: [(u32, u32, Call); 23] = [
    (DRIVER, 243, Allocate),         // cuMemAlloc_v2
    (DRIVER, 598, AllocateInOrder),  // cuMemAllocAsync
    (DRIVER, 599, AllocateInOrder),  // cuMemAllocAsync_ptsz
    (DRIVER, 611, AllocateInOrder),  // cuMemAllocFromPoolAsync
    (DRIVER, 612, AllocateInOrder),  // cuMemAllocFromPoolAsync_ptsz
    (DRIVER, 244, AllocateRows),     // cuMemAllocPitch_v2
    (DRIVER, 549, Create),           // cuMemCreate
    (DRIVER, 245, Free),             // cuMemFree_v2
    (DRIVER, 600, Free),             // cuMemFreeAsync
    (DRIVER, 601, Free),             // cuMemFreeAsync_ptsz
    (DRIVER, 550, Release),          // cuMemRelease
    (DRIVER, 551, Map),              // cuMemMap
    (DRIVER, 552, Unmap),            // cuMemUnmap
    (DRIVER, 565, Retain),           // cuMemRetainAllocationHandle
    (RUNTIME, 20, Allocate),         // cudaMalloc
    (RUNTIME, 373, AllocateInOrder), // cudaMallocAsync
    (RUNTIME, 374, AllocateInOrder), // cudaMallocAsync_ptsz
    (RUNTIME, 391, AllocateInOrder), // cudaMallocFromPoolAsync
    (RUNTIME, 392, AllocateInOrder), // cudaMallocFromPoolAsync_ptsz
    (RUNTIME, 21, AllocateRows),     // cudaMallocPitch
    (RUNTIME, 22, Free),             // cudaFree
    (RUNTIME, 375, Free),            // cudaFreeAsync
    (RUNTIME, 376, Free),            // cudaFreeAsync_ptsz
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

type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);
type Subscribe = unsafe extern "C" fn(*mut *mut c_void, Callback, *mut c_void) -> c_int;
type Unsubscribe = unsafe extern "C" fn(*mut c_void) -> c_int;
type Enable = unsafe extern "C" fn(u32, *mut c_void, u32, u32) -> c_int;
type DeviceOf = unsafe extern "C" fn(*mut c_void, *mut u32) -> c_int;

/// What the callback writes to. Never freed once CUPTI has its address.
struct Shared {
    ledger: Mutex<Ledger>,
    device_of: DeviceOf,
}

impl Shared {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn device(&self, context: *mut c_void) -> i32 {
        let mut device = 0;
        // SAFETY: the context is the one CUPTI gave to this callback, which is still running; the number is a local.
        let is_known = !context.is_null() && unsafe { (self.device_of)(context, &raw mut device) } == 0;
        if is_known { i32::try_from(device).unwrap_or(-1) } else { -1 }
    }
}

/// CUPTI's callback.
unsafe extern "C" fn on_call(shared: *mut c_void, domain: u32, number: u32, data: *const c_void) {
    // SAFETY: the pointer given to `cuptiSubscribe`: a `Shared` with a count that `subscribe` gave away, so never freed.
    let shared = unsafe { &*shared.cast::<Shared>() };
    if domain == RESOURCE {
        // SAFETY: CUPTI passes this structure for the resource domain; it lives as long as the callback.
        let descriptor = unsafe { (*data.cast::<ResourceData>()).descriptor };
        if number == MODULE_LOADED && !descriptor.is_null() {
            // SAFETY: for a loaded module CUPTI's descriptor is this structure; it lives as long as the callback.
            shared.ledger().load(unsafe { (*descriptor).bytes } as u64);
        }
        return;
    }
    let Some((_, _, call)) = CALLS.iter().find(|row| (row.0, row.1) == (domain, number)) else { return };
    // SAFETY: CUPTI passes this structure for both domains of calls; it lives as long as the callback.
    let data = unsafe { &*data.cast::<CallbackData>() };
    if data.arguments.is_null() {
        return;
    }
    // SAFETY: the arguments of each function in the list are words, as many as `Call` says.
    let word = |place: usize| unsafe { *data.arguments.add(place) };
    // SAFETY: called only for arguments that point to a result, after CUPTI reported the call as successful.
    let result = |place: usize| unsafe { *(word(place) as *const usize) };
    // A free is recorded before it happens, while no other thread can get the same address; an allocation afterwards.
    if data.site == ENTER {
        match call {
            Free => shared.ledger().free(word(0)),
            Release => shared.ledger().release(word(0)),
            Unmap => shared.ledger().unmap(word(0), word(1)),
            _ => {}
        }
        return;
    }
    // SAFETY: CUPTI sets the pointer to the call's result once the call has ended, as it has here.
    if data.returned.is_null() || unsafe { *data.returned } != 0 || word(0) == 0 {
        return;
    }
    match call {
        Allocate | AllocateInOrder | AllocateRows => {
            let bytes = if *call == AllocateRows { result(1).saturating_mul(word(3)) } else { word(1) };
            let (address, stack) = (result(0), here());
            let request = Request {
                device: shared.device(data.context),
                bytes: bytes as u64,
                stack: &stack,
                is_from_drivers_pool: *call == AllocateInOrder,
            };
            shared.ledger().allocate(address, &request);
        }
        Create => {
            // SAFETY: `CUmemAllocationProp` begins with two numbers, then what kind of place and which one.
            let place = unsafe { *(word(2) as *const [u32; 4]) };
            if place[2] == ON_DEVICE {
                let (handle, stack) = (result(0), here());
                let device = i32::try_from(place[3]).unwrap_or(-1);
                let request =
                    Request { device, bytes: word(1) as u64, stack: &stack, is_from_drivers_pool: false };
                shared.ledger().create(handle, &request);
            }
        }
        Retain => shared.ledger().retain(result(0)),
        Map => shared.ledger().map(word(0), word(3)),
        Free | Release | Unmap => {}
    }
}

/// Why there are no events.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CuptiError {
    /// The library, or one of its functions, is not there.
    #[error("{path}: {source}")]
    Load {
        /// The library's name or path as given.
        path: String,
        /// The loader's reason.
        source: libloading::Error,
    },
    /// CUPTI has one subscriber at a time.
    #[error(
        "another tool (Nsight, a profiler) already subscribes to CUPTI, which has one subscriber; run without that tool, or without --cuda-driver"
    )]
    Taken,
    /// Any other refusal, with CUPTI's number.
    #[error("CUPTI refused with error {0}")]
    Refused(c_int),
}

/// Memory that one library holds of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The device's number; -1 where CUPTI did not report it.
    pub device: i32,
    /// The file name of the library.
    pub library: String,
    /// Bytes that are not freed.
    pub bytes: u64,
    /// Number of these allocations.
    pub pieces: u64,
}

/// What was reported so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Memory held now, in no particular order.
    pub held: Vec<Holding>,
    /// How often the driver was called.
    pub counts: Counts,
}

/// Listens from its making until [`Listener::stop`]. CUPTI allows one in a process.
pub struct Listener {
    shared: Arc<Shared>,
    subscriber: AtomicPtr<c_void>,
    unsubscribe: Unsubscribe,
}

impl Listener {
    /// Loads the CUPTI of that name or path and subscribes to its allocations.
    pub fn subscribe(library: &str) -> Result<Self, CuptiError> {
        let failed = |source| CuptiError::Load { path: library.to_owned(), source };
        // SAFETY: CUPTI, or the library that the user gave in its place; its initialisers are those of any library.
        let cupti = unsafe { Library::new(library) }.map_err(failed)?;
        // SAFETY: the four functions have these types in every release of CUPTI.
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
        let shared = Arc::new(Shared { ledger: Mutex::default(), device_of });
        let mut subscriber = std::ptr::null_mut();
        // SAFETY: the callback has the type CUPTI calls it with, and `shared` is never freed: one count of it is given away here.
        match unsafe {
            subscribe(&raw mut subscriber, on_call, Arc::into_raw(Arc::clone(&shared)) as *mut c_void)
        } {
            0 => {}
            SLOT_TAKEN => return Err(CuptiError::Taken),
            code => return Err(CuptiError::Refused(code)),
        }
        let wanted = CALLS.iter().map(|row| (row.0, row.1)).chain([(RESOURCE, MODULE_LOADED)]);
        for (domain, number) in wanted {
            // SAFETY: the handle is CUPTI's own. A function that an older CUPTI does not know is refused and only not recorded.
            unsafe { enable(1, subscriber, domain, number) };
        }
        Ok(Listener { shared, subscriber: AtomicPtr::new(subscriber), unsubscribe })
    }

    /// Gives CUPTI up to another subscriber; what was reported stays.
    pub fn stop(&self) {
        let subscriber = self.subscriber.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !subscriber.is_null() {
            // SAFETY: CUPTI's own handle; the swap above lets one caller have it.
            unsafe { (self.unsubscribe)(subscriber) };
        }
    }

    /// Whether this still listens.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.subscriber.load(Ordering::Acquire).is_null()
    }

    /// Memory held now by device and library, and the counts.
    #[must_use]
    pub fn report(&self) -> Report {
        let (sums, counts) = {
            let ledger = self.shared.ledger();
            (ledger.held(), ledger.counts())
        };
        let held = sums
            .into_iter()
            .map(|((device, library), (bytes, pieces))| Holding { device, library, bytes, pieces })
            .collect();
        Report { held, counts }
    }
}

/// # Safety
/// The function must have this type.
unsafe fn function<'a, T>(library: &'a Library, name: &CStr) -> Result<Symbol<'a, T>, libloading::Error> {
    // SAFETY: the caller guarantees that `T` is the type of the function.
    unsafe { library.get(name.to_bytes_with_nul()) }
}
