//! The GPUs of this machine, whatever their drivers: one list, one numbering, one way to read a device.
//!
//! Every sampler and every page that shows GPUs gets them from [`discover_gpus`], so that all of them see the same
//! devices under the same numbers. A device that is split into MIG instances is listed as its instances: its memory is
//! theirs and must not be counted twice. This folder must never report a device that no driver answers for.

pub mod drm;
mod numbers;
pub mod nvml;
mod unified;

use std::collections::BTreeSet;

use serde::Serialize;

use self::drm::DrmDevice;
use self::nvml::{DeviceProcess, NvmlDevice};
use self::unified::UnifiedDevice;
use crate::host::HostReader;
use crate::{CollectError, Collector, DeviceCapabilities, DeviceIdentity, Reading, Roots};

/// One GPU or one MIG instance.
pub struct Gpu {
    identity: DeviceIdentity,
    driver: Driver,
    roots: Roots,
}

/// What answers for a device.
enum Driver {
    /// A device with memory of its own, by NVIDIA's library.
    Nvml(NvmlDevice),
    /// The same library, for a device that uses the host's memory.
    Unified(UnifiedDevice),
    /// A card of any other driver, by the kernel's files.
    Drm(DrmDevice),
}

/// How a device is beside its memory; each is `None` where its driver does not report it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Vitals {
    /// Share of the last sampling period in which it computed, in percent. MIG instances never have it.
    pub busy_percent: Option<u64>,
    /// Degrees Celsius; of a MIG instance, those of its physical device.
    pub temperature_c: Option<u32>,
    /// Watts drawn now, likewise.
    pub power_w: Option<f64>,
    /// Streaming multiprocessors of a MIG instance.
    pub multiprocessors: Option<u32>,
}

/// Every GPU and MIG instance that can be read: NVIDIA's first, then the other drivers' in the order of their bus
/// addresses, each under a number of its own. None is a fact, not a failure.
pub fn discover_gpus(roots: &Roots) -> Vec<Gpu> {
    let mut gpus = all(roots);
    let split: BTreeSet<String> = gpus.iter().filter_map(|gpu| gpu.identity.parent_uuid.clone()).collect();
    gpus.retain(|gpu| gpu.identity.uuid.as_ref().is_none_or(|uuid| !split.contains(uuid)));
    let numbers = numbers::unique(gpus.iter().map(|gpu| gpu.identity.device_id));
    for (gpu, number) in gpus.iter_mut().zip(numbers) {
        gpu.identity.device_id = number;
    }
    gpus
}

/// The device with this id of its driver (`GPU-…`, `MIG-…`), a split one included; `None` when there is no such device.
pub fn find_gpu(roots: &Roots, uuid: &str) -> Option<Gpu> {
    all(roots).into_iter().find(|gpu| gpu.identity.uuid.as_deref() == Some(uuid))
}

/// What the processes hold on all of these GPUs together; `None` when no driver reports it.
pub fn bytes_held(gpus: &[Gpu], pids: &[u32]) -> Option<u64> {
    let mut sum: Option<u64> = None;
    let mut add = |bytes: u64| sum = Some(sum.unwrap_or(0).saturating_add(bytes));
    for gpu in gpus {
        let held = match gpu.processes() {
            Ok(listed) => {
                // A driver that lists processes and none of these reports 0; one that hides them all reports nothing.
                if !listed.is_empty() {
                    add(0);
                }
                among(listed, pids)
            }
            Err(_) => gpu.held_by(pids).unwrap_or_default(),
        };
        held.into_iter().filter_map(|(_, bytes)| bytes).for_each(&mut add);
    }
    sum
}

/// Those of the listed processes that are requested.
fn among(listed: Vec<DeviceProcess>, pids: &[u32]) -> Vec<(u32, Option<u64>)> {
    let asked = listed.into_iter().filter(|process| pids.contains(&process.pid));
    asked.map(|process| (process.pid, process.used)).collect()
}

fn all(roots: &Roots) -> Vec<Gpu> {
    let of_nvidia = nvml::devices().unwrap_or_default().into_iter().map(|device| Driver::of(device, roots));
    let of_kernel = drm::devices(roots).into_iter().map(Driver::Drm);
    of_nvidia
        .chain(of_kernel)
        .map(|driver| Gpu { identity: driver.identity(), driver, roots: roots.clone() })
        .collect()
}

impl Driver {
    fn of(device: NvmlDevice, roots: &Roots) -> Self {
        let host = (!device.has_own_memory()).then(|| HostReader::open_in(roots).ok()).flatten();
        match host {
            Some(host) => Driver::Unified(UnifiedDevice::new(device, host)),
            None => Driver::Nvml(device),
        }
    }

    fn identity(&self) -> DeviceIdentity {
        match self {
            Driver::Nvml(device) => device.identity().clone(),
            Driver::Unified(device) => DeviceIdentity { unified: true, ..device.gpu().identity().clone() },
            Driver::Drm(device) => device.identity().clone(),
        }
    }

    fn collector(&self) -> &dyn Collector {
        match self {
            Driver::Nvml(device) => device,
            Driver::Unified(device) => device,
            Driver::Drm(device) => device,
        }
    }
}

impl Gpu {
    /// What names the device. The number is unique among those discovered together.
    pub fn identity(&self) -> &DeviceIdentity {
        &self.identity
    }

    /// Load, temperature and power.
    pub fn vitals(&self) -> Vitals {
        match &self.driver {
            Driver::Nvml(device) => device.vitals(),
            Driver::Unified(device) => device.gpu().vitals(),
            Driver::Drm(device) => Vitals { busy_percent: device.busy_percent(), ..Vitals::default() },
        }
    }

    /// Whether the driver lists the processes on the device at once. Other drivers are asked process by process, by
    /// reading the descriptors of each, which costs more.
    pub fn lists_processes(&self) -> bool {
        !matches!(self.driver, Driver::Drm(_))
    }

    /// The processes on the device and what each holds there; an error where the driver has no such list. In a container
    /// the driver may hide others' or show numbers of the host's PID namespace.
    pub fn processes(&self) -> Result<Vec<DeviceProcess>, CollectError> {
        match &self.driver {
            Driver::Nvml(device) => device.processes(),
            Driver::Unified(device) => device.gpu().processes(),
            Driver::Drm(_) => Err(CollectError::Unavailable {
                what: "the list of processes on a graphics card",
                reason: "its driver reports memory by process only".to_owned(),
            }),
        }
    }

    /// Which of these processes are on the device, and the bytes each holds there as far as the driver reports them;
    /// `None` when it does not report processes at all.
    pub fn held_by(&self, pids: &[u32]) -> Option<Vec<(u32, Option<u64>)>> {
        if let Driver::Drm(device) = &self.driver {
            return Some(device.held_by(&self.roots, pids));
        }
        self.processes().ok().map(|listed| among(listed, pids))
    }
}

impl Collector for Gpu {
    fn name(&self) -> &str {
        self.driver.collector().name()
    }

    fn is_available(&self) -> bool {
        self.driver.collector().is_available()
    }

    fn sample(&mut self) -> Result<Reading, CollectError> {
        let mut reading = match &mut self.driver {
            Driver::Nvml(device) => device.sample(),
            Driver::Unified(device) => device.sample(),
            Driver::Drm(device) => device.sample(),
        }?;
        reading.sample.device_id = self.identity.device_id;
        Ok(reading)
    }

    fn capabilities(&self) -> &DeviceCapabilities {
        self.driver.collector().capabilities()
    }
}
