//! One process, read again and again: cheap numbers through kept file descriptors, costly ones on demand.
//!
//! Every file is opened relative to one descriptor of `/proc/PID`, so a reader can never slip onto another process that
//! got the same number. It must never read the environment, and never report the zeros of a dead process as its memory.
//! A reader follows the process it was opened for across `fork`: a forked child opens its own.

mod detail;
mod maps;
mod peak;
mod stat;

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open, openat};
use serde::Serialize;

use crate::text::{self, KeptFile};
use crate::{CollectError, Roots};

pub use detail::MemoryDetail;
pub use maps::{FileGroup, MapGroup, MapLimits, MapSummary};
pub use peak::{Peak, PeakWindow};
pub(crate) use stat::parse_stat;
pub use stat::{ProcessStat, ProcessStatus, State};

/// Longest command line kept.
const COMMAND_LINE_LIMIT: usize = 64 << 10;

/// The cheapest reading: one system call.
///
/// From Linux 6.2 the kernel counts pages per CPU and may be a few hundred KiB behind on large machines (exact again
/// from 6.17); [`ProcessReader::detail`] walks the page tables and is exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ProcessMemory {
    /// Resident bytes.
    pub rss: u64,
    /// Bytes of address space.
    pub vms: u64,
    /// Resident bytes of files and shared memory.
    pub shared: u64,
}

/// All cheap readings of one process together; each part is `None` when it could not be read.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ProcessSample {
    /// RSS, VMS and shared.
    pub memory: Option<ProcessMemory>,
    /// State, parent, faults, threads, CPU time.
    pub stat: Option<ProcessStat>,
    /// Swap, peaks, and what the RSS is made of.
    pub status: Option<ProcessStatus>,
}

/// The arguments a process was started with (it may have rewritten them).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CommandLine {
    /// The arguments; bytes that are not UTF-8 are replaced.
    pub arguments: Vec<String>,
    /// True when there was more than 64 KiB of it.
    pub truncated: bool,
}

/// Repeated readings of one process.
#[derive(Debug)]
pub struct ProcessReader {
    pid: u32,
    start_time: u64,
    page_size: u64,
    path: PathBuf,
    directory: File,
    /// Whether files are closed after each reading, so that the directory is the only descriptor.
    is_frugal: bool,
    statm: Option<KeptFile>,
    stat: Option<KeptFile>,
    status: Option<KeptFile>,
}

impl ProcessReader {
    /// Opens a process by its number.
    pub fn open(pid: u32) -> Result<Self, CollectError> {
        Self::open_in(&Roots::default(), pid)
    }

    /// Opens a process by its number with one descriptor; each reading opens its file again. For a reader of hundreds of processes.
    pub fn open_frugal(pid: u32) -> Result<Self, CollectError> {
        let mut reader = Self::open(pid)?;
        reader.is_frugal = true;
        (reader.statm, reader.stat) = (None, None);
        Ok(reader)
    }

    /// Opens this process. A forked child must open its own.
    pub fn this() -> Result<Self, CollectError> {
        Self::open(std::process::id())
    }

    /// Opens a process below another `/proc`.
    pub fn open_in(roots: &Roots, pid: u32) -> Result<Self, CollectError> {
        let path = roots.of_process(pid);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(&path, flags, Mode::empty())
            .map(File::from)
            .map_err(|error| CollectError::of_process(pid, &path, error))?;
        let statm = open_kept(pid, &directory, &path, "statm")?;
        let mut stat = open_kept(pid, &directory, &path, "stat")?;
        let parsed = read_stat(pid, &mut stat)?;
        let (statm, stat) = (Some(statm), Some(stat));
        Ok(ProcessReader {
            pid,
            start_time: parsed.start_time,
            page_size: rustix::param::page_size() as u64,
            path,
            directory,
            is_frugal: false,
            statm,
            stat,
            status: None,
        })
    }

    /// The process's number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Clock ticks between boot and its start: with the number, this identifies it permanently.
    pub fn start_time(&self) -> u64 {
        self.start_time
    }

    /// RSS, VMS and shared: one system call, no allocation.
    pub fn memory(&mut self) -> Result<ProcessMemory, CollectError> {
        let (pid, page_size) = (self.pid, self.page_size);
        self.with_file(
            "statm",
            |reader| &mut reader.statm,
            |file| {
                let pages = file.read().map(|text| {
                    let mut pages = text::words(text)
                        .map(|word| text::number(word).and_then(|pages| pages.checked_mul(page_size)));
                    match (pages.next().flatten(), pages.next().flatten(), pages.next().flatten()) {
                        (Some(vms), Some(rss), Some(shared)) => Ok(ProcessMemory { rss, vms, shared }),
                        _ => Err(text.to_vec()),
                    }
                });
                match pages {
                    // Without an address space the kernel prints zeros: that is not a reading.
                    Ok(Ok(ProcessMemory { vms: 0, .. })) => Err(CollectError::NoMemory { pid }),
                    Ok(Ok(memory)) => Ok(memory),
                    Ok(Err(text)) => Err(CollectError::malformed(file.path(), &text)),
                    Err(error) => Err(CollectError::of_process(pid, file.path(), error)),
                }
            },
        )
    }

