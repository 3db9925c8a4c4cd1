//! `environment.json`: the machine, and the settings that decide how memory is used. Secrets are left out.

use serde_json::{Map, Value, json};
use stormlog_supervise::scrub;

use super::Options;

/// The variables whose names begin like this decide about memory or say which job it is.
const TELLING: [&str; 21] = [
    "PYTORCH_",
    "TORCH_",
    "CUDA_",
    "NVIDIA_",
    "HIP_",
    "ROCR_",
    "NCCL_",
    "TF_",
    "XLA_",
    "JAX_",
    "OMP_",
    "MKL_",
    "MALLOC_",
    "MIMALLOC_",
    "LD_PRELOAD",
    "PYTHONMALLOC",
    "SLURM_",
    "STORMLOG",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
];
/// Longer values are cut: a bundle is small.
const LONGEST: usize = 4096;
const MOST: usize = 256;

pub(super) fn value(facts: &Value, options: &Options) -> Value {
    let mut system = facts.clone();
    if let Value::Object(system) = &mut system {
        system.insert("architecture".to_owned(), std::env::consts::ARCH.into());
        let is_rocm = system.get("detected_backend").is_some_and(|backend| backend == "rocm");
        system.insert("rocm_available".to_owned(), is_rocm.into());
        for key in ["mps_available", "mps_built"] {
            system.insert(key.to_owned(), false.into());
        }
    }
    json!({
        "system": system,
        "gpu": gpu(facts, options.device),
        "fragmentation": {"note": "Allocator statistics are known only inside the program that allocates: `stormlog run` records them"},
        "variables": variables(),
    })
}

/// The GPU asked for, with 0.4.3's names beside our own.
fn gpu(facts: &Value, device: Option<i64>) -> Value {
    let gpus = facts.get("gpus").and_then(Value::as_array);
    let is_asked = |gpu: &&Value| device.is_none_or(|device| gpu.get("device_id") == Some(&device.into()));
    let Some(found) = gpus.and_then(|gpus| gpus.iter().find(is_asked)) else {
        return json!({"error": "No GPU is available"});
    };
    let mut gpu = found.clone();
    if let Value::Object(gpu) = &mut gpu {
        for (ours, theirs) in
            [("name", "device_name"), ("total_bytes", "total_memory"), ("used_bytes", "used_memory")]
        {
            if let Some(value) = gpu.get(ours).cloned() {
                gpu.insert(theirs.to_owned(), value);
            }
        }
    }
    gpu
}

fn variables() -> Value {
    let mut all: Vec<(String, String)> = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| TELLING.iter().any(|start| name.starts_with(start)))
        .collect();
    all.sort();
    let written = all.into_iter().take(MOST).map(|(name, value)| {
        let safe: String = scrub::value(&name, &value).chars().take(LONGEST).collect();
        (name, Value::from(safe))
    });
    Value::Object(written.collect::<Map<String, Value>>())
}
