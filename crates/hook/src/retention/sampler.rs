//! A sample of the program's objects by bytes: every byte is as likely as any other to be sampled, so what is found to keep the sampled objects
//! keeps as large a part of the memory. Objects above the step are all in it. Must never hold more than its fixed number.

use super::kinds::{Extent, Kind, Kinds};
use super::python::{Object, Python};
use super::region::{Region, Zeroed};
use super::sweep::Visitor;
use crate::sample::has_taken as is_recorded;

/// Samples of the host's memory and of each device's, at most.
pub const MOST_SAMPLES: usize = 2048;
/// Memories: the host, seven devices, and the two below; others are left out.
pub const MEMORIES: usize = 10;
/// Stands for tensors as objects, whatever their size: a small one may keep a large autograd graph.
pub const GRAPHS: u16 = u16::MAX;
/// Stands for blocks that a sampled capture has records of, whatever their size: they tell the line that allocated what a holder keeps, and
/// few of the blocks that are taken by bytes are among them.
pub const RECORDED: u16 = u16::MAX - 1;
const HOST: u16 = 0;
/// From an object back to the block it is in: its own header, that of the collector, and pointers before it.
const HEADERS: [usize; 3] = [0, 16, 32];
/// Bytes between two samples, at first.
const FIRST_STEP: u64 = 4096;
/// Places in the table of blocks that were sampled whole.
const SEEN: usize = 1 << 14;

/// A sampled object.
#[derive(Clone, Copy, Default)]
pub struct Sample {
    pub object: usize,
    pub address: usize,
    /// Bytes of the object.
    pub bytes: u64,
    /// Bytes that it stands for.
    pub weight: u64,
    pub memory: u16,
}
// SAFETY: all fields are integers, valid when zeroed.
unsafe impl Zeroed for Sample {}

/// The samples of one memory.
#[derive(Default)]
struct Stratum {
    memory: u16,
    is_used: bool,
    count: usize,
    step: u64,
    passed: u64,
}

/// The samples of all memories.
pub struct Sampler<'a> {
    samples: &'a mut [Sample],
    strata: [Stratum; MEMORIES],
    seen: &'a mut [usize],
    /// Objects of the collector's lists.
    pub objects: u64,
}

impl<'a> Sampler<'a> {
    pub fn new(region: &'a Region) -> Option<Self> {
        Some(Sampler {
            samples: region.array(MOST_SAMPLES * MEMORIES)?,
            strata: Default::default(),
            seen: region.array(SEEN)?,
            objects: 0,
        })
    }

    /// All samples.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        let strata = self.strata.iter().enumerate();
        strata.flat_map(|(index, stratum)| &self.samples[index * MOST_SAMPLES..][..stratum.count])
    }

    /// Takes an object with `bytes`, of which `share` are this meeting's.
    fn take(&mut self, object: Object, extent: Extent, share: u64) {
        let Some(index) = self.stratum(extent.memory) else { return };
        let bytes = extent.bytes as u64;
        let step = self.strata[index].step;
        if bytes >= step {
            if !self.is_seen(extent.address) {
                self.add(index, object, extent, bytes);
            }
            return;
        }
        let stratum = &mut self.strata[index];
        stratum.passed += share;
        if stratum.passed >= step {
            stratum.passed -= step;
            self.add(index, object, extent, step);
        }
    }

    fn stratum(&mut self, memory: u16) -> Option<usize> {
        let index = self.strata.iter().position(|stratum| !stratum.is_used || stratum.memory == memory)?;
        let stratum = &mut self.strata[index];
        if !stratum.is_used {
            *stratum = Stratum { memory, is_used: true, step: FIRST_STEP, ..Stratum::default() };
        }
        Some(index)
    }

    fn add(&mut self, index: usize, object: Object, extent: Extent, weight: u64) {
        while self.strata[index].count == MOST_SAMPLES {
            self.thin(index);
        }
        let stratum = &mut self.strata[index];
        self.samples[index * MOST_SAMPLES + stratum.count] = Sample {
            object: object.address(),
            address: extent.address,
            bytes: extent.bytes as u64,
            weight,
            memory: extent.memory,
        };
        stratum.count += 1;
    }

    /// Doubles the step: of what is below it, one in the new step's worth of bytes stays.
    fn thin(&mut self, index: usize) {
        let stratum = &mut self.strata[index];
        stratum.step *= 2;
        let samples = &mut self.samples[index * MOST_SAMPLES..][..stratum.count];
        let (mut kept, mut passed) = (0, 0);
        for at in 0..samples.len() {
            let mut sample = samples[at];
            if sample.bytes < stratum.step {
                passed += sample.weight;
                if passed < stratum.step {
                    continue;
                }
                passed -= stratum.step;
                sample.weight = stratum.step;
            }
            samples[kept] = sample;
            kept += 1;
        }
        stratum.count = kept;
    }

    /// Whether a block was met before: storages have several tensors, byte strings several references.
    fn is_seen(&mut self, address: usize) -> bool {
        let start = (address >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 50;
        for probe in 0..16 {
            let slot = &mut self.seen[(start + probe) % SEEN];
            if *slot == address {
                return true;
            }
            if *slot == 0 {
                *slot = address;
                return false;
            }
        }
        false
    }
}

impl Visitor for Sampler<'_> {
    fn met(&mut self, python: &Python, kinds: &mut Kinds<'_>, object: Object, kind: Kind, is_listed: bool) {
        self.objects += u64::from(is_listed);
        if kind == Kind::Tensor {
            let unit = Extent { address: object.address(), bytes: FIRST_STEP as usize, memory: GRAPHS };
            self.take(object, unit, FIRST_STEP);
        }
        let extent = kinds.extent(python, object, kind);
        if extent.bytes == 0 {
            return;
        }
        // One that is not listed is met once for each reference, and the meetings share its bytes.
        let share = match (is_listed, object.references()) {
            (true, _) => extent.bytes as u64,
            (false, 0) => return,
            (false, references) => extent.bytes as u64 / u64::from(references),
        };
        self.take(object, extent, share);
        if extent.memory == HOST && HEADERS.iter().any(|header| is_recorded(extent.address - header)) {
            let unit = Extent { bytes: FIRST_STEP as usize, memory: RECORDED, ..extent };
            self.take(object, unit, FIRST_STEP);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_stand_for_all_bytes_and_large_blocks_stay() {
        let region = Region::new().unwrap();
        let mut sampler = Sampler::new(&region).unwrap();
        let object = |address| {
            // SAFETY: the sampler uses the address as a number and never reads through it.
            unsafe { Object::of(address) }.unwrap()
        };
        let mut total = 0;
        for number in 1..200_000_usize {
            let bytes = if number % 1000 == 0 { 50 << 20 } else { 200 };
            total += bytes as u64;
            let extent = Extent { address: number * 64, bytes, memory: 0 };
            sampler.take(object(number * 64), extent, bytes as u64);
        }
        let sum: u64 = sampler.samples().map(|sample| sample.weight).sum();
        assert!(sum.abs_diff(total) < total / 50, "{sum} of {total}");
        assert_eq!(sampler.samples().filter(|sample| sample.bytes == 50 << 20).count(), 199);
        assert!(sampler.samples().count() <= MOST_SAMPLES);
    }
}
