//! What the rules that need every sample keep of one: six words.
//!
//! Six million of them (64 ranks of 100,000) must fit in a third of a gigabyte, so unknown is a reserved value inside; outside
//! it is `None`.

use stormlog_model::{Counter, Event};

const UNKNOWN: u64 = u64::MAX;

/// One `sample` event's counters at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub at_ns: u64,
    used: u64,
    reserved: u64,
    total: u64,
    allocated: u64,
    free: u64,
}

impl Sample {
    /// A sample of these counters.
    pub fn new(at_ns: u64, used: Option<u64>, reserved: Option<u64>, total: Option<u64>) -> Self {
        let word = |value: Option<u64>| value.unwrap_or(UNKNOWN);
        let (used, reserved, total) = (word(used), word(reserved), word(total));
        Sample { at_ns, used, reserved, total, allocated: UNKNOWN, free: UNKNOWN }
    }

    /// The sample an event stands for; `None` for other events.
    pub fn of(event: &Event) -> Option<Self> {
        is_sample(&event.head.event_type).then(|| {
            let counter = |counter| event.counter(counter);
            let sample = Sample::new(
                event.timestamp_ns,
                counter(Counter::Used),
                counter(Counter::Reserved),
                counter(Counter::Total),
            );
            let word = |value| counter(value).unwrap_or(UNKNOWN);
            Sample { allocated: word(Counter::Allocated), free: word(Counter::Free), ..sample }
        })
    }

    /// Bytes used on the device.
    pub fn used(&self) -> Option<u64> {
        (self.used != UNKNOWN).then_some(self.used)
    }

    /// Bytes the allocator handed out.
    pub fn allocated(&self) -> Option<u64> {
        (self.allocated != UNKNOWN).then_some(self.allocated)
    }

    /// Bytes the allocator holds.
    pub fn reserved(&self) -> Option<u64> {
        (self.reserved != UNKNOWN).then_some(self.reserved)
    }

    /// Size of the device; unknown when it is 0.
    pub fn total(&self) -> Option<u64> {
        (self.total != UNKNOWN && self.total > 0).then_some(self.total)
    }

    /// What is in use of the limit, by whichever process.
    pub fn limit_used(&self) -> Option<u64> {
        self.total()?.checked_sub(self.free).filter(|_| self.free != UNKNOWN)
    }

    /// Used by others than the allocator; negative when the counters disagree.
    pub fn gap(&self) -> Option<i128> {
        Some(i128::from(self.used()?) - i128::from(self.reserved()?))
    }
}

/// Whether an event type is `sample`, written in any case.
pub(crate) fn is_sample(event_type: &str) -> bool {
    event_type == "sample" || event_type.trim().eq_ignore_ascii_case("sample")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_stays_unknown() {
        let sample = Sample::new(1, Some(0), None, Some(0));
        assert_eq!((sample.used(), sample.reserved(), sample.total()), (Some(0), None, None));
        assert_eq!(sample.gap(), None);
        assert_eq!(Sample::new(1, Some(5), Some(7), None).gap(), Some(-2));
        assert!(is_sample(" Sample ") && !is_sample("samples"));
    }
}
