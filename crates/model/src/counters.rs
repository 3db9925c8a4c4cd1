//! The eight byte counters of an event, each known or unknown.
//!
//! Packed (72 bytes) because a recording holds millions. Unknown must never turn into 0: there is no way to
//! read a value without asking whether it is known.

use crate::Field;

/// One of the eight counters, in serialised order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Counter {
    /// Bytes handed out by the framework's allocator.
    Allocated,
    /// Bytes the allocator holds from the driver.
    Reserved,
    /// Bytes in active blocks.
    Active,
    /// Bytes in inactive split blocks.
    Inactive,
    /// Change of allocated bytes since the last event; may be negative.
    Change,
    /// Bytes used on the device (RSS on the host).
    Used,
    /// Bytes free on the device.
    Free,
    /// Size of the device.
    Total,
}

impl Counter {
    /// All counters in serialised order.
    pub const ALL: [Counter; 8] = [
        Counter::Allocated,
        Counter::Reserved,
        Counter::Active,
        Counter::Inactive,
        Counter::Change,
        Counter::Used,
        Counter::Free,
        Counter::Total,
    ];

    /// The field this counter is written to.
    pub fn field(self) -> Field {
        match self {
            Counter::Allocated => Field::AllocatorAllocated,
            Counter::Reserved => Field::AllocatorReserved,
            Counter::Active => Field::AllocatorActive,
            Counter::Inactive => Field::AllocatorInactive,
            Counter::Change => Field::AllocatorChange,
            Counter::Used => Field::DeviceUsed,
            Counter::Free => Field::DeviceFree,
            Counter::Total => Field::DeviceTotal,
        }
    }

    /// Whether schemas 2 and 3 insist on a number here.
    pub fn is_core(self) -> bool {
        matches!(self, Counter::Allocated | Counter::Reserved | Counter::Change | Counter::Used)
    }
}

/// The counters of one event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    values: [u64; 8],
    known: u8,
}

impl Counters {
    /// No counter known.
    pub const UNKNOWN: Counters = Counters { values: [0; 8], known: 0 };

    /// The value of a counter other than `Change`.
    pub fn get(&self, counter: Counter) -> Option<u64> {
        debug_assert!(counter != Counter::Change, "change is signed: use change()");
        self.raw(counter)
    }

    /// The change since the last event.
    pub fn change(&self) -> Option<i64> {
        self.raw(Counter::Change).map(|bits| bits as i64)
    }

    /// Sets a counter other than `Change`; `None` makes it unknown.
    pub fn set(&mut self, counter: Counter, value: Option<u64>) {
        self.set_raw(counter, value);
    }

    /// Sets the change since the last event.
    pub fn set_change(&mut self, value: Option<i64>) {
        self.set_raw(Counter::Change, value.map(|signed| signed as u64));
    }

    /// Whether a counter is known.
    pub fn is_known(&self, counter: Counter) -> bool {
        self.known & (1 << counter as u8) != 0
    }

    /// One bit a counter, in serialised order: which are known.
    pub fn known_bits(&self) -> u8 {
        self.known
    }

    /// The bits of a counter: a signed change is stored as its two's complement.
    pub fn raw(&self, counter: Counter) -> Option<u64> {
        self.is_known(counter).then(|| self.values[counter as usize])
    }

    /// Sets a counter from [`Counters::raw`] bits.
    pub fn set_raw(&mut self, counter: Counter, bits: Option<u64>) {
        let mask = 1 << counter as u8;
        match bits {
            Some(bits) => {
                self.values[counter as usize] = bits;
                self.known |= mask;
            }
            None => {
                self.values[counter as usize] = 0;
                self.known &= !mask;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_is_not_zero() {
        let mut counters = Counters::UNKNOWN;
        assert_eq!(counters.get(Counter::Used), None);
        counters.set(Counter::Used, Some(0));
        assert_eq!(counters.get(Counter::Used), Some(0));
        counters.set(Counter::Used, None);
        assert_eq!(counters, Counters::UNKNOWN);
    }

    #[test]
    fn change_keeps_its_sign() {
        let mut counters = Counters::UNKNOWN;
        counters.set_change(Some(-5));
        assert_eq!(counters.change(), Some(-5));
    }
}
