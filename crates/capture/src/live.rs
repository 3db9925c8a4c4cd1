//! Reads a live file while its program writes, or after it died. Only by `pread`: a mapping of a file that shrinks would kill the reader.
//!
//! Must trust nothing: slot counts, lengths and states are checked against the file each time.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};

use crate::CaptureError;
use crate::layout::{self, header, slot, slot_state, state};

/// What the recorded process said about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header {
    /// Version of the layout.
    pub version: u32,
    /// The recorded process.
    pub pid: u32,
    /// Bits of [`layout::flags`].
    pub flags: u32,
    /// Wall clock at the start, nanoseconds since 1970.
    pub start_realtime_ns: u64,
    /// Monotonic clock at the start.
    pub start_monotonic_ns: u64,
    /// Mean bytes between samples; 0 when every allocation is recorded.
    pub sample_bytes: u64,
    /// One of [`layout::state`].
    pub state: u32,
    /// Monotonic nanoseconds at the end; 0 while it runs or when it was killed.
    pub end_monotonic_ns: u64,
    /// Events that could not be written.
    pub lost_events: u64,
    /// Start of the process in clock ticks since boot.
    pub process_start_ticks: u64,
    /// Ties a live file and a finished file together.
    pub capture_id: u64,
    /// Slots that may be in use at once; 0 when the live file is not bounded.
    pub slot_limit: u32,
    /// The JSON object about the process, unparsed.
    pub metadata: Vec<u8>,
}

/// Bytes of the header that are numbers.
pub(crate) const FIXED: usize = 96;

impl Header {
    /// The numbers of a header; `None` when the bytes are too few.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Header> {
        let fixed: &[u8; FIXED] = bytes.first_chunk()?;
        let small = |at: usize| u32_at(fixed, at).unwrap_or(0);
        let large = |at: usize| u64_at(fixed, at).unwrap_or(0);
        Some(Header {
            version: small(header::VERSION),
            pid: small(header::PID),
            flags: small(header::FLAGS),
            start_realtime_ns: large(header::START_REALTIME_NS),
            start_monotonic_ns: large(header::START_MONOTONIC_NS),
            sample_bytes: large(header::SAMPLE_BYTES),
            state: small(header::STATE),
            end_monotonic_ns: large(header::END_MONOTONIC_NS),
            lost_events: large(header::LOST_EVENTS),
            process_start_ticks: large(header::PROCESS_START_TICKS),
            capture_id: large(header::CAPTURE_ID),
            slot_limit: small(header::SLOT_LIMIT),
            metadata: Vec::new(),
        })
    }

    /// The numbers as they are in a file.
    pub(crate) fn fixed(&self) -> [u8; FIXED] {
        let mut bytes = [0; FIXED];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(header::MAGIC, &layout::LIVE_MAGIC);
        put(header::VERSION, &self.version.to_le_bytes());
        put(header::PID, &self.pid.to_le_bytes());
        put(header::FLAGS, &self.flags.to_le_bytes());
        put(header::START_REALTIME_NS, &self.start_realtime_ns.to_le_bytes());
        put(header::START_MONOTONIC_NS, &self.start_monotonic_ns.to_le_bytes());
        put(header::SAMPLE_BYTES, &self.sample_bytes.to_le_bytes());
        put(header::STATE, &self.state.to_le_bytes());
        put(header::END_MONOTONIC_NS, &self.end_monotonic_ns.to_le_bytes());
        put(header::LOST_EVENTS, &self.lost_events.to_le_bytes());
        put(header::PROCESS_START_TICKS, &self.process_start_ticks.to_le_bytes());
        put(header::CAPTURE_ID, &self.capture_id.to_le_bytes());
        put(header::SLOT_LIMIT, &self.slot_limit.to_le_bytes());
        bytes
    }

    /// The process came to its own end, or switched recording off.
    #[must_use]
    pub fn ended(&self) -> bool {
        matches!(self.state, state::EXITED | state::STOPPED)
    }
}

