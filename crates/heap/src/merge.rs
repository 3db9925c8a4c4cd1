//! The records of all streams in true order. Streams agree on the clock only to a tick; within a tick addresses decide: a block is
//! allocated before it is freed, and freed before its address is allocated again (see `interleave`).
//!
//! Must always end: when no stream can continue by these rules (a record was lost, or a mapping is older than the recording), one is forced to continue.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use stormlog_capture::CaptureError;
use stormlog_capture::op::{Op, Ops, is_mapping};
use stormlog_capture::record::kind;
use stormlog_capture::source::{Piece, Source};

use crate::feed::{self, Batch, Cursor, Feeds};
use crate::interleave::Turns;
use crate::state::State;
use crate::stream::Stream;

/// Most records of a tick that are looked at together; a real tick of a few milliseconds has fewer.
const MOST_AHEAD: usize = 1 << 20;

/// Processes all records before `until_us` that were not processed yet.
pub(crate) fn run(
    state: &mut State,
    streams: &mut Vec<Stream>,
    source: &Source,
    pieces: &[Piece],
    until_us: u64,
) -> Result<(), CaptureError> {
    let by_stream: Vec<&[Piece]> = pieces.chunk_by(|one, other| one.stream == other.stream).collect();
    let mut indices = Vec::with_capacity(by_stream.len());
    let mut cursors = Vec::with_capacity(by_stream.len());
    for pieces in by_stream {
        let id = pieces[0].stream;
        let index = streams.iter().position(|stream| stream.id == id).unwrap_or_else(|| {
            streams.push(Stream::new(id));
            streams.len() - 1
        });
        indices.push(index);
        cursors.push(Cursor::new(source, pieces, streams[index].sequence));
    }
    feed::with(cursors, |feeds| {
        let mut merge = Merge { state, feeds, heads: Vec::new(), until_us, turns: Turns::default() };
        for (feed, index) in indices.into_iter().enumerate() {
            let stream = std::mem::take(&mut streams[index]);
            let (batch, ahead) = Default::default();
            merge.heads.push(Head {
                stream,
                home: index,
                feed,
                batch,
                at: 0,
                folded: 0,
                payload_at: 0,
                ahead,
            });
        }
        let result = merge.all();
        for head in merge.heads {
            streams[head.home] = head.stream;
        }
        result
    })
}

/// One stream and where it is.
struct Head {
    stream: Stream,
    /// Its place among all streams.
    home: usize,
    feed: usize,
    batch: Option<Batch>,
    at: usize,
    /// How many more logical records than encoded ones are before `at`.
    folded: u64,
    payload_at: usize,
    /// Batches that were searched already.
    ahead: VecDeque<Batch>,
}

impl Head {
    /// What is decoded of its records up to the first that `is_later`.
    fn tick(&self, is_later: impl Fn(&Op) -> bool) -> Vec<&[Op]> {
        let held = self.batch.as_ref().and_then(|batch| batch.ops.list.get(self.at..));
        let mut pieces = Vec::new();
        for piece in held.into_iter().chain(self.ahead.iter().map(|batch| &batch.ops.list[..])) {
            let end = piece.iter().position(&is_later);
            pieces.push(&piece[..end.unwrap_or(piece.len())]);
            if end.is_some() {
                break;
            }
        }
        pieces
    }
}

struct Merge<'a> {
    state: &'a mut State,
    feeds: Feeds,
    heads: Vec<Head>,
    until_us: u64,
    turns: Turns,
}

/// Why a stream stopped.
#[derive(PartialEq, Eq)]
enum Stop {
    /// Its next record waits for another stream.
    Waits,
    /// Its clock moved on.
    Later,
    /// It has no more.
    Ended,
}

