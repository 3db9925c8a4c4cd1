//! Moves chunks from the live file into the finished file, and gives the program its slots back.
//!
//! A slot is handed back only after its chunk was written: killed at any instruction, the compactor loses nothing, and a chunk that is
//! then in both files is known by its stream and sequence. While the program runs it must never keep more in memory than the chunks of one
//! block; at the end `seal` packs a small capture anew.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Value, json};

use crate::CaptureError;
use crate::file::{Finished, Run, Sample, block};
use crate::layout::SLOT_SIZE;
use crate::live::{Header, Live, Slot, SlotHeader};
use crate::op::{self, Ops};
use crate::pack::Packer;
use crate::seal::seal;
use crate::source::{Piece, Source, existing};

/// Chunks of one block: enough to find what repeats, few enough to decode in little memory, and 2 MiB of disk that wait.
const RUN: usize = 32;
/// Full slots wait for others of their stream this long, because a larger block packs better.
const PATIENCE: Duration = Duration::from_millis(500);
/// A state is written this often.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);
/// Full slots taken in one step, the oldest first: whoever waits for the end of a step does not wait long.
const MOST: usize = 4 * RUN;
/// Full slots that make a state urgent.
const URGENT: usize = 128;
/// Memory samples kept by a capture that is bounded; beyond, every other one goes.
const MAX_SAMPLES: usize = 4096;
/// Of a bounded capture, so many bytes for each sample: they take a tenth of it at most.
const BYTES_FOR_A_SAMPLE: u64 = 128;

/// What records come to when they are not kept: the heap crate's aggregate.
pub trait Fold: Send {
    /// Starts for a capture of this process.
    fn begin(&mut self, header: &Header);
    /// Goes on from a state; false when the bytes are none.
    fn restore(&mut self, state: &[u8]) -> bool;
    /// Takes in every record before `until_us`, in true order across streams, that was not taken in before.
    fn fold(&mut self, source: &Source, pieces: &[Piece], until_us: u64) -> Result<(), CaptureError>;
    /// Of each stream that was met, the sequence number of the first chunk that is not wholly taken in.
    fn next_sequences(&self) -> FxHashMap<u32, u64>;
    /// Everything, so that [`restore`](Fold::restore) can go on from it.
    fn state(&self) -> Vec<u8>;
}

/// How to compact.
pub struct Options {
    /// Level of compression, 1 to 19.
    pub level: i32,
    /// What folds records; needed by the two options below.
    pub fold: Option<Box<dyn Fold>>,
    /// Keep no records at all, only the state of `fold`.
    pub aggregate: bool,
    /// Fold the oldest records when the file is larger than this. What they come to is never cut: where stacks and living blocks alone need more,
    /// the file is as large as that.
    pub max_size: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Options { level: 9, fold: None, aggregate: false, max_size: None }
    }
}

/// The compactor of one capture.
pub struct Compactor {
    path: PathBuf,
    source: Source,
    header: Header,
    options: Options,
    samples: Vec<Sample>,
    /// Sequence number each stream goes on with: what is before it is in the finished file, as records or folded.
    next: FxHashMap<u32, u64>,
    /// The process has ended: nothing more will come.
    is_over: bool,
    waiting_since: Option<Instant>,
    checkpoint_at: Option<Instant>,
}

impl Compactor {
    /// Opens the capture at `path`, whose live file is there already; goes on with a finished file where one was begun.
    pub fn open(path: &Path, mut options: Options) -> Result<Compactor, CaptureError> {
        let live = existing(Live::open_to_compact(&Live::path_of(path)))?;
        let header = live.as_ref().map(Live::header).transpose()?;
        let finished = match (existing(Finished::open_to_append(path))?, &header) {
            (Some(old), Some(header)) if old.header.capture_id != header.capture_id => {
                Finished::create(path, header)?
            }
            (Some(old), _) => old,
            (None, Some(header)) => Finished::create(path, header)?,
            (None, None) => {
                let source = std::io::Error::from(std::io::ErrorKind::NotFound);
                return Err(CaptureError::Io { path: Live::path_of(path), source });
            }
        };
        let header = header.unwrap_or_else(|| finished.header.clone());
        let mut next = FxHashMap::default();
        for run in finished.blocks.iter().filter_map(|entry| entry.run.as_ref()) {
            let next: &mut u64 = next.entry(run.stream).or_default();
            *next = run.next_sequence().max(*next);
        }
        let mut samples = Vec::new();
        if let Some(fold) = &mut options.fold {
            fold.begin(&header);
            if let Some(state) = finished.checkpoint()? {
                fold.restore(&state);
            }
            go_on(&mut next, &**fold);
            samples = if options.aggregate { finished.samples()? } else { Vec::new() };
        }
        let source = Source { live, finished: Some(finished) };
        Ok(Compactor {
            path: path.to_owned(),
            source,
            header,
            options,
            samples,
            next,
            is_over: false,
            waiting_since: None,
            checkpoint_at: None,
        })
    }

