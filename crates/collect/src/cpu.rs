//! The host side of one process as a device: number -1.
//!
//! `used` is the process's RSS. `total` and `free` are those of whatever ends it first: the smallest cgroup limit, or
//! the host. The allocator's numbers are unknown here: the kernel does not know the process's allocator.

use std::path::{Path, PathBuf};

use stormlog_model::Counter;

use crate::cgroup::{MemoryCgroup, UsageReader};
use crate::host::HostReader;
use crate::process::ProcessReader;
use crate::text::KeptFile;
use crate::{CollectError, Collector, DeviceCapabilities, DeviceSample, Missing, Reading, Roots};

const NAME: &str = "stormlog.cpu";

/// The memory of one process and its room to grow.
#[derive(Debug)]
pub struct CpuCollector {
    process: ProcessReader,
    host: Option<HostReader>,
    limit: Option<LimitReader>,
    /// The host's numbers as last read, and for how many more samples they do.
    host_kept: (Option<u64>, Option<u64>),
    host_every: u32,
    host_left: u32,
    capabilities: DeviceCapabilities,
}

/// The level whose limit comes first. Which level that is is decided once; its numbers are read each time.
#[derive(Debug)]
struct LimitReader {
    limit: KeptFile,
    usage: UsageReader,
}

impl CpuCollector {
    /// Opens a process.
    pub fn open(pid: u32) -> Result<Self, CollectError> {
        Self::open_in(&Roots::default(), pid)
    }

    /// The same below other roots.
    pub fn open_in(roots: &Roots, pid: u32) -> Result<Self, CollectError> {
        let process = ProcessReader::open_in(roots, pid)?;
        let host = HostReader::open_in(roots).ok();
        let limit = LimitReader::open(roots, pid);
        let counters: &[Counter] = if host.is_some() || limit.is_some() {
            &[Counter::Used, Counter::Free, Counter::Total]
        } else {
            &[Counter::Used]
        };
        let source = "/proc/PID/statm, /proc/meminfo, cgroup";
        Ok(CpuCollector {
            process,
            host,
            limit,
            host_kept: (None, None),
            host_every: 1,
            host_left: 0,
            capabilities: DeviceCapabilities::new("cpu", NAME, source, counters),
        })
    }

    /// Reads the host's memory only with every n-th sample and repeats it in between: it costs several times what the
    /// process's own numbers do, which matters at a thousand samples a second. The cgroup's are read each time.
    #[must_use]
    pub fn host_every(mut self, samples: u32) -> Self {
        self.host_every = samples.max(1);
        self
    }

    /// The process, for readings on demand.
    pub fn process(&mut self) -> &mut ProcessReader {
        &mut self.process
    }

    /// Size of, and room in, whatever ends the process first.
    fn room(&mut self, missing: &mut Vec<Missing>) -> (Option<u64>, Option<u64>) {
        if self.host_left == 0 {
            self.host_kept = match self.host.as_mut().map(HostReader::memory) {
                Some(Ok(host)) => (host.total, host.available),
                Some(Err(error)) => {
                    let reason = error.to_string();
                    missing.push(Missing { field: "total", reason: reason.clone() });
                    missing.push(Missing { field: "free", reason });
                    (None, None)
                }
                None => (None, None),
            };
            self.host_left = self.host_every;
        }
        self.host_left -= 1;
        let (total, free) = self.host_kept;
        match self.limit.as_mut().and_then(LimitReader::read) {
            // The limit may be larger than the machine; what is left may be less on either side.
            Some((limit, left)) => (
                Some(total.map_or(limit, |total| total.min(limit))),
                Some(free.map_or(left, |free| free.min(left))),
            ),
            None => (total, free),
        }
    }
}

impl LimitReader {
    fn open(roots: &Roots, pid: u32) -> Option<Self> {
        let cgroup = MemoryCgroup::of_in(roots, pid).ok()?;
        let directory = cgroup.read().effective_limit?.directory?;
        let limit = KeptFile::open(limit_file(&cgroup, &directory)).ok()?;
        let usage = MemoryCgroup { directory, ..cgroup }.usage_reader().ok()?;
        Some(LimitReader { limit, usage })
    }

    /// The limit and what is left of it. A limit that was lifted meanwhile is none.
    fn read(&mut self) -> Option<(u64, u64)> {
        let limit = crate::text::number(self.limit.read().ok()?.trim_ascii())?;
        let usage = self.usage.usage().ok()?;
        Some((limit, limit.saturating_sub(usage)))
    }
}

fn limit_file(cgroup: &MemoryCgroup, directory: &Path) -> PathBuf {
    directory.join(match cgroup.version {
        crate::cgroup::Version::V1 => "memory.limit_in_bytes",
        crate::cgroup::Version::V2 => "memory.max",
    })
}

impl Collector for CpuCollector {
    fn name(&self) -> &str {
        NAME
    }

    fn is_available(&self) -> bool {
        true
    }

    fn sample(&mut self) -> Result<Reading, CollectError> {
        let memory = self.process.memory()?;
        let mut reading =
            Reading::from(DeviceSample { device_id: -1, used: Some(memory.rss), ..DeviceSample::default() });
        let (total, free) = self.room(&mut reading.missing);
        reading.sample.total = total;
        reading.sample.free = free.zip(total).map(|(free, total)| free.min(total)).or(free);
        Ok(reading)
    }

    fn capabilities(&self) -> &DeviceCapabilities {
        &self.capabilities
    }
}
