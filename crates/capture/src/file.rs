//! The finished file: a header, then blocks, each with its own length and checksum, written only at the end. Must never trust a length.
//!
//! ```text
//! 0   "SLHEAPFN", u32 version, u32 bytes of what follows, u32 CRC-32 of it: the live header's numbers (96 bytes), then its JSON
//! …   block: u32 "SLBK", u8 type, u8 codec, u16 0, u32 bytes of meta, u32 bytes of payload, u32 CRC-32 of both,
//!            u32 CRC-32 of the 20 bytes before, meta, payload
//! ```
//!
//! A block that is cut or damaged ends the file: what follows it is counted and ignored. Unknown types are skipped.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashSet;

use crate::CaptureError;
use crate::columns::{Columns, Form, codes_used, unpack};
use crate::layout;
use crate::live::{FIXED, Header, u32_at};
use crate::op::{Ops, is_node};
use crate::pack::Packer;
use crate::record::kind;
use crate::samples;
use crate::wire::{Put, Take};

/// First bytes of a finished file.
pub const MAGIC: [u8; 8] = *b"SLHEAPFN";
/// Version of what is written and read. Forms before it were never released.
pub const VERSION: u32 = 4;
const BLOCK_MAGIC: u32 = u32::from_le_bytes(*b"SLBK");
const BLOCK_HEADER: usize = 24;
const START: usize = 20;
/// A header's JSON, or what a block says about its chunks, is never longer.
const MAX_HEADER: usize = 1 << 20;
/// Room for forty million living blocks.
const MAX_CHECKPOINT: u64 = 1 << 30;
/// Most records of one block.
const MAX_OPS: u64 = 4 << 20;
/// Most records of one chunk: a slot has no room for more.
const MAX_CHUNK: u32 = (layout::SLOT_SIZE / 2) as u32;

/// Types of blocks.
pub mod block {
    /// Records of one stream, as columns.
    pub const CHUNKS: u8 = 1;
    /// Resident memory over time.
    pub const SAMPLES: u8 = 2;
    /// How it ended, as JSON.
    pub const ENDING: u8 = 3;
    /// The aggregate of older records: the state of a [`Fold`](crate::Fold).
    pub const CHECKPOINT: u8 = 4;
}

/// Ways to pack a payload.
mod codec {
    pub(super) const PLAIN: u8 = 0;
    pub(super) const ZSTD: u8 = 2;
    /// Some chunks of a stream, as columns.
    pub(super) const COLUMNS_ZSTD: u8 = 3;
    /// Samples: for each of the four numbers its differences, one after the other.
    pub(super) const SAMPLES_ZSTD: u8 = 5;
    /// A whole stream, as columns.
    pub(super) const SEALED_ZSTD: u8 = 6;
}

/// Consecutive chunks of one stream in one block.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Run {
    /// The stream.
    pub stream: u32,
    /// Sequence number of the first chunk.
    pub first_sequence: u64,
    /// Kernel thread id of the writer.
    pub thread: u64,
    /// Id the next new node gets.
    pub first_node: u32,
    /// Microseconds of the first and the last time record; 0 without one.
    pub times: (u64, u64),
    /// Records of each chunk.
    pub lengths: Vec<u32>,
}

impl Run {
    /// Sequence number of the chunk that comes after.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.first_sequence.saturating_add(self.lengths.len() as u64)
    }

    /// Takes note of the times of a chunk; gives the id its next new node would get, `next_node` being that of its first.
    pub(crate) fn note(&mut self, chunk: &Ops, mut next_node: u32) -> u32 {
        for op in &chunk.list {
            if op.kind == kind::TIME {
                let first = if self.times == (0, 0) { op.size } else { self.times.0 };
                self.times = (first, op.size);
            }
            next_node = next_node.wrapping_add(u32::from(is_node(op.kind)));
        }
        next_node
    }

    fn meta(&self) -> Vec<u8> {
        let mut meta = Vec::new();
        meta.put(u64::from(self.stream));
        for value in
            [self.first_sequence, self.thread, u64::from(self.first_node), self.times.0, self.times.1]
        {
            meta.put(value);
        }
        for length in &self.lengths {
            meta.put(u64::from(*length));
        }
        meta
    }

    fn parse(meta: &[u8]) -> Option<Run> {
        let mut take = Take::new(meta);
        let mut run = Run {
            stream: take.small()?,
            first_sequence: take.number()?,
            thread: take.number()?,
            first_node: take.small()?,
            times: (take.number()?, take.number()?),
            lengths: Vec::new(),
        };
        while !take.is_empty() {
            run.lengths.push(take.small()?);
        }
        let total: u64 = run.lengths.iter().map(|length| u64::from(*length)).sum();
        let is_sound = total <= MAX_OPS && run.lengths.iter().all(|length| *length <= MAX_CHUNK);
        is_sound.then_some(run)
    }
}

