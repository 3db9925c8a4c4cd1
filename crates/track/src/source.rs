//! Where samples come from: this process's resident memory, or whatever implements [`Source`].
//!
//! A source is asked with no lock of the tracker's history held, so it may take the interpreter's. It must never turn
//! an unknown number into 0, and after a fork it must answer for the child.

use std::process;
use std::time::{Duration, Instant};

use stormlog_collect::process::ProcessReader;
use stormlog_collect::{CollectError, DeviceSample};
use stormlog_model::Record;

use crate::{LimitOptions, LimitReading, MemoryLimits, host_sample};

/// The host's number among the devices.
pub const HOST_DEVICE: i64 = -1;

/// How long what is left of the limit is taken for current: reading it costs more than the sample itself.
const LIMIT_AGE: Duration = Duration::from_secs(1);

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
pub(crate) struct Room {
    limits: MemoryLimits,
}

impl Room {
    pub(crate) fn of(pid: u32) -> Self {
        let options = LimitOptions { limit_as: None, pace: LIMIT_AGE, is_thorough: false };
        Room { limits: MemoryLimits::of(pid, options) }
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

/// How much of a process is swapped out, as read at most once a second.
#[derive(Debug, Default)]
struct Swapped {
    bytes: u64,
    read_at: Option<Instant>,
}

impl Swapped {
    /// A fact only where there is something to tell: most processes never have a byte swapped out.
    fn facts(&mut self, reader: &mut ProcessReader) -> Record {
        if self.read_at.is_none_or(|at| at.elapsed() >= LIMIT_AGE) {
            self.read_at = Some(Instant::now());
            self.bytes = reader.status().ok().and_then(|status| status.swap).unwrap_or(0);
        }
        let known = (self.bytes > 0).then(|| ("process_swap_bytes".to_owned(), self.bytes.into()));
        known.into_iter().collect()
    }
}

/// This process: RSS at every sample, the limit and what is left of it once a second.
///
/// As in 0.4.3, the RSS stands for allocated, reserved and used: the kernel knows no allocator.
#[derive(Debug)]
pub struct HostSource {
    pid: u32,
    reader: ProcessReader,
    room: Room,
    swapped: Swapped,
}

impl HostSource {
    /// Opens this process.
    pub fn open() -> Result<Self, CollectError> {
        let pid = process::id();
        Ok(HostSource {
            pid,
            reader: ProcessReader::this()?,
            room: Room::of(pid),
            swapped: Swapped::default(),
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
                let facts = self.swapped.facts(&mut self.reader);
                Sampled { facts, ..self.room.of_tracker(memory.rss) }
            }
            Err(error) => failed(&error),
        }
    }
}

pub(crate) fn failed(error: &CollectError) -> Sampled {
    Sampled { error: Some(error.to_string()), ..Sampled::default() }
}
