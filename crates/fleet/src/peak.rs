//! The peak of a rank in one memory: the most that one of its processes held. Host: by samples and by the kernel's own count. Device: by samples, summed
//! over its devices.

use std::sync::Arc;

pub use stormlog_analyze::rules::outliers::MemoryKind as Kind;

use crate::gather::{HOST, MemoryState, RankState};

/// A rank's highest memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Peak {
    /// Bytes.
    pub bytes: i64,
    /// When, where a sample shows it.
    pub at_us: Option<i64>,
    /// The phase then.
    pub phase: Option<Arc<str>>,
}

impl RankState {
    /// Its peak in a memory, where that was recorded.
    #[must_use]
    pub fn peak(&self, kind: Kind) -> Option<Peak> {
        match kind {
            Kind::Host => {
                let sampled = self.memories.get(&HOST).and_then(|memory| memory.held.as_ref());
                let bytes = self.peak_host.max(sampled.map(|top| top.bytes))?;
                // The kernel's count has no time: that of the highest sample is the nearest.
                Some(Peak {
                    bytes,
                    at_us: sampled.map(|top| top.at_us),
                    phase: sampled.and_then(|top| top.phase.clone()),
                })
            }
            Kind::Device => {
                let tops = || self.memories.range(0..).filter_map(|(_, memory)| memory.held.as_ref());
                let most = tops().max_by_key(|top| (top.bytes, std::cmp::Reverse(top.at_us)))?;
                let bytes = tops().fold(0_i64, |sum, top| sum.saturating_add(top.bytes));
                Some(Peak { bytes, at_us: Some(most.at_us), phase: most.phase.clone() })
            }
        }
    }

    /// What its allocators held beyond what they ever handed out.
    #[must_use]
    pub fn device_waste(&self) -> Option<i64> {
        let unused = |memory: &MemoryState| Some(memory.reserved?.saturating_sub(memory.allocated?).max(0));
        let of_devices = self.memories.range(0..).filter_map(|(_, memory)| unused(memory));
        of_devices.reduce(i64::saturating_add)
    }

    /// The sizes of its devices together.
    #[must_use]
    pub fn device_total(&self) -> Option<i64> {
        self.memories.range(0..).filter_map(|(_, memory)| memory.total).reduce(i64::saturating_add)
    }

    /// The machine that it was on last.
    #[must_use]
    pub fn host(&self) -> Option<&Arc<str>> {
        let last = self.spans.iter().max_by_key(|((_, host), (_, last))| (*last, host.as_ref()));
        last.map(|((_, host), _)| host)
    }
}
