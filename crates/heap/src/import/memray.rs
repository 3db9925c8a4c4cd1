//! Reads Memray's own captures (format versions 12 and 13, compressed or not, of every kind) as if they were ours.
//!
//! They know the time only every ten milliseconds and no failed request; an aggregated one holds no totals, which are then 0.
//! Must read what a killed program left, and refuse what is not a capture.

use std::io::{BufReader, Read, Seek};
use std::path::Path;

use rustc_hash::FxHashMap;
use stormlog_capture::file::Sample;
use stormlog_capture::live::Header;
use stormlog_capture::op::{Op, is_allocation};
use stormlog_capture::record::{kind, unzigzag};

use crate::error::HeapError;
use crate::heap::Heap;
use crate::ledger::SiteKey;
use crate::level::Amount;
use crate::read_options::HeapReadOptions;
use crate::state::State;
use crate::stream::Stream;
use crate::tree::{Code, Module, ROOT, Step};

const MAGIC: &[u8; 7] = b"memray\0";
const LZ4: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// Names and line tables are never longer.
const MAX_TEXT: usize = 16 << 20;
/// Modules of a process.
const MAX_SEGMENTS: u64 = 1 << 16;

/// Types of records with a byte of their own; the others have their flags in it.
mod tag {
    pub(super) const FILLER: u8 = 0;
    pub(super) const TRAILER: u8 = 1;
    pub(super) const MEMORY: u8 = 2;
    pub(super) const NATIVE_NODE: u8 = 5;
    pub(super) const MAP_START: u8 = 6;
    pub(super) const SEGMENT_HEADER: u8 = 7;
    pub(super) const SEGMENT: u8 = 8;
    pub(super) const THREAD_NAME: u8 = 10;
    pub(super) const CONTEXT_SWITCH: u8 = 12;
    pub(super) const CODE: u8 = 14;
    pub(super) const AGGREGATE_SNAPSHOT: u8 = 1;
    pub(super) const AGGREGATE_ALLOCATION: u8 = 2;
    pub(super) const AGGREGATE_TRACE: u8 = 3;
    pub(super) const AGGREGATE_FRAME: u8 = 4;
    pub(super) const AGGREGATE_TRAILER: u8 = 15;
}

/// Does the file begin like one of Memray's?
#[must_use]
pub fn is_memray(path: &Path) -> bool {
    let mut start = [0; 7];
    let Ok(mut file) = open(path) else { return false };
    file.read_exact(&mut start).is_ok() && start == *MAGIC
}

fn open(path: &Path) -> std::io::Result<Box<dyn Read>> {
    let mut file = stormlog_files::open_regular(path)?;
    let mut start = [0; 4];
    let length = file.read(&mut start)?;
    file.rewind()?;
    let plain = BufReader::with_capacity(1 << 16, file);
    Ok(if length == 4 && start == LZ4 {
        Box::new(BufReader::with_capacity(1 << 16, lz4_flex::frame::FrameDecoder::new(plain)))
    } else {
        Box::new(plain)
    })
}

