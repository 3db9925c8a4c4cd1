//! Polled memory readings behind plain structs: processes, host, cgroups, pressure, kernel log, GPUs, framework counters.
//!
//! One file a quantity. A device-like source implements [`Collector`]; [`MonitoredCollector`] turns its failures into a visible
//! state with back-off. This crate must never report 0 for unknown, read another process's environment, start a thread,
//! read a clock (callers hand the time in), print, or hold `unsafe`. Whatever a file of another process says is
//! untrusted text: bounded, checked, never a panic.
#![forbid(unsafe_code)]

pub mod cgroup;
mod collector;
mod combine;
mod devices;
mod error;
mod external;
mod health;
pub mod host;
pub mod kernel_log;
pub mod pressure;
pub mod process;
mod text;
mod tree;
mod user;

use std::path::{Path, PathBuf};

pub use collector::{
    Collector, DeviceCapabilities, DeviceIdentity, DeviceSample, Missing, PROCESS_COLLECTOR, Reading,
};
pub use combine::Combined;
pub use devices::{Gpu, Vitals, bytes_held, discover_gpus, drm, find_gpu, nvml};
pub use error::CollectError;
pub use external::{ExternalCollector, ExternalCounters, Pushed};
pub use health::{Health, HealthState, MonitoredCollector, Polled, Transition, retry_delay_ns};
pub use tree::{ProcessTree, TreeChange, TreeMember};
pub use user::user_name;

/// Where the kernel's file systems are mounted. Tests and containers that see the host's trees move them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// `/proc`
    pub proc: PathBuf,
    /// `/sys`
    pub sys: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Roots { proc: "/proc".into(), sys: "/sys".into() }
    }
}

impl Roots {
    pub(crate) fn of_process(&self, pid: u32) -> PathBuf {
        self.proc.join(pid.to_string())
    }

    /// Joins a path as the kernel prints it (`/docker/1`) below a directory, without leaving that directory.
    pub(crate) fn below(directory: &Path, kernel_path: &str) -> PathBuf {
        let mut path = directory.to_path_buf();
        for part in kernel_path.split('/').filter(|part| !part.is_empty() && *part != "." && *part != "..") {
            path.push(part);
        }
        path
    }
}
