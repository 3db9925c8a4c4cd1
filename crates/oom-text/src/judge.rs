//! Why a request was not served: a rule over the figures of one failure.

use serde::Serialize;

use crate::failure::Failure;

/// The size of the allocator's last bin.
const LAST_BIN: u64 = 256 << 20;

/// Memory that was free when a request failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Free {
    /// In the pool: what the allocator had from the driver and had not given out.
    pub in_pool: Option<u64>,
    /// The largest piece of it.
    pub largest: Option<u64>,
    /// What the allocator might still have taken from the driver.
    pub growable: Option<u64>,
}

impl Free {
    /// Free in the pool and still to be taken; `None` where the pool is not known.
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        Some(self.in_pool?.saturating_add(self.growable.unwrap_or(0)))
    }
}

/// Why a request was not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Less was free in total than was requested.
    TooLarge,
    /// Enough was free in total, but no piece of it was large enough.
    Fragmented,
    /// The pool was allowed to grow by enough, and the driver had no memory left: it is held outside this pool.
    DriverRefused,
    /// The text does not have the figures that decide.
    Unknown,
}

impl Verdict {
    /// Its word in JSON and in Python.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verdict::TooLarge => "too_large",
            Verdict::Fragmented => "fragmented",
            Verdict::DriverRefused => "driver_refused",
            Verdict::Unknown => "unknown",
        }
    }
}

pub(crate) fn free(failure: &Failure) -> Free {
    let stats = &failure.stats;
    let lists_chunks = failure.in_use.chunks + failure.free.chunks > 0 && failure.chunks_listed_whole();
    if lists_chunks {
        return Free {
            in_pool: Some(failure.free.bytes),
            largest: failure.pool.largest_usable.or(Some(failure.free.largest)),
            growable: failure.pool.growable,
        };
    }
    let largest = failure.pool.largest_usable.or(stats.largest_free).filter(|&bytes| bytes > 0);
    if failure.pool.free.is_some() {
        return Free { in_pool: failure.pool.free, largest, growable: None };
    }
    let in_use = stats.in_use;
    match (failure.pool.taken, in_use) {
        (Some(taken), Some(in_use)) => {
            Free { in_pool: Some(taken.saturating_sub(in_use)), largest, growable: failure.pool.growable }
        }
        // Limit less in use is what the pool could have given out at most, grown to its limit.
        _ => Free {
            in_pool: stats
                .limit
                .zip(in_use)
                .map(|(limit, in_use)| limit.saturating_sub(in_use))
                .or_else(|| from_bins(failure)),
            largest,
            growable: None,
        },
    }
}

/// Bins print their bytes rounded; every chunk of the pool is in one of them. A list that was cut off lacks the large ones.
fn from_bins(failure: &Failure) -> Option<u64> {
    let free = |bin: &crate::failure::Bin| bin.bytes.saturating_sub(bin.bytes_in_use);
    let is_whole = failure.bins.last().is_some_and(|bin| bin.size >= LAST_BIN);
    is_whole.then(|| failure.bins.iter().map(free).fold(0, u64::saturating_add))
}

pub(crate) fn verdict(failure: &Failure) -> Verdict {
    if failure.is_mixed() {
        return Verdict::Unknown;
    }
    let (Some(requested), free) = (failure.requested, free(failure)) else { return Verdict::Unknown };
    if free.growable.is_some_and(|growable| growable >= requested) {
        return Verdict::DriverRefused;
    }
    if failure.pool.limit.or(failure.stats.limit).is_some_and(|limit| limit < requested) {
        return Verdict::TooLarge;
    }
    match (free.total(), free.largest) {
        (Some(total), _) if total < requested => Verdict::TooLarge,
        (Some(_), Some(largest)) if largest < requested => Verdict::Fragmented,
        _ => Verdict::Unknown,
    }
}

impl Failure {
    /// Whether the list of chunks was not cut off: its summary follows it.
    fn chunks_listed_whole(&self) -> bool {
        self.stats.in_use.is_some() || !self.in_use_sizes.is_empty()
    }
}
