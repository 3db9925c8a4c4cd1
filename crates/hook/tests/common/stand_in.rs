//! The stand-in for PyTorch's libraries, and what a recording of it says of each device, in the order of its times.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

use stormlog_capture::record::{definition, device_of, kind};

use super::{Capture, compile, source};

pub const TAGS: usize = 8;

/// Compiles the libraries into a directory.
pub fn build(place: &Path) {
    build_with(place, &[]);
}

pub fn build_with(place: &Path, flags: &[&str]) {
    compile(place, "libc10.so", "stand_in_c10.c", &[&["-Wl,-soname,libc10.so"], flags].concat());
    let place_flag = format!("-L{}", place.display());
    let flags = [place_flag.as_str(), "-lc10", "-Wl,-rpath,$ORIGIN", "-Wl,-soname,libc10_cuda.so"];
    compile(place, "libc10_cuda.so", "stand_in_c10_cuda.c", &flags);
}

/// Python running `script` with the module `stand_in`.
pub fn python(place: &Path, script: &str) -> Option<Command> {
    let mut command = Command::new(super::python()?);
    command
        .args(["-c", &format!("from stand_in import *\n{script}")])
        .env("STAND_IN", place)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONPATH", source("stand_in.py").parent().unwrap());
    Some(command)
}

/// What is known of a device: by the allocator itself, or from a recording.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
pub struct Counts {
    pub allocations: u64,
    pub frees: u64,
    pub bytes: u64,
    pub allocated: u64,
    pub peak: u64,
    pub reserved: u64,
    pub failures: u64,
    pub live: [u64; TAGS],
}

/// A line for each device, as the stand-in prints and stores them.
pub fn printed_counts(output: &[u8]) -> Vec<Counts> {
    let text = std::str::from_utf8(output).unwrap();
    let numbers = |line: &str| line.split(' ').map(|number| number.parse().unwrap()).collect::<Vec<u64>>();
    text.lines().map(|line| Counts::new(&numbers(line))).collect()
}

impl Counts {
    pub fn new(numbers: &[u64]) -> Self {
        Self {
            allocations: numbers[0],
            frees: numbers[1],
            bytes: numbers[2],
            allocated: numbers[3],
            peak: numbers[4],
            reserved: numbers[5],
            failures: numbers[6],
            live: numbers[8..8 + TAGS].try_into().unwrap(),
        }
    }
}

/// One step of a device's story.
#[derive(Clone, Copy)]
enum Step {
    Totals(u64, u64),
    Failed,
    Allocated { address: u64, bytes: u64, node: u32 },
    Freed { address: u64, bytes: u64 },
}

/// A device of a recording: type, index and source.
pub type Name = [u8; 3];

#[derive(Debug, Default)]
pub struct Device {
    pub counts: Counts,
    /// By the functions of a stack, innermost first: bytes alive.
    pub live: BTreeMap<Vec<String>, u64>,
    /// Bytes from before the recording, at its start and now.
    pub before: Option<u64>,
    pub older: u64,
    pub unknown_frees: u64,
}

impl Device {
    /// With the first report: what was there before it.
    fn begin(&mut self, before: impl FnOnce() -> u64) {
        if self.before.is_none() {
            self.older = before();
            self.before = Some(self.older);
        }
    }
}

/// Everything a recording says of devices. The number of a tag is that in the name of the innermost function (`tag_3`), or 0.
pub fn devices(capture: &Capture) -> BTreeMap<Name, Device> {
    let mut names = HashMap::new();
    let mut steps: Vec<(u64, u32, usize, usize, u8, Step)> = Vec::new();
    for (order, ((sort, id, payload), (stream, time, position))) in
        capture.definitions.iter().zip(&capture.places).enumerate()
    {
        let number = |at: usize| u64::from_le_bytes(payload[at..at + 8].try_into().unwrap());
        let step = match *sort {
            definition::DEVICE => {
                let name: Name = payload[..].try_into().unwrap();
                assert_eq!(*names.entry(*id as u8).or_insert(name), name, "a number is one device's");
                continue;
            }
            definition::DEVICE_TOTALS => Step::Totals(number(0), number(8)),
            definition::DEVICE_FAILED => Step::Failed,
            _ => continue,
        };
        steps.push((*time, *stream, *position, order, *id as u8, step));
    }
    for (stream, events) in &capture.streams {
        for (position, event) in events.iter().enumerate() {
            let (address, bytes) = (event.address, event.bytes);
            let step = match event.kind {
                kind::DEVICE_ALLOCATION => Step::Allocated { address, bytes, node: event.python },
                kind::DEVICE_FREE => Step::Freed { address, bytes },
                _ => continue,
            };
            let time = event.microseconds;
            steps.push((time, *stream, position, usize::MAX, device_of(address), step));
        }
    }
    // In true order: no two streams report one device in the same microsecond.
    steps.sort_by_key(|(time, stream, position, order, ..)| (*time, *stream, *position, *order));
    let mut owners = HashMap::new();
    let mut all: BTreeMap<Name, Device> = BTreeMap::new();
    let mut blocks: HashMap<u64, (u64, Vec<String>)> = HashMap::new();
    let mut totals = HashMap::new();
    for (time, stream, _, _, number, step) in steps {
        let owner = owners.insert((number, time), stream);
        assert!(owner.is_none_or(|owner| owner == stream), "one stream of a device at a time");
        let device = all.entry(names[&number]).or_default();
        match step {
            Step::Totals(allocated, reserved) => {
                device.counts.reserved = reserved;
                totals.insert(number, allocated);
            }
            Step::Failed => device.counts.failures += 1,
            Step::Allocated { address, bytes, node } => {
                device.begin(|| totals.get(&number).map_or(0, |allocated| allocated - bytes));
                let counts = &mut device.counts;
                let names = capture.python_stack(stream, node);
                *device.live.entry(names.clone()).or_default() += bytes;
                counts.live[tag(&names)] += bytes;
                assert!(blocks.insert(address, (bytes, names)).is_none(), "{address:x} is given out once");
                counts.allocations += 1;
                counts.bytes += bytes;
                counts.allocated += bytes;
                counts.peak = counts.peak.max(counts.allocated + device.older);
            }
            Step::Freed { address, bytes } => {
                device.begin(|| totals.get(&number).map_or(0, |allocated| allocated + bytes));
                let counts = &mut device.counts;
                counts.frees += 1;
                let Some((bytes, names)) = blocks.remove(&address) else {
                    device.unknown_frees += 1;
                    device.older -= bytes;
                    continue;
                };
                counts.allocated -= bytes;
                counts.live[tag(&names)] -= bytes;
                *device.live.entry(names).or_default() -= bytes;
            }
        }
    }
    all.values_mut().for_each(|device| device.live.retain(|_, bytes| *bytes > 0));
    all
}

fn tag(names: &[String]) -> usize {
    names.iter().find_map(|name| name.strip_prefix("tag_")?.parse().ok()).unwrap_or(0)
}
