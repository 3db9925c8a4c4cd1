//! The ring's slots: a bounded window in which the newest records overwrite the oldest.
//!
//! One `fetch_add` hands a writer the tickets of its record; each slot is then claimed by compare-and-swap, filled, and
//! committed, the record's first slot last. Every slot is a sequence lock whose sequence is its lap, so a
//! reader can tell that a record changed under it. A writer never waits: where a live one is in its way it gives up its record,
//! where a dead one is in its way it takes over.
//!
//! Must never yield a record any of whose slots was not its own at the end of the copy.

use crate::layout::{MAX_PAYLOAD, PID_MASK, WORD, checksum, load_bytes, store_bytes, words_for};
use crate::sync::{AtomicU64, Ordering, fence};

const LAP: u64 = (1 << 39) - 1;
const FIRST: u64 = 1 << 39;
const PID_SHIFT: u32 = 40;
const STATE: u64 = 3 << 62;
const WRITING: u64 = 1 << 62;
const COMMITTED: u64 = 2 << 62;
const VOID: u64 = 3 << 62;
const KIND_SHIFT: u32 = 24;
const CRC_SHIFT: u32 = 32;
/// A record may take at most this part of all slots, so that no single one wipes the window.
const LARGEST_SHARE: usize = 4;

/// The slots of a ring, and the counter that hands out tickets.
#[derive(Clone, Copy)]
pub struct Slots<'a> {
    words: &'a [AtomicU64],
    stride: usize,
    head: &'a AtomicU64,
}

/// Another writer held the slot; the record was dropped.
#[derive(Debug, PartialEq, Eq)]
pub struct Contended;

/// What a reader finds at a ticket.
#[derive(Debug, PartialEq, Eq)]
pub enum SlotState {
    /// A whole record starts here; its payload is in the reader's buffer.
    Record {
        /// The caller's record kind.
        kind: u8,
        /// The process that wrote it.
        pid: u32,
        /// How many tickets it takes.
        slots: usize,
    },
    /// A record starts here that its writer has not finished.
    Unfinished,
    /// A later lap has taken the slot.
    Overwritten,
    /// A record starts here and does not agree with its checksum.
    Damaged,
    /// No record starts here.
    Nothing,
}

impl<'a> Slots<'a> {
    /// Slots of `stride` words each. `stride` is at least 3; the callers check.
    pub fn new(words: &'a [AtomicU64], stride: usize, head: &'a AtomicU64) -> Self {
        Slots { words, stride, head }
    }

    /// Number of slots.
    pub fn count(&self) -> usize {
        self.words.len() / self.stride
    }

    /// The next ticket.
    pub fn head(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    /// The longest payload a ring of `count` slots takes.
    pub fn max_payload(count: usize, stride: usize) -> usize {
        let slots = count / LARGEST_SHARE;
        (slots * (stride - 1)).saturating_sub(1).saturating_mul(WORD).min(MAX_PAYLOAD)
    }

    fn slots_for(&self, length: usize) -> usize {
        // The first slot spends a second word on the record's own head.
        (words_for(length) + 1).div_ceil(self.stride - 1)
    }

    /// Writes one record and returns its ticket. `payload` is at most [`Self::max_payload`]; the callers check.
    pub fn append(
        &self,
        pid: u32,
        kind: u8,
        payload: &[u8],
        is_dead: impl Fn(u32) -> bool,
    ) -> Result<u64, Contended> {
        let slots = self.slots_for(payload.len());
        let ticket = self.take(slots);
        let tag = u64::from(kind) << KIND_SHIFT | payload.len() as u64;
        let crc = u64::from(checksum(ticket, tag, payload));
        for place in 0..slots {
            if self.claim(pid, ticket, place, &is_dead).is_err() {
                self.finish(pid, ticket, place, VOID);
                return Err(Contended);
            }
        }
        // Pairs with the fence in `read`: a thread that sees any word below also sees the claims above.
        fence(Ordering::Release);
        self.slot(ticket)[1].store(crc << CRC_SHIFT | tag, Ordering::Relaxed);
        let mut rest = payload;
        for place in 0..slots {
            let area = &self.slot(ticket + place as u64)[1 + usize::from(place == 0)..];
            let (part, later) = rest.split_at(rest.len().min(area.len() * WORD));
            store_bytes(area, part);
            rest = later;
        }
        if self.finish(pid, ticket, slots, COMMITTED) { Ok(ticket) } else { Err(Contended) }
    }

    /// Takes the tickets for a record of `slots` slots.
    pub fn take(&self, slots: usize) -> u64 {
        self.head.fetch_add(slots as u64, Ordering::AcqRel)
    }

    /// Makes the `place`th slot of the record at `ticket` ours.
    pub fn claim(
        &self,
        pid: u32,
        ticket: u64,
        place: usize,
        is_dead: impl Fn(u32) -> bool,
    ) -> Result<(), Contended> {
        let mine = self.mark(pid, ticket, place, WRITING);
        let state = &self.slot(ticket + place as u64)[0];
        let mut found = state.load(Ordering::Acquire);
        loop {
            let newer = found & STATE != 0 && found & LAP >= mine & LAP;
            if newer || (found & STATE == WRITING && !is_dead((found >> PID_SHIFT & PID_MASK) as u32)) {
                return Err(Contended);
            }
            match state.compare_exchange(found, mine, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(()),
                Err(now) => found = now,
            }
        }
    }

    /// Gives the first `slots` claimed slots of a record their final state, the first of them last. False when one was no
    /// longer ours: a process in another pid namespace may have taken us for dead.
    fn finish(&self, pid: u32, ticket: u64, slots: usize, state: u64) -> bool {
        (0..slots).rev().fold(true, |ours, place| {
            let (from, to) = (self.mark(pid, ticket, place, WRITING), self.mark(pid, ticket, place, state));
            let word = &self.slot(ticket + place as u64)[0];
            word.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed).is_ok() && ours
        })
    }

