//! Prints everything this crate can read about this process, its host, its cgroup and all GPUs, as one JSON object.
#![allow(clippy::print_stdout, reason = "printing is what this example is for")]

use std::error::Error;

use serde::Serialize;
use serde_json::{Value, json};
use stormlog_collect::cgroup::{MemoryCgroup, OomWatch};
use stormlog_collect::host::{HostFacts, HostReader};
use stormlog_collect::kernel_log::KernelLog;
use stormlog_collect::pressure::host_memory_pressure;
use stormlog_collect::process::{MapLimits, ProcessReader};
use stormlog_collect::{
    CollectError, Collector, DeviceCapabilities, ProcessTree, Roots, discover_gpus, drm, nvml,
};
use stormlog_model::Support;

fn main() -> Result<(), Box<dyn Error>> {
    let roots = Roots::default();
    let own = std::process::id();
    let pid = std::env::args().nth(1).map_or(Ok(own), |argument| argument.parse())?;
    let everything = json!({
        "host": HostReader::open().and_then(|mut host| host.memory()).map_or_else(refused, shown),
        "facts": HostFacts::read(),
        "pressure": host_memory_pressure(&roots).map_or_else(refused, shown),
        "process": process(pid).unwrap_or_else(refused),
        "tree": ProcessTree::of(pid).map_or_else(refused, |tree| shown(tree.members().collect::<Vec<_>>())),
        "cgroup": MemoryCgroup::of(pid).map_or_else(refused, |cgroup| json!({
            "sees_root": cgroup.sees_root,
            "memory": cgroup.read(),
            "oom": OomWatch::start(cgroup).look(),
        })),
        "nvml": nvml::versions().map_or_else(refused, shown),
        "gpus": gpus(&roots, pid),
        "drm_clients": drm::process_clients(&roots, pid).map_or_else(refused, shown),
        "kernel_log": KernelLog::kills_since(0).map_or_else(refused, shown),
    });
    println!("{}", serde_json::to_string_pretty(&everything)?);
    Ok(())
}

fn process(pid: u32) -> Result<Value, CollectError> {
    let mut reader = ProcessReader::open(pid)?;
    let window = reader.begin_peak();
    Ok(json!({
        "pid": pid,
        "start_time": reader.start_time(),
        "command_line": reader.command_line().map_or_else(refused, shown),
        "sample": reader.sample().map_or_else(refused, shown),
        "detail": reader.detail().map_or_else(refused, shown),
        "map": reader.map_summary(MapLimits::default()).map_or_else(refused, shown),
        "peak": window.and_then(|window| reader.end_peak(&window)).map_or_else(refused, shown),
    }))
}

fn gpus(roots: &Roots, pid: u32) -> Vec<Value> {
    let shown_gpu = |mut gpu: stormlog_collect::Gpu| {
        json!({
            "identity": gpu.identity(),
            "vitals": gpu.vitals(),
            "processes": gpu.processes().map_or_else(refused, shown),
            "held_by": gpu.held_by(&[pid]),
            "device": device(&mut gpu),
        })
    };
    discover_gpus(roots).into_iter().map(shown_gpu).collect()
}

fn device(collector: &mut dyn Collector) -> Value {
    let sampled = collector.sample();
    json!({
        "name": collector.name(),
        "is_available": collector.is_available(),
        "capabilities": capabilities(collector.capabilities()),
        "sample": sampled.map_or_else(refused, |reading| json!({"sample": reading.sample, "missing": reading.missing})),
    })
}

fn capabilities(known: &DeviceCapabilities) -> Value {
    let flags = [Support::DeviceUsed, Support::DeviceFree, Support::DeviceTotal];
    let supports: Vec<&str> =
        flags.into_iter().filter(|flag| known.supports.supports(*flag)).map(Support::name).collect();
    json!({"backend": known.backend, "source": known.sampling_source, "supports": supports})
}

fn shown(reading: impl Serialize) -> Value {
    serde_json::to_value(reading).unwrap_or(Value::Null)
}

fn refused(error: CollectError) -> Value {
    json!({"error": error.to_string()})
}
