//! pprof profiles: what Go, JAX, tcmalloc, jemalloc and our own export write.
//!
//! A profile is one moment. Its values have names; those of memory are chosen here, and a profile without any is refused.

use std::borrow::Cow;

use rustc_hash::FxHashMap;
use stormlog_model::memory::{Device, Memory, Source};
use stormlog_model::stacks::{FrameKind, Weight};

use crate::error::{ImportError, Position};
use crate::frame::kind_of;
use crate::input::{File, Kept};
use crate::maps::base_of;
use crate::sink::{About, Held, Module, ROOT, Sink, Site, Step};
use crate::wire::{Fields, Value};

/// Frames of one stack, and functions inlined at one address: more are not real.
const MOST_FRAMES: usize = 4096;
const MOST_INLINED: usize = 64;

/// CUDA, as PyTorch numbers device types; XLA for TPUs.
const CUDA: u8 = 1;
const XLA: u8 = 9;

#[derive(Default)]
struct Profile<'a> {
    types: Vec<(u64, u64)>,
    samples: Vec<&'a [u8]>,
    mappings: FxHashMap<u64, Mapping>,
    locations: FxHashMap<u64, Location>,
    functions: FxHashMap<u64, (u64, u64)>,
    strings: Vec<&'a [u8]>,
    time_ns: u64,
    duration_ns: u64,
    period_type: (u64, u64),
    period: u64,
    kept: Kept,
}

#[derive(Default)]
struct Mapping {
    start: u64,
    limit: u64,
    offset: u64,
    file: u64,
    build_id: u64,
}

#[derive(Default)]
struct Location {
    address: u64,
    /// Function and line, the innermost inlined one first.
    lines: Vec<(u64, u64)>,
}

pub(crate) fn read(file: &File<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
    let bytes = file.bytes()?;
    let mut fields = Fields::of(&bytes);
    let mut profile = Profile::default();
    for (field, value) in fields.by_ref() {
        profile.take(field, value);
        profile.kept.check(file)?;
    }
    if !fields.is_whole() {
        return Err(file.damaged("a field ends outside of the file", Position::Byte(fields.offset())));
    }
    let columns = profile.columns(file)?;
    // A profile has the time at which it was taken.
    let started_ns = profile.time_ns.saturating_sub(profile.duration_ns);
    sink.about(About { started_ns, ..About::default() });
    for mapping in profile.mappings.values() {
        profile.load(mapping, sink);
    }
    for sample in &profile.samples {
        profile.hold(sample, &columns, sink);
    }
    columns.notes(&profile, sink);
    Ok(())
}

/// Which value of a sample is what.
struct Columns {
    bytes: usize,
    count: Option<usize>,
    total: Option<(usize, Option<usize>)>,
    /// Only allocations are counted: what was freed is not known.
    only_allocated: bool,
}

impl Columns {
    fn notes(&self, profile: &Profile<'_>, sink: &mut dyn Sink) {
        sink.note(match self.only_allocated {
            true => "A pprof profile of allocations: what was freed since is unknown and is shown as held."
                .to_owned(),
            false => "A pprof profile is one moment: what was held then is shown as the peak and as the end."
                .to_owned(),
        });
        let is_of_bytes = profile.text(profile.period_type.1) == "bytes";
        if is_of_bytes && profile.period > 1 {
            let every = stormlog_model::format_bytes(profile.period);
            sink.note(format!("The profile was sampled about every {every}: the numbers are estimates."));
        }
    }
}

impl<'a> Profile<'a> {
    fn take(&mut self, field: u32, value: Value<'a>) {
        // Each entry of a list or table below takes less than this.
        self.kept.add(size_of::<(u64, Mapping)>());
        match field {
            1 => self.types.push(pair(value.bytes(), [1, 2])),
            2 => self.samples.push(value.bytes()),
            3 => {
                let [id, start, limit, offset, file, build_id] = numbers(value.bytes(), [1, 2, 3, 4, 5, 6]);
                self.mappings.insert(id, Mapping { start, limit, offset, file, build_id });
            }
            4 => {
                let message = value.bytes();
                let [id, address] = numbers(message, [1, 3]);
                let lines = Fields::of(message).filter(|(field, _)| *field == 4);
                let lines = lines.take(MOST_INLINED).map(|(_, line)| pair(line.bytes(), [1, 2]));
                let lines: Vec<(u64, u64)> = lines.collect();
                self.kept.add_list::<(u64, u64)>(lines.capacity());
                self.locations.insert(id, Location { address, lines });
            }
            5 => {
                let [id, name, file] = numbers(value.bytes(), [1, 2, 4]);
                self.functions.insert(id, (name, file));
            }
            6 => self.strings.push(value.bytes()),
            9 => self.time_ns = value.number(),
            10 => self.duration_ns = value.number(),
            11 => self.period_type = pair(value.bytes(), [1, 2]),
            12 => self.period = value.number(),
            _ => {}
        }
    }

