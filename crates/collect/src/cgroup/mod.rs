//! The memory cgroup of a process: where it is, its limits on the way up, its usage, and what the OOM killer did.
//!
//! Version 1 and 2 differ in every file name and in what counts where; `v1.rs` and `v2.rs` hold that, everything else is
//! common. "Unlimited" is known and differs from "unknown". Nothing here may be mistaken for the host's memory.

mod cgroup_path;
mod v1;
mod v2;
mod watch;

use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use crate::pressure::{Pressure, read_pressure};
use crate::text::KeptFile;
use crate::{CollectError, Roots};

pub use watch::{LevelChange, OomReport, OomScope, OomWatch};

/// Which kind of hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Version {
    /// One tree a controller.
    V1,
    /// One tree for all.
    V2,
}

/// A limit that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// No limit at this level.
    Unlimited,
    /// This many bytes.
    Bytes(u64),
}

impl Limit {
    /// The bytes, if there is a limit.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Limit::Unlimited => None,
            Limit::Bytes(bytes) => Some(bytes),
        }
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Limit::Unlimited => serializer.serialize_str("unlimited"),
            Limit::Bytes(bytes) => serializer.serialize_u64(*bytes),
        }
    }
}

/// Counts of events since the cgroup was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CgroupEvents {
    /// Reclaimed although below its protected amount (v2).
    pub low: Option<u64>,
    /// Slowed down because above `memory.high` (v2).
    pub high: Option<u64>,
    /// About to go over the limit (v2; v1 counts it as `failcnt`).
    pub max: Option<u64>,
    /// The limit was reached and reclaim failed (v2).
    pub oom: Option<u64>,
    /// Processes of this group killed by any OOM killer, the host's included.
    pub oom_kill: Option<u64>,
    /// Times the whole group was killed (v2).
    pub oom_group_kill: Option<u64>,
    /// Times usage hit the limit (v1).
    pub failcnt: Option<u64>,
}

/// One level of the hierarchy, as of now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LevelMemory {
    /// The directory.
    pub directory: PathBuf,
    /// The hard limit.
    pub limit: Option<Limit>,
    /// The limit above which the group is slowed down (v2).
    pub high: Option<Limit>,
    /// Bytes charged to the group and all below it, page cache included.
    pub usage: Option<u64>,
    /// The highest usage so far.
    pub peak: Option<u64>,
    /// Swap in use (v1: memory and swap, less memory).
    pub swap_usage: Option<u64>,
    /// The limit on swap (v1: on memory and swap together).
    pub swap_limit: Option<Limit>,
    /// What the usage is made of.
    pub stat: CgroupStat,
    /// What happened.
    pub events: CgroupEvents,
    /// v1: whether the OOM killer is off for this group, so that tasks hang instead.
    pub oom_kill_disabled: Option<bool>,
}

impl LevelMemory {
    /// Usage less the page cache that would be dropped first: what schedulers call the working set.
    pub fn working_set(&self) -> Option<u64> {
        Some(self.usage?.saturating_sub(self.stat.inactive_file?))
    }
}

/// What the usage of a group is made of, descendants included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CgroupStat {
    /// Memory that belongs to no file.
    pub anonymous: Option<u64>,
    /// Page cache, shared memory included.
    pub file: Option<u64>,
    /// Shared memory and tmpfs.
    pub shared_memory: Option<u64>,
    /// Page cache not used lately: dropped first.
    pub inactive_file: Option<u64>,
    /// Page cache in use.
    pub active_file: Option<u64>,
    /// Kernel memory of any kind.
    pub kernel: Option<u64>,
    /// Kernel objects.
    pub slab: Option<u64>,
    /// Page faults that had to read a disk.
    pub major_faults: Option<u64>,
}

/// The limit that will be reached first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EffectiveLimit {
    /// The smallest limit on the way up.
    pub bytes: u64,
    /// Where it is set; `None` when it is set above what can be seen from here.
    pub directory: Option<PathBuf>,
    /// The usage that is held against it.
    pub usage: Option<u64>,
}

