//! Why a CUDA request failed: one rule for the report on a snapshot and for the bundle that a program writes when it fails.
//!
//! Facts in, cause, sentence and remedies out. Must never guess: what is not known does not decide.

use serde::Serialize;
use stormlog_model::alloc_conf::setting;
use stormlog_model::format_bytes as size;

use super::decompose::{Decomposition, RequestPool, decompose};
use crate::settings::AllocatorSettings;
use crate::snapshot::BlockState;
use crate::track::TrackedSegment;

/// Requests up to this size have pools of their own.
pub(crate) use crate::model::heap::SMALL;

/// The cause of a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OomCause {
    /// Enough was free in the request's pool, but in pieces.
    Fragmentation,
    /// Enough was free, but reserved to private pools.
    WalledOff,
    /// Enough was free, but cached for other streams.
    OtherStreams,
    /// Enough had been given back, but other streams still held it.
    PendingFrees,
    /// All that was held was in use.
    Full,
    /// The allocator could hold no more because others used the device.
    OutsideMemory,
    /// A block that fits was free: the rules of the settings forbade it, or the recording is incomplete.
    Refused,
}

impl OomCause {
    /// As it is written in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            OomCause::Fragmentation => "fragmentation",
            OomCause::WalledOff => "walled_off",
            OomCause::OtherStreams => "other_streams",
            OomCause::PendingFrees => "pending_frees",
            OomCause::Full => "full",
            OomCause::OutsideMemory => "outside_memory",
            OomCause::Refused => "refused",
        }
    }
}

/// What is known of the limit of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessLimit {
    /// The allocator reports it.
    Exactly(u64),
    /// The recording shows that this much was refused.
    Below(u64),
}

/// Everything the judgement rests on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FailedRequest {
    /// What was requested, rounded.
    pub request_bytes: u64,
    /// What the allocator wanted from the driver for it.
    pub segment_bytes: u64,
    /// The largest free block it could have used.
    pub largest_usable_free_bytes: u64,
    /// Everything free in its pool and stream.
    pub usable_free_bytes: u64,
    /// Where all bytes were.
    pub decomposition: Decomposition,
    /// In the program's hands.
    pub allocated_bytes: u64,
    /// What the driver had left.
    pub device_free_bytes: Option<u64>,
    /// Held by other processes, where the driver reports it.
    pub other_processes_bytes: Option<u64>,
    /// What this process may hold.
    pub limit: Option<ProcessLimit>,
    /// `max_split_size_mb` was set.
    pub splits_are_limited: bool,
    /// `expandable_segments` was on.
    pub is_expandable: bool,
}

impl FailedRequest {
    /// A request for `request_bytes` on a stream and in a pool, by the allocator's segments at that moment.
    #[must_use]
    pub fn new(
        request_bytes: u64,
        (stream, pool): (u64, crate::snapshot::PoolId),
        segments: &[TrackedSegment],
        settings: &AllocatorSettings,
    ) -> Self {
        let wanted = RequestPool { stream, pool };
        let small = request_bytes <= SMALL;
        let fits = |segment: &&TrackedSegment| {
            segment.pool == pool && segment.small == small && segment.stream == stream
        };
        let blocks = segments.iter().filter(fits).flat_map(|segment| &segment.blocks);
        let free = blocks.filter(|block| block.state == BlockState::Inactive).map(|block| block.size);
        let held = segments.iter().flat_map(|segment| &segment.blocks);
        let allocated = held.filter(|block| block.state == BlockState::Allocated).map(|block| block.size);
        FailedRequest {
            request_bytes,
            segment_bytes: settings.segment_size(request_bytes),
            largest_usable_free_bytes: free.clone().max().unwrap_or(0),
            usable_free_bytes: free.sum(),
            decomposition: decompose(segments, settings, Some(wanted)),
            allocated_bytes: allocated.sum(),
            splits_are_limited: settings.max_split_size.is_some(),
            is_expandable: settings.expandable_segments,
            ..FailedRequest::default()
        }
    }