/// Memory of the process at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample {
    /// Microseconds since the start.
    pub time_us: u64,
    /// Resident bytes.
    pub rss: u64,
    /// Proportional share of it, where asked for.
    pub pss: Option<u64>,
    /// Memory of its cgroup.
    pub cgroup: Option<u64>,
}

/// A block, found but not read.
#[derive(Debug, Clone)]
pub struct Entry {
    offset: u64,
    /// One of [`block`], or a type of a later release.
    pub kind: u8,
    codec: u8,
    meta: u32,
    payload: u32,
    checksum: u32,
    /// What a block of chunks holds.
    pub run: Option<Run>,
}

impl Entry {
    /// A stream that was packed whole.
    pub(crate) fn is_whole(&self) -> bool {
        self.kind == block::CHUNKS && self.codec == codec::SEALED_ZSTD
    }

    /// Bytes it takes in the file.
    #[must_use]
    pub fn len(&self) -> u64 {
        BLOCK_HEADER as u64 + u64::from(self.meta) + u64::from(self.payload)
    }

    /// Never true: a block has a header.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// An open finished file.
#[derive(Debug)]
pub struct Finished {
    file: File,
    path: PathBuf,
    /// What the recorded process said about itself when the file was begun.
    pub header: Header,
    /// Its blocks so far.
    pub blocks: Vec<Entry>,
    end: u64,
}

impl Finished {
    /// Opens a file and finds its blocks.
    pub fn open(path: &Path) -> Result<Finished, CaptureError> {
        Self::start(stormlog_files::open_regular(path).map_err(CaptureError::io(path))?, path)
    }

    /// Opens a file to continue writing; a torn tail is cut off.
    pub(crate) fn open_to_append(path: &Path) -> Result<Finished, CaptureError> {
        let file = stormlog_files::open_in_place(path).map_err(CaptureError::io(path))?;
        let finished = Self::start(file, path)?;
        finished.file.set_len(finished.end).map_err(CaptureError::io(path))?;
        Ok(finished)
    }

    /// Begins a file at `path` itself.
    pub(crate) fn create(path: &Path, header: &Header) -> Result<Finished, CaptureError> {
        let mut body = header.fixed().to_vec();
        body.extend_from_slice(&header.metadata);
        let mut bytes = MAGIC.to_vec();
        for value in [VERSION, body.len() as u32, crc32fast::hash(&body)] {
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        bytes.extend_from_slice(&body);
        // In place of what a killed process left; a link there is removed, not followed.
        let file = match stormlog_files::create_new(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                std::fs::remove_file(path).and_then(|()| stormlog_files::create_new(path))
            }
            made => made,
        };
        let file = file.map_err(CaptureError::io(path))?;
        file.write_all_at(&bytes, 0).map_err(CaptureError::io(path))?;
        let end = bytes.len() as u64;
        Ok(Finished { file, path: path.to_owned(), header: header.clone(), blocks: Vec::new(), end })
    }

    fn start(file: File, path: &Path) -> Result<Finished, CaptureError> {
        let foreign = || CaptureError::Foreign { path: path.to_owned() };
        if !file.metadata().map_err(CaptureError::io(path))?.is_file() {
            return Err(foreign());
        }
        let mut start = [0; START];
        file.read_exact_at(&mut start, 0).map_err(|_| foreign())?;
        if start[..8] != MAGIC {
            return Err(foreign());
        }
        let word = |at: usize| u32_at(&start, at).unwrap_or(0);
        CaptureError::check_version(path, word(8), VERSION)?;
        let length = word(12) as usize;
        let cut = || CaptureError::damaged(path, "its header is truncated or changed");
        if !(FIXED..=MAX_HEADER).contains(&length) {
            return Err(cut());
        }
        let mut body = vec![0; length];
        file.read_exact_at(&mut body, START as u64).map_err(|_| cut())?;
        let mut header = Header::parse(&body).ok_or_else(cut)?;
        if crc32fast::hash(&body) != word(16) {
            return Err(cut());
        }
        header.metadata = body.split_off(FIXED);
        let end = (START + length) as u64;
        let mut finished = Finished { file, path: path.to_owned(), header, blocks: Vec::new(), end };
        finished.scan()?;
        Ok(finished)
    }

