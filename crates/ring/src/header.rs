//! The first page of a file: what it is, where its areas are, what was lost, and its writer.
//!
//! Must never accept a header whose sizes do not add up: all later indexing relies on them.

use std::path::Path;

use stormlog_liveness::Life;

use crate::frames::Frames;
use crate::layout::*;
use crate::process;
use crate::record::{Loss, LossReason, Status};
use crate::slots::Slots;
use crate::sync::{AtomicU64, Ordering};

/// Beyond this a file is refused, made or read; it bounds what a hostile header can make us map.
pub(crate) const MAX_FILE: u64 = 4 << 30;
/// With fewer slots, not even a record of one slot would be within a quarter of them.
pub(crate) const MIN_SLOTS: u64 = 16;

const OPEN: u64 = 1 << 62;
const CLOSED: u64 = 2 << 62;
const FILLING: u64 = 3 << 62;
const STATE: u64 = 3 << 62;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Ring = 1,
    Segment = 2,
}

/// The sizes of a file's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) kind: Kind,
    /// Ring: slots. Segment: its number.
    pub(crate) count: u64,
    pub(crate) frame_words: u64,
    pub(crate) slot_words: u64,
}

/// Which recording a file belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) label: [u8; 16],
    pub(crate) family: u64,
    pub(crate) created: u64,
    pub(crate) boot: [u64; 2],
    pub(crate) namespace: u64,
}

/// Why a header was refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Foreign,
    Version(u32),
    Damaged(&'static str),
}

/// One process that has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Writer {
    pub(crate) pid: u32,
    pub(crate) start: u64,
    pub(crate) open: bool,
}

impl Identity {
    /// A recording made here and now.
    pub(crate) fn new(label: [u8; 16]) -> Self {
        let created = process::wall_ns();
        let family = u128::from(created) << 32 | u128::from(process::pid());
        let family = crate::record::DefId::of(&family.to_le_bytes()).0;
        Identity { label, family, created, boot: process::boot_id(), namespace: process::pid_namespace() }
    }
}

impl Shape {
    /// Length of the file, when it is within what we make and read.
    pub(crate) fn file_bytes(&self) -> Option<u64> {
        let slots = match self.kind {
            Kind::Ring => self.count.checked_mul(self.slot_words)?,
            Kind::Segment => 0,
        };
        let words = self.frame_words.checked_add(slots)?.checked_add(HEADER_WORDS as u64)?;
        words.checked_mul(WORD as u64).filter(|&bytes| bytes <= MAX_FILE)
    }
}

/// The header within a file's words.
#[derive(Clone, Copy)]
pub(crate) struct Header<'a>(&'a [AtomicU64]);

impl<'a> Header<'a> {
    /// `words` are those of a whole file or of its header alone, at least [`HEADER_WORDS`]; `file.rs` sees to it.
    pub(crate) fn new(words: &'a [AtomicU64]) -> Self {
        Header(words)
    }

    fn get(&self, word: usize) -> u64 {
        self.0[word].load(Ordering::Relaxed)
    }

    fn set(&self, word: usize, value: u64) {
        self.0[word].store(value, Ordering::Relaxed);
    }

    /// Fills in the unchanging part of a new, zeroed file that no other process has seen.
    pub(crate) fn write(&self, shape: &Shape, identity: &Identity) {
        let label = halves(identity.label);
        for (word, value) in [
            (W_MAGIC, MAGIC),
            (W_VERSION_KIND, (shape.kind as u64) << 32 | u64::from(VERSION)),
            (W_FILE_BYTES, shape.file_bytes().unwrap_or(0)),
            (W_COUNT, shape.count),
            (W_FRAME_WORDS, shape.frame_words),
            (W_SLOT_WORDS, shape.slot_words),
            (W_CREATED, identity.created),
            (W_BOOT, identity.boot[0]),
            (W_BOOT + 1, identity.boot[1]),
            (W_LABEL, label[0]),
            (W_LABEL + 1, label[1]),
            (W_FAMILY, identity.family),
            (W_PID_NAMESPACE, identity.namespace),
        ] {
            self.set(word, value);
        }
        self.set(W_CRC, self.crc());
    }

