//! NVIDIA GPUs through NVML, the driver's own library, loaded at run time.
//!
//! No library or no driver means "not available", never a failure; a call a device does not support is a missing
//! capability. Numbers are the driver's: `used` is what is allocated on the device by all processes, without what the
//! driver keeps for itself (`driver_reserved`); `total` = `used` + `free` + `driver_reserved`.

use std::sync::{Mutex, PoisonError};

use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};
use serde::Serialize;
use stormlog_model::Counter;

use super::Vitals;
use crate::{CollectError, Collector, DeviceCapabilities, DeviceIdentity, DeviceSample, Reading};

pub(super) const NAME: &str = "stormlog.nvml";

/// A MIG-capable device has at most seven instances; a driver that says thousands is not believed.
const MIG_LIMIT: u32 = 64;

/// The library, once it could be loaded. Kept for the life of the process: unloading a driver library under a program
/// that uses CUDA itself is asking for trouble, and devices may then be held without a lifetime.
static LIBRARY: Mutex<Option<&'static Nvml>> = Mutex::new(None);

fn library() -> Result<&'static Nvml, CollectError> {
    let mut kept = LIBRARY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = *kept {
        return Ok(library);
    }
    // A failure is not remembered: the driver may be loaded later.
    match Nvml::init() {
        Ok(library) => Ok(kept.insert(Box::leak(Box::new(library)))),
        Err(error) => Err(CollectError::Unavailable { what: "NVML", reason: error.to_string() }),
    }
}

/// Whether the driver answers on this machine.
pub fn is_available() -> bool {
    library().is_ok()
}

/// The versions of the driver's parts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DriverVersions {
    /// The kernel driver, e.g. `570.124.06`.
    pub driver: Option<String>,
    /// NVML itself.
    pub nvml: Option<String>,
    /// The newest CUDA it can run, e.g. `12.8`.
    pub cuda: Option<String>,
}

/// The versions; an error when there is no driver.
pub fn versions() -> Result<DriverVersions, CollectError> {
    let library = library()?;
    let cuda = library.sys_cuda_driver_version().ok();
    Ok(DriverVersions {
        driver: library.sys_driver_version().ok(),
        nvml: library.sys_nvml_version().ok(),
        cuda: cuda.map(|version| format!("{}.{}", version / 1000, version % 1000 / 10)),
    })
}

/// All devices, and after each physical one its MIG instances. An error when there is no driver; devices that cannot be
/// opened are left out, as a container sees only its own.
pub(super) fn devices() -> Result<Vec<NvmlDevice>, CollectError> {
    let library = library()?;
    let count = library.device_count().map_err(|error| driver_error("NVML", "device_count", &error))?;
    let mut devices = Vec::new();
    for index in 0..count {
        let Ok(device) = library.device_by_index(index) else { continue };
        let instances = mig_instances(&device);
        let physical = NvmlDevice::new(device, i64::from(index), None);
        let parent = physical.identity.clone();
        devices.push(physical);
        for instance in instances {
            devices.push(NvmlDevice::new(instance, i64::from(index), Some(&parent)));
        }
    }
    Ok(devices)
}

fn mig_instances(device: &Device<'static>) -> Vec<Device<'static>> {
    let count = device.mig_device_count().unwrap_or(0).min(MIG_LIMIT);
    (0..count).filter_map(|index| device.mig_device_by_index(index).ok()).collect()
}

/// One GPU or one MIG instance.
pub(super) struct NvmlDevice {
    device: Device<'static>,
    identity: DeviceIdentity,
    capabilities: DeviceCapabilities,
    has_own_memory: bool,
}

impl NvmlDevice {
    fn new(device: Device<'static>, device_id: i64, parent: Option<&DeviceIdentity>) -> Self {
        let pci = device.pci_info().ok().map(|pci| short_pci(&pci.bus_id));
        let identity = DeviceIdentity {
            device_id,
            backend: "cuda".to_owned(),
            name: device.name().ok(),
            uuid: device.uuid().ok(),
            parent_uuid: parent.map(|parent| parent.uuid.clone().unwrap_or_default()),
            pci: pci.or_else(|| parent?.pci.clone()),
            driver: Some("nvidia".to_owned()),
            unified: false,
        };
        // What a device cannot do is known by asking it once; other failures may pass.
        let asked = device.memory_info();
        let supported = !matches!(
            asked,
            Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound)
        );
        // A driver that is too old for the call has memory to report all the same.
        let has_own_memory = parent.is_some() || !matches!(asked, Err(NvmlError::NotSupported));
        let counters: &[Counter] =
            if supported { &[Counter::Used, Counter::Free, Counter::Total] } else { &[] };
        let capabilities = DeviceCapabilities::new("cuda", NAME, "nvmlDeviceGetMemoryInfo_v2", counters);
        NvmlDevice { device, identity, capabilities, has_own_memory }
    }

    /// What names the device.
    pub(super) fn identity(&self) -> &DeviceIdentity {
        &self.identity
    }

    /// Whether there is memory of the device; a GPU that uses the host's reports none.
    pub(super) fn has_own_memory(&self) -> bool {
        self.has_own_memory
    }

    /// Load, temperature and power. An instance has the temperature and power of its physical device.
    pub(super) fn vitals(&self) -> Vitals {
        let parent = self.identity.parent_uuid.as_ref().and_then(|_| self.device.mig_parent_device().ok());
        let physical = parent.as_ref().unwrap_or(&self.device);
        Vitals {
            busy_percent: self.device.utilization_rates().ok().map(|rates| rates.gpu.into()),
            temperature_c: physical.temperature(TemperatureSensor::Gpu).ok(),
            power_w: physical.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / 1000.0),
            multiprocessors: self.device.attributes().ok().map(|attributes| attributes.multiprocessor_count),
        }
    }

    /// The processes on the device and what each holds there. In a container the driver may hide others' or show
    /// numbers of the host's pid namespace.
    pub(super) fn processes(&self) -> Result<Vec<DeviceProcess>, CollectError> {
        let compute = self.device.running_compute_processes();
        let graphics = self.device.running_graphics_processes();
        if let (Err(error), Err(_)) = (&compute, &graphics) {
            return Err(self.error("running_compute_processes", error));
        }
        let mut processes = Vec::new();
        for info in compute.unwrap_or_default() {
            DeviceProcess::add(&mut processes, &info, true);
        }
        for info in graphics.unwrap_or_default() {
            DeviceProcess::add(&mut processes, &info, false);
        }
        Ok(processes)
    }

    fn error(&self, call: &'static str, error: &NvmlError) -> CollectError {
        let name = self.identity.uuid.as_deref().or(self.identity.name.as_deref()).unwrap_or("a GPU");
        driver_error(name, call, error)
    }
}