    /// The cause.
    #[must_use]
    pub fn cause(&self) -> OomCause {
        let request = self.request_bytes;
        let parts = &self.decomposition;
        if self.largest_usable_free_bytes >= request {
            OomCause::Refused
        } else if self.usable_free_bytes >= request {
            OomCause::Fragmentation
        } else if parts.pending_free_bytes >= request {
            OomCause::PendingFrees
        } else if parts.walled_off_bytes >= request {
            OomCause::WalledOff
        } else if parts.other_stream_bytes >= request {
            OomCause::OtherStreams
        } else if parts.other_stream_bytes + parts.pending_free_bytes >= request {
            match parts.pending_free_bytes > parts.other_stream_bytes {
                true => OomCause::PendingFrees,
                false => OomCause::OtherStreams,
            }
        } else if self.is_taken_elsewhere() && !self.has_room() {
            OomCause::OutsideMemory
        } else {
            OomCause::Full
        }
    }

    /// Whether memory outside this allocator is what the request lacked.
    fn is_taken_elsewhere(&self) -> bool {
        let parts = &self.decomposition;
        let by_others = self
            .other_processes_bytes
            .is_some_and(|others| others >= self.request_bytes && others > self.allocated_bytes / 10);
        let outside = |outside: u64| outside > parts.reserved_bytes && outside >= self.request_bytes;
        let is_device_full = self.device_free_bytes.is_some();
        by_others || (is_device_full && parts.outside_bytes.is_some_and(outside))
    }

    /// Whether the driver had enough left: then a limit of this process caused the failure.
    fn has_room(&self) -> bool {
        self.device_free_bytes.is_some_and(|free| free >= self.segment_bytes)
    }

    /// The cause in words.
    #[must_use]
    pub fn sentence(&self) -> String {
        let request = size(self.request_bytes);
        let parts = &self.decomposition;
        let class = if self.request_bytes <= SMALL { "small" } else { "large" };
        let mut text = match self.cause() {
            OomCause::Fragmentation => format!(
                "fragmentation: requested {request}; {} is free in this pool, but the largest block is {}",
                size(self.usable_free_bytes),
                size(self.largest_usable_free_bytes)
            ),
            OomCause::WalledOff => format!(
                "free in private pools: requested {request}; {} is free, but only in private pools (CUDA graphs, MemPool)",
                size(parts.walled_off_bytes)
            ),
            OomCause::OtherStreams => format!(
                "cached for other streams: requested {request}; {} is free there",
                size(parts.other_stream_bytes)
            ),
            OomCause::PendingFrees => format!(
                "pending frees: requested {request}; {} was freed, but record_stream keeps it until other streams are done",
                size(parts.pending_free_bytes)
            ),
            OomCause::OutsideMemory => {
                match self.other_processes_bytes.filter(|others| *others >= self.request_bytes) {
                    Some(others) => {
                        format!(
                            "held outside this allocator: requested {request}; other processes hold {}",
                            size(others)
                        )
                    }
                    None => format!(
                        "held outside this allocator: requested {request}; {} of the device is used there",
                        size(parts.outside_bytes.unwrap_or(0))
                    ),
                }
            }
            OomCause::Refused => format!(
                "request for {request} refused although a free {class} block of {} exists; {}",
                size(self.largest_usable_free_bytes),
                if self.splits_are_limited {
                    "the rule of max_split_size_mb forbids it"
                } else {
                    "the recording does not show why: some of it is missing, or contradicts itself"
                }
            ),
            OomCause::Full => format!(
                "out of memory: requested {request}; {} of {} reserved is in use; {} is free in this pool, the largest block is {}",
                size(self.allocated_bytes + parts.pending_free_bytes),
                size(parts.reserved_bytes),
                size(self.usable_free_bytes),
                size(self.largest_usable_free_bytes)
            ),
        };
        if let Some(free) = self.device_free_bytes.filter(|_| self.has_room()) {
            let limit = match self.limit {
                Some(ProcessLimit::Exactly(limit)) => format!(" to {}", size(limit)),
                Some(ProcessLimit::Below(limit)) => format!(" below {}", size(limit)),
                None => String::new(),
            };
            text.push_str(&format!(
                "; the driver still had {} free, so this process was limited{limit} (a memory fraction)",
                size(free)
            ));
        }
        text
    }