    /// State, parent, faults, threads and CPU time.
    pub fn stat(&mut self) -> Result<ProcessStat, CollectError> {
        let pid = self.pid;
        self.with_file("stat", |reader| &mut reader.stat, |file| read_stat(pid, file))
    }

    /// Swap, peaks, and what the RSS is made of.
    pub fn status(&mut self) -> Result<ProcessStatus, CollectError> {
        let pid = self.pid;
        self.with_file(
            "status",
            |reader| &mut reader.status,
            |file| match file.read() {
                Ok(text) => Ok(stat::parse_status(text)),
                Err(error) => Err(CollectError::of_process(pid, file.path(), error)),
            },
        )
    }

    /// Reads one of the kept files, which a frugal reader opens for this reading alone.
    fn with_file<T>(
        &mut self,
        name: &str,
        kept: impl Fn(&mut Self) -> &mut Option<KeptFile>,
        read: impl FnOnce(&mut KeptFile) -> Result<T, CollectError>,
    ) -> Result<T, CollectError> {
        let mut file = match kept(self).take() {
            Some(file) => file,
            None => open_kept(self.pid, &self.directory, &self.path, name)?,
        };
        let result = read(&mut file);
        if !self.is_frugal {
            *kept(self) = Some(file);
        }
        result
    }

    /// All cheap readings; what fails is `None`. `Err` only when the process is gone.
    pub fn sample(&mut self) -> Result<ProcessSample, CollectError> {
        let stat = match self.stat() {
            Err(error) if error.is_gone() => return Err(error),
            stat => stat.ok(),
        };
        Ok(ProcessSample { memory: self.memory().ok(), stat, status: self.status().ok() })
    }

    /// PSS, USS and the split by kind, exact: the kernel walks the page tables, which takes milliseconds per GiB.
    pub fn detail(&self) -> Result<MemoryDetail, CollectError> {
        let (text, path) = self.read_file("smaps_rollup", text::WHOLE_LIMIT)?;
        detail::parse(&text).ok_or_else(|| CollectError::malformed(&path, &text))
    }

    /// What the address space holds, grouped. As costly as [`ProcessReader::detail`], and bounded in size.
    pub fn map_summary(&self, limits: MapLimits) -> Result<MapSummary, CollectError> {
        match self.open_file("smaps") {
            Ok((file, path)) => maps::summarise(file, limits)
                .map_err(|error| CollectError::of_process(self.pid, &path, error)),
            // Kernels without page monitoring still tell the sizes.
            Err(CollectError::ProcessGone { .. }) => {
                let (file, path) = self.open_file("maps")?;
                maps::summarise(file, limits)
                    .map_err(|error| CollectError::of_process(self.pid, &path, error))
            }
            Err(error) => Err(error),
        }
    }

    /// The arguments. Empty for a kernel thread or a zombie.
    pub fn command_line(&self) -> Result<CommandLine, CollectError> {
        let (mut bytes, _) = self.read_file("cmdline", COMMAND_LINE_LIMIT + 1)?;
        let truncated = bytes.len() > COMMAND_LINE_LIMIT;
        bytes.truncate(COMMAND_LINE_LIMIT);
        if bytes.last() == Some(&0) {
            bytes.pop();
        }
        if bytes.is_empty() {
            return Ok(CommandLine::default());
        }
        let arguments = bytes
            .split(|byte| *byte == 0)
            .map(|argument| String::from_utf8_lossy(argument).into_owned())
            .collect();
        Ok(CommandLine { arguments, truncated })
    }

    fn open_file(&self, name: &str) -> Result<(File, PathBuf), CollectError> {
        open_relative(self.pid, &self.directory, &self.path, name, OFlags::RDONLY)
    }

    fn read_file(&self, name: &str, limit: usize) -> Result<(Vec<u8>, PathBuf), CollectError> {
        let (file, path) = self.open_file(name)?;
        match text::read_from(file, limit) {
            Ok(bytes) => Ok((bytes, path)),
            Err(error) => Err(CollectError::of_process(self.pid, &path, error)),
        }
    }
}

fn open_relative(
    pid: u32,
    directory: &File,
    path: &Path,
    name: &str,
    access: OFlags,
) -> Result<(File, PathBuf), CollectError> {
    let path = path.join(name);
    match openat(directory, name, access | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()) {
        Ok(file) => Ok((File::from(file), path)),
        Err(error) => Err(CollectError::of_process(pid, &path, error)),
    }
}

fn open_kept(pid: u32, directory: &File, path: &Path, name: &str) -> Result<KeptFile, CollectError> {
    let (file, path) = open_relative(pid, directory, path, name, OFlags::RDONLY)?;
    Ok(KeptFile::new(file, path))
}

fn read_stat(pid: u32, kept: &mut KeptFile) -> Result<ProcessStat, CollectError> {
    let read = kept.read().map(|text| parse_stat(text).ok_or_else(|| text.to_vec()));
    match read {
        Ok(Ok(stat)) => Ok(stat),
        Ok(Err(text)) => Err(CollectError::malformed(kept.path(), &text)),
        Err(error) => Err(CollectError::of_process(pid, kept.path(), error)),
    }
}
