//! The GPUs beside a process tree: samples of every device, and what each process of the tree holds there.
//!
//! Read by a thread of its own, since a driver may take its time; it ends with the receiver. Without a GPU there is
//! nothing to receive. Must never hold up the caller.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use stormlog_model::{Counters, Metadata};
use stormlog_store::wall_ns;

use crate::gpu_source::{GpuFacts, GpuSource, gpus};
use crate::{Source, TreePids};

/// Driver calls take up to milliseconds each.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
/// Drivers without a list of processes are asked through the descriptors of each process, which is not done more often.
const DESCRIPTORS_INTERVAL: Duration = Duration::from_secs(1);

/// One device at one moment.
#[derive(Debug, Clone)]
pub struct GpuSample {
    /// When, in nanoseconds since the epoch.
    pub at_ns: u64,
    /// The device.
    pub gpu: Arc<GpuFacts>,
    /// Its numbers.
    pub counters: Counters,
    /// The processes of the tree that are on it, and the bytes each holds there.
    pub holders: Vec<(u32, Option<u64>)>,
}

impl GpuSample {
    /// What `pid` holds there; `None` when it is not there, `Some(None)` when the driver does not report how much.
    pub fn held_by(&self, pid: u32) -> Option<Option<u64>> {
        self.holders.iter().find(|(holder, _)| *holder == pid).map(|(_, bytes)| *bytes)
    }

    /// The metadata of an event about this sample, in the recording of `pid`.
    pub fn metadata(&self, pid: u32) -> Option<Metadata> {
        let mut map = self.gpu.metadata.clone();
        map.insert("process_device_used_bytes".to_owned(), self.held_by(pid).flatten().into());
        Metadata::read(map, &self.gpu.collector, &self.counters).ok()
    }
}

/// The samples as they come.
pub struct GpuSamples {
    answers: Receiver<Vec<GpuSample>>,
    /// The last of every device.
    pub latest: Vec<GpuSample>,
}

impl GpuSamples {
    /// Starts to sample, where there are GPUs; `pids` are the processes whose holdings are wanted. `None` when there can
    /// be no thread.
    pub fn start(interval: Duration, pids: TreePids) -> Option<Self> {
        let interval = interval.max(SHORTEST_INTERVAL);
        let (send, answers) = sync_channel(1);
        let sample = move || {
            let mut devices: Vec<Sampler> = gpus().into_iter().map(Sampler::new).collect();
            let mut next = Instant::now();
            while !devices.is_empty() {
                let pids = pids.list();
                let samples = devices.iter_mut().filter_map(|device| device.sample(&pids)).collect();
                if let Err(TrySendError::Disconnected(_)) = send.try_send(samples) {
                    return;
                }
                next = (next + interval).max(Instant::now());
                thread::sleep(next - Instant::now());
            }
        };
        thread::Builder::new().name("stormlog-gpus".into()).spawn(sample).ok()?;
        Some(GpuSamples { answers, latest: Vec::new() })
    }

    /// Takes what came since the last call; whether there is something new in `latest`.
    pub fn receive(&mut self) -> bool {
        match self.answers.try_recv() {
            Ok(samples) => {
                self.latest = samples;
                true
            }
            Err(_) => false,
        }
    }
}

/// One device, and what each process held there at the last look.
struct Sampler {
    source: GpuSource,
    holders: Vec<(u32, Option<u64>)>,
    next_look: Instant,
}

impl Sampler {
    fn new(source: GpuSource) -> Self {
        Sampler { source, holders: Vec::new(), next_look: Instant::now() }
    }

    fn sample(&mut self, pids: &[u32]) -> Option<GpuSample> {
        let sampled = self.source.sample().sample?;
        let now = Instant::now();
        if self.source.device().lists_processes() || now >= self.next_look {
            self.next_look = now + DESCRIPTORS_INTERVAL;
            self.holders = self.source.device().held_by(pids).unwrap_or_default();
        }
        Some(GpuSample {
            at_ns: wall_ns(),
            gpu: Arc::clone(self.source.facts()),
            counters: sampled.counters(),
            holders: self.holders.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stormlog_collect::{Collector, DeviceIdentity, Roots, discover_gpus};
    use stormlog_model::{Counter, Record};

    #[test]
    fn a_sample_reports_device_and_processes_separately() {
        let mut counters = Counters::UNKNOWN;
        counters.set(Counter::Used, Some(5 << 30));
        let capabilities = stormlog_collect::DeviceCapabilities {
            backend: "cuda".into(),
            telemetry_collector: "stormlog.nvml".into(),
            sampling_source: "nvmlDeviceGetMemoryInfo_v2".into(),
            supports: stormlog_model::Capabilities::default().with(stormlog_model::Support::DeviceUsed),
        };
        let facts = GpuFacts::new(DeviceIdentity::default(), &capabilities);
        let sample = GpuSample {
            at_ns: 7,
            gpu: Arc::new(facts),
            counters,
            holders: vec![(11, Some(3 << 30)), (12, None)],
        };
        let metadata = sample.metadata(11).unwrap();
        assert_eq!(metadata.map["process_device_used_bytes"], 3u64 << 30);
        assert!(metadata.permits(&sample.counters));
        assert!(sample.metadata(12).unwrap().map["process_device_used_bytes"].is_null());
        assert_eq!((sample.held_by(12), sample.held_by(13)), (Some(None), None));
        assert_ne!(sample.gpu.metadata, Record::new());
    }

    #[test]
    fn nothing_comes_without_a_gpu() {
        if discover_gpus(&Roots::default()).iter().any(Collector::is_available) {
            return;
        }
        let mut samples = GpuSamples::start(Duration::from_millis(1), TreePids::default()).unwrap();
        // The thread has ended once its end of the channel is closed.
        while !matches!(samples.answers.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected)) {
            thread::yield_now();
        }
        assert!(!samples.receive() && samples.latest.is_empty());
    }
}
