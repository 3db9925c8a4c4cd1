//! Address ranges from `mmap`, `mremap` and `brk`, which `munmap` may cut anywhere. Must keep bytes exact whatever is cut.

use std::collections::BTreeMap;

const PAGE: u64 = 4096;

/// What one mapping is to its allocation site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) end: u64,
    pub(crate) site: u32,
    /// 1 in the first piece of a mapping, 0 in what was cut off it (in units of the counters).
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    pub(crate) in_span: bool,
    /// Moments that were past when it came.
    pub(crate) step: u32,
}

/// The ranges that are mapped.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    pub(crate) ranges: BTreeMap<u64, Mapping>,
}

/// The end of a range as the kernel sees it.
pub(crate) fn end_of(start: u64, size: u64) -> u64 {
    start.saturating_add(size.max(1)).saturating_add(PAGE - 1) & !(PAGE - 1)
}

impl Mappings {
    /// Is anything mapped between `start` and `end`?
    pub(crate) fn overlaps(&self, start: u64, end: u64) -> bool {
        self.ranges.range(..end).next_back().is_some_and(|(_, mapping)| mapping.end > start)
    }

    /// Unmaps a range; `lost` gets site, bytes, count and step of each part that went.
    pub(crate) fn cut(&mut self, start: u64, end: u64, mut lost: impl FnMut(u32, u64, u64, u32)) {
        while let Some((&from, &mapping)) = self.ranges.range(..end).next_back() {
            if mapping.end <= start {
                break;
            }
            self.ranges.remove(&from);
            let length = u128::from(mapping.end - from);
            let share = |from: u64, to: u64| {
                (u128::from(mapping.bytes) * u128::from(to.saturating_sub(from)) / length) as u64
            };
            let (before, after) = (share(from, start), share(end, mapping.end));
            let mut count = mapping.count;
            if from < start {
                self.ranges.insert(from, Mapping { end: start, bytes: before, count, ..mapping });
                count = 0;
            }
            if end < mapping.end {
                self.ranges.insert(end, Mapping { bytes: after, count, ..mapping });
                count = 0;
            }
            lost(mapping.site, mapping.bytes - before - after, count, mapping.step);
        }
    }

    pub(crate) fn insert(&mut self, start: u64, mapping: Mapping) {
        self.ranges.insert(start, mapping);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_splits_a_mapping() {
        let mut mappings = Mappings::default();
        let whole = Mapping { end: 10 * PAGE, site: 3, count: 1, bytes: 10 * PAGE, in_span: false, step: 0 };
        mappings.insert(0, whole);
        let mut lost = Vec::new();
        mappings.cut(2 * PAGE, 5 * PAGE, |site, bytes, count, _| lost.push((site, bytes, count)));
        assert_eq!(lost, [(3, 3 * PAGE, 0)]);
        assert!(mappings.overlaps(0, PAGE) && mappings.overlaps(5 * PAGE, 6 * PAGE));
        assert!(!mappings.overlaps(2 * PAGE, 5 * PAGE));
        lost.clear();
        mappings.cut(0, 20 * PAGE, |site, bytes, count, _| lost.push((site, bytes, count)));
        assert_eq!(lost, [(3, 5 * PAGE, 0), (3, 2 * PAGE, 1)]);
        assert!(mappings.ranges.is_empty());
    }
}
