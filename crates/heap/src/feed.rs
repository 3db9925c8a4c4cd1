//! Decodes streams ahead of the merger, on a thread of its own. Must hold a few batches per stream at most.

use std::sync::mpsc::{Receiver, Sender, channel};

use stormlog_capture::CaptureError;
use stormlog_capture::op::Ops;
use stormlog_capture::source::{Piece, Records, Source};

/// Batches on their way: of each stream some, of few streams more, so that neither end waits for the other with each of them.
const AHEAD: usize = 2;
const AHEAD_OF_ALL: usize = 4;

/// Records of one chunk that follow each other.
pub(crate) struct Batch {
    pub(crate) ops: Ops,
    pub(crate) sequence: u64,
    /// Records of the chunk that come before.
    pub(crate) offset: u64,
    pub(crate) thread: u64,
    /// The last of its chunk, and nothing more will come into that.
    pub(crate) ends_chunk: bool,
}

type BatchResult = Result<Option<Batch>, CaptureError>;

/// One stream's chunks.
pub(crate) struct Cursor<'a> {
    source: &'a Source,
    pieces: &'a [Piece],
    records: Option<Records>,
    sequence: u64,
    offset: u64,
    /// Where to start: chunks before this are not decoded where that can be known.
    from: u64,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(source: &'a Source, pieces: &'a [Piece], from: u64) -> Self {
        Cursor { source, pieces, records: None, sequence: 0, offset: 0, from }
    }

    fn next(&mut self, mut ops: Ops) -> BatchResult {
        ops.clear();
        while let Some((piece, rest)) = self.pieces.split_first() {
            let chunks = piece.lengths.len().max(1) as u64;
            if self.records.is_none() {
                if piece.first_sequence.saturating_add(chunks) <= self.from {
                    self.pieces = rest;
                    continue;
                }
                self.records = Some(self.source.read(piece)?);
                (self.sequence, self.offset) = (piece.first_sequence, 0);
            }
            let Some(records) = &mut self.records else { break };
            let number = usize::try_from(self.sequence - piece.first_sequence).unwrap_or(usize::MAX);
            let left = match piece.lengths.get(number) {
                Some(length) => u64::from(*length).saturating_sub(self.offset),
                None if piece.lengths.is_empty() => u64::MAX,
                None => {
                    // Behind its last chunk a sound block has nothing.
                    self.records = None;
                    self.pieces = rest;
                    continue;
                }
            };
            let more =
                records.next(usize::try_from(left).unwrap_or(usize::MAX), &mut ops).ok_or_else(|| {
                    CaptureError::Damaged {
                        path: Default::default(),
                        what: format!(
                            "the records of chunk {} of stream {} do not decode",
                            self.sequence, piece.stream
                        ),
                    }
                })?;
            let (sequence, offset) = (self.sequence, self.offset);
            let count = ops.records();
            let ends_chunk = count == left || !more;
            if ends_chunk {
                (self.sequence, self.offset) = (sequence.saturating_add(1), 0);
            } else {
                self.offset += count;
            }
            let thread = piece.thread;
            let is_whole = piece.is_whole;
            if !more {
                self.records = None;
                self.pieces = rest;
            }
            if count > 0 || ends_chunk {
                return Ok(Some(Batch { ops, sequence, offset, thread, ends_chunk: ends_chunk && is_whole }));
            }
        }
        Ok(None)
    }
}

/// The taking end.
pub(crate) struct Feeds {
    requests: Sender<(usize, Ops)>,
    answers: Vec<Receiver<BatchResult>>,
}

impl Feeds {
    /// The next batch of a stream; `used` is one that is done with.
    pub(crate) fn next(&self, stream: usize, used: Ops) -> BatchResult {
        // A decoder that is gone has answered all it was asked, or its panic ends the scope.
        let _ = self.requests.send((stream, used));
        self.answers[stream].recv().unwrap_or(Ok(None))
    }
}

/// Runs `work` while another thread decodes for it.
pub(crate) fn with<T>(cursors: Vec<Cursor<'_>>, work: impl FnOnce(Feeds) -> T) -> T {
    let (requests, asked) = channel::<(usize, Ops)>();
    let (outlets, answers): (Vec<_>, Vec<_>) = cursors.iter().map(|_| channel()).unzip();
    std::thread::scope(|scope| {
        scope.spawn(move || decode(cursors, &asked, &outlets));
        let ahead = AHEAD.max(AHEAD_OF_ALL / answers.len().max(1));
        for stream in 0..answers.len() {
            for _ in 0..ahead {
                let _ = requests.send((stream, Ops::default()));
            }
        }
        work(Feeds { requests, answers })
    })
}

fn decode(mut cursors: Vec<Cursor<'_>>, asked: &Receiver<(usize, Ops)>, outlets: &[Sender<BatchResult>]) {
    while let Ok((stream, used)) = asked.recv() {
        if outlets[stream].send(cursors[stream].next(used)).is_err() {
            break;
        }
    }
}