    /// Finds the blocks that were appended since.
    pub fn scan(&mut self) -> Result<(), CaptureError> {
        let length = self.len()?;
        while let Some(entry) = self.entry_at(self.end, length) {
            self.end += entry.len();
            self.blocks.push(entry);
        }
        Ok(())
    }

    fn len(&self) -> Result<u64, CaptureError> {
        Ok(self.file.metadata().map_err(CaptureError::io(&self.path))?.len())
    }

    /// Closes it, to continue writing later.
    pub(crate) fn close(self) -> Closed {
        let Finished { path, header, blocks, end, .. } = self;
        Closed { path, header, blocks, end }
    }

    /// The file is elsewhere now.
    pub(crate) fn renamed(&mut self, path: &Path) {
        self.path = path.to_owned();
    }

    /// Bytes of sound blocks and of the header.
    #[must_use]
    pub fn sound_bytes(&self) -> u64 {
        self.end
    }

    /// Bytes of its blocks of one type.
    pub(crate) fn size_of(&self, kind: u8) -> u64 {
        self.blocks.iter().filter(|entry| entry.kind == kind).map(Entry::len).sum()
    }

    /// Bytes behind the last sound block.
    pub fn torn_bytes(&self) -> Result<u64, CaptureError> {
        Ok(self.len()?.saturating_sub(self.end))
    }

    fn entry_at(&self, offset: u64, file_length: u64) -> Option<Entry> {
        let mut head = [0; BLOCK_HEADER];
        self.file.read_exact_at(&mut head, offset).ok()?;
        let word = |at: usize| u32_at(&head, at).unwrap_or(0);
        if word(0) != BLOCK_MAGIC || word(20) != crc32fast::hash(&head[..20]) {
            return None;
        }
        let [_, _, _, _, kind, codec, ..] = head;
        let mut entry =
            Entry { offset, kind, codec, meta: word(8), payload: word(12), checksum: word(16), run: None };
        if offset.saturating_add(entry.len()) > file_length {
            return None;
        }
        if kind == block::CHUNKS {
            let mut meta = vec![0; usize::try_from(entry.meta).ok().filter(|length| *length <= MAX_HEADER)?];
            self.file.read_exact_at(&mut meta, offset + BLOCK_HEADER as u64).ok()?;
            entry.run = Some(Run::parse(&meta)?);
        }
        Some(entry)
    }

    /// A block's payload, checked and unpacked once.
    fn payload(&self, entry: &Entry) -> Result<Vec<u8>, CaptureError> {
        let damaged =
            |what: &str| CaptureError::damaged(&self.path, format!("{what} at byte {}", entry.offset));
        let mut bytes = vec![0; entry.meta as usize + entry.payload as usize];
        self.file
            .read_exact_at(&mut bytes, entry.offset + BLOCK_HEADER as u64)
            .map_err(CaptureError::io(&self.path))?;
        if crc32fast::hash(&bytes) != entry.checksum {
            return Err(damaged("a block has the wrong checksum"));
        }
        let payload = bytes.split_off(entry.meta as usize);
        match entry.codec {
            codec::ZSTD | codec::SAMPLES_ZSTD => {
                let mut unpacked = Vec::new();
                // As a stream: memory grows with what is there, not with what is announced.
                zstd::stream::read::Decoder::with_buffer(&payload[..])
                    .and_then(|decoder| decoder.take(MAX_CHECKPOINT).read_to_end(&mut unpacked))
                    .map_err(|_| damaged("a block cannot be decompressed"))?;
                Ok(unpacked)
            }
            codec::PLAIN | codec::COLUMNS_ZSTD | codec::SEALED_ZSTD => Ok(payload),
            other => Err(damaged(&format!("a block of unknown compression ({other})"))),
        }
    }

