//! The machine: memory, swap, page size, processors, and which machine and boot it is.
//!
//! In a container `/proc/meminfo` still describes the whole host: the limit that matters is the cgroup's.

use std::path::Path;

use serde::Serialize;

use crate::text::{self, KeptFile, key_size, lines, number};
use crate::{CollectError, Roots};

/// What `/proc/meminfo` says, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct HostMemory {
    /// Memory the kernel manages.
    pub total: Option<u64>,
    /// Unused memory.
    pub free: Option<u64>,
    /// The kernel's estimate of what programs can still get without swapping.
    pub available: Option<u64>,
    /// Block device buffers.
    pub buffers: Option<u64>,
    /// Page cache, shared memory included.
    pub cached: Option<u64>,
    /// Shared memory and tmpfs: part of `cached` that cannot be dropped.
    pub shared_memory: Option<u64>,
    /// Memory of programs that belongs to no file.
    pub anonymous: Option<u64>,
    /// Files mapped into programs.
    pub mapped: Option<u64>,
    /// Kernel memory that can be dropped.
    pub slab_reclaimable: Option<u64>,
    /// Kernel memory that cannot.
    pub slab_unreclaimable: Option<u64>,
    /// Page tables.
    pub page_tables: Option<u64>,
    /// Memory that must not be swapped out.
    pub unevictable: Option<u64>,
    /// Locked memory.
    pub locked: Option<u64>,
    /// Written but not yet on disk.
    pub dirty: Option<u64>,
    /// Swap space.
    pub swap_total: Option<u64>,
    /// Unused swap space.
    pub swap_free: Option<u64>,
    /// Memory promised to programs.
    pub committed: Option<u64>,
    /// What may be promised under strict overcommit.
    pub commit_limit: Option<u64>,
    /// Huge pages set aside (a count).
    pub huge_pages_total: Option<u64>,
    /// Huge pages unused (a count).
    pub huge_pages_free: Option<u64>,
    /// Size of one such page.
    pub huge_page_size: Option<u64>,
    /// Anonymous memory in transparent huge pages.
    pub anonymous_huge_pages: Option<u64>,
}

impl HostMemory {
    /// Swap in use.
    pub fn swap_used(&self) -> Option<u64> {
        self.swap_total?.checked_sub(self.swap_free?)
    }
}

/// Repeated readings of the host's memory through one kept file.
#[derive(Debug)]
pub struct HostReader {
    meminfo: KeptFile,
}

impl HostReader {
    /// Opens `/proc/meminfo`.
    pub fn open() -> Result<Self, CollectError> {
        Self::open_in(&Roots::default())
    }

    /// The same below another `/proc`.
    pub fn open_in(roots: &Roots) -> Result<Self, CollectError> {
        let path = roots.proc.join("meminfo");
        KeptFile::open(path.clone())
            .map(|meminfo| HostReader { meminfo })
            .map_err(|error| CollectError::io(&path, error))
    }

    /// The memory as of now.
    pub fn memory(&mut self) -> Result<HostMemory, CollectError> {
        match self.meminfo.read() {
            Ok(text) => Ok(parse(text)),
            Err(error) => Err(CollectError::io(self.meminfo.path(), error)),
        }
    }
}

fn parse(text: &[u8]) -> HostMemory {
    let mut memory = HostMemory::default();
    for line in lines(text) {
        let Some((key, value)) = key_size(line) else { continue };
        let slot = match key {
            b"MemTotal" => &mut memory.total,
            b"MemFree" => &mut memory.free,
            b"MemAvailable" => &mut memory.available,
            b"Buffers" => &mut memory.buffers,
            b"Cached" => &mut memory.cached,
            b"Shmem" => &mut memory.shared_memory,
            b"AnonPages" => &mut memory.anonymous,
            b"Mapped" => &mut memory.mapped,
            b"SReclaimable" => &mut memory.slab_reclaimable,
            b"SUnreclaim" => &mut memory.slab_unreclaimable,
            b"PageTables" => &mut memory.page_tables,
            b"Unevictable" => &mut memory.unevictable,
            b"Mlocked" => &mut memory.locked,
            b"Dirty" => &mut memory.dirty,
            b"SwapTotal" => &mut memory.swap_total,
            b"SwapFree" => &mut memory.swap_free,
            b"Committed_AS" => &mut memory.committed,
            b"CommitLimit" => &mut memory.commit_limit,
            b"HugePages_Total" => &mut memory.huge_pages_total,
            b"HugePages_Free" => &mut memory.huge_pages_free,
            b"Hugepagesize" => &mut memory.huge_page_size,
            b"AnonHugePages" => &mut memory.anonymous_huge_pages,
            _ => continue,
        };
        *slot = Some(value);
    }
    memory
}

