//! Every byte the allocator held, by what kept it there.

use serde::Serialize;

use crate::settings::AllocatorSettings;
use crate::snapshot::{BlockState, PoolId};
use crate::track::TrackedSegment;

/// Where the bytes were. The parts of `reserved_bytes` sum to it; with the rest known, everything sums to the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Decomposition {
    /// What the program asked for and holds.
    pub requested_bytes: u64,
    /// Added to that by rounding requests up.
    pub rounding_bytes: u64,
    /// Ends of blocks that were not worth splitting off.
    pub split_slack_bytes: u64,
    /// Given back, but another stream may still use it.
    pub pending_free_bytes: u64,
    /// Free, but in a segment (or page) that something live holds.
    pub stranded_bytes: u64,
    /// Free, and whole: could go back to the driver.
    pub releasable_bytes: u64,
    /// Free inside private pools (CUDA graphs, user pools): of no use to others.
    pub walled_off_bytes: u64,
    /// Free, but cached for another stream than the current request.
    pub other_stream_bytes: u64,
    /// All of the above: what the allocator holds.
    pub reserved_bytes: u64,
    /// Used on the device by anything else: this process outside the allocator, and other processes.
    pub outside_bytes: Option<u64>,
    /// Free on the device.
    pub device_free_bytes: Option<u64>,
    /// The device.
    pub device_total_bytes: Option<u64>,
}

impl std::ops::AddAssign for Decomposition {
    /// Several devices together; the whole device is known only when every one is.
    fn add_assign(&mut self, other: Self) {
        let both = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        let sum = u64::saturating_add;
        *self = Decomposition {
            requested_bytes: sum(self.requested_bytes, other.requested_bytes),
            rounding_bytes: sum(self.rounding_bytes, other.rounding_bytes),
            split_slack_bytes: sum(self.split_slack_bytes, other.split_slack_bytes),
            pending_free_bytes: sum(self.pending_free_bytes, other.pending_free_bytes),
            stranded_bytes: sum(self.stranded_bytes, other.stranded_bytes),
            releasable_bytes: sum(self.releasable_bytes, other.releasable_bytes),
            walled_off_bytes: sum(self.walled_off_bytes, other.walled_off_bytes),
            other_stream_bytes: sum(self.other_stream_bytes, other.other_stream_bytes),
            reserved_bytes: sum(self.reserved_bytes, other.reserved_bytes),
            outside_bytes: both(self.outside_bytes, other.outside_bytes),
            device_free_bytes: both(self.device_free_bytes, other.device_free_bytes),
            device_total_bytes: both(self.device_total_bytes, other.device_total_bytes),
        };
    }
}

/// The stream and pool a request falls into.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestPool {
    pub(crate) stream: u64,
    pub(crate) pool: PoolId,
}

pub(crate) fn decompose(
    segments: &[TrackedSegment],
    settings: &AllocatorSettings,
    wanted: Option<RequestPool>,
) -> Decomposition {
    let mut sum = Decomposition::default();
    let own_pool = wanted.map_or((0, 0), |wanted| wanted.pool);
    for segment in segments {
        for block in &segment.blocks {
            sum.reserved_bytes += block.size;
            match block.state {
                BlockState::Allocated => {
                    let rounded = settings.round(block.requested).min(block.size);
                    sum.requested_bytes += block.requested.min(rounded);
                    sum.rounding_bytes += rounded - block.requested.min(rounded);
                    sum.split_slack_bytes += block.size - rounded;
                }
                BlockState::PendingFree => sum.pending_free_bytes += block.size,
                BlockState::Inactive | BlockState::Unknown => {
                    if segment.pool != own_pool && segment.pool != (0, 0) {
                        sum.walled_off_bytes += block.size;
                    } else if wanted.is_some_and(|wanted| wanted.stream != segment.stream) {
                        sum.other_stream_bytes += block.size;
                    } else {
                        let free = releasable(segment, block.addr, block.size, settings);
                        sum.releasable_bytes += free;
                        sum.stranded_bytes += block.size - free;
                    }
                }
            }
        }
    }
    sum
}

/// How much of a free block could go back to the driver.
pub(crate) fn releasable(
    segment: &TrackedSegment,
    addr: u64,
    size: u64,
    settings: &AllocatorSettings,
) -> u64 {
    if !segment.expandable {
        return if segment.blocks.len() == 1 { size } else { 0 };
    }
    let page = if segment.small { 2 << 20 } else { settings.large_segment_size };
    let from = (addr - segment.base).div_ceil(page) * page;
    let to = (addr - segment.base + size) / page * page;
    to.saturating_sub(from)
}
