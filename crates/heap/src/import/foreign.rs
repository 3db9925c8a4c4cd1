//! Puts the profile of another tool into a heap: what `stormlog-import` reads becomes the ledgers that every view asks.
//!
//! A file with every block is processed like our own records. A file with totals by stack fills the ledgers directly; it has no times.

use std::path::Path;

use rustc_hash::{FxHashMap, FxHashSet};
use stormlog_capture::file::Sample;
use stormlog_capture::layout::flags;
use stormlog_capture::live::Header;
use stormlog_capture::op::Op;
use stormlog_capture::record::{MAX_DEVICES, device_address, kind};
use stormlog_import as source;
use stormlog_import::{About, Format, Held, Node, Site, Step as ImportedStep};
use stormlog_model::memory::Memory;
use stormlog_model::stacks::{FrameKind, Weight};

use crate::curve::Point;
use crate::error::HeapError;
use crate::heap::{Heap, Imported};
use crate::ledger::{Ledger, SiteKey};
use crate::level::Amount;
use crate::read_options::HeapReadOptions;
use crate::state::State;
use crate::stream::Stream;
use crate::tree::{Module, ROOT, Step};

/// Nodes of all stacks, and bytes of their names: a file may have more than there is memory for.
const MOST_NODES: usize = 1 << 23;
const MOST_NAMES: usize = 64 << 20;
/// Threads with a stream of their own.
const MOST_THREADS: usize = 1 << 14;
/// Samples of resident memory: of more, the larger of each two stays.
const MOST_SAMPLES: usize = 1 << 16;

/// Reads a profile that was recognised.
pub(crate) fn read(path: &Path, format: Format, options: HeapReadOptions) -> Result<Heap, HeapError> {
    let asks_for_moment = options.at_us.is_some() || options.span_us.is_some();
    let mut import = Import {
        state: State::new(options, 0),
        header: Header::default(),
        samples: Vec::new(),
        notes: Vec::new(),
        streams: FxHashMap::default(),
        names: FxHashMap::default(),
        with_addresses: FxHashSet::default(),
        memories: Vec::new(),
        name_bytes: 0,
        totals: None,
        has_blocks: false,
    };
    import.header.flags = flags::NATIVE;
    stormlog_import::read(path, format, &mut import)?;
    if asks_for_moment && !import.has_blocks {
        return Err(HeapError::NoMoments { path: path.to_owned(), format });
    }
    Ok(import.finish(format))
}

struct Import {
    state: State,
    header: Header,
    samples: Vec<Sample>,
    notes: Vec<String>,
    /// Of each thread that allocates.
    streams: FxHashMap<u64, Stream>,
    /// Numbers of threads that have a name only.
    names: FxHashMap<String, u64>,
    /// Stacks with a frame whose name is to be looked up.
    with_addresses: FxHashSet<u32>,
    /// The devices by their numbers.
    memories: Vec<Memory>,
    /// Of functions and files.
    name_bytes: usize,
    /// What a device's allocator had handed out after the block to come, until its first is known.
    totals: Option<(u8, u64)>,
    /// Single blocks came and went.
    has_blocks: bool,
}

impl Import {
    fn finish(mut self, format: Format) -> Heap {
        if !self.has_blocks {
            let devices = self.state.devices.list.iter_mut().map(|device| &mut device.ledger);
            for ledger in devices.chain([&mut self.state.host]) {
                ledger.level.tick_max = ledger.level.bytes.max(if ledger.curve.points.is_empty() {
                    ledger.peak.bytes
                } else {
                    0
                });
            }
        }
        if self.state.host.is_empty() && !self.memories.is_empty() {
            self.header.flags |= flags::NO_HOST;
        }
        if self.is_full() {
            self.notes.push(
                "The file has more stacks than are read: the rest is shown with their callers.".to_owned(),
            );
        }
        self.state.end(&mut self.streams.into_values().collect::<Vec<_>>());
        Heap {
            state: self.state,
            header: self.header,
            samples: self.samples,
            ending: None,
            cut: None,
            lost_events: 0,
            complete: true,
            selected: None,
            imported: Some(Imported { format, notes: self.notes, has_blocks: self.has_blocks }),
        }
    }