/// A slot's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotHeader {
    /// One writer's records in order.
    pub stream: u32,
    /// Number of the chunk in its stream.
    pub sequence: u64,
    /// Bytes of records that are complete.
    pub committed: usize,
    /// Kernel thread id of the writer.
    pub thread: u64,
    /// Id the next new node gets.
    pub first_node: u32,
}

/// A slot that holds records.
#[derive(Debug, Clone, Copy)]
pub struct Slot {
    /// Its place in the directory.
    pub index: u32,
    /// Its writer is done with it.
    pub is_full: bool,
    /// What its header said when it was listed; a taken slot may have grown since.
    pub header: SlotHeader,
}

/// An open live file.
#[derive(Debug)]
pub struct Live {
    file: File,
    path: PathBuf,
}

impl Live {
    /// The live file of the capture at `path`.
    pub fn path_of(capture: &Path) -> PathBuf {
        let mut name = capture.as_os_str().to_owned();
        name.push(layout::LIVE_SUFFIX);
        name.into()
    }

    /// Whether its header was begun. A process that is killed while the library is loaded into it leaves an empty file, or zeroes: nothing was recorded.
    #[must_use]
    pub fn has_begun(path: &Path) -> bool {
        let mut start = [0; 8];
        let Ok(file) = stormlog_files::open_regular(path) else { return false };
        match file.read_exact_at(&mut start, 0) {
            Ok(()) => start != [0; 8],
            Err(_) => file.metadata().is_ok_and(|metadata| metadata.len() > 0),
        }
    }

    /// Opens a live file to read it.
    pub fn open(path: &Path) -> Result<Live, CaptureError> {
        Self::check(stormlog_files::open_regular(path).map_err(CaptureError::io(path))?, path)
    }

    /// Opens a live file to take slots from it too.
    pub fn open_to_compact(path: &Path) -> Result<Live, CaptureError> {
        let file = stormlog_files::open_in_place(path).map_err(CaptureError::io(path))?;
        Self::check(file, path)
    }

    fn check(file: File, path: &Path) -> Result<Live, CaptureError> {
        let foreign = || CaptureError::Foreign { path: path.to_owned() };
        if !file.metadata().map_err(CaptureError::io(path))?.is_file() {
            return Err(foreign());
        }
        let mut start = [0; FIXED];
        file.read_exact_at(&mut start, 0).map_err(|_| foreign())?;
        if start[..8] != layout::LIVE_MAGIC {
            return Err(foreign());
        }
        let version = u32_at(&start, header::VERSION).unwrap_or(0);
        CaptureError::check_version(path, version, layout::VERSION)?;
        let slot_size = u32_at(&start, header::SLOT_SIZE).unwrap_or(0);
        if version == 0 || slot_size as usize != layout::SLOT_SIZE {
            return Err(CaptureError::damaged(
                path,
                format!("version {version} with slots of {slot_size} bytes"),
            ));
        }
        Ok(Live { file, path: path.to_owned() })
    }

    /// The file has another name now.
    pub(crate) fn renamed(&mut self, path: &Path) {
        path.clone_into(&mut self.path);
    }

    /// The header as it is now.
    pub fn header(&self) -> Result<Header, CaptureError> {
        let mut bytes = vec![0; layout::HEADER_SIZE];
        self.file.read_exact_at(&mut bytes, 0).map_err(CaptureError::io(&self.path))?;
        let mut parsed = Header::parse(&bytes)
            .ok_or_else(|| CaptureError::damaged(&self.path, "its header is truncated"))?;
        let length = u32_at(&bytes, header::METADATA_LEN).unwrap_or(0) as usize;
        let metadata = bytes.get(header::METADATA..header::METADATA.saturating_add(length));
        parsed.metadata = metadata.unwrap_or_default().to_vec();
        Ok(parsed)
    }

    /// The slots that hold records now.
    pub fn slots(&self) -> Result<Vec<Slot>, CaptureError> {
        let mut slots = Vec::new();
        for (index, state) in self.states()?.iter().enumerate() {
            let is_full = *state == slot_state::FULL;
            if (is_full || *state == slot_state::TAKEN)
                && let Some(header) = self.slot_header(index as u32)
            {
                slots.push(Slot { index: index as u32, is_full, header });
            }
        }
        Ok(slots)
    }

