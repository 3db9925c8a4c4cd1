//! One record of a stream: its kinds, its shape in bytes, and how to take it apart. Must never panic on foreign bytes.
//!
//! Every record is a control word (`u16`) and up to four numbers A, B, C, D, each little-endian in as few bytes as it needs:
//!
//! ```text
//! bits 0–4 kind · 5–7 length code of A · 8–10 of B · 11–12 of C · 13–14 of D · 15 flag
//! ```
//!
//! What a stream refers back to (the last address, the last nodes, the time) starts from zero in every chunk, so a chunk can be
//! decoded alone; only node ids run on through the stream (the slot header has their start).
//!
//! | kind | A | B | C | D | after it |
//! |---|---|---|---|---|---|
//! | an allocation (1–15) | address¹ | bytes | Python node² | native node² | |
//! | `FREE`, `PY_FREE`, `REALLOC_TAKE` | address¹ | | | | |
//! | `REALLOC_UNDO` | address¹ | | | | the block of the last `REALLOC_TAKE` lives on: realloc failed |
//! | `MUNMAP` | address¹ | bytes | | | |
//! | `FAILED` | kind + errno × 256 | bytes | Python node² | native node² | |
//! | `TIME` | microseconds since the last `TIME` (the first: since the start) | | | | |
//! | `NODE_PYTHON` | code id | instruction × 2 + entry | this node − parent | | defines the next node id |
//! | `NODE_NATIVE` | address³ | | this node − parent | | defines the next node id |
//! | `NODE_TRUNCATED` | | | this node − parent | | frames left out here; defines the next node id |
//! | `NODE_MARK` | one of [`mark`] | | this node − parent | | defines the next node id |
//! | `DEVICE_ALLOCATION` | device address¹ | bytes | Python node² | native node² | |
//! | `DEVICE_FREE` | device address¹ | bytes where known, else 0 | | | |
//! | `DEFINITION` | type | id | payload bytes | 1 when more parts follow | payload |
//!
//! ¹ zigzag of (address ÷ 8 − last address ÷ 8), wrapping; with the flag: the address itself, for one that is not a multiple of 8.
//!   The last address is that of the last record of any kind that has one.
//! ² zigzag of (node − last node of that sort), wrapping; node 0 is "no stack".
//! ³ zigzag of (address − last native address), wrapping.

/// Kinds of records.
pub mod kind {
    /// `malloc`.
    pub const MALLOC: u8 = 1;
    /// `calloc`.
    pub const CALLOC: u8 = 2;
    /// `realloc` and `reallocarray`; a `REALLOC_TAKE` of the old block precedes it.
    pub const REALLOC: u8 = 3;
    /// `posix_memalign`.
    pub const POSIX_MEMALIGN: u8 = 4;
    /// `aligned_alloc`.
    pub const ALIGNED_ALLOC: u8 = 5;
    /// `memalign`.
    pub const MEMALIGN: u8 = 6;
    /// `valloc`.
    pub const VALLOC: u8 = 7;
    /// `pvalloc`.
    pub const PVALLOC: u8 = 8;
    /// `mmap` and `mmap64`.
    pub const MMAP: u8 = 9;
    /// The new range of an `mremap`; a `MUNMAP` of the old range precedes it.
    pub const MREMAP: u8 = 10;
    /// Growth of the data segment by `brk` or `sbrk`.
    pub const BRK: u8 = 11;
    /// CPython's allocators, `malloc`.
    pub const PY_MALLOC: u8 = 12;
    /// CPython's allocators, `calloc`.
    pub const PY_CALLOC: u8 = 13;
    /// CPython's allocators, `realloc`.
    pub const PY_REALLOC: u8 = 14;
    /// `posix_memalign` by PyTorch's allocator of CPU tensors.
    pub const TENSOR: u8 = 15;
    /// Last kind that is an allocation on the host.
    pub const LAST_ALLOCATION: u8 = 15;
    /// `free` and `cfree`.
    pub const FREE: u8 = 16;
    /// `munmap`; the range may cover parts of several mappings.
    pub const MUNMAP: u8 = 17;
    /// CPython's allocators, `free`.
    pub const PY_FREE: u8 = 18;
    /// A block handed to `realloc`: gone, unless `REALLOC_UNDO` follows.
    pub const REALLOC_TAKE: u8 = 19;
    /// That `realloc` failed; the block lives on.
    pub const REALLOC_UNDO: u8 = 20;
    /// A request that got no memory.
    pub const FAILED: u8 = 21;
    /// The clock moved on.
    pub const TIME: u8 = 22;
    /// A Python frame in the stream's stack tree.
    pub const NODE_PYTHON: u8 = 23;
    /// A native frame in the stream's stack tree.
    pub const NODE_NATIVE: u8 = 24;
    /// Frames left out of a stack that is too deep.
    pub const NODE_TRUNCATED: u8 = 25;
    /// A Python frame whose line is known: only in finished files, where it stands for a `NODE_PYTHON`. B is line × 2 + entry.
    pub const NODE_LINE: u8 = 26;
    /// Something about a stack that is not a frame; see [`mark`](super::mark). It is a node, mostly the leaf of its stack.
    pub const NODE_MARK: u8 = 27;
    /// A name for something; see [`definition`](super::definition).
    pub const DEFINITION: u8 = 28;
    /// A block of a device's memory. Its address is a [device address](super::device_address).
    pub const DEVICE_ALLOCATION: u8 = 29;
    /// A block of device memory is freed. It has its size, because a block from before the recording has no record of its allocation.
    pub const DEVICE_FREE: u8 = 30;
}

