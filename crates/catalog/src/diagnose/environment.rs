//! `environment.json`: the machine, and the settings that decide how memory is used. Secrets are left out.

use serde_json::{Map, Value, json};

/// A bundle is small.
const MOST: usize = 256;

/// The content of `environment.json`: `facts` are those of `stormlog info`, `device` the GPU asked for.
#[must_use]
pub fn environment(facts: &Value, device: Option<i64>) -> Value {
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
        "gpu": gpu(facts, device),
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
        .filter_map(|(name, value)| {
            let name = name.to_string_lossy().into_owned();
            let value = stormlog_model::scrub::variable(&name, &value.to_string_lossy())?;
            Some((name, value))
        })
        .collect();
    all.sort();
    let written = all.into_iter().take(MOST).map(|(name, value)| (name, Value::from(value)));
    Value::Object(written.collect::<Map<String, Value>>())
}
