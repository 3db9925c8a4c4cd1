//! What an address space holds, grouped: heap, stacks, anonymous memory, shared memory, devices, files by path.
//!
//! The text comes from `/proc/PID/smaps` (or `maps`, then only sizes are known) and has no natural end: it is read line
//! by line, the number of mappings and of distinct files is bounded, and the summary says when something was left out.

use std::fs::File;
use std::io::{self, BufReader};

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::text::{key_size, next_line, unescape_octal};

/// Longest line looked at; a path is at most 4096 bytes before escaping.
const LINE_LIMIT: usize = 17 << 10;
/// Distinct files kept apart while reading.
const FILES_LIMIT: usize = 8192;

/// How much to read and to return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapLimits {
    /// Files named in the summary, largest first.
    pub top_files: usize,
    /// Mappings read before giving up.
    pub mappings: u64,
}

impl Default for MapLimits {
    fn default() -> Self {
        MapLimits { top_files: 20, mappings: 1 << 20 }
    }
}

/// Sums over a group of mappings. Only the size is known where the kernel does not count pages per mapping.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MapGroup {
    /// Mappings in the group.
    pub mappings: u64,
    /// Bytes of address space.
    pub size: u64,
    /// Resident bytes.
    pub rss: Option<u64>,
    /// Resident bytes, shared pages divided by their users.
    pub pss: Option<u64>,
    /// Resident bytes that are not shared.
    pub private: Option<u64>,
    /// Bytes that belong to no file (of a file: the part written to).
    pub anonymous: Option<u64>,
    /// Bytes swapped out.
    pub swap: Option<u64>,
}

impl MapGroup {
    fn add(&mut self, other: &MapGroup) {
        self.mappings += other.mappings;
        self.size = self.size.saturating_add(other.size);
        for (sum, value) in [
            (&mut self.rss, other.rss),
            (&mut self.pss, other.pss),
            (&mut self.private, other.private),
            (&mut self.anonymous, other.anonymous),
            (&mut self.swap, other.swap),
        ] {
            if let Some(value) = value {
                *sum = Some(sum.unwrap_or(0).saturating_add(value));
            }
        }
    }

    fn rank(&self) -> (u64, u64) {
        (self.rss.unwrap_or(0), self.size)
    }
}

/// One file and what is mapped of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileGroup {
    /// The path as the kernel shows it; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// The sums.
    #[serde(flatten)]
    pub group: MapGroup,
}

/// An address space in groups.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MapSummary {
    /// Everything together.
    pub total: MapGroup,
    /// The heap that `brk` grows.
    pub heap: MapGroup,
    /// The main thread's stack; other threads' stacks are anonymous to the kernel unless named.
    pub stack: MapGroup,
    /// Private memory of no file: large allocations, arenas, thread stacks.
    pub anonymous: MapGroup,
    /// Memory shared without a lasting file: `/dev/shm`, memfd, System V, shared anonymous mappings.
    pub shared_memory: MapGroup,
    /// Mapped devices, e.g. a GPU's registers and buffers.
    pub devices: MapGroup,
    /// Files: programs, libraries, data.
    pub files: MapGroup,
    /// The kernel's own pages: vdso, vvar, vsyscall.
    pub kernel: MapGroup,
    /// The largest files by resident bytes.
    pub top_files: Vec<FileGroup>,
    /// Distinct files seen (a lower bound when truncated).
    pub file_count: usize,
    /// True when there were more mappings than were read.
    pub truncated: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Heap,
    Stack,
    Anonymous,
    SharedMemory,
    Device,
    File,
    Kernel,
}

fn classify(name: &[u8], is_shared: bool) -> Kind {
    if name.is_empty() {
        return if is_shared { Kind::SharedMemory } else { Kind::Anonymous };
    }
    let starts = |prefix: &str| name.starts_with(prefix.as_bytes());
    if starts("[heap") {
        Kind::Heap
    } else if starts("[stack") {
        Kind::Stack
    } else if starts("[v") || starts("[uprobes") {
        Kind::Kernel
    } else if starts("[anon_shmem") {
        Kind::SharedMemory
    } else if starts("[") {
        Kind::Anonymous
    } else if starts("/dev/shm/") || starts("/memfd:") || starts("/SYSV") || starts("/dev/zero") {
        Kind::SharedMemory
    } else if starts("/dev/") || starts("anon_inode:") || starts("socket:") {
        Kind::Device
    } else {
        Kind::File
    }
}