/// How many processes the OOM killer took on this machine since it started, for cgroups and for itself; `None` before
/// Linux 4.13.
pub fn host_oom_kills(roots: &Roots) -> Option<u64> {
    let text = text::read_whole(&roots.proc.join("vmstat")).ok()?;
    lines(&text).filter_map(text::key_number).find(|(key, _)| *key == b"oom_kill").map(|(_, count)| count)
}

/// What does not change while the machine is up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct HostFacts {
    /// Bytes in a page.
    pub page_size: u64,
    /// The id the kernel chose at boot.
    pub boot_id: Option<String>,
    /// The machine's name.
    pub hostname: Option<String>,
    /// The kernel's release, e.g. `6.8.0-40-generic`.
    pub kernel: Option<String>,
    /// Processors that are on.
    pub cpus_online: Option<u64>,
    /// Processors the machine could have.
    pub cpus_possible: Option<u64>,
    /// Processors this process may use: affinity and CPU quota taken into account.
    pub cpus_usable: Option<u64>,
    /// How the kernel promises memory: 0 by guess, 1 always, 2 strictly.
    pub overcommit: Option<u64>,
    /// The kernel's wish to swap, 0 to 200.
    pub swappiness: Option<u64>,
}

impl HostFacts {
    /// Reads the facts; what cannot be read is `None`.
    pub fn read() -> Self {
        Self::read_in(&Roots::default())
    }

    /// The same below other roots.
    pub fn read_in(roots: &Roots) -> Self {
        let kernel = roots.proc.join("sys/kernel");
        let vm = roots.proc.join("sys/vm");
        let cpus = roots.sys.join("devices/system/cpu");
        HostFacts {
            page_size: rustix::param::page_size() as u64,
            boot_id: text::read_line(&kernel.join("random/boot_id")),
            hostname: text::read_line(&kernel.join("hostname")),
            kernel: text::read_line(&kernel.join("osrelease")),
            cpus_online: cpu_list(&cpus.join("online")),
            cpus_possible: cpu_list(&cpus.join("possible")),
            cpus_usable: std::thread::available_parallelism().ok().map(|count| count.get() as u64),
            overcommit: text::read_number(&vm.join("overcommit_memory")),
            swappiness: text::read_number(&vm.join("swappiness")),
        }
    }
}

/// Counts `0-3,5,8-9`.
fn cpu_list(path: &Path) -> Option<u64> {
    count_list(text::read_line(path)?.as_bytes())
}

fn count_list(list: &[u8]) -> Option<u64> {
    list.split(|byte| *byte == b',').try_fold(0u64, |count, range| {
        let mut ends = range.splitn(2, |byte| *byte == b'-').map(number);
        let first = ends.next()??;
        let last = ends.next().unwrap_or(Some(first))?;
        count.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(count_list(b"0"), Some(1));
        assert_eq!(count_list(b"0-3,5,8-9"), Some(7));
        for wrong in ["", "3-1", "a", "0-", "0-18446744073709551615"] {
            assert_eq!(count_list(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    #[test]
    fn this_machine_has_memory() {
        let memory = HostReader::open().unwrap().memory().unwrap();
        assert!(memory.total.unwrap() > memory.available.unwrap());
        assert!(memory.swap_used().is_some());
        assert!(host_oom_kills(&Roots::default()).is_some());
        let facts = HostFacts::read();
        assert!(facts.cpus_online.unwrap() >= 1 && facts.hostname.is_some() && facts.boot_id.is_some());
    }

    #[test]
    fn an_old_kernel_does_not_know_what_is_available() {
        let memory = parse(b"MemTotal:  10 kB\nMemFree: 5 kB\nHugePages_Total: 3\n");
        assert_eq!(memory.available, None);
        assert_eq!(memory.huge_pages_total, Some(3));
    }
}