/// Reads a capture.
pub fn read(path: &Path, options: HeapReadOptions) -> Result<Heap, HeapError> {
    let io = |source| stormlog_capture::CaptureError::Io { path: path.to_owned(), source };
    let mut input = Input { reader: open(path).map_err(io)?, buffer: Vec::new(), at: 0, passed: 0 };
    let damaged = |what, offset| HeapError::Memray { path: path.to_owned(), what, offset };
    let (header, form) = read_header(&mut input, path)?;
    let mut import = Import {
        state: State::new(options, 0),
        threads: vec![Thread::new(0)],
        places: FxHashMap::from_iter([(0, 0)]),
        thread: 0,
        main_thread: form.main_thread,
        skipped: form.skipped,
        has_native: form.has_native,
        last: Last::default(),
        recent: [0; 15],
        next_recent: 0,
        native: vec![ROOT],
        traces: vec![ROOT],
        frames: FxHashMap::default(),
        samples: Vec::new(),
    };
    let mut has_trailer = false;
    loop {
        let at = input.offset();
        let Some(byte) = input.byte() else { break };
        let step = if form.is_aggregated {
            import.aggregated(&mut input, byte)
        } else {
            import.record(&mut input, byte)
        };
        match step {
            Some(Next::More) => {}
            Some(Next::End) => {
                has_trailer = true;
                break;
            }
            Some(Next::Unknown) => return Err(damaged("a record of unknown type", at)),
            // Cut within a record, as a kill leaves it.
            None => break,
        }
    }
    let Import { mut state, threads, samples, .. } = import;
    state.end(&mut threads.into_iter().map(|thread| thread.stream).collect::<Vec<_>>());
    if !has_trailer && state.host.sites.is_empty() {
        return Err(HeapError::NothingLeft { path: path.to_owned() });
    }
    // Without its trailer the program was killed, or the file is truncated: this cannot be distinguished.
    Ok(Heap {
        state,
        header,
        samples,
        ending: None,
        cut: None,
        lost_events: 0,
        complete: has_trailer,
        selected: None,
        imported: None,
    })
}

struct Form {
    has_native: bool,
    is_aggregated: bool,
    main_thread: u64,
    skipped: u64,
}

fn read_header(input: &mut Input, path: &Path) -> Result<(Header, Form), HeapError> {
    let foreign = || stormlog_capture::CaptureError::Foreign { path: path.to_owned() };
    if input.bytes(MAGIC.len()).is_none_or(|magic| magic != MAGIC) {
        return Err(foreign().into());
    }
    let version = input.u32().ok_or_else(foreign)?;
    if !(12..=13).contains(&version) {
        return Err(HeapError::MemrayVersion { path: path.to_owned(), version });
    }
    let cut = |input: &Input| HeapError::Memray {
        path: path.to_owned(),
        what: "its header is truncated",
        offset: input.offset(),
    };
    header_body(input, version).ok_or_else(|| cut(input))
}

fn header_body(input: &mut Input, version: u32) -> Option<(Header, Form)> {
    input.u32()?; // version of Python
    let has_native = input.byte()? != 0;
    let is_aggregated = input.byte()? != 0;
    input.u64()?; // allocations, written at the end
    input.u64()?; // frames
    let start_ms = input.u64()?;
    input.u64()?; // end
    let command = input.text()?;
    let pid = input.u32()?;
    let (main_thread, skipped) = (input.u64()?, input.u64()?);
    input.bytes(3)?; // Python's allocator, whether traced, whether objects were followed
    if version >= 13 {
        input.text()?; // where the standard library is
        for _ in 0..2 {
            while !input.text()?.is_empty() {}
        }
    }
    let header = Header {
        version,
        pid,
        start_realtime_ns: start_ms.saturating_mul(1_000_000),
        metadata: serde_json::json!({ "command": [command], "recorder": "memray" }).to_string().into_bytes(),
        ..Header::default()
    };
    Some((header, Form { has_native, is_aggregated, main_thread, skipped }))
}

enum Next {
    More,
    End,
    Unknown,
}

/// What records refer back to.
#[derive(Default)]
struct Last {
    pointer: u64,
    native: u64,
    instruction: u64,
    first_line: i64,
}

/// A thread of the recorded process.
struct Thread {
    id: u64,
    /// Its number in the heap, from its first allocation on.
    number: Option<u32>,
    stream: Stream,
    /// The nodes of its stack, outermost first.
    stack: Vec<u32>,
}

impl Thread {
    fn new(id: u64) -> Self {
        Thread { id, number: None, stream: Stream::in_tree(), stack: Vec::new() }
    }
}

