//! What there is to know about this machine: read once, unknown stays unknown.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use stormlog_collect::cgroup::{CgroupMemory, MemoryCgroup};
use stormlog_collect::host::{HostFacts, HostMemory, HostReader};
use stormlog_collect::pressure::{Pressure, host_memory_pressure};
use stormlog_collect::process::{ProcessMemory, ProcessReader};
use stormlog_collect::{Collector, DeviceIdentity, DeviceSample, Roots, Vitals, discover_gpus, nvml};

use super::hardware::{self, Adapter};
use crate::interpreter;

/// The machine.
pub(crate) struct Facts {
    pub(crate) host: HostFacts,
    pub(crate) physical_cores: Option<usize>,
    pub(crate) memory: HostMemory,
    pub(crate) cgroup: Option<CgroupMemory>,
    pub(crate) pressure: Option<Pressure>,
    pub(crate) process: Option<ProcessMemory>,
    pub(crate) python: Python,
    pub(crate) driver: nvml::DriverVersions,
    pub(crate) gpus: Vec<GpuFacts>,
    pub(crate) adapters: Vec<Adapter>,
}

/// The interpreter this was started with, or the one found first.
#[derive(Default)]
pub(crate) struct Python {
    /// `sys.version`
    pub(crate) version: Option<String>,
    pub(crate) tensorflow: Option<String>,
    /// The distribution TensorFlow came from, e.g. `tensorflow-cpu`.
    pub(crate) distribution: Option<String>,
    pub(crate) jax: Option<String>,
    /// The distribution that lets JAX use a GPU, e.g. `jax-cuda12-plugin 0.7.0`.
    pub(crate) jax_plugin: Option<String>,
}

/// One GPU or MIG instance.
pub(crate) struct GpuFacts {
    pub(crate) identity: DeviceIdentity,
    pub(crate) sample: DeviceSample,
    pub(crate) vitals: Vitals,
    /// `None` when the driver does not tell.
    pub(crate) processes: Option<Vec<nvml::DeviceProcess>>,
}

impl Facts {
    pub(crate) fn read() -> Self {
        let roots = Roots::default();
        let gpus = gpus(&roots);
        Facts {
            host: HostFacts::read(),
            physical_cores: physical_cores(),
            memory: HostReader::open().and_then(|mut reader| reader.memory()).unwrap_or_default(),
            cgroup: MemoryCgroup::of(std::process::id()).ok().map(|cgroup| cgroup.read()),
            pressure: host_memory_pressure(&roots).ok().flatten(),
            process: ProcessReader::this().and_then(|mut reader| reader.memory()).ok(),
            python: python(),
            driver: nvml::versions().unwrap_or_default(),
            adapters: hardware::adapters(&roots.sys),
            gpus,
        }
    }

    /// `cuda`, `rocm` or `cpu`.
    pub(crate) fn backend(&self) -> &str {
        let known = self.gpus.iter().map(|gpu| gpu.identity.backend.as_str());
        known.into_iter().find(|backend| ["cuda", "rocm"].contains(backend)).unwrap_or("cpu")
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "platform": "Linux", "host": self.host, "cpu_count_physical": self.physical_cores,
            "python_version": self.python.version, "tensorflow_version": self.python.tensorflow,
            "tensorflow_distribution": self.python.distribution, "jax_version": self.python.jax,
            "jax_plugin": self.python.jax_plugin, "detected_backend": self.backend(),
            "cuda_available": self.backend() == "cuda", "driver": self.driver,
            "memory": self.memory, "cgroup": self.cgroup, "pressure": self.pressure, "process": self.process,
            "gpu_hardware_detected": !self.adapters.is_empty() || !self.gpus.is_empty(),
            "gpu_hardware": self.adapters.iter().map(Adapter::to_json).collect::<Vec<_>>(),
            "gpus": self.gpus.iter().map(GpuFacts::to_json).collect::<Vec<_>>(),
        })
    }
}

impl GpuFacts {
    fn to_json(&self) -> Value {
        let DeviceSample { total, used, free, driver_reserved, .. } = self.sample;
        let Vitals { busy_percent, temperature_c, power_w, multiprocessors } = self.vitals;
        let mut object = serde_json::to_value(&self.identity).unwrap_or_else(|_| json!({}));
        let more = json!({
            "total_bytes": total, "used_bytes": used, "free_bytes": free, "driver_reserved_bytes": driver_reserved,
            "utilization_percent": busy_percent, "temperature_c": temperature_c, "power_draw_w": power_w,
            "multiprocessors": multiprocessors, "processes": self.processes,
        });
        if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
            object.extend(more);
        }
        object
    }
}

fn gpus(roots: &Roots) -> Vec<GpuFacts> {
    let facts = |mut gpu: stormlog_collect::Gpu| GpuFacts {
        sample: gpu.sample().map(|reading| reading.sample).unwrap_or_default(),
        vitals: gpu.vitals(),
        processes: gpu.processes().ok(),
        identity: gpu.identity().clone(),
    };
    discover_gpus(roots).into_iter().map(facts).collect()
}

/// Asked of the interpreter itself: nothing else knows. It is the user's own, with the user's PYTHONPATH: a framework that is only there is the one
/// that the user's programs import. The directory that the command is started in is not searched.
fn python() -> Python {
    const ASK: &str = include_str!("versions.py");
    let Ok(answer) = Command::new(interpreter::for_scripts()).args(["-c", ASK]).output() else {
        return Python::default();
    };
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    let mut lines = text.lines().map(str::to_owned);
    let known = |line: Option<String>| line.filter(|text| !text.is_empty());
    let version = lines.next();
    let mut next = || known(lines.next());
    Python { version, tensorflow: next(), distribution: next(), jax: next(), jax_plugin: next() }
}

/// Cores that are not hyper-threads of each other.
fn physical_cores() -> Option<usize> {
    let mut cores = BTreeSet::new();
    for entry in fs::read_dir("/sys/devices/system/cpu").ok()?.flatten() {
        let topology = entry.path().join("topology");
        let read = |name: &str| fs::read_to_string(topology.join(name)).ok();
        if let (Some(package), Some(core)) = (read("physical_package_id"), read("core_id")) {
            cores.insert((package, core));
        }
    }
    (!cores.is_empty()).then_some(cores.len())
}