    /// What to try, the most useful first.
    #[must_use]
    pub fn remedies(&self, torch_version: Option<&str>) -> Vec<String> {
        let mut found = Vec::new();
        match self.cause() {
            OomCause::Fragmentation => {
                if !self.is_expandable {
                    found.push(setting("expandable_segments:True", torch_version));
                }
                found.push(CHANGING_SIZES.to_owned());
            }
            OomCause::Full => {
                if self.has_room() {
                    found.push(format!(
                        "raise the limit of this process (torch.cuda.set_per_process_memory_fraction): at most {} more would have been enough for this request",
                        size(self.segment_bytes)
                    ));
                }
                found.push(SMALLER.to_owned());
            }
            cause => found.extend(remedy(cause, self.splits_are_limited).map(str::to_owned)),
        }
        found
    }
}

/// For memory in pieces.
pub(crate) const CHANGING_SIZES: &str = "sizes that change from step to step (sequence lengths, batches) leave gaps that no later request fits: pad to a few \
                                         sizes, or run the largest first";
const SMALLER: &str = "a smaller batch or activation checkpointing; the bundle lists what holds most";

/// What to change about a cause that has one answer.
pub(crate) fn remedy(cause: OomCause, splits_are_limited: bool) -> Option<&'static str> {
    Some(match cause {
        OomCause::WalledOff => {
            "let captures share a pool (torch.cuda.graph_pool_handle()), or drop the graphs and pools that are done: what is free in them serves no other request"
        }
        OomCause::OtherStreams => {
            "free blocks serve only the stream they were taken on: allocate on one stream, or call empty_cache() once when the work moves to another"
        }
        OomCause::PendingFrees => {
            "record_stream defers each free until the other stream is done: let the streams wait for each other and drop the tensor there instead"
        }
        OomCause::OutsideMemory => {
            "see what else is on the device (stormlog info), and what this process holds outside the allocator: context, NCCL, libraries"
        }
        OomCause::Refused if splits_are_limited => {
            "drop max_split_size_mb: its rule keeps large free blocks from smaller requests"
        }
        OomCause::Refused => {
            "record from the start of the program, and with a larger max_entries: what is missing decides here"
        }
        OomCause::Fragmentation | OomCause::Full => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn full() -> FailedRequest {
        FailedRequest {
            request_bytes: 200 * MIB,
            segment_bytes: 200 * MIB,
            allocated_bytes: 100 * MIB,
            ..FailedRequest::default()
        }
    }

    #[test]
    fn other_processes_are_the_cause_only_without_room_on_the_device() {
        let others = FailedRequest {
            other_processes_bytes: Some(5 << 30),
            limit: Some(ProcessLimit::Exactly(256 * MIB)),
            ..full()
        };
        let crowded = FailedRequest { device_free_bytes: Some(9 * MIB), ..others.clone() };
        assert_eq!(crowded.cause(), OomCause::OutsideMemory);
        assert!(crowded.sentence().contains("other processes hold 5.00 GiB"));
        let limited = FailedRequest { device_free_bytes: Some(900 * MIB), ..others };
        assert_eq!(limited.cause(), OomCause::Full);
        let sentence = limited.sentence();
        assert!(
            sentence.contains("had 900.0 MiB free, so this process was limited to 256.0 MiB"),
            "{sentence}"
        );
        assert!(limited.remedies(None)[0].contains("set_per_process_memory_fraction"));
    }

    #[test]
    fn pending_and_other_streams_count_together() {
        let parts = Decomposition {
            pending_free_bytes: 150 * MIB,
            other_stream_bytes: 100 * MIB,
            ..Decomposition::default()
        };
        assert_eq!(FailedRequest { decomposition: parts, ..full() }.cause(), OomCause::PendingFrees);
    }
}