    /// What the recorded process says about itself.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Remembers how much memory the process had.
    pub fn sample(&mut self, sample: Sample) {
        self.samples.push(sample);
        thin(&mut self.samples, MAX_SAMPLES);
    }

    /// Full slots that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.source.live.as_ref().and_then(|live| live.full().ok()).unwrap_or(0)
    }

    /// Takes what is full. To be called some ten times a second; costs little when there is nothing.
    pub fn step(&mut self) -> Result<(), CaptureError> {
        if self.options.aggregate && self.options.fold.is_some() {
            return self.fold_step();
        }
        let mut full: Vec<Slot> = self.slots()?.into_iter().filter(|slot| slot.is_full).collect();
        if full.is_empty() {
            self.waiting_since = None;
            return Ok(());
        }
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        if full.len() < RUN && since.elapsed() < PATIENCE {
            return Ok(());
        }
        self.waiting_since = None;
        full.sort_by_key(|slot| slot.header.sequence);
        full.truncate(MOST);
        self.take(full)?;
        self.write_samples(64)?;
        self.shrink(self.allowed())
    }

    /// Takes all that is left of a process that has ended, says how, and removes the live file. `cause` is a JSON object
    /// with what the caller knows, such as `exit_code`, `signal` and `cause`.
    pub fn finish(mut self, cause: Value) -> Result<(), CaptureError> {
        if let Some(live) = &self.source.live {
            self.header = live.header()?;
        }
        self.is_over = true;
        let mut ending = json!({
            "state": self.header.state,
            "end_monotonic_ns": self.header.end_monotonic_ns,
            "lost_events": self.header.lost_events,
        });
        if let (Value::Object(ending), Value::Object(cause)) = (&mut ending, cause) {
            ending.extend(cause);
        }
        if self.options.aggregate && self.options.fold.is_some() {
            self.fold_step()?;
        } else {
            let slots = self.slots()?;
            self.take(slots)?;
            self.write_samples(1)?;
            self.shrink(self.options.max_size)?;
            self.seal();
        }
        if let Some(finished) = &mut self.source.finished {
            finished.append_ending(&ending)?;
        }
        if self.source.live.take().is_some() {
            let live = Live::path_of(&self.path);
            std::fs::remove_file(&live).map_err(CaptureError::io(&live))?;
        }
        Ok(())
    }

    fn slots(&self) -> Result<Vec<Slot>, CaptureError> {
        Ok(self.source.live.as_ref().map(Live::slots).transpose()?.unwrap_or_default())
    }

    fn write_samples(&mut self, at_least: usize) -> Result<(), CaptureError> {
        if self.samples.len() >= at_least
            && let Some(finished) = &mut self.source.finished
        {
            finished.append_samples(&self.samples)?;
            self.samples.clear();
        }
        Ok(())
    }

    /// Appends the chunks of `slots`, and folds what becomes too much. Unless all is over, a gap in a stream waits: its chunk is only not seen as full yet.
    fn take(&mut self, mut slots: Vec<Slot>) -> Result<(), CaptureError> {
        slots.sort_by_key(|slot| (slot.header.stream, slot.header.sequence));
        let mut block: Option<Block> = None;
        let mut chunk = Ops::default();
        for slot in slots {
            let head = slot.header;
            if block.as_ref().is_some_and(|block| !block.goes_on(&head, self.run_length())) {
                self.append(block.take())?;
            }
            let next = self.next.get(&head.stream).copied().unwrap_or(0);
            if head.sequence < next {
                // Written before, by a compactor that was killed before it could hand the slot back; or folded.
                self.free(&[slot])?;
                continue;
            }
            if head.sequence > next && !self.is_over {
                continue;
            }
            let Some(live) = &self.source.live else { break };
            let Some(records) = live.records(&slot)? else { continue };
            chunk.clear();
            op::decode(&records, head.first_node, &mut chunk);
            if chunk.list.is_empty() && self.is_over {
                continue;
            }
            block.get_or_insert_with(|| Block::new(&head)).push(slot, &chunk);
            self.next.insert(head.stream, head.sequence + 1);
        }
        self.append(block)
    }

    fn append(&mut self, block: Option<Block>) -> Result<(), CaptureError> {
        let (Some(block), Some(finished)) = (block, &mut self.source.finished) else { return Ok(()) };
        finished.append_run(&block.run, block.packed, self.options.level)?;
        self.free(&block.slots)?;
        self.shrink(self.allowed())
    }

    /// Chunks of one block: of a capture with a small bound fewer, for what is kept is kept by the block.
    fn run_length(&self) -> usize {
        let fitting = self.options.max_size.map_or(u64::MAX, |limit| limit / SLOT_SIZE as u64);
        usize::try_from(fitting).unwrap_or(RUN).clamp(1, RUN)
    }

    fn free(&self, slots: &[Slot]) -> Result<(), CaptureError> {
        let Some(live) = &self.source.live else { return Ok(()) };
        slots.iter().try_for_each(|slot| live.free(slot.index))
    }

    /// Folds what is certain, writes the state, and only then hands slots back.
    fn fold_step(&mut self) -> Result<(), CaptureError> {
        let slots = self.slots()?;
        let full: Vec<Slot> = slots.into_iter().filter(|slot| slot.is_full).collect();
        let is_due = self.checkpoint_at.is_none_or(|at| at.elapsed() >= CHECKPOINT_EVERY);
        if !self.is_over && !is_due && full.len() < URGENT {
            return Ok(());
        }
        self.checkpoint_at = Some(Instant::now());
        let until = self.latest_us();
        let pieces = self.source.pieces(false)?;
        let Some(fold) = &mut self.options.fold else { return Ok(()) };
        fold.fold(&self.source, &pieces, until)?;
        self.rewrite(&FxHashSet::default())?;
        let next = |slot: &Slot| self.next.get(&slot.header.stream).copied().unwrap_or(0);
        let done = |slot: &Slot| slot.header.sequence < next(slot);
        let done: Vec<Slot> = full.into_iter().filter(done).collect();
        self.free(&done)
    }

    /// Records before this are all there. Those of this very tick may still be on their way in other threads, unless the process is dead.
    fn latest_us(&self) -> u64 {
        if self.is_over {
            return u64::MAX;
        }
        let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
        let now = (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64);
        now.saturating_sub(self.header.start_monotonic_ns) / 1000
    }

    /// How large a bounded file may grow while the program runs. A state that takes most of the bound, or more, is not written anew for every few
    /// records: a quarter of it may come together first.
    fn allowed(&self) -> Option<u64> {
        let state = self.state_size();
        self.options.max_size.map(|limit| limit.max(state + state / 4))
    }

    fn state_size(&self) -> u64 {
        self.source.finished.as_ref().map_or(0, |finished| finished.size_of(block::CHECKPOINT))
    }

    /// Folds the oldest records when the file is larger than is allowed, so that half of its bound is free again where that is possible.
    fn shrink(&mut self, allowed: Option<u64>) -> Result<(), CaptureError> {
        let (Some(limit), Some(allowed)) = (self.options.max_size, allowed) else { return Ok(()) };
        let is_beyond = |this: &Self, bytes: u64| {
            this.source.finished.as_ref().is_some_and(|finished| finished.sound_bytes() > bytes)
        };
        if !is_beyond(self, allowed) || self.options.fold.is_none() {
            return Ok(());
        }
        let room = (limit / 2).saturating_sub(self.state_size());
        self.fold_beyond(room)?;
        // The state has grown by what it took in, and may leave less room than was thought.
        if room > 0 && is_beyond(self, limit) { self.fold_beyond(0) } else { Ok(()) }
    }

    /// Folds all but so many bytes of the latest blocks.
    fn fold_beyond(&mut self, mut room: u64) -> Result<(), CaptureError> {
        let Some(finished) = &self.source.finished else { return Ok(()) };
        let runs =
            finished.blocks.iter().filter_map(|entry| Some((entry.run.as_ref()?.times.1, entry.len())));
        let mut runs: Vec<(u64, u64)> = runs.collect();
        runs.sort_unstable();
        while let Some((_, length)) = runs.last()
            && *length <= room
        {
            room -= length;
            runs.pop();
        }
        let until = runs.last().map_or(0, |(time, _)| time.saturating_add(1)).min(self.latest_us());
        let pieces = self.source.pieces(false)?;
        let Some(fold) = &mut self.options.fold else { return Ok(()) };
        fold.fold(&self.source, &pieces, until)?;
        let (next, Some(finished)) = (fold.next_sequences(), &self.source.finished) else { return Ok(()) };
        let is_kept = |run: &Run| next.get(&run.stream).is_none_or(|next| *next < run.next_sequence());
        let blocks = finished.blocks.iter().enumerate();
        let keep = blocks.filter(|(_, entry)| entry.run.as_ref().is_some_and(is_kept));
        let keep = keep.map(|(index, _)| index).collect();
        self.rewrite(&keep)
    }

    /// Replaces the finished file by one that says the same in less room. What cannot be done is left: the file is whole as it is.
    fn seal(&mut self) {
        let temporary = self.temporary();
        let sealed = seal(&mut self.source, &self.header, &temporary).and_then(|new| {
            let Some(mut new) = new else { return Ok(()) };
            std::fs::rename(&temporary, &self.path).map_err(CaptureError::io(&self.path))?;
            new.renamed(&self.path);
            self.source.finished = Some(new);
            Ok(())
        });
        if sealed.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
    }

    fn temporary(&self) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(".tmp");
        PathBuf::from(name)
    }

    /// Replaces the finished file by the state, the samples and the blocks to keep: whole, or not at all.
    fn rewrite(&mut self, keep: &FxHashSet<usize>) -> Result<(), CaptureError> {
        let (Some(fold), Some(old)) = (&self.options.fold, &self.source.finished) else { return Ok(()) };
        let temporary = self.temporary();
        let mut new = Finished::create(&temporary, &self.header)?;
        new.append_checkpoint(&fold.state())?;
        if self.options.aggregate {
            new.append_samples(&self.samples)?;
        } else {
            let mut samples = old.samples()?;
            let fitting = self.options.max_size.map_or(u64::MAX, |limit| limit / BYTES_FOR_A_SAMPLE);
            thin(&mut samples, usize::try_from(fitting).unwrap_or(MAX_SAMPLES).min(MAX_SAMPLES));
            new.append_packed_samples(&samples)?;
        }
        for (_, entry) in old.blocks.iter().enumerate().filter(|(index, _)| keep.contains(index)) {
            new.append_copy(old, entry)?;
        }
        std::fs::rename(&temporary, &self.path).map_err(CaptureError::io(&self.path))?;
        new.renamed(&self.path);
        self.source.finished = Some(new);
        go_on(&mut self.next, &**fold);
        Ok(())
    }
}