impl Merge<'_> {
    fn all(&mut self) -> Result<(), CaptureError> {
        let mut queue = BinaryHeap::new();
        for index in 0..self.heads.len() {
            // To the first time record: no allocation or free is processed before its time is known.
            if self.go_on(index, None, false)?.1 == Stop::Later {
                queue.push(Reverse((self.heads[index].stream.time_us, index)));
            }
        }
        let mut tick = Vec::new();
        while let Some(Reverse((time, first))) = queue.pop() {
            if time >= self.until_us {
                break;
            }
            tick.clear();
            tick.push(first);
            while let Some(Reverse((other, index))) = queue.peek().copied()
                && other == time
            {
                queue.pop();
                tick.push(index);
            }
            self.state.advance(time);
            self.tick(time, &mut tick, |later, index| queue.push(Reverse((later, index))))?;
        }
        Ok(())
    }

    /// Everything the streams in `tick` have at `time`.
    fn tick(
        &mut self,
        time: u64,
        tick: &mut Vec<usize>,
        mut later: impl FnMut(u64, usize),
    ) -> Result<(), CaptureError> {
        if tick.len() > 1 {
            self.plan(time, tick)?;
        }
        loop {
            let may_wait = tick.len() > 1;
            let mut moved = 0;
            let mut kept = Vec::new();
            for index in tick.drain(..) {
                let (count, stop) = self.go_on(index, Some(time), may_wait)?;
                moved += count;
                match stop {
                    Stop::Waits => kept.push(index),
                    Stop::Later => later(self.heads[index].stream.time_us, index),
                    Stop::Ended => {}
                }
            }
            *tick = kept;
            if tick.is_empty() {
                return Ok(());
            }
            if moved == 0 {
                self.force(tick);
            }
        }
    }

    /// Searches the whole tick before any of it is processed.
    fn plan(&mut self, time: u64, tick: &[usize]) -> Result<(), CaptureError> {
        let is_later = |op: &Op| is_later(op, time);
        let mut room = MOST_AHEAD;
        for index in tick {
            let head = &mut self.heads[*index];
            let held =
                head.batch.as_ref().and_then(|batch| batch.ops.list.get(head.at..)).unwrap_or_default();
            let mut is_whole = held.iter().any(is_later);
            for batch in &head.ahead {
                is_whole |= batch.ops.list.iter().any(is_later);
            }
            while !is_whole && room > 0 {
                let Some(batch) = self.feeds.next(head.feed, Ops::default())? else { break };
                room = room.saturating_sub(batch.ops.records().max(1) as usize);
                is_whole = batch.ops.list.iter().any(is_later);
                head.ahead.push_back(batch);
            }
        }
        if !self.turns.look(&together(&self.heads, tick, time)) {
            return Ok(());
        }
        // At a shared address another stream's record may be between any two records.
        let is_shared = |op: &Op| self.turns.is_shared(op.address);
        for index in tick {
            let head = &mut self.heads[*index];
            head.batch.iter_mut().for_each(|batch| batch.ops.unfold(head.at, is_shared));
            head.ahead.iter_mut().for_each(|batch| batch.ops.unfold(0, is_shared));
        }
        let state = &self.state;
        self.turns.prepare(&together(&self.heads, tick, time), |address| state.is_live(address));
        Ok(())
    }

    /// No stream can continue: one waits for a mapping whose creation or end was not recorded.
    fn force(&mut self, tick: &[usize]) {
        for index in tick {
            let head = &mut self.heads[*index];
            let op = head.batch.as_ref().and_then(|batch| batch.ops.list.get(head.at));
            if let Some(op) = op.filter(|op| is_about_mappings(op.kind)) {
                self.state.apply(&mut head.stream, op, false);
                head.at += 1;
                return;
            }
        }
        // Only records after the part of the tick that was searched.
        self.turns.clear();
    }

    /// Processes a stream's records while its clock is at `time` (without one: up to the first time record). Returns their number.
    fn go_on(
        &mut self,
        index: usize,
        time: Option<u64>,
        may_wait: bool,
    ) -> Result<(u64, Stop), CaptureError> {
        let Head { stream, feed, batch, at, folded, payload_at, ahead, .. } = &mut self.heads[index];
        let is_watched = may_wait && !self.turns.is_empty();
        let is_plain = time.is_some() && !is_watched;
        let mut is_simple = self.state.host.is_simple();
        let mut count = 0;
        loop {
            if batch.as_ref().is_none_or(|batch| *at >= batch.ops.list.len()) {
                let used = finish(stream, batch.take(), *at as u64 + *folded);
                let next = match ahead.pop_front() {
                    Some(next) => Some(next),
                    None => self.feeds.next(*feed, used)?,
                };
                (*batch, *payload_at) = (next, 0);
                let Some(new) = batch else { return Ok((count, Stop::Ended)) };
                (*at, *folded) = skip(stream, new, payload_at);
                stream.set_thread(self.state.thread(new.thread));
                continue;
            }
            let Some(held) = batch else { return Ok((count, Stop::Ended)) };
            let Batch { ops, sequence, offset, .. } = held;
            // Counted in registers: reading spends most of its time in this loop.
            let (mut here, mut beyond) = (*at, *folded);
            let (state, list) = (&mut *self.state, &ops.list[..]);
            let stop = loop {
                let Some(op) = list.get(here) else { break None };
                match op.kind {
                    // Nearly all records.
                    kind::MALLOC..=kind::PVALLOC | kind::PY_MALLOC..=kind::LAST_ALLOCATION if is_plain => {
                        if is_simple {
                            state.host.allocate::<true>(stream, op);
                        } else {
                            state.host.allocate::<false>(stream, op);
                        }
                        count += 1;
                        here += 1;
                    }
                    kind::FREE | kind::PY_FREE | kind::REALLOC_TAKE if is_plain => {
                        if is_simple {
                            state.host.free::<true>(stream, op);
                        } else {
                            state.host.free::<false>(stream, op);
                        }
                        count += 1;
                        here += 1;
                    }
                    kind::TIME => {
                        // Clocks of one stream never go back, whatever the file says.
                        let is_later = op.size > stream.time_us;
                        stream.time_us = stream.time_us.max(op.size);
                        here += 1;
                        if is_later && time.is_none_or(|time| stream.time_us > time) {
                            break Some(Stop::Later);
                        }
                    }
                    kind::NODE_PYTHON..=kind::NODE_MARK => {
                        state.learn(stream, op, &[]);
                        here += 1;
                    }
                    kind::DEFINITION => {
                        let end = (*payload_at + op.python as usize).min(ops.payload.len());
                        state.learn(stream, op, &ops.payload[(*payload_at).min(end)..end]);
                        *payload_at = end;
                        here += 1;
                    }
                    _ => {
                        if time.is_none() {
                            break Some(Stop::Later);
                        }
                        let may_wait = may_wait && is_about_mappings(op.kind);
                        if (is_watched && !self.turns.take(index, op)) || !state.apply(stream, op, may_wait) {
                            break Some(Stop::Waits);
                        }
                        count += 1;
                        here += 1;
                        beyond += op.records() - 1;
                        // After a failed request every change is checked.
                        is_simple = state.host.is_simple();
                    }
                }
            };
            (*at, *folded) = (here, beyond);
            if let Some(stop) = stop {
                mark(stream, *sequence, *offset + here as u64 + beyond);
                return Ok((count, stop));
            }
        }
    }
}