    fn crc(&self) -> u64 {
        let mut bytes = Vec::with_capacity(W_CRC * WORD);
        load_bytes(self.0, W_CRC * WORD, &mut bytes);
        u64::from(crc32fast::hash(&bytes))
    }

    /// The unchanging part, checked.
    pub(crate) fn read(&self) -> Result<(Shape, Identity), Refusal> {
        if self.get(W_MAGIC) != MAGIC {
            return Err(Refusal::Foreign);
        }
        let (version, kind) = (self.get(W_VERSION_KIND) as u32, self.get(W_VERSION_KIND) >> 32);
        if version != VERSION {
            return Err(Refusal::Version(version));
        }
        if self.get(W_CRC) != self.crc() {
            return Err(Refusal::Damaged("checksum"));
        }
        let kind = match kind {
            1 => Kind::Ring,
            2 => Kind::Segment,
            _ => return Err(Refusal::Damaged("kind of file")),
        };
        let shape = Shape {
            kind,
            count: self.get(W_COUNT),
            frame_words: self.get(W_FRAME_WORDS),
            slot_words: self.get(W_SLOT_WORDS),
        };
        if shape.file_bytes() != Some(self.get(W_FILE_BYTES)) {
            return Err(Refusal::Damaged("length of the file"));
        }
        if kind == Kind::Ring && (shape.count < MIN_SLOTS || shape.slot_words < 3) {
            return Err(Refusal::Damaged("slots"));
        }
        let label = [self.get(W_LABEL).to_le_bytes(), self.get(W_LABEL + 1).to_le_bytes()];
        let identity = Identity {
            label: label.as_flattened().try_into().unwrap_or_default(),
            family: self.get(W_FAMILY),
            created: self.get(W_CREATED),
            boot: [self.get(W_BOOT), self.get(W_BOOT + 1)],
            namespace: self.get(W_PID_NAMESPACE),
        };
        Ok((shape, identity))
    }

    /// Whether the file still begins as it was made.
    pub(crate) fn is_intact(&self) -> bool {
        self.get(W_MAGIC) == MAGIC && self.get(W_CRC) == self.crc()
    }

