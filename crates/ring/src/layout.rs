//! The file format, as constants and small pure functions. Nothing here touches a file or an atomic's order.
//!
//! Both kinds of file are sequences of little-endian 64-bit **words**, starting with a header of 512 words
//! (4096 bytes). Word numbers below count from the start of the file, bit 0 is the lowest.
//!
//! # Header
//!
//! | word | content |
//! |---|---|
//! | 0 | magic, the bytes `STORMRNG` |
//! | 1 | low half: format version (1); high half: kind of file, 1 ring, 2 log segment |
//! | 2 | length of the whole file in bytes as it was created |
//! | 3 | ring: number of slots; segment: its number, from 1 |
//! | 4 | words in the frame area, which starts at word 512 |
//! | 5 | ring: words in one slot; segment: 0 |
//! | 6 | wall clock at creation, nanoseconds since 1970 |
//! | 7, 8 | boot id of the machine, 16 bytes |
//! | 9, 10 | label, 16 bytes chosen by the caller |
//! | 11 | family: equal in all segments of one log, and in a ring and its replacement |
//! | 12 | inode of the pid namespace in which the pids below are valid; 0 when unknown |
//! | 13 | CRC-32 of the 104 bytes of words 0–12 |
//! | 16 | frame area: a hint at the first free word of it (never beyond it; it may lag) |
//! | 24 | ring: the next ticket |
//! | 32 | records lost |
//! | 33 | payload bytes lost |
//! | 34 | reason code of the last loss, see `LossReason` |
//! | 35 | 1 once the last writer has closed the file; a segment is then cut after its end mark |
//! | 36 | writing processes for which the table had no room |
//! | 256 + 2i, i < 128 | writer: bits 0–31 pid, bits 62–63 state: 0 free, 1 open, 2 closed, 3 being filled in |
//! | 257 + 2i | that process's start time: field 22 of `/proc/<pid>/stat` |
//!
//! Words 0–13 never change; all others do while the file is in use. Words not named are 0.
//!
//! # Frame area
//!
//! A chain of frames, each beginning where the one before it ends. It is written only where it was zero.
//!
//! | word of the frame | content |
//! |---|---|
//! | 0 | bits 0–23 payload bytes, 24–31 kind, 32 definition, 33–39 zero, 40–61 pid, 62–63 state |
//! | 1 | bits 0–31 checksum, 32–63 zero |
//! | 2… | payload, padded with zeros to whole words |
//!
//! State 1 is *reserved*: the frame has an owner and a length, its content is not finished. State 2 is *committed*.
//! A zero word ends the chain for now; the word [`END`] ends it permanently. The checksum is CRC-32 (IEEE) over the
//! index of the frame's first word within the area (8 bytes), word 0 without its state bits (8 bytes), and the payload.
//!
//! A frame with the definition bit holds the 64-bit id (FNV-1a of the rest) and then the bytes it stands for.
//! A record refers only to definitions before it in the same file. The area of a segment holds records
//! and definitions; the area of a ring holds definitions only.
//!
//! # Slots (ring only)
//!
//! They follow the frame area. Ticket `t` belongs to slot `t mod slots`, in lap `t div slots`. A record takes
//! consecutive tickets, one per slot it needs; it is known by the first.
//!
//! | word of the slot | content |
//! |---|---|
//! | 0 | bits 0–38 lap, 39 first slot of its record, 40–61 pid, 62–63 state: 0 empty, 1 writing, 2 committed, 3 void |
//! | 1 | first slot: bits 0–23 payload bytes, 24–31 kind, 32–63 checksum; other slots: payload |
//! | 2… | payload |
//!
//! The checksum is CRC-32 over the record's ticket (8 bytes), the low half of word 1 widened to 8 bytes, and the payload.
//! A record is whole when all its slots are committed with the pid and lap its first slot asks for.

use crate::sync::{AtomicU64, Ordering};

/// Bytes of a word.
pub(crate) const WORD: usize = 8;
/// Length is a 24-bit field. Longer payloads are refused.
pub(crate) const MAX_PAYLOAD: usize = (1 << 24) - 1;
/// A pid is a 22-bit field, Linux's own limit (`PID_MAX_LIMIT`).
pub(crate) const PID_MASK: u64 = (1 << 22) - 1;
/// Ends a frame chain permanently. Not a frame: no frame has both state bits set.
pub(crate) const END: u64 = u64::from_le_bytes(*b"the end\xc0");