/// Each stream of a tick and its records in pieces.
fn together<'a>(heads: &'a [Head], tick: &[usize], time: u64) -> Vec<(usize, Vec<&'a [Op]>)> {
    tick.iter().map(|index| (*index, heads[*index].tick(|op| is_later(op, time)))).collect()
}

fn is_later(op: &Op, time: u64) -> bool {
    op.kind == kind::TIME && op.size > time
}

fn is_about_mappings(kind: u8) -> bool {
    is_mapping(kind) || kind == kind::MUNMAP
}

/// Remembers where a stream is: this many records of a chunk are done.
fn mark(stream: &mut Stream, sequence: u64, done: u64) {
    // Never back: a batch may be entirely before records that were merged earlier.
    (stream.sequence, stream.done) = (stream.sequence, stream.done).max((sequence, done));
}

/// Records that a batch is done, up to `passed` records; releases its buffer.
fn finish(stream: &mut Stream, batch: Option<Batch>, passed: u64) -> Ops {
    let Some(batch) = batch else { return Ops::default() };
    if batch.sequence < stream.sequence {
        return batch.ops;
    }
    if batch.ends_chunk {
        (stream.sequence, stream.done) = (batch.sequence.saturating_add(1), 0);
    } else {
        mark(stream, batch.sequence, batch.offset + passed);
    }
    batch.ops
}

/// Skips records that were processed before; returns where to continue, and how many more logical records than encoded ones precede it.
fn skip(stream: &Stream, batch: &mut Batch, payload_at: &mut usize) -> (usize, u64) {
    let known = match batch.sequence.cmp(&stream.sequence) {
        std::cmp::Ordering::Less => u64::MAX,
        std::cmp::Ordering::Equal => stream.done,
        std::cmp::Ordering::Greater => 0,
    };
    let mut left = known.saturating_sub(batch.offset).min(batch.ops.records());
    let whole = batch.ops.records();
    if left > 0 && left < whole {
        // The position may be inside a repetition.
        batch.ops.unfold(0, |_| true);
    }
    let (mut at, mut folded) = (0, 0);
    while left > 0
        && let Some(op) = batch.ops.list.get(at)
    {
        if op.kind == kind::DEFINITION {
            *payload_at += op.python as usize;
        }
        at += 1;
        folded += op.records() - 1;
        left = left.saturating_sub(op.records());
    }
    (at, folded)
}
