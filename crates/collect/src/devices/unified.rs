//! A GPU that uses the host's memory (GB10, DGX Spark): its driver has no memory of the device to report.
//!
//! NVML answers "not supported" for the memory of such a device, and still reports what each process holds. So the size
//! of the device is the host's, what is used on it is the sum over its processes, and what is free is what the host can
//! still give: pressure on the host is pressure on the device. Must never report a sum that lacks a process.

use stormlog_model::Counter;

use super::nvml::{self, DeviceProcess, NvmlDevice};
use crate::host::HostReader;
use crate::{CollectError, Collector, DeviceCapabilities, DeviceSample, Missing, Reading};

const SOURCE: &str = "nvmlDeviceGetComputeRunningProcesses_v3, /proc/meminfo";

/// A GPU without memory of its own.
pub(super) struct UnifiedDevice {
    gpu: NvmlDevice,
    host: HostReader,
    capabilities: DeviceCapabilities,
}

impl UnifiedDevice {
    /// A device that has no memory of its own, on this host.
    pub(super) fn new(gpu: NvmlDevice, host: HostReader) -> Self {
        let counters = [Counter::Used, Counter::Free, Counter::Total];
        let capabilities = DeviceCapabilities::new("cuda", nvml::NAME, SOURCE, &counters);
        UnifiedDevice { gpu, host, capabilities }
    }

    pub(super) fn gpu(&self) -> &NvmlDevice {
        &self.gpu
    }
}

impl Collector for UnifiedDevice {
    fn name(&self) -> &str {
        nvml::NAME
    }

    fn is_available(&self) -> bool {
        self.gpu.processes().is_ok()
    }

    fn sample(&mut self) -> Result<Reading, CollectError> {
        let host = self.host.memory()?;
        let mut missing = Vec::new();
        let used = match self.gpu.processes() {
            Ok(processes) => sum(&processes),
            Err(error) => Err(error.to_string()),
        };
        let used = used.map_err(|reason| missing.push(Missing { field: "used", reason })).ok();
        let sample = DeviceSample {
            device_id: self.gpu.identity().device_id,
            used: used.map(|used| host.total.map_or(used, |total| used.min(total))),
            free: host.available,
            total: host.total,
            ..DeviceSample::default()
        };
        Ok(Reading { sample, missing })
    }

    fn capabilities(&self) -> &DeviceCapabilities {
        &self.capabilities
    }
}

/// What all processes hold; an error when the driver does not report it of each.
fn sum(processes: &[DeviceProcess]) -> Result<u64, String> {
    let unknown = processes.iter().filter(|process| process.used.is_none()).count();
    if unknown > 0 {
        return Err(format!(
            "the driver does not report the memory of {unknown} of {} processes",
            processes.len()
        ));
    }
    Ok(processes.iter().filter_map(|process| process.used).fold(0, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, used: Option<u64>) -> DeviceProcess {
        DeviceProcess { pid, used, is_compute: true, is_graphics: false, gpu_instance: None }
    }

    #[test]
    fn an_unknown_process_makes_the_sum_unknown() {
        assert_eq!(sum(&[]), Ok(0));
        assert_eq!(sum(&[process(1, Some(3)), process(2, Some(4))]), Ok(7));
        assert!(sum(&[process(1, Some(3)), process(2, None)]).unwrap_err().contains("1 of 2"));
    }
}