impl Collector for NvmlDevice {
    fn name(&self) -> &str {
        NAME
    }

    fn is_available(&self) -> bool {
        !matches!(self.device.memory_info(), Err(error) if !is_passing(&error))
    }

    fn sample(&mut self) -> Result<Reading, CollectError> {
        let memory = self.device.memory_info().map_err(|error| self.error("memory_info", &error))?;
        Ok(DeviceSample {
            device_id: self.identity.device_id,
            used: Some(memory.used),
            free: Some(memory.free),
            total: Some(memory.total),
            driver_reserved: Some(memory.reserved),
            ..DeviceSample::default()
        }
        .into())
    }

    fn capabilities(&self) -> &DeviceCapabilities {
        &self.capabilities
    }
}

/// A process on a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceProcess {
    /// Its number as the driver sees it.
    pub pid: u32,
    /// Bytes it holds there, contexts and all; `None` where the driver does not say.
    pub used: Option<u64>,
    /// Whether it computes (CUDA).
    pub is_compute: bool,
    /// Whether it draws.
    pub is_graphics: bool,
    /// The MIG instance it runs on.
    pub gpu_instance: Option<u32>,
}

impl DeviceProcess {
    /// A process that computes and draws is in both lists with the same number.
    fn add(processes: &mut Vec<DeviceProcess>, info: &ProcessInfo, is_compute: bool) {
        let used = match info.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        };
        let same =
            |known: &&mut DeviceProcess| known.pid == info.pid && known.gpu_instance == info.gpu_instance_id;
        if let Some(known) = processes.iter_mut().find(same) {
            known.used = known.used.max(used);
            known.is_compute |= is_compute;
            known.is_graphics |= !is_compute;
        } else {
            processes.push(DeviceProcess {
                pid: info.pid,
                used,
                is_compute,
                is_graphics: !is_compute,
                gpu_instance: info.gpu_instance_id,
            });
        }
    }
}

/// Whether asking again may help.
fn is_passing(error: &NvmlError) -> bool {
    !matches!(
        error,
        NvmlError::NotSupported
            | NvmlError::FailedToLoadSymbol(_)
            | NvmlError::FunctionNotFound
            | NvmlError::GpuLost
            | NvmlError::Uninitialized
            | NvmlError::LibRmVersionMismatch
    )
}

/// `00000000:3B:00.0` → `0000:3b:00.0`, as the kernel writes it.
fn short_pci(bus_id: &str) -> String {
    let lower = bus_id.to_ascii_lowercase();
    match lower.split_once(':') {
        Some((domain, rest)) if domain.len() == 8 && domain.starts_with("0000") => {
            format!("{}:{rest}", &domain[4..])
        }
        _ => lower,
    }
}

fn driver_error(device: &str, call: &'static str, error: &NvmlError) -> CollectError {
    CollectError::Driver { device: device.to_owned(), call, reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(pid: u32, used: UsedGpuMemory) -> ProcessInfo {
        ProcessInfo { pid, used_gpu_memory: used, gpu_instance_id: None, compute_instance_id: None }
    }

    #[test]
    fn a_process_in_both_lists_is_one() {
        let mut processes = Vec::new();
        DeviceProcess::add(&mut processes, &info(7, UsedGpuMemory::Used(5)), true);
        DeviceProcess::add(&mut processes, &info(7, UsedGpuMemory::Unavailable), false);
        DeviceProcess::add(&mut processes, &info(8, UsedGpuMemory::Unavailable), true);
        assert_eq!(processes.len(), 2);
        assert_eq!((processes[0].used, processes[0].is_graphics), (Some(5), true));
        assert_eq!(processes[1].used, None);
    }

    #[test]
    fn bus_addresses_read_as_the_kernels() {
        assert_eq!(short_pci("00000000:3B:00.0"), "0000:3b:00.0");
        assert_eq!(short_pci("00010000:3B:00.0"), "00010000:3b:00.0");
        assert_eq!(short_pci("é"), "é");
    }

    /// With a driver this reads real devices; without one it must say so and nothing else.
    #[test]
    fn no_driver_is_a_fact_and_not_a_failure() {
        match devices() {
            Ok(devices) => {
                for mut device in devices.into_iter().filter(NvmlDevice::has_own_memory) {
                    let sample = device.sample().unwrap().sample;
                    assert!(sample.used.unwrap() <= sample.total.unwrap());
                    assert!(device.identity().uuid.is_some());
                }
            }
            Err(error) => {
                assert!(matches!(error, CollectError::Unavailable { what: "NVML", .. }), "{error}");
                assert!(!is_available());
            }
        }
    }
}
