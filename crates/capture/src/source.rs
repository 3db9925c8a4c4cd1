//! Both files of a capture as one: every chunk once, in the order of its stream. Must hold no more than one chunk's records at a time.

use std::path::Path;

use rustc_hash::FxHashMap;

use crate::CaptureError;
use crate::columns::Columns;
use crate::file::{Entry, Finished, block};
use crate::live::{Header, Live, Slot};
use crate::op::{self, Ops};

/// Up to this many slots are copied to memory, because a running compactor may move them. More are only left where no compactor runs, so they can
/// be read in place.
const COPY_AT_MOST: usize = 1024;

/// The files of a capture that exist.
#[derive(Debug, Default)]
pub struct Source {
    /// What the program writes into.
    pub live: Option<Live>,
    /// What was moved out of it.
    pub finished: Option<Finished>,
}

/// One or more consecutive chunks of a stream.
#[derive(Debug)]
pub struct Piece {
    /// The stream.
    pub stream: u32,
    /// Sequence number of the first chunk.
    pub first_sequence: u64,
    /// Kernel thread id of the writer.
    pub thread: u64,
    /// Id its next new node gets.
    pub(crate) first_node: u32,
    /// Records in each chunk, where known without decoding.
    pub lengths: Vec<u32>,
    /// Nothing more will come into it.
    pub is_whole: bool,
    location: PieceLocation,
}

impl Piece {
    /// Where it is in the finished file.
    pub(crate) fn entry<'a>(&self, finished: &'a Finished) -> Option<&'a Entry> {
        match self.location {
            PieceLocation::Block(index) => finished.blocks.get(index),
            _ => None,
        }
    }
}

#[derive(Debug)]
enum PieceLocation {
    Block(usize),
    Slot(Slot),
    Copy(u32, Vec<u8>),
}

/// Records that are being taken from a piece.
#[derive(Debug)]
pub enum Records {
    /// From a slot: all there are.
    Plain(Ops),
    /// From a block.
    Columns(Box<Columns>),
}

impl Records {
    /// Puts some more records onto `ops`: of a block `most` at the most, of a slot all. Some(true): there are more. `None`: damaged.
    pub fn next(&mut self, most: usize, ops: &mut Ops) -> Option<bool> {
        match self {
            Records::Plain(all) => {
                ops.list.append(&mut all.list);
                ops.payload.append(&mut all.payload);
                Some(false)
            }
            Records::Columns(columns) => columns.next(most, ops),
        }
    }
}

impl Source {
    /// Opens the capture at `path`: its finished file, its live file, or both.
    pub fn open(path: &Path) -> Result<Source, CaptureError> {
        // First the live file: what is moved while we look is then in the finished one.
        let live = existing(Live::open(&Live::path_of(path)))?;
        let finished = existing(Finished::open(path))?;
        let source = Source { live, finished };
        match (&source.live, &source.finished) {
            (None, None) => Err(CaptureError::Io {
                path: path.to_owned(),
                source: std::io::Error::from(std::io::ErrorKind::NotFound),
            }),
            (Some(live), Some(finished)) if live.header()?.capture_id != finished.header.capture_id => {
                Err(CaptureError::damaged(path, "its live file belongs to another recording"))
            }
            _ => Ok(source),
        }
    }

    /// What the process said about itself, as late as it is known.
    pub fn header(&self) -> Result<Header, CaptureError> {
        match (&self.live, &self.finished) {
            (Some(live), _) => live.header(),
            (None, Some(finished)) => Ok(finished.header.clone()),
            (None, None) => Ok(Header::default()),
        }
    }