/// The memory cgroup of a process, as of now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CgroupMemory {
    /// Which kind of hierarchy.
    pub version: Version,
    /// The group as `/proc/PID/cgroup` names it.
    pub path: String,
    /// The group itself first, then each level up to the mount. Never empty.
    pub levels: Vec<LevelMemory>,
    /// The smallest limit on the way up; `None` when nothing limits it or nothing can be read.
    pub effective_limit: Option<EffectiveLimit>,
    /// The group's own memory pressure (v2).
    pub pressure: Option<Pressure>,
}

impl CgroupMemory {
    /// The group itself.
    pub fn own(&self) -> Option<&LevelMemory> {
        self.levels.first()
    }
}

/// Where the memory cgroup of a process is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryCgroup {
    /// Which kind of hierarchy.
    pub version: Version,
    /// The group as `/proc/PID/cgroup` names it.
    pub path: String,
    /// Its directory.
    pub directory: PathBuf,
    /// Where the hierarchy is mounted: levels are read from the directory up to here.
    pub mount: PathBuf,
    /// Whether the mount is the true root of the hierarchy; in a container it usually is not.
    pub sees_root: bool,
}

impl MemoryCgroup {
    /// Finds the memory cgroup of a process.
    pub fn of(pid: u32) -> Result<Self, CollectError> {
        Self::of_in(&Roots::default(), pid)
    }

    /// The same below another `/proc`.
    pub fn of_in(roots: &Roots, pid: u32) -> Result<Self, CollectError> {
        cgroup_path::find(roots, pid)
    }

    /// The directories from the group up to the mount.
    pub fn levels(&self) -> impl Iterator<Item = &Path> {
        let mount = self.mount.as_path();
        self.directory.ancestors().take_while(move |level| level.starts_with(mount))
    }

    /// Reads every level.
    pub fn read(&self) -> CgroupMemory {
        let levels: Vec<LevelMemory> = self.levels().map(|level| self.read_level(level)).collect();
        let mut effective_limit = levels
            .iter()
            .filter_map(|level| Some((level.limit?.bytes()?, level)))
            .min_by_key(|(bytes, _)| *bytes)
            .map(|(bytes, level)| EffectiveLimit {
                bytes,
                directory: Some(level.directory.clone()),
                usage: level.usage,
            });
        // v1 also reports the smallest limit above a container's mount.
        let hidden = match self.version {
            Version::V1 => v1::hierarchical_limit(&self.directory),
            Version::V2 => None,
        };
        if let Some(bytes) = hidden
            && effective_limit.as_ref().is_none_or(|seen| bytes < seen.bytes)
        {
            effective_limit = Some(EffectiveLimit { bytes, directory: None, usage: None });
        }
        let pressure = read_pressure(&self.directory.join("memory.pressure")).ok().flatten();
        CgroupMemory { version: self.version, path: self.path.clone(), levels, effective_limit, pressure }
    }

    /// The group's own limit alone; `None` when it cannot be read.
    pub fn limit(&self) -> Option<Limit> {
        match self.version {
            Version::V1 => v1::own_limit(&self.directory),
            Version::V2 => v2::own_limit(&self.directory),
        }
    }

    /// A cheap repeated reading of the group's usage.
    pub fn usage_reader(&self) -> Result<UsageReader, CollectError> {
        let name = match self.version {
            Version::V1 => v1::USAGE,
            Version::V2 => v2::USAGE,
        };
        let path = self.directory.join(name);
        match KeptFile::open(path.clone()) {
            Ok(file) => Ok(UsageReader { file }),
            Err(error) => Err(CollectError::io(&path, error)),
        }
    }

    fn read_level(&self, directory: &Path) -> LevelMemory {
        match self.version {
            Version::V1 => v1::read(directory),
            Version::V2 => v2::read(directory),
        }
    }
}

/// The usage of one group through a kept file: one system call a reading.
#[derive(Debug)]
pub struct UsageReader {
    file: KeptFile,
}

impl UsageReader {
    /// Bytes charged to the group now.
    pub fn usage(&mut self) -> Result<u64, CollectError> {
        let read = self.file.read().map(|text| crate::text::number(text.trim_ascii()).ok_or(text.to_vec()));
        match read {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(text)) => Err(CollectError::malformed(self.file.path(), &text)),
            Err(error) => Err(CollectError::io(self.file.path(), error)),
        }
    }
}
