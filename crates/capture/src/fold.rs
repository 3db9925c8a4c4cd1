//! A bounded capture: the oldest records are folded into their net effect, the state of the heap after them.
//!
//! A slot is handed back only after a state that includes its records was written. The bound must never truncate a state: where stacks and
//! live blocks alone need more than the bound, the file is larger than it.

use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::CaptureError;
use crate::compact::{Compactor, MAX_SAMPLES, thin};
use crate::file::{Finished, Run, block};
use crate::live::{Header, Slot};
use crate::source::{Piece, Source};

/// A state is written this often.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);
/// Full slots that make a state urgent.
const URGENT: usize = 128;
/// Bytes of a bounded capture per sample kept: samples take at most a tenth of it.
const BYTES_FOR_A_SAMPLE: u64 = 128;

/// The net effect of records that are not kept; implemented by the aggregate of the heap crate.
pub trait Fold: Send {
    /// Starts for a capture of this process.
    fn begin(&mut self, header: &Header);
    /// Continues from a stored state; false if the bytes are not one.
    fn restore(&mut self, state: &[u8]) -> bool;
    /// Processes every record before `until_us` that was not processed yet, in true order across streams.
    fn fold(&mut self, source: &Source, pieces: &[Piece], until_us: u64) -> Result<(), CaptureError>;
    /// Of each stream that was met, the sequence number of the first chunk that is not completely processed.
    fn next_sequences(&self) -> FxHashMap<u32, u64>;
    /// Everything, so that [`restore`](Fold::restore) can continue from it.
    fn state(&self) -> Vec<u8>;
}

impl Compactor {
    /// Folds what is certain, writes the state, and only then hands slots back.
    pub(crate) fn fold_step(&mut self) -> Result<(), CaptureError> {
        let slots = self.slots()?;
        let full: Vec<Slot> = slots.into_iter().filter(|slot| slot.is_full).collect();
        let is_due = self.checkpoint_at.is_none_or(|at| at.elapsed() >= CHECKPOINT_EVERY);
        if !self.is_over && !is_due && full.len() < URGENT {
            return Ok(());
        }
        self.checkpoint_at = Some(Instant::now());
        self.wake()?;
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

    /// How large a bounded file may grow while the program runs. A state that takes most of the bound, or more, is not rewritten for every few
    /// records: a quarter of it may come together first.
    pub(crate) fn allowed(&self) -> Option<u64> {
        let state = self.state_size();
        self.bound().map(|limit| limit.max(state + state / 4))
    }

    /// How large the finished file may be: while the program runs three eighths of what was requested. As much is for the live file, and the rest
    /// for the file that [`rewrite`](Self::rewrite) makes beside the old one, half as large.
    fn bound(&self) -> Option<u64> {
        self.options.max_size.map(|limit| if self.is_over { limit } else { limit / 8 * 3 })
    }

    fn state_size(&self) -> u64 {
        self.source.finished.as_ref().map_or(0, |finished| finished.size_of(block::CHECKPOINT))
    }

    /// Folds the oldest records when the file is larger than is allowed, so that half of its bound is free again where that is possible.
    pub(crate) fn shrink(&mut self, allowed: Option<u64>) -> Result<(), CaptureError> {
        let (Some(limit), Some(allowed)) = (self.bound(), allowed) else { return Ok(()) };
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

    /// Folds the oldest blocks until the rest fits into `room` bytes.
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

    /// Replaces the finished file by the state, the samples and the blocks to keep: whole, or not at all.
    fn rewrite(&mut self, keep: &FxHashSet<usize>) -> Result<(), CaptureError> {
        let (Some(fold), Some(old)) = (&self.options.fold, &self.source.finished) else { return Ok(()) };
        let temporary = self.temporary();
        let mut new = Finished::create(&temporary, &self.header)?;
        new.append_checkpoint(&fold.state())?;
        if self.options.aggregate && self.samples.is_empty() {
            new.append_samples(&old.samples()?)?;
        } else if self.options.aggregate {
            new.append_samples(&self.samples)?;
        } else {
            let mut samples = old.samples()?;
            let fitting = self.options.max_size.map_or(u64::MAX, |limit| limit / BYTES_FOR_A_SAMPLE);
            thin(&mut samples, usize::try_from(fitting).unwrap_or(MAX_SAMPLES).min(MAX_SAMPLES));
            new.append_packed_samples(&samples)?;
        }
        for (_, entry) in old
            .blocks
            .iter()
            .enumerate()
            .filter(|(index, entry)| keep.contains(index) || entry.kind == block::ENDING)
        {
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
pub(crate) fn go_on(next: &mut FxHashMap<u32, u64>, fold: &dyn Fold) {
    for (stream, sequence) in fold.next_sequences() {
        let next: &mut u64 = next.entry(stream).or_default();
        *next = sequence.max(*next);
    }
}
