//! Packs a small capture again when its program has ended: every stream as a whole, frames by their lines, at the best compression.
//! A program that allocates little is mostly the start of its interpreter, and there every byte counts.
//!
//! Must lose no record and change no number that a reader continues from: chunks keep their sequence and their length.

use std::path::Path;

use rustc_hash::FxHashSet;

use crate::CaptureError;
use crate::code_lines::Codes;
use crate::columns::COLUMNS;
use crate::file::{Entry, Finished, Run, block};
use crate::live::Header;
use crate::op::Ops;
use crate::pack::Packer;
use crate::record::{definition, kind};
use crate::source::{Piece, Source};

/// Streams are packed whole as far as they have this many records together. What comes behind stays as it is: there the records themselves
/// make the size, and they are packed well already.
const MOST_RECORDS: u64 = 1 << 20;
/// Captures with more bytes, in the file or of definitions, are left.
const MOST_BYTES: u64 = 4 << 20;
const MOST_DEFINITIONS: usize = 16 << 20;
/// To follow the C library's allocator takes longer than all else that reading does: it is not done for streams of more records.
const FOLLOWED: u64 = 1 << 19;

/// What repacking may use. Both are on except in benchmarks; every reader accepts any combination.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Aids {
    /// The model of the C library's allocator.
    pub model: bool,
    /// The dictionary of the program's version of CPython.
    pub dictionary: bool,
}

impl Default for Aids {
    fn default() -> Self {
        Aids { model: true, dictionary: true }
    }
}

/// Writes a finished file again to `path`; `None` when it is not for packing whole.
pub(crate) fn seal(
    source: &mut Source,
    header: &Header,
    path: &Path,
    aids: Aids,
) -> Result<Option<Finished>, CaptureError> {
    let Some(old) = &source.finished else { return Ok(None) };
    if !old.blocks.iter().all(is_known) || old.sound_bytes() > MOST_BYTES {
        return Ok(None);
    }
    // What is left in slots are chunks without a record.
    let (pieces, rest): (Vec<Piece>, Vec<Piece>) = {
        let pieces = source.pieces(false)?;
        let mut streams = Budget { left: MOST_RECORDS, spent: None };
        pieces.into_iter().filter(|piece| !piece.lengths.is_empty()).partition(|piece| streams.takes(piece))
    };
    let Some(old) = &source.finished else { return Ok(None) };
    let mut needed = FxHashSet::default();
    for entry in rest.iter().filter_map(|piece| piece.entry(old)) {
        old.codes_used(entry, &mut needed)?;
    }
    let Some((codes, mut python)) = definitions(source, &pieces, needed)? else { return Ok(None) };
    python = python.filter(|_| aids.dictionary);
    let mut new = Finished::create(path, header)?;
    // The start of the interpreter is in the first stream. To make a dictionary ready takes longer than to pack a short stream.
    let mut append = |done: Stream<'_>| new.append_whole(&done.run, done.packed, python.take());
    let mut open: Option<Stream<'_>> = None;
    for piece in &pieces {
        if let Some(done) = open.take_if(|stream| !stream.continues_with(piece)) {
            append(done)?;
        }
        let stream = open.get_or_insert_with(|| {
            let reach = if aids.model { reach(&pieces, piece.stream) } else { 0 };
            Stream::new(piece, &codes, reach)
        });
        chunks(source, piece, |length, chunk| stream.push(length, chunk))?;
    }
    if let Some(done) = open {
        append(done)?;
    }
    for entry in rest.iter().filter_map(|piece| piece.entry(old)) {
        new.append_copy(old, entry)?;
    }
    let samples = old.samples()?;
    if !samples.is_empty() {
        new.append_packed_samples(&samples)?;
    }
    // Last: a file without it was cut.
    for entry in old.blocks.iter().filter(|entry| entry.kind == block::ENDING).take(1) {
        new.append_copy(old, entry)?;
    }
    Ok(Some(new))
}

/// The columns of the first stream.
pub(crate) fn first_columns(source: &mut Source) -> Result<[Vec<u8>; COLUMNS], CaptureError> {
    let mut pieces = source.pieces(false)?;
    let first = pieces.first().map(|piece| piece.stream);
    pieces.retain(|piece| Some(piece.stream) == first);
    let (codes, _) = definitions(source, &pieces, FxHashSet::default())?.unwrap_or_default();
    let mut packed =
        Packer::whole(true, pieces.first().map_or(0, |piece| piece.first_node), &codes, FOLLOWED);
    for piece in &pieces {
        chunks(source, piece, |_, chunk| packed.push(chunk))?;
    }
    Ok(packed.into_columns())
}