/// Reads `smaps` or `maps`.
pub(crate) fn summarise(file: File, limits: MapLimits) -> io::Result<MapSummary> {
    let mut reader = BufReader::with_capacity(64 << 10, file);
    let mut line = Vec::with_capacity(256);
    let mut builder = Builder::default();
    while next_line(&mut reader, &mut line, LINE_LIMIT)? {
        if line.first().is_some_and(u8::is_ascii_uppercase) {
            builder.attribute(&line);
        } else if let Some((size, name, is_shared)) = header(&line) {
            if builder.summary.total.mappings + 1 >= limits.mappings {
                builder.summary.truncated = true;
                break;
            }
            builder.begin(size, name, is_shared);
        }
    }
    Ok(builder.finish(limits.top_files))
}

/// `55d0-55d1 rw-p 00000000 fd:01 123    /path with blanks` → size, path, shared.
fn header(line: &[u8]) -> Option<(u64, Vec<u8>, bool)> {
    let mut rest = line;
    let mut field = || {
        let start = rest.iter().position(|byte| *byte != b' ')?;
        let tail = &rest[start..];
        let end = tail.iter().position(|byte| *byte == b' ').unwrap_or(tail.len());
        rest = &tail[end..];
        Some(&tail[..end])
    };
    let range = std::str::from_utf8(field()?).ok()?;
    let (from, to) = range.split_once('-')?;
    let size = u64::from_str_radix(to, 16).ok()?.checked_sub(u64::from_str_radix(from, 16).ok()?)?;
    let is_shared = field()?.get(3) == Some(&b's');
    for _ in 0..3 {
        field()?;
    }
    let name = rest.trim_ascii_start();
    Some((size, unescape_octal(name), is_shared))
}

#[derive(Default)]
struct Builder {
    summary: MapSummary,
    files: FxHashMap<Vec<u8>, MapGroup>,
    current: Option<(Kind, Vec<u8>)>,
    group: MapGroup,
}

impl Builder {
    fn begin(&mut self, size: u64, name: Vec<u8>, is_shared: bool) {
        self.end();
        self.current = Some((classify(&name, is_shared), name));
        self.group = MapGroup { mappings: 1, size, ..MapGroup::default() };
    }

    fn attribute(&mut self, line: &[u8]) {
        let Some((key, value)) = key_size(line) else { return };
        let slot = match key {
            b"Rss" => &mut self.group.rss,
            b"Pss" => &mut self.group.pss,
            b"Private_Clean" | b"Private_Dirty" | b"Private_Hugetlb" => &mut self.group.private,
            b"Anonymous" => &mut self.group.anonymous,
            b"Swap" => &mut self.group.swap,
            _ => return,
        };
        *slot = Some(slot.unwrap_or(0).saturating_add(value));
    }

    fn end(&mut self) {
        let Some((kind, name)) = self.current.take() else { return };
        let summary = &mut self.summary;
        summary.total.add(&self.group);
        let group = match kind {
            Kind::Heap => &mut summary.heap,
            Kind::Stack => &mut summary.stack,
            Kind::Anonymous => &mut summary.anonymous,
            Kind::SharedMemory => &mut summary.shared_memory,
            Kind::Device => &mut summary.devices,
            Kind::File => &mut summary.files,
            Kind::Kernel => &mut summary.kernel,
        };
        group.add(&self.group);
        if matches!(kind, Kind::File | Kind::SharedMemory | Kind::Device) && !name.is_empty() {
            if let Some(file) = self.files.get_mut(&name) {
                file.add(&self.group);
            } else if self.files.len() < FILES_LIMIT {
                self.files.insert(name, self.group);
            } else {
                summary.truncated = true;
            }
        }
    }

    /// A group without mappings holds nothing, which is known wherever the kernel counts at all.
    fn fill_empty_groups(&mut self) {
        let summary = &mut self.summary;
        let total = summary.total;
        let nothing = |known: Option<u64>| known.map(|_| 0);
        for group in [
            &mut summary.heap,
            &mut summary.stack,
            &mut summary.anonymous,
            &mut summary.shared_memory,
            &mut summary.devices,
            &mut summary.files,
            &mut summary.kernel,
        ] {
            if group.mappings == 0 {
                *group = MapGroup {
                    rss: nothing(total.rss),
                    pss: nothing(total.pss),
                    private: nothing(total.private),
                    anonymous: nothing(total.anonymous),
                    swap: nothing(total.swap),
                    ..MapGroup::default()
                };
            }
        }
    }