    /// Whether no more stacks are taken.
    fn is_full(&self) -> bool {
        self.state.tree.nodes.len() >= MOST_NODES || self.name_bytes > MOST_NAMES
    }

    /// The number of a place that the file names.
    fn code(&mut self, function: &str, file: &str) -> u32 {
        let (function, file) = (source::name_start(function), source::name_start(file));
        let known = self.state.tree.codes.len();
        let code = self.state.tree.named_code(function, file);
        if self.state.tree.codes.len() > known {
            self.name_bytes += function.len() + file.len();
        }
        code
    }

    /// The Python and the native node of a stack. Names are looked up in native stacks only.
    fn nodes(&self, node: Node) -> (u32, u32) {
        if self.with_addresses.contains(&node) { (ROOT, node) } else { (node, ROOT) }
    }

    fn device(&mut self, memory: Memory) -> Option<u8> {
        if memory == Memory::Host {
            return None;
        }
        let known = self.memories.iter().position(|known| *known == memory);
        let number = known.unwrap_or_else(|| {
            self.memories.push(memory);
            self.memories.len() - 1
        });
        // A file of more devices than there are has them as one.
        let number = u8::try_from(number).unwrap_or(u8::MAX).min(MAX_DEVICES - 1);
        if known.is_none() {
            let options = &self.state.options;
            self.state.devices.numbered(number, options, self.state.time_us).define(memory, options);
        }
        Some(number)
    }

    fn ledger(&mut self, device: Option<u8>) -> &mut Ledger {
        match device {
            Some(number) => {
                let State { devices, options, time_us, .. } = &mut self.state;
                &mut devices.numbered(number, options, *time_us).ledger
            }
            None => &mut self.state.host,
        }
    }

    fn thread(&mut self, site: &Site<'_>) -> u32 {
        let Some(name) = site.thread_name else { return self.state.thread(site.thread) };
        // Our own export writes the number behind the name.
        let numbered = name.strip_suffix(')').and_then(|name| name.rsplit_once(" ("));
        let numbered = numbered.and_then(|(name, number)| Some((name, number.parse::<u64>().ok()?)));
        let next = self.names.len() as u64 + 1;
        let (name, id) =
            numbered.unwrap_or_else(|| (name, *self.names.entry(name.to_owned()).or_insert(next)));
        self.state.thread_names.insert(id, name.to_owned());
        self.state.thread(id)
    }
}

impl Import {
    fn apply(&mut self, thread: u64, number: u32, op: &Op) {
        let is_new = !self.streams.contains_key(&thread);
        let thread = if is_new && self.streams.len() >= MOST_THREADS { 0 } else { thread };
        let stream = self.streams.entry(thread).or_insert_with(Stream::in_tree);
        stream.set_thread(number);
        stream.totals = self.totals.take();
        self.state.apply(stream, op, false);
    }
}

impl source::Sink for Import {
    fn about(&mut self, about: About) {
        let metadata = serde_json::json!({ "command": about.command });
        (self.header.pid, self.header.start_realtime_ns) = (about.pid, about.started_ns);
        self.header.metadata = metadata.to_string().into_bytes();
    }

    fn module(&mut self, module: source::Module<'_>) {
        self.state.tree.load(Module {
            base: module.base,
            segments: module.segments.to_vec(),
            build_id: module.build_id.to_vec(),
            path: module.path.to_owned(),
        });
    }

