//! Where things are in a live file. Numbers are little-endian. Must hold no logic that reads or writes.
//!
//! ```text
//! 0        header (4096 bytes; JSON about the process from METADATA on)
//! 4096     slot directory: one state byte a slot
//! 65536    slot 0, slot 1, … of SLOT_SIZE bytes, each with a SLOT_HEADER and then records
//! ```
//!
//! A slot goes FREE → TAKEN (by the writer, compare-and-swap; it then fills in the slot header) → FULL (by its writer) → FREE (by the
//! compactor, after the chunk is safe in the finished file). A TAKEN slot may be read at any time up to its committed length.
//! A chunk is known by (stream, sequence): one that is found twice, in the finished file and in a slot, is the same chunk.

/// First bytes of a live file.
pub const LIVE_MAGIC: [u8; 8] = *b"SLHEAPLV";
/// Version of the live file's layout and of its records.
pub const VERSION: u32 = 1;
/// What is put behind the capture's path to name its live file.
pub const LIVE_SUFFIX: &str = ".live";

/// Bytes of the header.
pub const HEADER_SIZE: usize = 4096;
/// Where the slot directory begins.
pub const DIRECTORY: usize = HEADER_SIZE;
/// Where slot 0 begins; a multiple of any page size in use.
pub const SLOTS: usize = 65_536;
/// Most slots a live file can have (3.75 GiB of records that are not compacted yet).
pub const MAX_SLOTS: usize = SLOTS - DIRECTORY;
/// Bytes of a slot, its header included.
pub const SLOT_SIZE: usize = 65_536;

/// Byte offsets in the header.
pub mod header {
    /// `[u8; 8]`, [`LIVE_MAGIC`](super::LIVE_MAGIC).
    pub const MAGIC: usize = 0;
    /// `u32`, [`VERSION`](super::VERSION).
    pub const VERSION: usize = 8;
    /// `u32`, [`SLOT_SIZE`](super::SLOT_SIZE) of this file.
    pub const SLOT_SIZE: usize = 12;
    /// `u32`, the recorded process.
    pub const PID: usize = 16;
    /// `u32`, bits of [`flags`](super::flags).
    pub const FLAGS: usize = 20;
    /// `u64`, wall clock at the start, nanoseconds since 1970.
    pub const START_REALTIME_NS: usize = 24;
    /// `u64`, `CLOCK_MONOTONIC_COARSE` at the start; time records count from here.
    pub const START_MONOTONIC_NS: usize = 32;
    /// `u64`, mean bytes between samples; 0 when every allocation is recorded.
    pub const SAMPLE_BYTES: usize = 40;
    /// `u32`, atomic: slots that exist.
    pub const SLOT_COUNT: usize = 48;
    /// `u32`, atomic: one of [`state`](super::state).
    pub const STATE: usize = 52;
    /// `u64`, atomic: monotonic nanoseconds at the end; 0 while it runs or when it was killed.
    pub const END_MONOTONIC_NS: usize = 56;
    /// `u64`, atomic: events that could not be written (disk full, file vanished).
    pub const LOST_EVENTS: usize = 64;
    /// `u64`, start time of the process in clock ticks since boot (`/proc/PID/stat`): tells it from a later owner of its pid.
    pub const PROCESS_START_TICKS: usize = 72;
    /// `u64`, random: ties a live file and a finished file together.
    pub const CAPTURE_ID: usize = 80;
    /// `u32`, bytes of JSON at [`METADATA`].
    pub const METADATA_LEN: usize = 88;
    /// `u32`, slots that may be in use at once, but for two of each thread; 0 when the file is not bounded.
    pub const SLOT_LIMIT: usize = 92;
    /// `u64`, atomic: how often the supervisor has asked what keeps the memory of the process.
    pub const QUESTIONS: usize = 96;
    /// JSON object: `command` (array), `python` (version or null), `parent_pid`, …
    pub const METADATA: usize = 512;
}

/// What is recorded.
pub mod flags {
    /// Records carry native stacks.
    pub const NATIVE: u32 = 1;
    /// Requests to CPython's own allocators are recorded too.
    pub const PYTHON_ALLOCATORS: u32 = 2;
    /// The library was preloaded, so the record begins with the process; without it, it begins when recording was switched on.
    pub const PRELOADED: u32 = 4;
    /// The live file was cut, or its disk failed, while the program wrote into it: recording ended there, and what was cut off is lost.
    pub const CUT: u32 = 8;
    /// The bound of the live file was reached and no slot was handed back in time: records were dropped, and counted as lost.
    pub const BOUNDED: u32 = 16;
    /// The host heap was left out: a capture without its records says nothing about it.
    pub const NO_HOST: u32 = 32;
}

/// The state of the recording, as its own process saw it.
pub mod state {
    /// Still recording, or killed.
    pub const RUNNING: u32 = 0;
    /// The process came to its normal exit.
    pub const EXITED: u32 = 1;
    /// Recording was switched off.
    pub const STOPPED: u32 = 2;
}

/// States of a slot.
pub mod slot_state {
    /// Has no owner; may hold an old chunk.
    pub const FREE: u8 = 0;
    /// A thread writes into it.
    pub const TAKEN: u8 = 1;
    /// Complete; waits for the compactor.
    pub const FULL: u8 = 2;
}

/// Byte offsets in a slot header.
pub mod slot {
    /// `u32`, [`SLOT_MAGIC`](super::SLOT_MAGIC), written last: a slot without it holds nothing yet.
    pub const MAGIC: usize = 0;
    /// `u32`, the stream: one writer's records in order. A later thread may continue with the stream of one that ended.
    pub const STREAM: usize = 4;
    /// `u64`, number of this chunk in its stream, from 0.
    pub const SEQUENCE: usize = 8;
    /// `u64`, atomic: bytes of records that are complete, counted from [`SLOT_HEADER`](super::SLOT_HEADER).
    pub const COMMITTED: usize = 16;
    /// `u64`, kernel thread id of the writer; a slot has one writer.
    pub const THREAD: usize = 24;
    /// `u32`, id the next new node of this stream gets in this chunk.
    pub const FIRST_NODE: usize = 32;
}

/// First bytes of a slot that is in use.
pub const SLOT_MAGIC: u32 = u32::from_le_bytes(*b"SLOT");
/// Bytes of a slot's header; records follow.
pub const SLOT_HEADER: usize = 64;