    fn text(&self, id: u64) -> Cow<'a, str> {
        let bytes = usize::try_from(id).ok().and_then(|id| self.strings.get(id)).copied();
        String::from_utf8_lossy(bytes.unwrap_or_default())
    }

    fn columns(&self, file: &File<'_>) -> Result<Columns, ImportError> {
        let names: Vec<(Cow<'_, str>, Cow<'_, str>)> =
            self.types.iter().map(|(kind, unit)| (self.text(*kind), self.text(*unit))).collect();
        let place = |wanted: &[&str]| {
            wanted.iter().find_map(|wanted| names.iter().position(|(kind, _)| kind == wanted))
        };
        let is_held =
            |(kind, unit): &(Cow<'_, str>, Cow<'_, str>)| unit == "bytes" && !kind.starts_with("alloc");
        let held = place(&["inuse_space", "space"]).or_else(|| names.iter().position(is_held));
        let allocated =
            place(&["alloc_space"]).or_else(|| names.iter().position(|(_, unit)| unit == "bytes"));
        let allocations = place(&["alloc_objects"]);
        let Some(bytes) = held.or(allocated) else {
            let types = names.iter().map(|(kind, unit)| format!("{kind} in {unit}")).collect::<Vec<_>>();
            return Err(file.nothing(format!(
                "without a value in bytes (it has {}): record a heap profile, not one of time",
                stormlog_model::text::short_name(&types.join(", "))
            )));
        };
        Ok(Columns {
            bytes,
            count: if held.is_some() {
                place(&["inuse_objects", "allocations", "objects"])
            } else {
                allocations
            },
            total: allocated.filter(|_| place(&["alloc_space"]).is_some()).map(|bytes| (bytes, allocations)),
            only_allocated: held.is_none(),
        })
    }

    fn load(&self, mapping: &Mapping, sink: &mut dyn Sink) {
        let path = self.text(mapping.file);
        let build_id = hex_bytes(&self.text(mapping.build_id));
        let base = base_of(&path, mapping.start, mapping.offset);
        let segments = [(mapping.start, mapping.limit)];
        sink.module(Module { path: &path, base, segments: &segments, build_id: &build_id });
    }

    fn hold(&self, sample: &[u8], columns: &Columns, sink: &mut dyn Sink) {
        let (mut stack, mut values): (Vec<u64>, Vec<u64>) = Default::default();
        let (mut thread, mut memory, mut remark) = (None, Memory::Host, None);
        for (field, value) in Fields::of(sample) {
            match field {
                1 => stack.extend(value.numbers().take(MOST_FRAMES - stack.len())),
                2 => values.extend(value.numbers().take(self.types.len())),
                3 => {
                    let (key, text) = pair(value.bytes(), [1, 2]);
                    let text = self.text(text);
                    match &*self.text(key) {
                        "thread" => thread = Some((text, key)),
                        "device" => memory = memory_of(&text),
                        // JAX: what is held is the program itself.
                        "kind" if text == "executable" => remark = Some("<compiled program>"),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        let value = |place: usize| values.get(place).copied().filter(|value| *value < 1 << 63).unwrap_or(0);
        let weight = |bytes: usize, count: Option<usize>| Weight {
            bytes: value(bytes),
            count: count.map_or(0, value),
        };
        let held = weight(columns.bytes, columns.count);
        let total = columns.total.map(|(bytes, count)| weight(bytes, count));
        if held.bytes == 0 && total.is_none_or(|total| total.bytes == 0) {
            return;
        }
        let mut node = ROOT;
        if let Some(function) = remark {
            node = sink.node(node, Step::Code { kind: FrameKind::Remark, function, file: "", line: 0 });
        }
        for id in stack.iter().rev() {
            let Some(location) = self.locations.get(id) else { continue };
            if location.lines.is_empty() {
                // Profiles have the address of a call; names are looked up by return addresses, which are behind it.
                node = sink.node(node, Step::Address(location.address.saturating_add(1)));
            }
            for (function, line) in location.lines.iter().rev() {
                let (name, file) = self.functions.get(function).copied().unwrap_or_default();
                let (function, file) = (self.text(name), self.text(file));
                let line = u32::try_from(*line).unwrap_or(0);
                let kind = kind_of(&function, &file);
                node = sink.node(node, Step::Code { kind, function: &function, file: &file, line });
            }
        }
        let thread_name = thread.as_ref().map(|(name, _)| &**name);
        let site = Site { memory, node, thread: 0, thread_name };
        sink.hold(site, Held::at_one_moment(held, total));
    }
}

/// The memory that JAX names: `cuda:0`, `TFRT_CPU_0`, older `StreamExecutorGpuDevice(id=0, …)`.
fn memory_of(device: &str) -> Memory {
    let lower = device.to_ascii_lowercase();
    if let Ok(memory) = lower.parse::<Memory>() {
        return if lower.starts_with("cpu") { Memory::Host } else { memory };
    }
    let digits = lower.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit);
    let index = digits.collect::<String>().parse().unwrap_or(0);
    let kind = match lower {
        lower if lower.contains("gpu") || lower.contains("cuda") => CUDA,
        lower if lower.contains("tpu") => XLA,
        _ => return Memory::Host,
    };
    Memory::Device(Device { kind, index, source: Source::Allocator })
}

fn pair(message: &[u8], fields: [u32; 2]) -> (u64, u64) {
    let [one, other] = numbers(message, fields);
    (one, other)
}

fn numbers<const N: usize>(message: &[u8], wanted: [u32; N]) -> [u64; N] {
    let mut found = [0; N];
    for (field, value) in Fields::of(message) {
        if let (Some(place), Value::Number(number)) = (wanted.iter().position(|one| *one == field), value) {
            found[place] = number;
        }
    }
    found
}

/// The bytes of a build id in hexadecimal; nothing of what is not one, such as Go's.
pub(crate) fn hex_bytes(text: &str) -> Vec<u8> {
    let digits = text.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
    bytes.filter(|_| digits.len().is_multiple_of(2)).unwrap_or_default()
}
