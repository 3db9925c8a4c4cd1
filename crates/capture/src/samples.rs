//! Memory samples of a capture that has ended, in little room. Must read any bytes, and reserve no more than they could hold.

use crate::file::Sample;
use crate::record::{unzigzag, zigzag};
use crate::wire::{Put, Take};

/// Each of the four numbers as differences, compressed.
pub(crate) fn pack(samples: &[Sample]) -> std::io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    plain.put(samples.len() as u64);
    let known = |value: Option<u64>| value.map_or(0, |value| value.saturating_add(1));
    let mut column = |number: &dyn Fn(&Sample) -> u64| {
        let mut last = 0u64;
        for value in samples.iter().map(number) {
            plain.put(zigzag(value.wrapping_sub(last) as i64));
            last = value;
        }
    };
    column(&|sample| sample.time_us);
    column(&|sample| sample.rss);
    column(&|sample| known(sample.pss));
    column(&|sample| known(sample.cgroup));
    zstd::bulk::compress(&plain, 19)
}

/// `None` for events that are not samples.
pub(crate) fn unpack(plain: &[u8]) -> Option<Vec<Sample>> {
    let mut take = Take::new(plain);
    let count = take.number()?;
    let mut samples = vec![Sample::default(); take.plausible(count)];
    (samples.len() as u64 == count).then_some(())?;
    let mut column = |set: fn(&mut Sample, u64)| {
        let mut value = 0u64;
        for sample in &mut samples {
            value = value.wrapping_add(unzigzag(take.number()?) as u64);
            set(sample, value);
        }
        Some(())
    };
    column(|sample, value| sample.time_us = value)?;
    column(|sample, value| sample.rss = value)?;
    column(|sample, value| sample.pss = value.checked_sub(1))?;
    column(|sample, value| sample.cgroup = value.checked_sub(1))?;
    Some(samples)
}
