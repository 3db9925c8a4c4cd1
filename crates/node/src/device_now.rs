//! A device as the newest events of a process have it. What is not known is `None`.

use serde_json::Value;
use stormlog_model::{Counter, Event};

/// What a process's events say of a device.
#[derive(Debug, Clone, Default)]
pub struct DeviceNow {
    /// The driver's id of the device.
    pub uuid: Option<String>,
    /// Bytes in use on the device, by the driver.
    pub used: Option<u64>,
    /// Bytes free on the device.
    pub free: Option<u64>,
    /// Bytes of the device.
    pub total: Option<u64>,
    /// What the process holds, by the driver.
    pub of_process: Option<u64>,
    /// Bytes that the framework's allocator handed out.
    pub allocated: Option<u64>,
    /// Bytes that it holds.
    pub reserved: Option<u64>,
    /// Bytes in blocks that are in use or wait for a stream.
    pub active: Option<u64>,
    /// Bytes in free parts of split blocks.
    pub inactive: Option<u64>,
    /// Allocations that were tried again after the cache was emptied.
    pub retries: Option<u64>,
    /// Out-of-memory errors that the allocator raised.
    pub ooms: Option<u64>,
    /// When this was known, nanoseconds since 1970.
    pub at_ns: u64,
}

impl DeviceNow {
    /// Takes in an event about this device. Samples of the driver and of the framework know different things of it: what an event does not know stays.
    pub(crate) fn take(&mut self, event: &Event) {
        let number = |key: &str| event.metadata.map.get(key).and_then(Value::as_u64);
        let newer = |kept: &mut Option<u64>, value: Option<u64>| *kept = value.or(*kept);
        newer(&mut self.used, event.counter(Counter::Used));
        newer(&mut self.free, event.counter(Counter::Free));
        newer(&mut self.total, event.counter(Counter::Total));
        newer(&mut self.allocated, event.counter(Counter::Allocated));
        newer(&mut self.reserved, event.counter(Counter::Reserved));
        newer(&mut self.active, event.counter(Counter::Active));
        newer(&mut self.inactive, event.counter(Counter::Inactive));
        newer(&mut self.of_process, number("process_device_used_bytes"));
        newer(&mut self.retries, number("num_alloc_retries"));
        newer(&mut self.ooms, number("num_ooms"));
        if let Some(uuid) = uuid_of(event) {
            self.uuid = Some(uuid.to_owned());
        }
        self.at_ns = self.at_ns.max(event.timestamp_ns);
    }

    /// What the process takes of the device: by the driver, else by its allocator.
    #[must_use]
    pub fn held(&self) -> Option<u64> {
        self.of_process.or(self.reserved)
    }

    /// The same device of the same process, from another viewpoint: what is newer wins, what is known stays.
    pub(crate) fn merge(&mut self, other: &DeviceNow) {
        let is_newer = other.at_ns >= self.at_ns;
        let join = |kept: &mut Option<u64>, value: Option<u64>| {
            *kept = if is_newer { value.or(*kept) } else { kept.or(value) };
        };
        join(&mut self.used, other.used);
        join(&mut self.free, other.free);
        join(&mut self.total, other.total);
        join(&mut self.of_process, other.of_process);
        join(&mut self.allocated, other.allocated);
        join(&mut self.reserved, other.reserved);
        join(&mut self.active, other.active);
        join(&mut self.inactive, other.inactive);
        join(&mut self.retries, other.retries);
        join(&mut self.ooms, other.ooms);
        self.at_ns = self.at_ns.max(other.at_ns);
        self.uuid = self.uuid.take().or_else(|| other.uuid.clone());
    }

    /// The same of two processes of a rank together.
    pub(crate) fn add(&mut self, other: &DeviceNow) {
        let sum = |kept: &mut Option<u64>, value: Option<u64>| {
            *kept = match (*kept, value) {
                (Some(one), Some(two)) => Some(one.saturating_add(two)),
                (one, two) => one.or(two),
            };
        };
        sum(&mut self.of_process, other.of_process);
        sum(&mut self.allocated, other.allocated);
        sum(&mut self.reserved, other.reserved);
        sum(&mut self.active, other.active);
        sum(&mut self.inactive, other.inactive);
        sum(&mut self.retries, other.retries);
        sum(&mut self.ooms, other.ooms);
        if other.at_ns >= self.at_ns {
            self.at_ns = other.at_ns;
            (self.used, self.free, self.total) =
                (other.used.or(self.used), other.free.or(self.free), other.total.or(self.total));
        }
        self.uuid = self.uuid.take().or_else(|| other.uuid.clone());
    }
}

fn uuid_of(event: &Event) -> Option<&str> {
    let map = &event.metadata.map;
    let stated = map.get("memory_capabilities").and_then(|stated| stated.get("device_uuid"));
    map.get("device_uuid").or(stated)?.as_str()
}