    fn node(&mut self, parent: Node, step: ImportedStep<'_>) -> Node {
        if self.is_full() {
            return parent;
        }
        let is_address = matches!(step, ImportedStep::Address(_));
        let step = match step {
            ImportedStep::Code { kind: FrameKind::Python, function, file, line } => {
                Step::Line { code: self.code(function, file), line, is_entry: false }
            }
            ImportedStep::Code { kind, function, file, line } => {
                Step::Named { code: self.code(function, file), line, kind }
            }
            ImportedStep::Address(address) => {
                Step::Native { address, module: self.state.tree.module_at(address) }
            }
        };
        let node = self.state.tree.node(parent, step);
        if is_address || self.with_addresses.contains(&parent) {
            self.with_addresses.insert(node);
        }
        node
    }

    fn hold(&mut self, site: Site<'_>, held: Held) {
        let device = self.device(site.memory);
        let kind = if device.is_some() { kind::DEVICE_ALLOCATION } else { kind::MALLOC };
        let ((python, native), thread) = (self.nodes(site.node), self.thread(&site));
        let ledger = self.ledger(device);
        let at = ledger.site_of(SiteKey { python, native, thread, kind }) as usize;
        let add = |amount: &mut Amount, weight: Weight| {
            amount.bytes = amount.bytes.saturating_add(weight.bytes);
            amount.count = amount.count.saturating_add(weight.count);
        };
        let row = &mut ledger.sites[at];
        add(&mut row.peak, held.peak);
        add(&mut row.now, held.live);
        add(&mut row.total, held.total.unwrap_or_default());
        add(&mut ledger.peak, held.peak);
        let mut now = ledger.level.now();
        add(&mut now, held.live);
        ledger.level.set(now);
    }

    fn level(&mut self, time_us: u64, bytes: u64) {
        let host = &mut self.state.host;
        if bytes == host.peak.bytes && host.peak_time_us == 0 {
            host.peak_time_us = time_us;
        }
        host.curve.push(Point { time_us, bytes, max_bytes: bytes, max_change: 0 });
        self.state.time_us = self.state.time_us.max(time_us);
        host.time_us = self.state.time_us;
    }

    fn allocate(&mut self, site: Site<'_>, address: u64, size: u64) {
        self.has_blocks = true;
        let ((python, native), thread) = (self.nodes(site.node), self.thread(&site));
        let op = match self.device(site.memory) {
            Some(number) => Op {
                address: device_address(number, address),
                kind: kind::DEVICE_ALLOCATION,
                ..Op::default()
            },
            None => Op { address, kind: kind::MALLOC, ..Op::default() },
        };
        self.apply(site.thread, thread, &Op { size, python, native, ..op });
    }

    fn free(&mut self, memory: Memory, thread: u64, address: u64, size: u64) {
        self.has_blocks = true;
        let op = match self.device(memory) {
            Some(number) => Op {
                address: device_address(number, address),
                size,
                kind: kind::DEVICE_FREE,
                ..Op::default()
            },
            None => Op { address, kind: kind::FREE, ..Op::default() },
        };
        let number = self.state.thread(thread);
        self.apply(thread, number, &op);
    }

    fn allocator(&mut self, memory: Memory, allocated: u64, reserved: u64) {
        let Some(number) = self.device(memory) else { return };
        let State { devices, options, time_us, .. } = &mut self.state;
        let device = devices.numbered(number, options, *time_us);
        device.reserved.set(reserved);
        self.totals = device.before.is_none().then_some((number, allocated));
    }

    fn at(&mut self, time_us: u64) {
        self.state.advance(time_us);
    }

    fn resident(&mut self, bytes: u64) {
        if self.samples.len() == MOST_SAMPLES {
            let larger = |pair: &[Sample]| pair.iter().copied().max_by_key(|sample| sample.rss);
            self.samples = self.samples.chunks(2).filter_map(larger).collect();
        }
        self.samples.push(Sample { time_us: self.state.time_us, rss: bytes, ..Sample::default() });
    }

    fn note(&mut self, sentence: String) {
        self.notes.push(sentence);
    }
}
