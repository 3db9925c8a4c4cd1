//! Counters fed from outside: a framework in Python pushes its allocator's latest numbers, a sampling thread takes them.
//!
//! A sequence counter guards plain atomics: neither side ever waits for the other, so a sampling thread can never hold
//! up the training loop. A reader must never see half of one push and half of another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use stormlog_model::Counter;

use crate::{CollectError, Collector, DeviceCapabilities, DeviceSample, Reading};

/// How often a side tries again before it gives up: a push is a dozen stores, so more means that its thread was
/// stopped (or lost in a fork) in the middle of one.
const TRIES: u32 = 1000;

/// What a framework knows of its allocator at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pushed {
    /// When it was read, by the pusher's clock.
    pub at_ns: u64,
    /// Bytes handed out.
    pub allocated: Option<u64>,
    /// Bytes held from the driver.
    pub reserved: Option<u64>,
    /// Bytes in active blocks.
    pub active: Option<u64>,
    /// Bytes in inactive split blocks.
    pub inactive: Option<u64>,
    /// Bytes used on the device, if the framework asked the driver.
    pub used: Option<u64>,
    /// Bytes free on the device, likewise.
    pub free: Option<u64>,
    /// Size of the device.
    pub total: Option<u64>,
}

const FIELDS: usize = 7;

impl Pushed {
    fn fields(&self) -> [Option<u64>; FIELDS] {
        [self.allocated, self.reserved, self.active, self.inactive, self.used, self.free, self.total]
    }
}

/// The meeting place of one pusher and its readers. Share it in an [`Arc`].
#[derive(Debug, Default)]
pub struct ExternalCounters {
    /// Even: idle. Odd: a push is in progress. 0: nothing was ever pushed.
    sequence: AtomicU64,
    at_ns: AtomicU64,
    known: AtomicU64,
    values: [AtomicU64; FIELDS],
    lost: AtomicU64,
}

impl ExternalCounters {
    /// Publishes the latest numbers. Two pushers at once: one of them is dropped and counted, none waits for long.
    pub fn push(&self, pushed: &Pushed) {
        let mut sequence = self.sequence.load(Ordering::Relaxed);
        for _ in 0..TRIES {
            if !sequence.is_multiple_of(2) {
                std::hint::spin_loop();
                sequence = self.sequence.load(Ordering::Relaxed);
                continue;
            }
            match self.sequence.compare_exchange_weak(
                sequence,
                sequence + 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    // The mark must be seen before any of the stores below.
                    fence(Ordering::Release);
                    self.store(pushed);
                    self.sequence.store(sequence + 2, Ordering::Release);
                    return;
                }
                Err(seen) => sequence = seen,
            }
        }
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    fn store(&self, pushed: &Pushed) {
        let mut known = 0;
        for (index, (field, value)) in pushed.fields().into_iter().zip(&self.values).enumerate() {
            if let Some(number) = field {
                known |= 1 << index;
                value.store(number, Ordering::Relaxed);
            }
        }
        self.known.store(known, Ordering::Relaxed);
        self.at_ns.store(pushed.at_ns, Ordering::Relaxed);
    }

    /// The latest whole push. `None` before the first one, or when a push never ended.
    pub fn latest(&self) -> Option<Pushed> {
        for _ in 0..TRIES {
            let before = self.sequence.load(Ordering::Acquire);
            if before == 0 {
                return None;
            }
            if before.is_multiple_of(2) {
                let pushed = self.load();
                // The loads above must be over before the sequence is looked at again.
                fence(Ordering::Acquire);
                if self.sequence.load(Ordering::Relaxed) == before {
                    return Some(pushed);
                }
            }
            std::hint::spin_loop();
        }
        None
    }

    fn load(&self) -> Pushed {
        let known = self.known.load(Ordering::Relaxed);
        let field =
            |index: usize| (known & (1 << index) != 0).then(|| self.values[index].load(Ordering::Relaxed));
        Pushed {
            at_ns: self.at_ns.load(Ordering::Relaxed),
            allocated: field(0),
            reserved: field(1),
            active: field(2),
            inactive: field(3),
            used: field(4),
            free: field(5),
            total: field(6),
        }
    }

    /// Pushes that were dropped because another was under way.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// A device whose numbers a framework pushes.
#[derive(Debug, Clone)]
pub struct ExternalCollector {
    counters: Arc<ExternalCounters>,
    device_id: i64,
    capabilities: DeviceCapabilities,
}

impl ExternalCollector {
    /// A collector over shared counters. `fields` are the counters the framework promises to push.
    pub fn new(
        counters: Arc<ExternalCounters>,
        device_id: i64,
        backend: &str,
        name: &str,
        source: &str,
        fields: &[Counter],
    ) -> Self {
        let capabilities = DeviceCapabilities::new(backend, name, source, fields);
        ExternalCollector { counters, device_id, capabilities }
    }
}

impl Collector for ExternalCollector {
    fn name(&self) -> &str {
        &self.capabilities.telemetry_collector
    }

    fn is_available(&self) -> bool {
        self.counters.latest().is_some()
    }

    fn sample(&mut self) -> Result<Reading, CollectError> {
        let Some(pushed) = self.counters.latest() else {
            return Err(CollectError::NothingPushed { name: self.name().to_owned() });
        };
        Ok(DeviceSample {
            device_id: self.device_id,
            used: pushed.used,
            free: pushed.free,
            total: pushed.total,
            allocated: pushed.allocated,
            reserved: pushed.reserved,
            active: pushed.active,
            inactive: pushed.inactive,
            driver_reserved: None,
            pushed_at_ns: Some(pushed.at_ns),
        }
        .into())
    }

    fn capabilities(&self) -> &DeviceCapabilities {
        &self.capabilities
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn all(number: u64) -> Pushed {
        Pushed {
            at_ns: number,
            allocated: Some(number),
            reserved: Some(number),
            active: number.is_multiple_of(2).then_some(number),
            inactive: Some(number),
            used: Some(number),
            free: Some(number),
            total: Some(number),
        }
    }

    #[test]
    fn readers_never_see_two_pushes_mixed() {
        let counters = Arc::new(ExternalCounters::default());
        assert_eq!(counters.latest(), None);
        let pushers: Vec<_> = (0..2)
            .map(|pusher| {
                let counters = Arc::clone(&counters);
                thread::spawn(move || (0..200_000).for_each(|n| counters.push(&all(n * 2 + pusher))))
            })
            .collect();
        let mut seen = 0;
        while seen < 50_000 && !(seen > 0 && pushers.iter().all(|pusher| pusher.is_finished())) {
            if let Some(pushed) = counters.latest() {
                assert_eq!(pushed, all(pushed.at_ns));
                seen += 1;
            }
        }
        for pusher in pushers {
            pusher.join().unwrap();
        }
        assert!(seen > 0);
        assert!(counters.lost() < 400_000);
    }

    #[test]
    fn unfinished_push_blocks_no_reader() {
        let counters = ExternalCounters::default();
        counters.push(&all(4));
        // What a fork in the middle of a push leaves in the child.
        counters.sequence.fetch_add(1, Ordering::Relaxed);
        assert_eq!(counters.latest(), None);
        counters.push(&all(5));
        assert_eq!(counters.lost(), 1);
    }
}