    pub(crate) fn frames(&self, shape: &Shape) -> Frames<'a> {
        let words = &self.0[HEADER_WORDS..HEADER_WORDS + shape.frame_words as usize];
        Frames::new(words, &self.0[W_TAIL])
    }

    pub(crate) fn slots(&self, shape: &Shape) -> Slots<'a> {
        let start = HEADER_WORDS + shape.frame_words as usize;
        let end = start + (shape.count * shape.slot_words) as usize;
        Slots::new(&self.0[start..end], shape.slot_words as usize, &self.0[W_HEAD])
    }

    pub(crate) fn lose(&self, loss: Loss) {
        self.0[W_LOST_RECORDS].fetch_add(loss.records, Ordering::Relaxed);
        self.0[W_LOST_BYTES].fetch_add(loss.bytes, Ordering::Relaxed);
        if let Some(reason) = loss.reason {
            self.set(W_LOST_REASON, reason.code());
        }
    }

    pub(crate) fn loss(&self) -> Loss {
        let reason = LossReason::from_code(self.get(W_LOST_REASON));
        Loss { records: self.get(W_LOST_RECORDS), bytes: self.get(W_LOST_BYTES), reason }
    }

    /// Enters the process in the table of writers, once.
    pub(crate) fn register(&self, pid: u32) {
        if self.writers().any(|writer| writer.open && writer.pid == pid) {
            return;
        }
        let start = process::start_time(pid).unwrap_or(0);
        let free = (0..MAX_WRITERS).map(|i| W_WRITERS + 2 * i).find(|&at| {
            let found = self.get(at);
            (found == 0 || found & STATE == CLOSED)
                && self.0[at]
                    .compare_exchange(found, FILLING | u64::from(pid), Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
        });
        match free {
            Some(at) => {
                self.set(at + 1, start);
                self.0[at].store(OPEN | u64::from(pid), Ordering::Release);
            }
            None => _ = self.0[W_UNLISTED].fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Marks the process as done. True when no living process has the file open any more.
    pub(crate) fn close(&self, pid: u32) -> bool {
        for at in (0..MAX_WRITERS).map(|i| W_WRITERS + 2 * i) {
            let (open, closed) = (OPEN | u64::from(pid), CLOSED | u64::from(pid));
            let _ = self.0[at].compare_exchange(open, closed, Ordering::Release, Ordering::Relaxed);
        }
        let last = self.get(W_UNLISTED) == 0
            && self.writers().all(|writer| !writer.open || process::is_dead(writer.pid, writer.start));
        if last {
            self.set(W_CLOSED, 1);
        }
        last
    }

    /// Whether the last writer has once closed the file.
    pub(crate) fn is_closed(&self) -> bool {
        self.get(W_CLOSED) == 1
    }

    pub(crate) fn writers(&self) -> impl Iterator<Item = Writer> + use<'a> {
        let words = self.0;
        (0..MAX_WRITERS).map(|i| W_WRITERS + 2 * i).filter_map(move |at| {
            let found = words[at].load(Ordering::Acquire);
            (found & STATE != 0).then(|| Writer {
                pid: found as u32,
                start: if found & STATE == FILLING { 0 } else { words[at + 1].load(Ordering::Relaxed) },
                open: found & STATE != CLOSED,
            })
        })
    }

    /// Whether the process `pid`, which left something unfinished in this file, may still finish it.
    pub(crate) fn life(&self, pid: u32) -> Life {
        if !self.is_from_this_boot() {
            return Life::Dead;
        }
        if !self.is_from_this_namespace() {
            return Life::Unknown;
        }
        let dead = match self.writers().find(|writer| writer.pid == pid) {
            Some(writer) => !writer.open || process::is_dead(pid, writer.start),
            None => process::is_dead(pid, 0),
        };
        if dead { Life::Dead } else { Life::Alive }
    }

    fn is_from_this_boot(&self) -> bool {
        [self.get(W_BOOT), self.get(W_BOOT + 1)] == process::boot_id()
    }

    fn is_from_this_namespace(&self) -> bool {
        [0, process::pid_namespace()].contains(&self.get(W_PID_NAMESPACE))
    }

    /// What has become of `writers`, which are those of the file at `path` or of this and its predecessors.
    pub(crate) fn judge(&self, path: &Path, writers: impl Iterator<Item = Writer>) -> Status {
        let open: Vec<Writer> = writers.filter(|writer| writer.open).collect();
        let pids = |writers: &mut dyn Iterator<Item = &Writer>| {
            let mut pids: Vec<u32> = writers.map(|writer| writer.pid).collect();
            pids.sort_unstable();
            pids.dedup();
            pids
        };
        if open.is_empty() {
            return Status::Closed;
        }
        let same_boot = self.is_from_this_boot();
        // Where other machines write too, another boot may be that of another machine.
        let is_elsewhere = || match same_boot {
            true => !self.is_from_this_namespace(),
            false => stormlog_liveness::is_on_network(path),
        };
        if is_elsewhere() {
            return Status::Unknown { pids: pids(&mut open.iter()) };
        }
        let living =
            pids(&mut open.iter().filter(|writer| same_boot && !process::is_dead(writer.pid, writer.start)));
        if living.is_empty() {
            Status::Died { pids: pids(&mut open.iter()) }
        } else {
            Status::Active { pids: living }
        }
    }
}
