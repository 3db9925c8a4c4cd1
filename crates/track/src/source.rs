//! Where samples come from: this process's resident memory, or whatever implements [`Source`].
//!
//! A source is asked with no lock of the tracker's history held, so it may take the interpreter's. It must never turn
//! an unknown number into 0, and after a fork it must answer for the child.

use std::process;
use std::time::Instant;

use stormlog_collect::process::ProcessReader;
use stormlog_collect::{CollectError, DeviceSample};
use stormlog_model::Record;

use crate::process_facts::{FACT_AGE, ProcessFacts};
use crate::{LimitOptions, LimitReading, MemoryLimits, host_sample};

/// The host's number among the devices.
pub const HOST_DEVICE: i64 = -1;

/// What asking once gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sampled {
    /// The numbers; `None` when nothing could be read.
    pub sample: Option<DeviceSample>,
    /// Fields (by their names in events) that did not come although they can.
    pub partial_fields: Vec<String>,
    /// Why.
    pub error: Option<String>,
    /// What else the source knows, for the metadata of what follows: `num_alloc_retries`, `process_swap_bytes`.
    pub facts: Record,
    /// How near the limits of a process are; empty where the device is its own limit.
    pub limits: Vec<LimitReading>,
}

/// Something to sample.
pub trait Source: Send {
    /// One reading.
    fn sample(&mut self) -> Sampled;
}

/// Size of, and room in, whatever ends a process first, as read at most once a second.
#[derive(Debug)]
pub(crate) struct Headroom {
    limits: MemoryLimits,
}

impl Headroom {
    pub(crate) fn of(pid: u32) -> Self {
        let options = LimitOptions { limit_as: None, pace: FACT_AGE, is_thorough: false };
        Headroom { limits: MemoryLimits::of(pid, options) }
    }

    /// The host's sample of a process, or several, with that much resident, and how near its limits are.
    pub(crate) fn seen_from_outside(&mut self, rss: u64) -> Sampled {
        self.limits.look(Instant::now(), rss, None);
        let sample = host_sample(Some(rss), self.limits.total(), self.limits.free());
        Sampled { sample: Some(sample), limits: self.limits.readings(rss), ..Sampled::default() }
    }

    /// The same as 0.4.3's tracker has it: the resident memory stands for what an allocator holds.
    fn of_tracker(&mut self, rss: u64) -> Sampled {
        let sampled = self.seen_from_outside(rss);
        let stands = |sample| DeviceSample { allocated: Some(rss), reserved: Some(rss), ..sample };
        Sampled { sample: sampled.sample.map(stands), ..sampled }
    }
}

/// This process: RSS at every sample, the limit and what is left of it once a second.
///
/// As in 0.4.3, the RSS stands for allocated, reserved and used: the kernel knows no allocator.
#[derive(Debug)]
pub struct HostSource {
    pid: u32,
    reader: ProcessReader,
    room: Headroom,
    facts: ProcessFacts,
}

impl HostSource {
    /// Opens this process.
    pub fn open() -> Result<Self, CollectError> {
        let pid = process::id();
        Ok(HostSource {
            pid,
            reader: ProcessReader::this()?,
            room: Headroom::of(pid),
            facts: ProcessFacts::new(),
        })
    }
}

impl Source for HostSource {
    fn sample(&mut self) -> Sampled {
        if self.pid != process::id() {
            match HostSource::open() {
                Ok(own) => *self = own,
                Err(error) => return failed(&error),
            }
        }
        match self.reader.memory() {
            Ok(memory) => {
                self.facts.read_swap(&mut self.reader);
                Sampled { facts: self.facts.known().clone(), ..self.room.of_tracker(memory.rss) }
            }
            Err(error) => failed(&error),
        }
    }
}

pub(crate) fn failed(error: &CollectError) -> Sampled {
    Sampled { error: Some(error.to_string()), ..Sampled::default() }
}
