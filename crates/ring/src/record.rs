//! The values that cross the crate's border: records, definitions, losses, what a reader counted, and the writer.

use std::collections::HashMap;

/// One record, as it was appended. Borrowed from its reader until the next is requested.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The caller's own kind.
    pub kind: u8,
    /// The process that appended it.
    pub pid: u32,
    /// Grows from record to record within one file or one log. Ring: the ticket. Log: the segment's number in the
    /// high half, the record's number within it in the low half.
    pub position: u64,
    /// What was appended.
    pub payload: &'a [u8],
    /// The definitions this record may refer to.
    pub definitions: &'a Definitions,
}

/// The name of a definition: the 64-bit FNV-1a hash of its bytes. Equal bytes have equal ids in every file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DefId(pub u64);

impl DefId {
    /// The id of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        DefId(bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        }))
    }
}

/// Bytes that records refer to by id instead of repeating them. Make one once, then pass it with every record that
/// refers to it: the writer writes it when the file does not have it yet.
#[derive(Debug, Clone)]
pub struct Definition {
    id: DefId,
    // The id and then the bytes, as the frame holds them.
    framed: Box<[u8]>,
}

impl Definition {
    /// A definition of `bytes`.
    pub fn new(bytes: &[u8]) -> Self {
        let id = DefId::of(bytes);
        Definition { id, framed: [&id.0.to_le_bytes(), bytes].concat().into() }
    }

    /// What records write to refer to it.
    pub fn id(&self) -> DefId {
        self.id
    }

    pub(crate) fn framed(&self) -> &[u8] {
        &self.framed
    }
}

/// The definitions a reader has come upon.
#[derive(Debug, Default)]
pub struct Definitions {
    by_id: HashMap<DefId, Box<[u8]>>,
}

impl Definitions {
    /// The bytes `id` stands for.
    pub fn get(&self, id: DefId) -> Option<&[u8]> {
        self.by_id.get(&id).map(AsRef::as_ref)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Takes in the payload of a definition frame. False when it is not what its id says.
    pub(crate) fn insert(&mut self, framed: &[u8]) -> bool {
        let Some((id, bytes)) = framed.split_first_chunk() else { return false };
        let id = DefId(u64::from_le_bytes(*id));
        if id != DefId::of(bytes) {
            return false;
        }
        self.by_id.entry(id).or_insert_with(|| bytes.into());
        true
    }

    pub(crate) fn clear(&mut self) {
        self.by_id.clear();
    }
}

/// Why records were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// A record is larger than the file takes.
    TooLarge,
    /// The disk or a quota is full, or the file may not become that large.
    NoSpace,
    /// The directory may not be written.
    NotPermitted,
    /// Another process truncated or overwrote the file.
    Truncated,
    /// The file or its directory was deleted.
    Removed,
    /// Another writer held the slot, which takes a ring too small for the number of its writers.
    Contended,
    /// Any other error of the operating system.
    Other,
}

impl LossReason {
    pub(crate) const ALL: [LossReason; 7] = [
        LossReason::TooLarge,
        LossReason::NoSpace,
        LossReason::NotPermitted,
        LossReason::Truncated,
        LossReason::Removed,
        LossReason::Contended,
        LossReason::Other,
    ];

    /// The code in a file: 1 for the first of [`Self::ALL`]. 0 means no loss.
    pub(crate) fn code(self) -> u64 {
        self as u64 + 1
    }

    pub(crate) fn from_code(code: u64) -> Option<Self> {
        let index = code.checked_sub(1)?;
        Some(
            usize::try_from(index)
                .ok()
                .and_then(|index| Self::ALL.get(index))
                .map_or(Self::Other, |&reason| reason),
        )
    }
}

/// Records that were appended or were to be appended, and are not in the file. When the file was truncated or deleted,
/// the count is an upper bound: all that its writers had put there, as far as a ring still held it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Loss {
    /// How many.
    pub records: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Why the last of them was lost.
    pub reason: Option<LossReason>,
}

impl Loss {
    /// What is left of these when only the newest `records` of them are counted, taken to be of equal size.
    pub(crate) fn newest(self, records: u64) -> Self {
        if self.records <= records {
            return self;
        }
        let bytes = u128::from(self.bytes) * u128::from(records) / u128::from(self.records);
        Loss { records, bytes: bytes as u64, ..self }
    }

    pub(crate) fn add(&mut self, other: Loss) {
        self.records = self.records.saturating_add(other.records);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.reason = other.reason.or(self.reason);
    }
}

/// What a reader met on its way, beside the records it returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadStats {
    /// Records returned.
    pub records: u64,
    /// Records begun and not finished: their writer died in the middle, or is still at it.
    pub unfinished: u64,
    /// Places that fail their checksum.
    pub damaged: u64,
    /// Ring: slots overwritten while they were being read.
    pub overwritten: u64,
    /// Log: segments missing between those found, or not readable.
    pub missing_segments: u64,
    /// Files shorter than they were made, though they were not closed.
    pub truncated: u64,
}

/// What has become of the processes that write a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// All writers closed it.
    Closed,
    /// These have it open and live.
    Active {
        /// Their pids.
        pids: Vec<u32>,
    },
    /// No writer is left, and these ended without closing it.
    Died {
        /// Their pids.
        pids: Vec<u32>,
    },
    /// These have it open, in another PID namespace or maybe on another machine, so whether they live is not known here.
    Unknown {
        /// Their pids, as they are there.
        pids: Vec<u32>,
    },
}