struct Import {
    state: State,
    threads: Vec<Thread>,
    places: FxHashMap<u64, usize>,
    /// Whose records these are.
    thread: usize,
    main_thread: u64,
    /// Memray's own frames below the program's.
    skipped: u64,
    has_native: bool,
    last: Last,
    recent: [u64; 15],
    next_recent: usize,
    native: Vec<u32>,
    /// Of an aggregated capture: nodes by trace, frames by id.
    traces: Vec<u32>,
    frames: FxHashMap<u64, Step>,
    samples: Vec<Sample>,
}

impl Import {
    fn record(&mut self, input: &mut Input, byte: u8) -> Option<Next> {
        match byte {
            128.. => self.allocation(input, byte)?,
            64.. => {
                let code = input.number()?;
                let step = self.step(code, input.signed()?, byte & 1 == 1);
                self.push(step);
            }
            // Objects that were followed one by one: they are within the blocks.
            32.. => {
                self.pointer(input, byte >> 1 & 15)?;
                if self.has_native && byte & 1 == 1 {
                    self.native_id(input)?;
                }
            }
            16.. => {
                let stack = &mut self.threads[self.thread].stack;
                stack.truncate(stack.len().saturating_sub(usize::from(byte - 16) + 1));
            }
            tag::FILLER => {}
            tag::TRAILER => return Some(Next::End),
            tag::MEMORY => {
                let (rss, milliseconds) = (input.number()?, input.number()?);
                self.sample(milliseconds, rss);
            }
            other => return self.common(input, other),
        }
        Some(Next::More)
    }

    fn aggregated(&mut self, input: &mut Input, byte: u8) -> Option<Next> {
        match byte {
            tag::AGGREGATE_SNAPSHOT => {
                let (_milliseconds, rss, _heap) = (input.u64()?, input.u64()?, input.u64()?);
                let time_us = self.samples.last().map_or(0, |last| last.time_us + 10_000);
                self.samples.push(Sample { time_us, rss, ..Sample::default() });
            }
            tag::AGGREGATE_ALLOCATION => self.aggregate(input)?,
            tag::AGGREGATE_TRACE => {
                let (frame, parent) = (input.number()?, input.number()?);
                let parent = usize::try_from(parent).ok().and_then(|parent| self.traces.get(parent)).copied();
                let step = self.frames.get(&frame).copied().unwrap_or(Step::Truncated);
                let node = self.state.tree.node(parent.unwrap_or(ROOT), step);
                self.traces.push(node);
            }
            tag::AGGREGATE_FRAME => {
                let (frame, code, offset) = (input.number()?, input.number()?, input.signed()?);
                let step = self.step(code, offset, input.byte()? != 0);
                self.frames.insert(frame, step);
            }
            tag::AGGREGATE_TRAILER => return Some(Next::End),
            other => return self.common(input, other),
        }
        Some(Next::More)
    }

    /// Records that are the same in both kinds of capture.
    fn common(&mut self, input: &mut Input, byte: u8) -> Option<Next> {
        match byte {
            tag::NATIVE_NODE => {
                self.last.instruction = self.last.instruction.wrapping_add(input.signed()? as u64);
                let parent = usize::try_from(self.native_id(input)?).ok();
                let parent = parent.and_then(|parent| self.native.get(parent)).copied().unwrap_or(ROOT);
                let address = self.last.instruction;
                let module = self.state.tree.module_at(address);
                self.native.push(self.state.tree.node(parent, Step::Native { address, module }));
            }
            tag::MAP_START => self.state.tree.loaded.clear(),
            tag::SEGMENT_HEADER => {
                let (path, count, base) = (input.text()?, input.number()?, input.u64()?);
                let mut segments = Vec::new();
                for _ in 0..count.min(MAX_SEGMENTS) {
                    if input.byte()? != tag::SEGMENT {
                        return Some(Next::Unknown);
                    }
                    let start = base.wrapping_add(input.u64()?);
                    segments.push((start, start.saturating_add(input.number()?)));
                }
                self.state.tree.load(Module { base, segments, build_id: Vec::new(), path });
            }
            tag::THREAD_NAME => {
                let name = input.text()?;
                self.state.thread_names.insert(self.threads[self.thread].id, name);
            }
            tag::CONTEXT_SWITCH => {
                let id = input.u64()?;
                self.thread = *self.places.entry(id).or_insert_with(|| {
                    self.threads.push(Thread::new(id));
                    self.threads.len() - 1
                });
            }
            tag::CODE => {
                let (id, name, file) = (input.number()?, input.text()?, input.text()?);
                self.last.first_line = self.last.first_line.wrapping_add(input.signed()?);
                let length = usize::try_from(input.number()?).ok().filter(|length| *length <= MAX_TEXT)?;
                let table = input.bytes(length)?.to_vec();
                let first_line = u32::try_from(self.last.first_line).unwrap_or(0);
                self.state.tree.define_code(id, Code { name, file, first_line, table });
            }
            _ => return Some(Next::Unknown),
        }
        Some(Next::More)
    }

