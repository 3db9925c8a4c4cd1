//! Perfetto traces with heapprofd's packets: what each stack of a process allocated and freed, as of the last dump. Other packets are passed over.

use std::io::Read;

use rustc_hash::FxHashMap;
use stormlog_model::memory::Memory;
use stormlog_model::stacks::{FrameKind, Weight};

use crate::error::{ImportError, Position};
use crate::input::{ENDS_EARLY, File, Kept, MOST_IN_ONE, is_cut};
use crate::perfetto_tables::Tables;
use crate::sink::{About, Held, ROOT, Sink, Site, Step};
use crate::wire::{Fields, varint};

/// Processes whose command lines are kept.
const MOST_PROCESSES: usize = 1 << 12;

#[derive(Default)]
struct Trace {
    sequences: FxHashMap<u64, Tables>,
    /// The last dump of each heap of each process.
    dumps: FxHashMap<(u64, String), Dump>,
    commands: FxHashMap<u64, Vec<String>>,
    kept: Kept,
    ends_early: bool,
}

#[derive(Default)]
struct Dump {
    sequence: u64,
    time: u64,
    interval: u64,
    samples: Vec<Sample>,
}

#[derive(Default, Clone, Copy)]
struct Sample {
    callstack: u64,
    allocated: Weight,
    freed: Weight,
    most: Weight,
}

impl Sample {
    fn live(&self) -> Weight {
        let count = self.allocated.count.saturating_sub(self.freed.count);
        Weight { bytes: self.allocated.bytes.saturating_sub(self.freed.bytes), count }
    }

    fn peak(&self) -> Weight {
        if self.most == Weight::default() { self.live() } else { self.most }
    }
}

pub(crate) fn read(file: &File<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
    let mut reader = file.open()?;
    let (mut trace, mut packet, mut offset) = (Trace::default(), Vec::new(), 0u64);
    loop {
        let (key, length) = match head(&mut reader, &mut offset) {
            Head::Field(key, length) if key & 7 == 2 => (key, length),
            Head::End => break,
            // A killed service leaves half a packet.
            Head::Cut => {
                trace.ends_early = true;
                break;
            }
            _ => return Err(file.damaged("a packet is damaged", Position::Byte(offset))),
        };
        if length > MOST_IN_ONE {
            return Err(file.too_large());
        }
        packet.clear();
        let read = reader.by_ref().take(length).read_to_end(&mut packet);
        trace.ends_early = match read {
            Ok(read) => (read as u64) < length,
            Err(error) if is_cut(&error) => true,
            Err(source) => return Err(file.io(source)),
        };
        if trace.ends_early {
            break;
        }
        offset += length;
        if key >> 3 == 1 {
            trace.packet(&packet, true);
        }
        trace.kept.check(file)?;
    }
    trace.hold(file, sink)
}

/// What the next bytes are.
enum Head {
    /// The key and the length of a field.
    Field(u64, u64),
    /// The file ends here.
    End,
    /// The file ends within the key or the length.
    Cut,
    Damaged,
}

fn head(reader: &mut impl Read, offset: &mut u64) -> Head {
    let start = *offset;
    let (mut numbers, mut bytes) = ([0; 2], Vec::new());
    for number in &mut numbers {
        bytes.clear();
        loop {
            let mut byte = [0];
            if reader.read_exact(&mut byte).is_err() {
                return if *offset == start { Head::End } else { Head::Cut };
            }
            *offset += 1;
            bytes.push(byte[0]);
            if byte[0] & 0x80 == 0 || bytes.len() > 10 {
                break;
            }
        }
        let Some(read) = varint(&mut bytes.as_slice()) else { return Head::Damaged };
        *number = read;
    }
    Head::Field(numbers[0], numbers[1])
}

impl Trace {
    /// The tables of a sequence of packets, and the count of what is kept.
    fn tables(&mut self, sequence: u64) -> (&mut Tables, &mut Kept) {
        let Trace { sequences, kept, .. } = self;
        let tables = sequences.entry(sequence).or_insert_with(|| {
            kept.add(size_of::<(u64, Tables)>());
            Tables::default()
        });
        (tables, kept)
    }

    fn packet(&mut self, packet: &[u8], may_unpack: bool) {
        let wanted = |(field, _): &(u32, _)| [2, 10, 12, 37, 50].contains(field);
        let fields: Vec<_> = Fields::of(packet).filter(wanted).take(64).collect();
        let sequence = fields.iter().find(|(field, _)| *field == 10).map_or(0, |(_, value)| value.number());
        for (field, value) in fields {
            if self.kept.is_full() {
                return;
            }
            match field {
                2 => self.process_tree(value.bytes()),
                12 => {
                    let (tables, kept) = self.tables(sequence);
                    Fields::of(value.bytes()).for_each(|(field, value)| tables.interned(field, value, kept));
                }
                37 => self.profile(value.bytes(), sequence),
                50 if may_unpack => {
                    let mut plain = Vec::new();
                    let packed = flate2::read::ZlibDecoder::new(value.bytes());
                    // What does not decompress is left out like a packet that was lost.
                    let _ = packed.take(MOST_IN_ONE).read_to_end(&mut plain);
                    let packets = Fields::of(&plain).filter(|(field, _)| *field == 1);
                    packets.for_each(|(_, packet)| self.packet(packet.bytes(), false));
                }
                _ => {}
            }
        }
    }