    fn finish(mut self, top: usize) -> MapSummary {
        self.end();
        self.fill_empty_groups();
        let mut files: Vec<(Vec<u8>, MapGroup)> = self.files.into_iter().collect();
        files.sort_unstable_by(|a, b| b.1.rank().cmp(&a.1.rank()).then_with(|| a.0.cmp(&b.0)));
        self.summary.file_count = files.len();
        files.truncate(top);
        self.summary.top_files = files
            .into_iter()
            .map(|(path, group)| FileGroup { path: String::from_utf8_lossy(&path).into_owned(), group })
            .collect();
        self.summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{Seek, Write};

    fn summary_of(text: &[u8], limits: MapLimits) -> MapSummary {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text).unwrap();
        file.rewind().unwrap();
        summarise(file, limits).unwrap()
    }

    const TEXT: &str = "\
1000-3000 r-xp 00000000 fd:01 12      /usr/lib/lib torch.so
Rss:  8 kB\nPss: 4 kB\nPrivate_Clean: 0 kB\nPrivate_Dirty: 4 kB\nAnonymous: 4 kB\nVmFlags: rd ex
5000-6000 rw-p 00000000 00:00 0       [heap]
Rss:  4 kB\nPss: 4 kB\nPrivate_Dirty: 4 kB
7000-9000 rw-p 00000000 00:00 0 
Rss:  0 kB\nSwap: 8 kB
a000-b000 rw-s 00000000 00:01 9       /memfd:shm (deleted)
Rss:  4 kB
c000-d000 rw-s 00000000 00:06 99      /dev/nvidia0
Rss:  0 kB
d000-e000 r--p 00000000 fd:01 12      /usr/lib/lib torch.so
Rss:  4 kB
";

    #[test]
    fn mappings_fall_into_their_groups() {
        let summary = summary_of(TEXT.as_bytes(), MapLimits::default());
        assert_eq!(summary.total.mappings, 6);
        assert_eq!(summary.files.rss, Some(12 << 10));
        assert_eq!(summary.files.private, Some(4 << 10));
        assert_eq!(summary.heap.size, 0x1000);
        assert_eq!(summary.anonymous.swap, Some(8 << 10));
        assert_eq!(summary.shared_memory.rss, Some(4 << 10));
        assert_eq!(summary.devices.mappings, 1);
        assert_eq!((summary.kernel.mappings, summary.kernel.rss), (0, Some(0)));
        assert_eq!(summary.top_files[0].path, "/usr/lib/lib torch.so");
        assert_eq!(summary.file_count, 3);
        assert!(!summary.truncated);
    }

    #[test]
    fn sizes_alone_leave_the_rest_unknown() {
        let summary = summary_of(b"1000-3000 r-xp 00000000 fd:01 12 /bin/x\n", MapLimits::default());
        assert_eq!((summary.total.size, summary.total.rss), (0x2000, None));
        assert_eq!(summary.heap, MapGroup::default());
    }

    #[test]
    fn limits_hold_and_nonsense_is_skipped() {
        let limits = MapLimits { top_files: 1, mappings: 3 };
        let summary = summary_of(TEXT.as_bytes(), limits);
        assert!(summary.truncated && summary.top_files.len() <= 1 && summary.total.mappings <= 3);
        let wrong =
            "zz-yy rw-p\n3000-1000 rw-p 0 0 0 /backwards\n\u{0}\nRss: 99999999999999999999 kB\n-\n1-2\n";
        assert_eq!(summary_of(wrong.as_bytes(), MapLimits::default()), MapSummary::default());
    }

    proptest! {
        #[test]
        fn no_text_panics(
            noise in proptest::collection::vec(any::<u8>(), 0..200),
            lines in proptest::collection::vec(
                "[0-9a-f]{1,18}-[0-9a-f]{1,18} [rwxps-]{0,4} [0-9a-f]{0,9}( [0-9:]{1,5}){0,2}.{0,20}|(Rss|Pss|Swap): +[0-9]{1,21} kB",
                0..20,
            ),
        ) {
            summary_of(&noise, MapLimits::default());
            summary_of(lines.join("\n").as_bytes(), MapLimits::default());
        }
    }
}