#[cfg(not(loom))]
pub use header_words::MAGIC_BYTES;
#[cfg(not(loom))]
pub(crate) use header_words::*;

/// The header: what its words say and where they are. The model checker has no files, hence no headers.
#[cfg(not(loom))]
mod header_words {
    /// The first eight bytes of either kind of file.
    pub const MAGIC_BYTES: [u8; 8] = *b"STORMRNG";
    /// First word of every file.
    pub(crate) const MAGIC: u64 = u64::from_le_bytes(MAGIC_BYTES);
    /// What this crate writes, and all it reads.
    pub(crate) const VERSION: u32 = 1;
    /// Words before the frame area; one page, so that the area after it is page-aligned.
    pub(crate) const HEADER_WORDS: usize = 512;
    pub(crate) const W_MAGIC: usize = 0;
    pub(crate) const W_VERSION_KIND: usize = 1;
    pub(crate) const W_FILE_BYTES: usize = 2;
    pub(crate) const W_COUNT: usize = 3;
    pub(crate) const W_FRAME_WORDS: usize = 4;
    pub(crate) const W_SLOT_WORDS: usize = 5;
    pub(crate) const W_CREATED: usize = 6;
    pub(crate) const W_BOOT: usize = 7;
    pub(crate) const W_LABEL: usize = 9;
    pub(crate) const W_FAMILY: usize = 11;
    pub(crate) const W_PID_NAMESPACE: usize = 12;
    pub(crate) const W_CRC: usize = 13;
    pub(crate) const W_TAIL: usize = 16; // 16, 24, 32: each on a cache line of its own
    pub(crate) const W_HEAD: usize = 24;
    pub(crate) const W_LOST_RECORDS: usize = 32;
    pub(crate) const W_LOST_BYTES: usize = 33;
    pub(crate) const W_LOST_REASON: usize = 34;
    pub(crate) const W_CLOSED: usize = 35;
    pub(crate) const W_UNLISTED: usize = 36;
    pub(crate) const W_WRITERS: usize = 256;
    pub(crate) const MAX_WRITERS: usize = 128;
    const _: () = assert!(W_WRITERS + 2 * MAX_WRITERS == HEADER_WORDS);
}

#[cfg(target_endian = "big")]
compile_error!("words are stored as the machine has them, and the format is little-endian");
#[cfg(not(target_pointer_width = "64"))]
compile_error!("files of up to 4 GiB are mapped whole");

/// How many words hold `bytes` bytes.
pub(crate) const fn words_for(bytes: usize) -> usize {
    bytes.div_ceil(WORD)
}

/// The checksum of a frame or a ring record: where it is, what it says it is, and its payload.
pub(crate) fn checksum(position: u64, tag: u64, payload: &[u8]) -> u32 {
    let mut lead = [0; 16];
    lead[..8].copy_from_slice(&position.to_le_bytes());
    lead[8..].copy_from_slice(&tag.to_le_bytes());
    let mut crc = crc32fast::Hasher::new();
    crc.update(&lead);
    crc.update(payload);
    crc.finalize()
}

/// Copies `bytes` into `words`, the last word padded with zeros. Relaxed: a commit mark publishes them.
pub(crate) fn store_bytes(words: &[AtomicU64], bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks::<WORD>();
    for (word, chunk) in words.iter().zip(whole) {
        word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
    }
    if let (false, Some(word)) = (rest.is_empty(), words.get(whole.len())) {
        let mut last = [0; WORD];
        last[..rest.len()].copy_from_slice(rest);
        word.store(u64::from_le_bytes(last), Ordering::Relaxed);
    }
}

/// Appends the first `len` bytes of `words` to `bytes`. The caller proves them by checksum afterwards.
pub(crate) fn load_bytes(words: &[AtomicU64], len: usize, bytes: &mut Vec<u8>) {
    let end = bytes.len() + len;
    bytes.reserve(len + WORD);
    for word in &words[..words_for(len).min(words.len())] {
        bytes.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    bytes.truncate(end);
}

/// Sixteen bytes as two words.
#[cfg(not(loom))]
pub(crate) fn halves(bytes: [u8; 16]) -> [u64; 2] {
    let all = u128::from_le_bytes(bytes);
    [all as u64, (all >> 64) as u64]
}