    /// Every chunk there is, by stream and sequence. `copy` takes what may be moved soon into memory.
    pub fn pieces(&mut self, copy: bool) -> Result<Vec<Piece>, CaptureError> {
        let mut pieces = Vec::new();
        let slots = self.live.as_ref().map(Live::slots).transpose()?.unwrap_or_default();
        let copy = copy && slots.len() <= COPY_AT_MOST;
        for slot in slots {
            let location = match &self.live {
                Some(live) if copy => match live.records(&slot)? {
                    Some(records) => PieceLocation::Copy(slot.header.first_node, records),
                    None => continue,
                },
                _ => PieceLocation::Slot(slot),
            };
            pieces.push(Piece {
                stream: slot.header.stream,
                first_sequence: slot.header.sequence,
                thread: slot.header.thread,
                first_node: slot.header.first_node,
                lengths: Vec::new(),
                is_whole: slot.is_full,
                location,
            });
        }
        if let Some(finished) = &mut self.finished {
            finished.scan()?;
            let runs = finished
                .blocks
                .iter()
                .enumerate()
                .filter_map(|(index, entry)| Some((index, entry.run.as_ref()?)));
            let mut next: FxHashMap<u32, u64> = FxHashMap::default();
            let mut moved = Vec::new();
            for (index, run) in runs {
                let next = next.entry(run.stream).or_default();
                // A chunk that was appended twice, because a compactor was killed in between, counts once.
                if run.first_sequence < *next {
                    continue;
                }
                *next = run.next_sequence();
                moved.push(Piece {
                    stream: run.stream,
                    first_sequence: run.first_sequence,
                    thread: run.thread,
                    first_node: run.first_node,
                    lengths: run.lengths.clone(),
                    is_whole: true,
                    location: PieceLocation::Block(index),
                });
            }
            pieces.retain(|piece| next.get(&piece.stream).is_none_or(|next| piece.first_sequence >= *next));
            pieces.append(&mut moved);
        }
        pieces.sort_by_key(|piece| (piece.stream, piece.first_sequence));
        pieces.dedup_by_key(|piece| (piece.stream, piece.first_sequence));
        Ok(pieces)
    }

    /// Begins to decode a piece.
    pub fn read(&self, piece: &Piece) -> Result<Records, CaptureError> {
        let plain = |first_node: u32, bytes: &[u8]| {
            let mut ops = Ops::default();
            op::decode(bytes, first_node, &mut ops);
            Records::Plain(ops)
        };
        match (&piece.location, &self.live, &self.finished) {
            (PieceLocation::Copy(first_node, bytes), ..) => Ok(plain(*first_node, bytes)),
            (PieceLocation::Slot(slot), Some(live), _) => {
                let bytes = live.records(slot)?.unwrap_or_default();
                Ok(plain(slot.header.first_node, &bytes))
            }
            (PieceLocation::Block(index), _, Some(finished)) if *index < finished.blocks.len() => {
                Ok(Records::Columns(Box::new(finished.columns(&finished.blocks[*index])?)))
            }
            _ => Ok(Records::Plain(Ops::default())),
        }
    }

    /// Whether the end of the finished file is missing: the bytes behind its last whole block then.
    pub fn cut(&self) -> Result<Option<u64>, CaptureError> {
        match (&self.live, &self.finished) {
            // How it ended is last when the live file goes.
            (None, Some(finished)) => {
                let torn = finished.torn_bytes()?;
                let has_end = finished.blocks.last().is_some_and(|entry| entry.kind == block::ENDING);
                Ok((torn > 0 || !has_end).then_some(torn))
            }
            _ => Ok(None),
        }
    }

    /// Is there anything to read but a state: blocks of a type this release knows?
    #[must_use]
    pub fn has_checkpoint(&self) -> bool {
        let blocks = self.finished.as_ref().map(|finished| &finished.blocks[..]).unwrap_or_default();
        blocks.iter().any(|entry| entry.kind == block::CHECKPOINT)
    }
}

/// A file that does not exist is not an error here.
pub(crate) fn existing<T>(opened: Result<T, CaptureError>) -> Result<Option<T>, CaptureError> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(CaptureError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
