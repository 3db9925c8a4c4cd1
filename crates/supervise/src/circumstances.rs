//! The circumstances of a death: the processes that held memory, how it grew, and the last sample of every GPU.
//!
//! Taken by the sampler at the moment, handed to the verdict and the bundle as values.

use stormlog_model::{Counter, Counters};
use stormlog_postmortem::bundle::{DeviceSample, HeldBy, MapRow};
use stormlog_postmortem::verdict::Growth;
use stormlog_track::{GpuSample, HOST_DEVICE};

use crate::tracked_process::TrackedProcess;

/// What a verdict wants to know of the surroundings at the moment of a death.
#[derive(Debug, Clone, Default)]
pub(crate) struct Circumstances {
    /// The processes by what they had resident when last seen, largest first; empty where there was only one.
    pub(crate) held_by: Vec<HeldBy>,
    /// How memory grew when last looked at.
    pub(crate) growth: Option<Growth>,
    /// The last sample of every GPU.
    pub(crate) gpus: Vec<GpuSample>,
}

impl Circumstances {
    /// Whether the process was on a GPU; `None` without any.
    pub(crate) fn uses_gpu(&self, pid: u32) -> Option<bool> {
        (!self.gpus.is_empty()).then(|| self.gpus.iter().any(|gpu| gpu.held_by(pid).is_some()))
    }

    /// What one process held on each device, as far as the drivers report it.
    pub(crate) fn held_on_gpus(&self, pid: u32) -> impl Iterator<Item = HeldBy> {
        self.gpus.iter().filter_map(move |sample| {
            let bytes = sample.held_by(pid)??;
            let device = sample.gpu.identity.device_id;
            Some(HeldBy { place: format!("GPU {device} (pid {pid})"), bytes, note: None })
        })
    }

    /// The last sample of every device, the host's first. Without a GPU the events themselves have it.
    pub(crate) fn devices(&self, tracked: &TrackedProcess) -> Vec<DeviceSample> {
        if self.gpus.is_empty() {
            return Vec::new();
        }
        let mut counters = Counters::UNKNOWN;
        counters.set(Counter::Used, tracked.session.seen().last_rss);
        let host = DeviceSample {
            device_id: HOST_DEVICE,
            collector: stormlog_collect::PROCESS_COLLECTOR.to_owned(),
            timestamp_ns: tracked.session.last_event_ns(),
            counters,
        };
        let of_gpu = |sample: &GpuSample| DeviceSample {
            device_id: sample.gpu.identity.device_id,
            collector: sample.gpu.collector.clone(),
            timestamp_ns: sample.at_ns,
            counters: sample.counters,
        };
        std::iter::once(host).chain(self.gpus.iter().map(of_gpu)).collect()
    }
}

/// What one process held when last seen.
pub(crate) fn holder(tracked: &TrackedProcess) -> Option<HeldBy> {
    let place = format!("{} (pid {}, rank {})", tracked.name(), tracked.pid, tracked.summary.rank);
    Some(HeldBy { place, bytes: tracked.session.seen().last_rss?, note: None })
}

/// The kinds of memory that a process was last seen to hold: `[heap]`, `[anonymous]`.
pub(crate) fn kinds_of_memory(rows: &[MapRow]) -> impl Iterator<Item = HeldBy> {
    let kinds = rows.iter().filter(|row| row.name.starts_with('['));
    kinds.filter_map(|row| {
        let bytes = row.rss_bytes.filter(|rss| *rss > 0)?;
        Some(HeldBy { place: row.name.clone(), bytes, note: None })
    })
}

/// What the only process of a run holds now: the kinds of memory by the last look at its map, or the process where it has grown much since.
pub(crate) fn kinds_or_process(tracked: &TrackedProcess) -> Vec<HeldBy> {
    let kinds: Vec<HeldBy> = kinds_of_memory(&tracked.mapped.rows).collect();
    let sum: u64 = kinds.iter().map(|kind| kind.bytes).sum();
    let is_recent = tracked.session.seen().last_rss.is_some_and(|rss| sum / 3 >= rss / 4);
    if is_recent { kinds } else { holder(tracked).into_iter().collect() }
}

/// The processes and what they held, largest first, when there was more than one to hold it.
pub(crate) fn held_by(mut rows: Vec<HeldBy>) -> Vec<HeldBy> {
    const MOST: usize = 10;
    rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    rows.truncate(if rows.len() > 1 { MOST } else { 0 });
    rows
}