    fn step(&mut self, code: u64, offset: i64, is_entry: bool) -> Step {
        // Memray counts bytes, two to a unit.
        let instruction = u32::try_from(offset / 2).unwrap_or(0);
        Step::Python { code: self.state.tree.code(code), instruction, is_entry }
    }

    fn push(&mut self, step: Step) {
        let Thread { id, stack, .. } = &mut self.threads[self.thread];
        let is_own = *id == self.main_thread && (stack.len() as u64) < self.skipped;
        let parent = stack.last().copied().unwrap_or(ROOT);
        let node = if is_own { ROOT } else { self.state.tree.node(parent, step) };
        stack.push(node);
    }

    fn pointer(&mut self, input: &mut Input, index: u8) -> Option<u64> {
        let ring = self.recent.len();
        if usize::from(index) < ring {
            return Some(self.recent[(self.next_recent + ring - 1 - usize::from(index)) % ring]);
        }
        self.last.pointer = (self.last.pointer >> 3).wrapping_add(input.signed()? as u64) << 3;
        self.recent[self.next_recent] = self.last.pointer;
        self.next_recent = (self.next_recent + 1) % ring;
        Some(self.last.pointer)
    }

    fn native_id(&mut self, input: &mut Input) -> Option<u64> {
        self.last.native = self.last.native.wrapping_add(input.signed()? as u64);
        Some(self.last.native)
    }

    fn allocation(&mut self, input: &mut Input, byte: u8) -> Option<()> {
        let address = self.pointer(input, byte >> 3 & 15)?;
        let allocator = match byte & 7 {
            0 => input.byte()?,
            short => short,
        };
        let kind = kind_of(allocator)?;
        let has_size = is_allocation(kind) || kind == kind::MUNMAP;
        let native = if self.has_native && has_size { self.native_id(input)? } else { 0 };
        let size = if has_size { input.number()? } else { 0 };
        let Thread { id, number, stream, stack } = &mut self.threads[self.thread];
        let python = stack.last().copied().unwrap_or(ROOT);
        let native = usize::try_from(native).ok().and_then(|id| self.native.get(id)).copied().unwrap_or(ROOT);
        if number.is_none() {
            let new = self.state.thread(*id);
            stream.set_thread(new);
            *number = Some(new);
        }
        self.state.apply(stream, &Op { address, size, python, native, kind, ..Op::default() }, false);
        Some(())
    }