    fn process_tree(&mut self, message: &[u8]) {
        for (_, process) in Fields::of(message).filter(|(field, _)| *field == 1) {
            let (mut pid, mut command) = (0, Vec::new());
            for (field, value) in Fields::of(process.bytes()) {
                match field {
                    1 => pid = value.number(),
                    3 => command.push(String::from_utf8_lossy(value.bytes()).into_owned()),
                    _ => {}
                }
            }
            if self.commands.len() < MOST_PROCESSES {
                self.kept.add(command.iter().map(|word| size_of::<String>() + word.len()).sum());
                self.commands.insert(pid, command);
            }
        }
    }

    fn profile(&mut self, message: &[u8], sequence: u64) {
        for (field, value) in Fields::of(message) {
            match field {
                5 => self.dump(value.bytes(), sequence),
                _ => {
                    let (tables, kept) = self.tables(sequence);
                    tables.inline(field, value, kept);
                }
            }
        }
    }

    fn dump(&mut self, message: &[u8], sequence: u64) {
        let (mut pid, mut heap, mut time, mut interval) = (0, String::new(), 0, 0);
        let mut samples = Vec::new();
        for (field, value) in Fields::of(message) {
            match field {
                1 => pid = value.number(),
                2 if !self.kept.is_full() => {
                    self.kept.add(size_of::<Sample>());
                    samples.push(sample(value.bytes()));
                }
                9 => time = value.number(),
                11 => heap = String::from_utf8_lossy(value.bytes()).into_owned(),
                12 => interval = value.number(),
                _ => {}
            }
        }
        self.kept.add(size_of::<((u64, String), Dump)>() + heap.len());
        let known = self.dumps.entry((pid, heap)).or_default();
        // Counts continue from dump to dump: the last has all. One dump may be in several packets.
        if time > known.time {
            self.kept.remove(std::mem::take(&mut known.samples).len() * size_of::<Sample>());
        }
        if time >= known.time {
            (known.sequence, known.time, known.interval) = (sequence, time, interval);
            known.samples.extend(samples);
        }
    }

    fn hold(self, file: &File<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let mut sizes: FxHashMap<u64, u64> = FxHashMap::default();
        for ((pid, _), dump) in &self.dumps {
            let bytes = dump.samples.iter().map(|sample| sample.peak().bytes);
            let size = sizes.entry(*pid).or_default();
            *size = bytes.fold(*size, u64::saturating_add);
        }
        let Some((pid, _)) = sizes.iter().max_by_key(|(pid, bytes)| (**bytes, std::cmp::Reverse(**pid)))
        else {
            return Err(
                file.nothing("without a heap profile: record with the data source `android.heapprofd`")
            );
        };
        let command = self.commands.get(pid).cloned().unwrap_or_default();
        sink.about(About { command, pid: u32::try_from(*pid).unwrap_or(0), started_ns: 0 });
        let mut heaps: Vec<(&String, &Dump)> = self
            .dumps
            .iter()
            .filter(|((of, _), _)| of == pid)
            .map(|((_, heap), dump)| (heap, dump))
            .collect();
        heaps.sort_by_key(|(heap, _)| *heap);
        for (heap, dump) in &heaps {
            let step = Step::Code { kind: FrameKind::Remark, function: heap, file: "", line: 0 };
            let root = if heaps.len() > 1 { sink.node(ROOT, step) } else { ROOT };
            let tables = self.sequences.get(&dump.sequence);
            for sample in &dump.samples {
                let node = tables.map_or(root, |tables| tables.node(sample.callstack, root, sink));
                let total = (sample.allocated != Weight::default()).then_some(sample.allocated);
                let held = Held { peak: sample.peak(), live: sample.live(), total };
                sink.hold(Site::of(Memory::Host, node), held);
            }
        }
        self.notes(&heaps, sizes.len(), sink);
        Ok(())
    }

    fn notes(&self, heaps: &[(&String, &Dump)], processes: usize, sink: &mut dyn Sink) {
        sink.note("A heap profile of Perfetto is one moment: what was held then is shown as the peak and as the end.".to_owned());
        if let Some(interval) =
            heaps.iter().map(|(_, dump)| dump.interval).max().filter(|interval| *interval > 1)
        {
            let every = stormlog_model::format_bytes(interval);
            sink.note(format!("The profile was sampled about every {every}: the numbers are estimates."));
        }
        if self.ends_early {
            sink.note(ENDS_EARLY.to_owned());
        }
        if processes > 1 {
            sink.note(format!(
                "The trace has profiles of {processes} processes; this is the one that held the most."
            ));
        }
    }
}

fn sample(message: &[u8]) -> Sample {
    let mut sample = Sample::default();
    for (field, value) in Fields::of(message) {
        let number = value.number();
        match field {
            1 => sample.callstack = number,
            2 => sample.allocated.bytes = number,
            3 => sample.freed.bytes = number,
            5 => sample.allocated.count = number,
            6 => sample.freed.count = number,
            8 => sample.most.bytes = number,
            9 => sample.most.count = number,
            _ => {}
        }
    }
    sample
}
