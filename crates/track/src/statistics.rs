//! What a session came to, in numbers.

use stormlog_collect::DeviceSample;

/// Counted while tracking. Bytes that never were seen are `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Statistics {
    /// Most bytes allocated (RSS on the host).
    pub peak_memory: Option<u64>,
    /// Fewest bytes allocated (RSS on the host) in a sample.
    pub lowest_memory: Option<u64>,
    /// The mean over all samples.
    pub mean_memory: Option<f64>,
    /// Most bytes used on the device.
    pub peak_device_used: Option<u64>,
    /// Samples that found more allocated than the one before.
    pub total_allocations: u64,
    /// Samples that found less.
    pub total_deallocations: u64,
    /// Bytes gained in them.
    pub total_allocation_bytes: u64,
    /// Bytes lost in them.
    pub total_deallocation_bytes: u64,
    /// Alerts and errors.
    pub alert_count: u64,
    /// Samples taken.
    pub sample_count: u64,
    /// When tracking started, nanoseconds since the epoch.
    pub started_at_ns: Option<u64>,
    /// When a sample last succeeded.
    pub last_check_ns: Option<u64>,
    /// Events kept.
    pub retained_events: u64,
    /// Events pushed out.
    pub dropped_events: u64,
    /// The last sample; `None` while the source fails.
    pub last_sample: Option<DeviceSample>,
    /// Seconds until the limit if it continues like this; `None` when nothing grows or too little was seen.
    pub seconds_to_limit: Option<f64>,
    /// The same where the forecast is sure and near enough to warn.
    pub forecast_seconds: Option<f64>,
    /// The device's size.
    pub total_bytes: Option<u64>,
}

impl Statistics {
    /// Forgets what `clear_events` forgets.
    pub(crate) fn clear(&mut self) {
        *self = Statistics {
            started_at_ns: self.started_at_ns,
            last_check_ns: self.last_check_ns,
            last_sample: self.last_sample,
            total_bytes: self.total_bytes,
            ..Statistics::default()
        };
    }

    /// Counts the bytes of one sample; `sample_count` includes it.
    pub(crate) fn followed(&mut self, bytes: u64) {
        self.lowest_memory = Some(self.lowest_memory.map_or(bytes, |lowest| lowest.min(bytes)));
        let before = self.mean_memory.unwrap_or(bytes as f64);
        // A running mean: a sum of bytes over weeks would lose precision.
        self.mean_memory = Some(before + (bytes as f64 - before) / self.sample_count.max(1) as f64);
    }

    /// Counts a change between two samples.
    pub(crate) fn changed(&mut self, change: i64) {
        if change > 0 {
            self.total_allocations += 1;
            self.total_allocation_bytes += change.unsigned_abs();
        } else if change < 0 {
            self.total_deallocations += 1;
            self.total_deallocation_bytes += change.unsigned_abs();
        }
    }
}