/// What a `DEFINITION` defines. Its parts, when there are several, follow each other in one stream (other records may be between them).
pub mod definition {
    /// A code object, by id. Payload: `u32` first line, `u32` bytes of the name, `u8` bytes a character (1: Latin-1, 2, 4), the name,
    /// `u32` bytes of the file name, `u8` bytes a character, the file name, then the line table to the end.
    pub const CODE: u64 = 1;
    /// A loaded module; id is its load address (bias). Payload: `u32` number of executable segments, for each `u64` start and `u64` end
    /// (addresses in memory), `u8` bytes of the build id, the build id, then the path to the end.
    pub const MODULE: u64 = 2;
    /// A module was unloaded; id is its load address. No payload.
    pub const MODULE_GONE: u64 = 3;
    /// A thread's name; id is its kernel thread id. Payload: the name.
    pub const THREAD_NAME: u64 = 4;
    /// The Python that runs in the process; id is its version as `Py_Version` gives it. Payload: the text of `Py_GetVersion`.
    pub const PYTHON: u64 = 5;
    /// Memory at a failed request (precedes its `FAILED`). Payload: `u64` RLIMIT_AS, `u64` address space in use, `u64` resident bytes;
    /// all ones where unknown.
    pub const LIMITS: u64 = 6;
    /// The program's own Python code has ended, its exit handlers included; the interpreter is about to take itself down. Id 0, no payload.
    pub const CODE_ENDED: u64 = 7;
    /// A device; id is its number in the recording. Payload: `u8` type as PyTorch numbers them (1: CUDA), `u8` index, `u8` one of
    /// [`device_source`](super::device_source). Stands before the first record of the device in any stream.
    pub const DEVICE: u64 = 8;
    /// What an allocator counted; id is the device's number. Stands before the record of the report it came with, and is how things are after it.
    /// Written with the first report of a device and whenever the reserved bytes are others than the last written. Payload: `u64` allocated, `u64` reserved.
    pub const DEVICE_TOTALS: u64 = 9;
    /// A request that an allocator could not fill; id is the device's number. Payload: `u64` bytes, `u64` allocated, `u64` reserved, `u32` Python node,
    /// `u32` native node (as in this stream, 0 for none).
    pub const DEVICE_FAILED: u64 = 10;
    /// Whether the framework's allocator reports to us; id 1: PyTorch was loaded and does, 2: it was loaded and has no such functions. No payload.
    pub const DEVICE_REPORTS: u64 = 11;
}

/// Who reports the memory of a device.
pub mod device_source {
    /// The framework's caching allocator.
    pub const ALLOCATOR: u8 = 0;
    /// The driver: allocations beside the framework's.
    pub const DRIVER: u8 = 1;
}

/// What a `NODE_MARK` says.
pub mod mark {
    /// The memory was asked for by a thread of the autograd engine; the frames above are those that called `backward`.
    pub const BACKWARD: u64 = 1;
    /// As [`BACKWARD`], while several callers were inside: which one it was for is not known, so there are no frames above.
    pub const BACKWARD_AMBIGUOUS: u64 = 2;
}

/// Bits of a device address below the number of its device.
pub const DEVICE_ADDRESS_BITS: u32 = 57;
/// Most devices of a recording (a device and a source of its reports count as one).
pub const MAX_DEVICES: u8 = 64;

