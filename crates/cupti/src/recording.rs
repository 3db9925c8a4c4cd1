//! Where driver events go besides the ledger: the heap recording of this process, through the C function of the hook library.
//!
//! The function is looked up by the module that loads the hook library and handed in; here it is only called. It neither waits nor
//! touches the interpreter, and takes the calling thread's stack by itself.

use std::sync::atomic::{AtomicUsize, Ordering};

/// `stormlog_gpu_report` of the hook library: address, bytes (negative: a free), allocated and reserved bytes (0: unknown), PyTorch's
/// number of the type of device, its index, the source of the report, and an address in the code that allocates (0: unknown).
pub type ReportFn = unsafe extern "C" fn(u64, i64, u64, u64, u8, u8, u8, u64);

/// CUDA, as PyTorch numbers types of devices.
const CUDA: u8 = 1;
/// The driver, beside the framework's own allocator: `device_source::DRIVER` of the capture's format.
const DRIVER: u8 = 1;
/// Set in the address of memory that has none of its own (`cuMemCreate`); no device has addresses that high.
const WITHOUT_ADDRESS: u64 = 1 << 56;

/// A [`ReportFn`], or 0. One for the process, as CUPTI's subscriber is.
static REPORT: AtomicUsize = AtomicUsize::new(0);

/// Writes driver events into the heap recording from now on, whenever one is running.
pub fn record_with(report: ReportFn) {
    REPORT.store(report as usize, Ordering::Release);
}

/// A block as the recording knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// On the device.
    Device(usize),
    /// Memory that is mapped to addresses, or will be: the number of its creation.
    Created(u64),
}

impl Address {
    fn word(self) -> u64 {
        match self {
            Address::Device(address) => address as u64,
            Address::Created(number) => WITHOUT_ADDRESS | number << 3,
        }
    }
}

/// A block was given out; `caller` is an address in the code of the library that allocated.
pub(crate) fn allocated(address: Address, device: i32, bytes: u64, caller: usize) {
    report(address, device, i64::try_from(bytes).unwrap_or(i64::MAX), caller);
}

/// A block comes to its end.
pub(crate) fn freed(address: Address, device: i32, bytes: u64) {
    report(address, device, -i64::try_from(bytes).unwrap_or(i64::MAX), 0);
}

fn report(address: Address, device: i32, bytes: i64, caller: usize) {
    let (Ok(index), word) = (u8::try_from(device), REPORT.load(Ordering::Acquire)) else { return };
    if word == 0 || bytes == 0 {
        return;
    }
    // SAFETY: the word was made of a function of this type by `record_with`, whose caller never unloads the library.
    let report = unsafe { std::mem::transmute::<usize, ReportFn>(word) };
    // SAFETY: takes any numbers, on any thread, and never calls back.
    unsafe { report(address.word(), bytes, 0, 0, CUDA, index, DRIVER, caller as u64) };
}