/// For how many records of a stream the C library's allocator is followed.
fn reach(pieces: &[Piece], stream: u32) -> u64 {
    let own = pieces.iter().filter(|piece| piece.stream == stream);
    let records: u64 = own.flat_map(|piece| &piece.lengths).map(|length| u64::from(*length)).sum();
    if records <= FOLLOWED { FOLLOWED } else { 0 }
}

/// How many more records are packed whole.
struct Budget {
    left: u64,
    /// The stream that is packed no further.
    spent: Option<u32>,
}

impl Budget {
    fn takes(&mut self, piece: &Piece) -> bool {
        let records: u64 = piece.lengths.iter().map(|length| u64::from(*length)).sum();
        if self.spent == Some(piece.stream) || records > self.left {
            self.spent = Some(piece.stream);
            return false;
        }
        self.left -= records;
        true
    }
}

/// Neither a state nor a type of a later release, and not packed whole already.
fn is_known(entry: &Entry) -> bool {
    matches!(entry.kind, block::CHUNKS | block::SAMPLES | block::ENDING) && !entry.is_whole()
}

/// The code objects, of which some are `needed` with their tables, and the version of Python. `None`: too much.
fn definitions(
    source: &Source,
    pieces: &[Piece],
    needed: FxHashSet<u64>,
) -> Result<Option<(Codes, Option<u64>)>, CaptureError> {
    let (mut codes, mut python) = (Codes::new(needed), None);
    let mut parts = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        if index == 0 || pieces[index - 1].stream != piece.stream {
            parts.clear();
        }
        chunks(source, piece, |_, chunk| {
            let mut payload = &chunk.payload[..];
            for op in chunk.list.iter().filter(|op| op.kind == kind::DEFINITION) {
                let (own, rest) = payload.split_at(payload.len().min(op.python as usize));
                payload = rest;
                if parts.len() + own.len() <= MOST_DEFINITIONS {
                    parts.extend_from_slice(own);
                }
                if op.native == 1 {
                    continue;
                }
                match op.size {
                    definition::CODE => codes.learn(op.address, &parts),
                    definition::PYTHON => python = Some(op.address),
                    _ => {}
                }
                parts.clear();
            }
        })?;
        if codes.bytes() > MOST_DEFINITIONS {
            return Ok(None);
        }
    }
    Ok(Some((codes, python)))
}

/// Hands every chunk of a piece on, with the number of its records.
fn chunks(source: &Source, piece: &Piece, mut each: impl FnMut(u32, &Ops)) -> Result<(), CaptureError> {
    let mut records = source.read(piece)?;
    let mut chunk = Ops::default();
    for length in &piece.lengths {
        chunk.clear();
        while chunk.records() < u64::from(*length) {
            let left = u64::from(*length) - chunk.records();
            let before = chunk.records();
            let more = records.next(usize::try_from(left).unwrap_or(usize::MAX), &mut chunk);
            if more.is_none() || chunk.records() == before {
                let what = format!("the records of stream {} do not decode", piece.stream);
                return Err(CaptureError::Damaged { path: Default::default(), what });
            }
        }
        chunk.unfold(0, |_| true);
        each(*length, &chunk);
    }
    Ok(())
}

/// A stream on its way into one block.
struct Stream<'a> {
    run: Run,
    packed: Packer<'a>,
    next_node: u32,
}

impl<'a> Stream<'a> {
    fn new(piece: &Piece, codes: &'a Codes, reach: u64) -> Self {
        let run = Run {
            stream: piece.stream,
            first_sequence: piece.first_sequence,
            thread: piece.thread,
            first_node: piece.first_node,
            ..Run::default()
        };
        let packed = Packer::whole(piece.first_sequence == 0, piece.first_node, codes, reach);
        Stream { run, packed, next_node: piece.first_node }
    }

    fn continues_with(&self, piece: &Piece) -> bool {
        self.run.stream == piece.stream
            && self.run.next_sequence() == piece.first_sequence
            && self.run.thread == piece.thread
            && self.next_node == piece.first_node
    }

    fn push(&mut self, length: u32, chunk: &Ops) {
        self.next_node = self.run.note(chunk, self.next_node);
        self.run.lengths.push(length);
        self.packed.push(chunk);
    }
}