    fn aggregate(&mut self, input: &mut Input) -> Option<()> {
        let thread = input.u64()?;
        let kind = kind_of(input.byte()?)?;
        input.bytes(7)?; // padding
        let (native, python, _generation) = (input.u64()?, input.u64()?, input.u64()?);
        let (peak_count, live_count) = (input.u64()?, input.u64()?);
        let (peak_bytes, live_bytes) = (input.u64()?, input.u64()?);
        let node = |nodes: &[u32], id: u64| usize::try_from(id).ok().and_then(|id| nodes.get(id)).copied();
        let python = node(&self.traces, python).unwrap_or(ROOT);
        let native = node(&self.native, native).unwrap_or(ROOT);
        let thread = self.state.thread(thread);
        let site = self.state.host.site_of(SiteKey { python, native, thread, kind }) as usize;
        let add = |amount: &mut Amount, bytes: u64, count: u64| {
            amount.bytes = amount.bytes.saturating_add(bytes);
            amount.count = amount.count.saturating_add(count);
        };
        add(&mut self.state.host.sites[site].peak, peak_bytes, peak_count);
        add(&mut self.state.host.sites[site].now, live_bytes, live_count);
        add(&mut self.state.host.peak, peak_bytes, peak_count);
        let mut now = self.state.host.level.now();
        add(&mut now, live_bytes, live_count);
        self.state.host.level.set(now);
        Some(())
    }

    fn sample(&mut self, milliseconds: u64, rss: u64) {
        let time_us = milliseconds.saturating_mul(1000);
        self.state.advance(time_us);
        self.samples.push(Sample { time_us, rss, ..Sample::default() });
    }
}

/// Memray's numbers of allocators.
fn kind_of(allocator: u8) -> Option<u8> {
    Some(match allocator {
        1 => kind::PY_FREE,
        2 => kind::PY_MALLOC,
        3 => kind::PY_CALLOC,
        4 => kind::PY_REALLOC,
        5 => kind::FREE,
        6 => kind::MALLOC,
        7 => kind::REALLOC,
        8 => kind::CALLOC,
        9 => kind::POSIX_MEMALIGN,
        10 => kind::ALIGNED_ALLOC,
        11 => kind::MEMALIGN,
        12 => kind::VALLOC,
        13 => kind::PVALLOC,
        14 => kind::MMAP,
        15 => kind::MUNMAP,
        _ => return None,
    })
}

/// A stream of bytes with its own buffer: records are read some bytes at a time.
struct Input {
    reader: Box<dyn Read>,
    buffer: Vec<u8>,
    at: usize,
    /// Bytes before those in the buffer.
    passed: u64,
}

impl Input {
    /// Bytes read so far.
    fn offset(&self) -> u64 {
        self.passed + self.at as u64
    }

    /// Whether at least `length` bytes are buffered.
    #[inline]
    fn fill(&mut self, length: usize) -> Option<()> {
        if self.buffer.len() - self.at >= length { Some(()) } else { self.read_on(length) }
    }

    #[cold]
    fn read_on(&mut self, length: usize) -> Option<()> {
        self.buffer.drain(..self.at);
        self.passed += self.at as u64;
        self.at = 0;
        let missing = length.max(1 << 16) - self.buffer.len();
        // What does not decompress ends the file like a cut.
        let _ = self.reader.by_ref().take(missing as u64).read_to_end(&mut self.buffer);
        (self.buffer.len() >= length).then_some(())
    }

    #[inline]
    fn byte(&mut self) -> Option<u8> {
        self.fill(1)?;
        let byte = self.buffer[self.at];
        self.at += 1;
        Some(byte)
    }

    fn bytes(&mut self, length: usize) -> Option<&[u8]> {
        self.fill(length)?;
        self.at += length;
        Some(&self.buffer[self.at - length..self.at])
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes(4)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes(8)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    #[inline]
    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    #[inline]
    fn signed(&mut self) -> Option<i64> {
        self.number().map(unzigzag)
    }

    fn text(&mut self) -> Option<String> {
        let mut bytes = Vec::new();
        loop {
            match self.byte()? {
                0 => return Some(String::from_utf8_lossy(&bytes).into_owned()),
                byte if bytes.len() < MAX_TEXT => bytes.push(byte),
                _ => return None,
            }
        }
    }
}