/// What is folded, and written, is never taken again.
fn go_on(next: &mut FxHashMap<u32, u64>, fold: &dyn Fold) {
    for (stream, sequence) in fold.next_sequences() {
        let next: &mut u64 = next.entry(stream).or_default();
        *next = sequence.max(*next);
    }
}

/// Leaves out every other sample until there are few enough.
fn thin(samples: &mut Vec<Sample>, most: usize) {
    while samples.len() > most.max(2) {
        let mut keep = false;
        samples.retain(|_| {
            keep = !keep;
            keep
        });
    }
}

/// Chunks that go into one block.
struct Block {
    run: Run,
    packed: Packer<'static>,
    slots: Vec<Slot>,
    next_node: u32,
}

impl Block {
    fn new(head: &SlotHeader) -> Self {
        let run = Run {
            stream: head.stream,
            first_sequence: head.sequence,
            thread: head.thread,
            first_node: head.first_node,
            ..Run::default()
        };
        let packed = Packer::new(head.sequence == 0);
        Block { run, packed, slots: Vec::new(), next_node: head.first_node }
    }

    fn goes_on(&self, head: &SlotHeader, most: usize) -> bool {
        self.run.stream == head.stream
            && self.run.next_sequence() == head.sequence
            && self.run.thread == head.thread
            && self.next_node == head.first_node
            && self.run.lengths.len() < most
    }

    fn push(&mut self, slot: Slot, chunk: &Ops) {
        self.next_node = self.run.note(chunk, self.next_node);
        self.run.lengths.push(chunk.list.len() as u32);
        self.packed.push(chunk);
        self.slots.push(slot);
    }
}