    /// How many slots are full.
    pub fn full(&self) -> Result<usize, CaptureError> {
        Ok(self.states()?.iter().filter(|state| **state == slot_state::FULL).count())
    }

    /// The states of all slots.
    fn states(&self) -> Result<Vec<u8>, CaptureError> {
        let io = CaptureError::io(&self.path);
        let mut count = [0; 4];
        self.file.read_exact_at(&mut count, header::SLOT_COUNT as u64).map_err(&io)?;
        // What the file cannot hold does not exist, whatever the header says.
        let length = self.file.metadata().map_err(&io)?.len().saturating_sub(layout::SLOTS as u64);
        let whole = length.div_ceil(layout::SLOT_SIZE as u64).min(layout::MAX_SLOTS as u64);
        let count = u64::from(u32::from_le_bytes(count)).min(whole) as usize;
        let mut states = vec![0; count];
        self.file.read_exact_at(&mut states, layout::DIRECTORY as u64).map_err(&io)?;
        Ok(states)
    }

    fn slot_header(&self, index: u32) -> Option<SlotHeader> {
        let mut bytes = [0; layout::SLOT_HEADER];
        self.file.read_exact_at(&mut bytes, offset(index)).ok()?;
        if u32_at(&bytes, slot::MAGIC)? != layout::SLOT_MAGIC {
            return None;
        }
        let committed = usize::try_from(u64_at(&bytes, slot::COMMITTED)?).ok()?;
        Some(SlotHeader {
            stream: u32_at(&bytes, slot::STREAM)?,
            sequence: u64_at(&bytes, slot::SEQUENCE)?,
            committed: committed.min(layout::SLOT_SIZE - layout::SLOT_HEADER),
            thread: u64_at(&bytes, slot::THREAD)?,
            first_node: u32_at(&bytes, slot::FIRST_NODE)?,
        })
    }

    /// The records of a slot as far as they are committed. `None`: the slot went to another chunk since it was listed.
    pub fn records(&self, slot: &Slot) -> Result<Option<Vec<u8>>, CaptureError> {
        let is_same =
            |now: &SlotHeader| (now.stream, now.sequence) == (slot.header.stream, slot.header.sequence);
        let Some(before) = self.slot_header(slot.index).filter(is_same) else { return Ok(None) };
        let mut bytes = vec![0; before.committed];
        let at = offset(slot.index) + layout::SLOT_HEADER as u64;
        self.file.read_exact_at(&mut bytes, at).map_err(CaptureError::io(&self.path))?;
        Ok(self.slot_header(slot.index).filter(is_same).map(|_| bytes))
    }

    /// Asks the program what keeps its memory: it looks when it next records something, and reports to its run's directory. For a file that is open to compact.
    pub fn ask_what_is_kept(&self) -> Result<(), CaptureError> {
        let mut word = [0; 8];
        let at = header::QUESTIONS as u64;
        self.file.read_exact_at(&mut word, at).map_err(CaptureError::io(&self.path))?;
        let next = u64::from_le_bytes(word).wrapping_add(1);
        self.file.write_all_at(&next.to_le_bytes(), at).map_err(CaptureError::io(&self.path))
    }

    /// Hands a slot back to the program, without its room on disk where `punch` says so. Its chunk must be safe by now.
    pub(crate) fn free(&self, index: u32, punch: bool) -> Result<(), CaptureError> {
        if punch {
            // Before it is handed back: until then it is the compactor's alone. Where the file system cannot, it keeps its room.
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(&self.file, hole, offset(index), layout::SLOT_SIZE as u64);
        }
        let at = layout::DIRECTORY as u64 + u64::from(index);
        self.file.write_all_at(&[slot_state::FREE], at).map_err(CaptureError::io(&self.path))
    }
}

fn offset(slot: u32) -> u64 {
    layout::SLOTS as u64 + u64::from(slot) * layout::SLOT_SIZE as u64
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|chunk| u32::from_le_bytes(*chunk))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|chunk| u64::from_le_bytes(*chunk))
}
