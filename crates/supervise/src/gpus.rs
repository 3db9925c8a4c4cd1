//! The GPUs while a program runs: what the driver says of every device, and which of the watched processes hold how much.
//!
//! Read by a thread of its own, since a driver may take its time; it ends with whoever listens. No driver: nothing, and
//! nothing is said.

use std::sync::mpsc::{Receiver, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use stormlog_collect::nvml::{self, NvmlDevice};
use stormlog_collect::{Collector, DeviceIdentity};
use stormlog_model::{Counters, Metadata, Record};
use stormlog_postmortem::bundle::{DeviceSample, HeldBy};
use stormlog_store::wall_ns;

use crate::watched::seen_from_outside;

/// Driver calls take up to milliseconds each.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// One device at one moment.
#[derive(Debug, Clone)]
pub(crate) struct GpuSample {
    pub(crate) at_ns: u64,
    pub(crate) identity: DeviceIdentity,
    pub(crate) collector: String,
    pub(crate) source: String,
    pub(crate) counters: Counters,
    /// Who holds how many bytes, by the driver's own process numbers.
    pub(crate) processes: Vec<(u32, Option<u64>)>,
}

impl GpuSample {
    fn of(device: &mut NvmlDevice) -> Option<Self> {
        let counters = device.sample().ok()?.sample.counters();
        let processes = device.processes().unwrap_or_default();
        Some(GpuSample {
            at_ns: wall_ns(),
            identity: device.identity().clone(),
            collector: device.name().to_owned(),
            source: device.capabilities().sampling_source.clone(),
            counters,
            processes: processes.into_iter().map(|process| (process.pid, process.used)).collect(),
        })
    }

    /// What `pid` holds there; `None` when it is not there, `Some(None)` when the driver does not say how much.
    pub(crate) fn held_by(&self, pid: u32) -> Option<Option<u64>> {
        self.processes.iter().find(|(holder, _)| *holder == pid).map(|(_, bytes)| *bytes)
    }

    /// The metadata of an event about this sample, in the recording of `pid`.
    pub(crate) fn metadata(&self, pid: u32) -> Option<Metadata> {
        let capabilities = seen_from_outside(&self.identity.backend, &self.collector, &self.source);
        let map: Record = [
            ("device_name".to_owned(), self.identity.name.as_deref().into()),
            ("device_uuid".to_owned(), self.identity.uuid.as_deref().into()),
            ("process_device_used_bytes".to_owned(), self.held_by(pid).flatten().into()),
            ("memory_capabilities".to_owned(), capabilities),
        ]
        .into_iter()
        .collect();
        Metadata::read(map, &self.collector, &self.counters).ok()
    }

    pub(crate) fn evidence(&self) -> DeviceSample {
        DeviceSample {
            device_id: self.identity.device_id,
            collector: self.collector.clone(),
            timestamp_ns: self.at_ns,
            counters: self.counters,
        }
    }

    /// Who of `pids` held what on this device.
    pub(crate) fn holders<'a>(&'a self, pids: &'a [u32]) -> impl Iterator<Item = HeldBy> + 'a {
        let device = self.identity.device_id;
        pids.iter().filter_map(move |pid| {
            let bytes = self.held_by(*pid)??;
            Some(HeldBy { place: format!("GPU {device} (pid {pid})"), bytes, note: None })
        })
    }
}

/// The samples as they come.
pub(crate) struct Gpus {
    answers: Receiver<Vec<GpuSample>>,
    /// The last of every device.
    pub(crate) latest: Vec<GpuSample>,
}

impl Gpus {
    /// Starts to sample, where there is a driver. `None` when there can be no thread.
    pub(crate) fn start(interval: Duration) -> Option<Self> {
        let interval = interval.max(SHORTEST_INTERVAL);
        let (send, answers) = sync_channel(1);
        let sample = move || {
            let Ok(mut devices) = nvml::devices() else { return };
            let mut next = Instant::now();
            loop {
                let samples: Vec<GpuSample> = devices.iter_mut().filter_map(GpuSample::of).collect();
                if let Err(TrySendError::Disconnected(_)) = send.try_send(samples) {
                    return;
                }
                next = (next + interval).max(Instant::now());
                thread::sleep(next - Instant::now());
            }
        };
        thread::Builder::new().name("stormlog-gpus".into()).spawn(sample).ok()?;
        Some(Gpus { answers, latest: Vec::new() })
    }

    /// Whether there is something new in `latest`.
    pub(crate) fn hear(&mut self) -> bool {
        match self.answers.try_recv() {
            Ok(samples) => {
                self.latest = samples;
                true
            }
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stormlog_model::Counter;

    /// Numbers as an H200 gives them; the test of real ones is `tests/gpu/run_samples_gpus.py`.
    fn stand_in() -> GpuSample {
        let mut counters = Counters::UNKNOWN;
        counters.set(Counter::Used, Some(5 << 30));
        counters.set(Counter::Free, Some(134 << 30));
        counters.set(Counter::Total, Some(140 << 30));
        let identity = DeviceIdentity {
            device_id: 0,
            backend: "cuda".into(),
            name: Some("NVIDIA H200".into()),
            uuid: Some("GPU-1".into()),
            parent_uuid: None,
            pci: None,
            driver: None,
        };
        GpuSample {
            at_ns: 7,
            identity,
            collector: "stormlog.nvml".into(),
            source: "nvmlDeviceGetMemoryInfo_v2".into(),
            counters,
            processes: vec![(11, Some(3 << 30)), (12, None), (99, Some(1))],
        }
    }

    #[test]
    fn a_sample_tells_the_device_and_the_processes_apart() {
        let sample = stand_in();
        let metadata = sample.metadata(11).unwrap();
        assert_eq!(metadata.map["process_device_used_bytes"], 3u64 << 30);
        assert!(metadata.permits(&sample.counters));
        assert!(sample.metadata(12).unwrap().map["process_device_used_bytes"].is_null());
        let holders: Vec<HeldBy> = sample.holders(&[11, 12, 13]).collect();
        assert_eq!(holders.len(), 1, "unknown is not 0, and others are not ours: {holders:?}");
        assert_eq!(sample.evidence().counters.get(Counter::Used), Some(5 << 30));
    }

    #[test]
    fn without_a_driver_nothing_comes() {
        if nvml::is_available() {
            return;
        }
        let mut gpus = Gpus::start(Duration::from_millis(1)).unwrap();
        thread::sleep(Duration::from_millis(20));
        assert!(!gpus.hear() && gpus.latest.is_empty());
    }
}