/// The address of a block on a device, apart from those of the host and of other devices: bit 63, the device's number in the recording
/// (see [`definition::DEVICE`]), the address.
#[inline]
#[must_use]
pub const fn device_address(device: u8, address: u64) -> u64 {
    1 << 63
        | ((device & (MAX_DEVICES - 1)) as u64) << DEVICE_ADDRESS_BITS
        | address & ((1 << DEVICE_ADDRESS_BITS) - 1)
}

/// The number of the device in a [`device_address`].
#[inline]
#[must_use]
pub const fn device_of(address: u64) -> u8 {
    (address >> DEVICE_ADDRESS_BITS) as u8 & (MAX_DEVICES - 1)
}

/// Most bytes of payload in one part of a definition, so that a part always fits into an empty slot.
pub const MAX_PART: usize = 32 * 1024;
/// Most bytes of a record without its payload.
pub const MAX_RECORD: usize = 2 + 8 + 8 + 4 + 4;

/// Bytes for the length codes of A and B.
pub const WIDE: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 8];
/// Bytes for the length codes of C and D.
pub const NARROW: [u8; 4] = [0, 1, 2, 4];

/// The bit that marks A as a plain address.
pub const FLAG: u16 = 1 << 15;

/// Small numbers for small differences of either sign.
#[inline(always)]
#[must_use]
pub const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The difference [`zigzag`] was made from.
#[inline(always)]
#[must_use]
pub const fn unzigzag(value: u64) -> i64 {
    ((value >> 1) as i64) ^ -((value & 1) as i64)
}

/// A record, its numbers as they are in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// One of [`kind`].
    pub kind: u8,
    /// The flag bit.
    pub flag: bool,
    /// First number.
    pub a: u64,
    /// Second number.
    pub b: u64,
    /// Third number.
    pub c: u32,
    /// Fourth number.
    pub d: u32,
}

/// Takes the first record off `bytes`. `None`: the bytes end within it.
#[inline]
#[must_use]
pub fn split_first(bytes: &[u8]) -> Option<(Record, &[u8])> {
    let (control, rest) = bytes.split_first_chunk::<2>()?;
    let control = u16::from_le_bytes(*control);
    let (a, rest) = number(rest, WIDE[usize::from(control >> 5 & 7)])?;
    let (b, rest) = number(rest, WIDE[usize::from(control >> 8 & 7)])?;
    let (c, rest) = number(rest, NARROW[usize::from(control >> 11 & 3)])?;
    let (d, rest) = number(rest, NARROW[usize::from(control >> 13 & 3)])?;
    let record =
        Record { kind: (control & 31) as u8, flag: control & FLAG != 0, a, b, c: c as u32, d: d as u32 };
    Some((record, rest))
}

/// A number of `length` bytes. Reads eight at once where eight are left, which is nearly always.
#[inline(always)]
fn number(bytes: &[u8], length: u8) -> Option<(u64, &[u8])> {
    let length = usize::from(length);
    if let Some(eight) = bytes.first_chunk::<8>() {
        let mask = if length == 8 { u64::MAX } else { (1 << (8 * length)) - 1 };
        return Some((u64::from_le_bytes(*eight) & mask, &bytes[length..]));
    }
    let mut eight = [0; 8];
    eight[..length].copy_from_slice(bytes.get(..length)?);
    Some((u64::from_le_bytes(eight), &bytes[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_taken_apart() {
        // malloc, address difference 2 bytes, size 1 byte, node difference 1 byte.
        let control: u16 = u16::from(kind::MALLOC) | 2 << 5 | 1 << 8 | 1 << 11;
        let bytes = [&control.to_le_bytes()[..], &[0x34, 0x12, 100, 2], &[9, 9]].concat();
        let (record, rest) = split_first(&bytes).unwrap();
        assert_eq!(record, Record { kind: kind::MALLOC, flag: false, a: 0x1234, b: 100, c: 2, d: 0 });
        assert_eq!(rest, [9, 9]);
    }

    #[test]
    fn truncated_record_is_rejected() {
        let control: u16 = u16::from(kind::FREE) | 7 << 5;
        let whole = [&control.to_le_bytes()[..], &[1, 2, 3, 4, 5, 6, 7, 8]].concat();
        for cut in 0..whole.len() {
            assert_eq!(split_first(&whole[..cut]), None, "{cut} bytes");
        }
        assert!(split_first(&whole).is_some());
    }

    #[test]
    fn zigzag_goes_both_ways() {
        for value in [0, 1, -1, 63, -64, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
        assert_eq!(zigzag(-1), 1);
        assert_eq!(zigzag(1), 2);
    }
}
