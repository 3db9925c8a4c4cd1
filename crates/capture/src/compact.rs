//! Moves chunks from the live file into the finished file, and gives the program its slots back.
//!
//! A slot is handed back only after its chunk was written: killed at any instruction, the compactor loses nothing, and a chunk that is
//! then in both files is known by its stream and sequence. While the program runs it must never keep more in memory than the chunks of one
//! block, and between two steps it holds one descriptor. How a capture ends: `ending`; how it is bounded: `fold`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::CaptureError;
use crate::file::{Closed, Finished, Run, Sample};
use crate::fold::{Fold, go_on};
use crate::layout::SLOT_SIZE;
use crate::live::{Header, Live, Slot, SlotHeader};
use crate::op::{self, Ops};
use crate::pack::Packer;
use crate::source::{Source, existing};

/// Chunks of one block: enough to find what repeats, few enough to decode in little memory, and 2 MiB of disk in slots that wait.
const RUN: usize = 32;
/// Full slots wait for others of their stream this long, because a larger block packs better.
const PATIENCE: Duration = Duration::from_millis(500);
/// Full slots taken in one step, the oldest first: a caller that waits for the end of a step does not wait long.
const MOST: usize = 4 * RUN;
/// Memory samples kept in a bounded capture; beyond, every second one is dropped.
pub(crate) const MAX_SAMPLES: usize = 4096;
/// Memory samples held in memory, 24 KiB of them: then they are written, though there may be nothing else to write.
const SAMPLES_IN_MEMORY: usize = 512;

/// How to compact.
pub struct Options {
    /// Level of compression, 1 to 19.
    pub level: i32,
    /// What folds records; needed by the two options below.
    pub fold: Option<Box<dyn Fold>>,
    /// Keep no records at all, only the state of `fold`.
    pub aggregate: bool,
    /// Fold the oldest records when the file is larger than this. The folded state is never truncated: where stacks and live blocks alone need more,
    /// the file is larger.
    pub max_size: Option<u64>,
    /// Once true, a step ends as soon as it can: what it has not written stays in the live file.
    pub stop: Arc<AtomicBool>,
    /// For measurements.
    #[doc(hidden)]
    pub aids: crate::repack::Aids,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            level: 9,
            fold: None,
            aggregate: false,
            max_size: None,
            stop: Arc::default(),
            aids: Default::default(),
        }
    }
}

/// The compactor of one capture.
pub struct Compactor {
    pub(crate) path: PathBuf,
    /// The live file, and the finished one while something is written to it.
    pub(crate) source: Source,
    /// The finished file between two steps, once there is one.
    closed: Option<Closed>,
    /// The live file is there, open or not.
    pub(crate) has_live: bool,
    pub(crate) header: Header,
    pub(crate) options: Options,
    pub(crate) samples: Vec<Sample>,
    /// Sequence number each stream continues with: what is before it is in the finished file, as records or folded.
    pub(crate) next: FxHashMap<u32, u64>,
    /// The process has ended: nothing more will come.
    pub(crate) is_over: bool,
    waiting_since: Option<Instant>,
    pub(crate) checkpoint_at: Option<Instant>,
}

impl Compactor {
    /// Opens the capture at `path`, whose live file is there already; continues with a finished file where one was begun.
    pub fn open(path: &Path, mut options: Options) -> Result<Compactor, CaptureError> {
        let live = existing(Live::open_to_compact(&Live::path_of(path)))?;
        let header = live.as_ref().map(Live::header).transpose()?;
        let finished = existing(Finished::open_to_append(path))?
            .filter(|old| header.as_ref().is_none_or(|header| header.capture_id == old.header.capture_id));
        let header = match (header, &finished) {
            (Some(header), _) => header,
            (None, Some(finished)) => finished.header.clone(),
            (None, None) => {
                let source = std::io::Error::from(std::io::ErrorKind::NotFound);
                return Err(CaptureError::Io { path: Live::path_of(path), source });
            }
        };
        let mut next = FxHashMap::default();
        for run in finished.iter().flat_map(|old| &old.blocks).filter_map(|entry| entry.run.as_ref()) {
            let next: &mut u64 = next.entry(run.stream).or_default();
            *next = run.next_sequence().max(*next);
        }
        let mut samples = Vec::new();
        if let Some(fold) = &mut options.fold {
            fold.begin(&header);
            if let Some(finished) = &finished {
                if let Some(state) = finished.checkpoint()? {
                    fold.restore(&state);
                }
                samples = if options.aggregate { finished.samples()? } else { Vec::new() };
            }
            go_on(&mut next, &**fold);
        }
        Ok(Compactor {
            path: path.to_owned(),
            has_live: live.is_some(),
            source: Source { live, finished: None },
            closed: finished.map(Finished::close),
            header,
            options,
            samples,
            next,
            is_over: false,
            waiting_since: None,
            checkpoint_at: None,
        })
    }

    /// Opens the finished file, which is made when there is something to write for the first time.
    pub(crate) fn wake(&mut self) -> Result<(), CaptureError> {
        if self.source.finished.is_some() {
            return Ok(());
        }
        self.source.finished = Some(match self.closed.take().map(Closed::open) {
            Some(Ok(finished)) => finished,
            Some(Err(failed)) => {
                let (closed, error) = *failed;
                self.closed = Some(closed);
                return Err(error);
            }
            None => Finished::create(&self.path, &self.header)?,
        });
        Ok(())
    }

    /// Opens the live file where it was [released](Self::release).
    pub(crate) fn wake_live(&mut self) -> Result<(), CaptureError> {
        if self.has_live && self.source.live.is_none() {
            self.source.live = existing(Live::open_to_compact(&Live::path_of(&self.path)))?;
            self.has_live = self.source.live.is_some();
        }
        Ok(())
    }

