//! One number for each device that is found together.
//!
//! Every driver counts from 0, and MIG instances carry the number of their physical device. The first device with a
//! number keeps it, so that a whole GPU has the number its driver gave it; the others follow after the highest.

use std::collections::BTreeSet;

/// The numbers of the devices in order, each used once.
pub(super) fn unique(drivers: impl Iterator<Item = i64> + Clone) -> Vec<i64> {
    let mut next = drivers.clone().max().map_or(0, |highest| highest.saturating_add(1));
    let mut taken = BTreeSet::new();
    let own = |number: i64| {
        if taken.insert(number) {
            return number;
        }
        next = next.saturating_add(1);
        next - 1
    };
    drivers.map(own).collect()
}

#[cfg(test)]
mod tests {
    use super::unique;

    #[test]
    fn whole_devices_keep_their_drivers_number() {
        // GPU 0 in three instances, GPU 1 whole, and two cards of another driver.
        assert_eq!(unique([0, 0, 0, 1, 0, 1].into_iter()), [0, 2, 3, 1, 4, 5]);
        assert_eq!(unique([0, 1].into_iter()), [0, 1]);
        assert_eq!(unique([0; 0].into_iter()), [0; 0]);
    }
}