    /// The records of a block of chunks.
    pub fn columns(&self, entry: &Entry) -> Result<Columns, CaptureError> {
        let first_node = entry.run.as_ref().map_or(0, |run| run.first_node);
        Columns::new(&self.payload(entry)?, first_node, form(entry)).ok_or_else(|| self.undecodable(entry))
    }

    /// Adds the code objects of which nodes in a block of chunks name instructions.
    pub(crate) fn codes_used(&self, entry: &Entry, codes: &mut FxHashSet<u64>) -> Result<(), CaptureError> {
        let unpacked = unpack(&self.payload(entry)?, form(entry));
        unpacked
            .and_then(|unpacked| codes_used(&unpacked.columns, codes))
            .ok_or_else(|| self.undecodable(entry))
    }

    /// The error for records that do not decode.
    #[must_use]
    pub fn undecodable(&self, entry: &Entry) -> CaptureError {
        CaptureError::damaged(&self.path, format!("the records at byte {} do not decode", entry.offset))
    }

    /// Puts how the process ended at the end of the file again, where blocks were appended since: a file that ends otherwise was cut.
    pub(crate) fn end_with_ending(&mut self) -> Result<(), CaptureError> {
        match (self.blocks.last(), self.ending()?) {
            (Some(last), Some(ending)) if last.kind != block::ENDING => self.append_ending(&ending),
            _ => Ok(()),
        }
    }

    /// Whether it has samples of the process's memory.
    pub(crate) fn has_samples(&self) -> bool {
        self.blocks.iter().any(|entry| entry.kind == block::SAMPLES)
    }

    /// All memory samples, in the order they were taken.
    pub fn samples(&self) -> Result<Vec<Sample>, CaptureError> {
        let mut samples = Vec::new();
        for entry in self.blocks.iter().filter(|entry| entry.kind == block::SAMPLES) {
            let payload = self.payload(entry)?;
            if entry.codec == codec::SAMPLES_ZSTD {
                samples.extend(samples::unpack(&payload).ok_or_else(|| self.undecodable(entry))?);
                continue;
            }
            let mut take = Take::new(&payload);
            while let (Some(time_us), Some(rss), Some(pss), Some(cgroup)) =
                (take.number(), take.number(), take.number(), take.number())
            {
                samples.push(Sample { time_us, rss, pss: pss.checked_sub(1), cgroup: cgroup.checked_sub(1) });
            }
        }
        Ok(samples)
    }

    /// How it ended, where that was observed.
    pub fn ending(&self) -> Result<Option<serde_json::Value>, CaptureError> {
        let Some(entry) = self.blocks.iter().rfind(|entry| entry.kind == block::ENDING) else {
            return Ok(None);
        };
        let payload = self.payload(entry)?;
        serde_json::from_slice(&payload).map(Some).map_err(|error| {
            CaptureError::damaged(&self.path, format!("its end record is not JSON ({error})"))
        })
    }

    /// What older records came to.
    pub fn checkpoint(&self) -> Result<Option<Vec<u8>>, CaptureError> {
        let entry = self.blocks.iter().rfind(|entry| entry.kind == block::CHECKPOINT);
        entry.map(|entry| self.payload(entry)).transpose()
    }

    pub(crate) fn append_run(
        &mut self,
        run: &Run,
        packed: Packer<'_>,
        level: i32,
    ) -> Result<(), CaptureError> {
        let payload = packed.finish(level).map_err(CaptureError::io(&self.path))?;
        self.append(block::CHUNKS, codec::COLUMNS_ZSTD, &run.meta(), &payload)
    }

    /// A stream that is packed whole, of a Python of this version.
    pub(crate) fn append_whole(
        &mut self,
        run: &Run,
        packed: Packer<'_>,
        python: Option<u64>,
    ) -> Result<(), CaptureError> {
        let payload = packed.finish_whole(python).map_err(CaptureError::io(&self.path))?;
        self.append(block::CHUNKS, codec::SEALED_ZSTD, &run.meta(), &payload)
    }