    /// Reads the record that starts at `ticket`. Its payload replaces the content of `payload`.
    pub fn read(&self, ticket: u64, payload: &mut Vec<u8>) -> SlotState {
        let state = self.slot(ticket)[0].load(Ordering::Acquire);
        let (pid, lap) = ((state >> PID_SHIFT & PID_MASK) as u32, self.lap(ticket));
        if state & STATE == 0 || state & LAP < lap {
            return SlotState::Nothing;
        } else if state & LAP > lap {
            return SlotState::Overwritten;
        } else if state == self.mark(pid, ticket, 0, WRITING) {
            return SlotState::Unfinished;
        } else if state != self.mark(pid, ticket, 0, COMMITTED) {
            return SlotState::Nothing;
        }
        let lead = self.slot(ticket)[1].load(Ordering::Relaxed);
        let length = lead as usize & MAX_PAYLOAD;
        let slots = self.slots_for(length);
        // A length from a half-overwritten slot may say anything; the states say which it is.
        let plausible = slots <= self.count() / LARGEST_SHARE;
        let slots = if plausible { slots } else { 1 };
        payload.clear();
        if plausible {
            for place in 0..slots {
                let area = &self.slot(ticket + place as u64)[1 + usize::from(place == 0)..];
                load_bytes(area, (length - payload.len()).min(area.len() * WORD), payload);
            }
        }
        fence(Ordering::Acquire);
        for place in 0..slots {
            let now = self.slot(ticket + place as u64)[0].load(Ordering::Acquire);
            if now != self.mark(pid, ticket, place, COMMITTED) {
                let later = now & STATE != 0 && now & LAP > self.lap(ticket + place as u64);
                return if later { SlotState::Overwritten } else { SlotState::Damaged };
            }
        }
        if plausible && (lead >> CRC_SHIFT) as u32 == checksum(ticket, lead & u64::from(u32::MAX), payload) {
            SlotState::Record { kind: (lead >> KIND_SHIFT) as u8, pid, slots }
        } else {
            SlotState::Damaged
        }
    }

    fn lap(&self, ticket: u64) -> u64 {
        (ticket / self.count() as u64) & LAP
    }

    fn slot(&self, ticket: u64) -> &'a [AtomicU64] {
        let at = (ticket % self.count() as u64) as usize * self.stride;
        &self.words[at..at + self.stride]
    }

    fn mark(&self, pid: u32, ticket: u64, place: usize, state: u64) -> u64 {
        let first = if place == 0 { FIRST } else { 0 };
        state | (u64::from(pid) & PID_MASK) << PID_SHIFT | first | self.lap(ticket + place as u64)
    }
}
