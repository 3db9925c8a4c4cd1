//! GPU samples as evidence: what a bundle says of devices and of their holders.

use stormlog_postmortem::bundle::{DeviceSample, HeldBy};
use stormlog_track::GpuSample;

/// The last sample of a device, for a bundle.
pub(crate) fn evidence(sample: &GpuSample) -> DeviceSample {
    DeviceSample {
        device_id: sample.gpu.identity.device_id,
        collector: sample.gpu.collector.clone(),
        timestamp_ns: sample.at_ns,
        counters: sample.counters,
    }
}

/// What one process held on each device, as far as the drivers report it.
pub(crate) fn held_by(samples: &[GpuSample], pid: u32) -> impl Iterator<Item = HeldBy> {
    samples.iter().filter_map(move |sample| {
        let bytes = sample.held_by(pid)??;
        let device = sample.gpu.identity.device_id;
        Some(HeldBy { place: format!("GPU {device} (pid {pid})"), bytes, note: None })
    })
}