    /// Closes the live file too, until there is something to do.
    pub fn release(&mut self) {
        self.rest();
        self.source.live = None;
    }

    /// The current description that the recorded process wrote of itself.
    pub fn refresh(&mut self) -> Result<&Header, CaptureError> {
        self.wake_live()?;
        if let Some(live) = &self.source.live {
            self.header = live.header()?;
        }
        Ok(&self.header)
    }

    /// Closes the finished file until there is something to write.
    pub(crate) fn rest(&mut self) {
        if let Some(finished) = self.source.finished.take() {
            self.closed = Some(finished.close());
        }
    }

    /// Whether the finished file says how the process ended.
    #[must_use]
    pub fn has_ending(&self) -> bool {
        self.closed.as_ref().is_some_and(Closed::has_ending)
    }

    /// Moves the capture, wherever its process writes from now on or has written.
    pub fn rename(&mut self, path: &Path) -> Result<(), CaptureError> {
        self.rest();
        let renamed = |from: &Path, to: &Path| std::fs::rename(from, to).map_err(CaptureError::io(to));
        let (from, to) = (Live::path_of(&self.path), Live::path_of(path));
        if self.has_live {
            renamed(&from, &to)?;
        }
        if let Some(live) = &mut self.source.live {
            live.renamed(&to);
        }
        if let Some(closed) = &mut self.closed {
            renamed(&self.path, path)?;
            closed.renamed(path);
        }
        path.clone_into(&mut self.path);
        Ok(())
    }

    /// Where the capture is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The description that the recorded process wrote of itself.
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

    /// Moves full slots. Call about ten times a second; cheap when there are none.
    pub fn step(&mut self) -> Result<(), CaptureError> {
        self.wake_live()?;
        let result = if self.is_aggregate() { self.fold_step() } else { self.take_full() };
        self.rest();
        result
    }

    pub(crate) fn is_aggregate(&self) -> bool {
        self.options.aggregate && self.options.fold.is_some()
    }

    fn take_full(&mut self) -> Result<(), CaptureError> {
        self.write_samples(SAMPLES_IN_MEMORY)?;
        let waiting = self.waiting();
        if waiting == 0 {
            self.waiting_since = None;
            return Ok(());
        }
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        if waiting < self.run_length() && since.elapsed() < PATIENCE {
            return Ok(());
        }
        self.waiting_since = None;
        let mut full: Vec<Slot> = self.slots()?.into_iter().filter(|slot| slot.is_full).collect();
        full.sort_by_key(|slot| slot.header.sequence);
        full.truncate(MOST);
        self.take(full)?;
        self.write_samples(64)?;
        self.shrink(self.allowed())
    }

    pub(crate) fn slots(&self) -> Result<Vec<Slot>, CaptureError> {
        Ok(self.source.live.as_ref().map(Live::slots).transpose()?.unwrap_or_default())
    }

    pub(crate) fn write_samples(&mut self, at_least: usize) -> Result<(), CaptureError> {
        if self.samples.len() < at_least {
            return Ok(());
        }
        self.wake()?;
        if let Some(finished) = &mut self.source.finished {
            finished.append_samples(&self.samples)?;
            self.samples.clear();
        }
        Ok(())
    }

    /// Appends the chunks of `slots`, and folds what becomes too much. Unless all is over, a gap in a stream waits: its chunk is only not seen as full yet.
    pub(crate) fn take(&mut self, mut slots: Vec<Slot>) -> Result<(), CaptureError> {
        slots.sort_by_key(|slot| (slot.header.stream, slot.header.sequence));
        let mut block: Option<Block> = None;
        let mut chunk = Ops::default();
        for slot in slots {
            let head = slot.header;
            if self.is_stopped() {
                break;
            }
            if block.as_ref().is_some_and(|block| !block.continues_with(&head, self.run_length())) {
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
        let Some(block) = block else { return Ok(()) };
        if self.is_stopped() {
            self.next.insert(block.run.stream, block.run.first_sequence);
            return Ok(());
        }
        self.wake()?;
        let Some(finished) = &mut self.source.finished else { return Ok(()) };
        finished.append_run(&block.run, block.packed, self.options.level)?;
        self.free(&block.slots)?;
        self.shrink(self.allowed())
    }

    /// Only while the process may live: at its end everything is moved.
    fn is_stopped(&self) -> bool {
        !self.is_over && self.options.stop.load(Ordering::Relaxed)
    }

    /// Chunks of one block: fewer for a capture with a small bound, because records are dropped by whole blocks, and while a block is collected its
    /// slots are missing in the live file, which may have half of the bound.
    fn run_length(&self) -> usize {
        let fitting = self.options.max_size.map_or(u64::MAX, |limit| limit / 8 / SLOT_SIZE as u64);
        usize::try_from(fitting).unwrap_or(RUN).clamp(1, RUN)
    }

    pub(crate) fn free(&self, slots: &[Slot]) -> Result<(), CaptureError> {
        let Some(live) = &self.source.live else { return Ok(()) };
        // Of a bounded capture both files count: a slot that waits to be used again takes no room.
        let is_bounded = self.options.max_size.is_some();
        slots.iter().try_for_each(|slot| live.free(slot.index, is_bounded))
    }

    /// All records before this are in the file. Other threads may still write records of this tick, unless the process is dead.
    pub(crate) fn latest_us(&self) -> u64 {
        if self.is_over {
            return u64::MAX;
        }
        let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
        let now = (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64);
        now.saturating_sub(self.header.start_monotonic_ns) / 1000
    }
}

/// Drops every second sample until there are few enough.
pub(crate) fn thin(samples: &mut Vec<Sample>, most: usize) {
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

    fn continues_with(&self, head: &SlotHeader, most: usize) -> bool {
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