    /// The same as [`append_samples`](Self::append_samples), in less room.
    pub(crate) fn append_packed_samples(&mut self, samples: &[Sample]) -> Result<(), CaptureError> {
        let payload = samples::pack(samples).map_err(CaptureError::io(&self.path))?;
        self.append(block::SAMPLES, codec::SAMPLES_ZSTD, &[], &payload)
    }

    pub(crate) fn append_samples(&mut self, samples: &[Sample]) -> Result<(), CaptureError> {
        let mut payload = Vec::new();
        for sample in samples {
            payload.put(sample.time_us);
            payload.put(sample.rss);
            payload.put(sample.pss.map_or(0, |value| value.saturating_add(1)));
            payload.put(sample.cgroup.map_or(0, |value| value.saturating_add(1)));
        }
        self.append(block::SAMPLES, codec::PLAIN, &[], &payload)
    }

    pub(crate) fn append_ending(&mut self, ending: &serde_json::Value) -> Result<(), CaptureError> {
        self.append(block::ENDING, codec::PLAIN, &[], ending.to_string().as_bytes())
    }

    pub(crate) fn append_checkpoint(&mut self, state: &[u8]) -> Result<(), CaptureError> {
        let payload = zstd::bulk::compress(state, 1).map_err(CaptureError::io(&self.path))?;
        self.append(block::CHECKPOINT, codec::ZSTD, &[], &payload)
    }

    /// Copies a block of another file as it is.
    pub(crate) fn append_copy(&mut self, other: &Finished, entry: &Entry) -> Result<(), CaptureError> {
        let mut bytes = vec![0; entry.len() as usize];
        other.file.read_exact_at(&mut bytes, entry.offset).map_err(CaptureError::io(&other.path))?;
        self.file.write_all_at(&bytes, self.end).map_err(CaptureError::io(&self.path))?;
        self.blocks.push(Entry { offset: self.end, ..entry.clone() });
        self.end += entry.len();
        Ok(())
    }

    fn append(&mut self, kind: u8, codec: u8, meta: &[u8], payload: &[u8]) -> Result<(), CaptureError> {
        let length = u32::try_from(payload.len())
            .map_err(|_| CaptureError::damaged(&self.path, "a block would exceed 4 GiB"))?;
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(meta);
        checksum.update(payload);
        let checksum = checksum.finalize();
        let mut bytes = Vec::with_capacity(BLOCK_HEADER + meta.len() + payload.len());
        bytes.extend_from_slice(&BLOCK_MAGIC.to_le_bytes());
        bytes.extend_from_slice(&[kind, codec, 0, 0]);
        for value in [meta.len() as u32, length, checksum] {
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        let own = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&own.to_le_bytes());
        bytes.extend_from_slice(meta);
        bytes.extend_from_slice(payload);
        self.file.write_all_at(&bytes, self.end).map_err(CaptureError::io(&self.path))?;
        let run = if kind == block::CHUNKS { Run::parse(meta) } else { None };
        let meta = meta.len() as u32;
        self.blocks.push(Entry { offset: self.end, kind, codec, meta, payload: length, checksum, run });
        self.end += bytes.len() as u64;
        Ok(())
    }
}

/// A finished file that its writer has closed: what there is to know of it without a descriptor.
#[derive(Debug)]
pub(crate) struct Closed {
    path: PathBuf,
    header: Header,
    blocks: Vec<Entry>,
    end: u64,
}

impl Closed {
    /// Opens it to continue where it was left; where that fails, it stays closed.
    pub(crate) fn open(self) -> Result<Finished, Box<(Closed, CaptureError)>> {
        match stormlog_files::open_in_place(&self.path) {
            Ok(file) => {
                let Closed { path, header, blocks, end } = self;
                Ok(Finished { file, path, header, blocks, end })
            }
            Err(error) => {
                let error = CaptureError::io(&self.path)(error);
                Err(Box::new((self, error)))
            }
        }
    }

    /// The file has another name now.
    pub(crate) fn renamed(&mut self, path: &Path) {
        path.clone_into(&mut self.path);
    }

    /// Whether it says how its process ended.
    pub(crate) fn has_ending(&self) -> bool {
        self.blocks.iter().any(|entry| entry.kind == block::ENDING)
    }
}

fn form(entry: &Entry) -> Form {
    match entry.codec {
        codec::SEALED_ZSTD => Form::Sealed,
        _ => Form::Running,
    }
}
