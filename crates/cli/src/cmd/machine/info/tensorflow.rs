//! The page of `tfmemprof info`, in the order of 0.4.3.

use std::io::{self, Write};

use super::facts::Facts;
use super::{UNKNOWN, gigabytes, known, truth};

pub(crate) fn print(out: &mut impl Write, facts: &Facts) -> io::Result<()> {
    let machine = rustix::system::uname().machine().to_string_lossy().into_owned();
    let python = facts.python.version.as_deref().and_then(|version| version.split(' ').next());
    let tensorflow = facts.python.tensorflow.as_deref();
    let has_hardware = !facts.adapters.is_empty() || !facts.gpus.is_empty();
    writeln!(out, "TensorFlow Stormlog - System Information")?;
    writeln!(out, "{}", "=".repeat(50))?;
    writeln!(out, "Platform: Linux-{}-{machine}", facts.host.kernel.as_deref().unwrap_or(UNKNOWN))?;
    writeln!(out, "Python Version: {}", python.unwrap_or(UNKNOWN))?;
    writeln!(
        out,
        "TensorFlow Version: {}",
        tensorflow.unwrap_or("Not installed (pip install 'stormlog[tf]')")
    )?;
    if let Some(distribution) = &facts.python.distribution {
        writeln!(out, "TensorFlow Distribution: {distribution}")?;
    }
    writeln!(out, "CPU Count: {}", known(facts.host.cpus_online))?;
    writeln!(out, "Total System Memory: {}", gigabytes(facts.memory.total))?;
    writeln!(out, "Available Memory: {}", gigabytes(facts.memory.available))?;
    writeln!(out, "\nGPU Information:\n{}", "-".repeat(20))?;
    if tensorflow.is_none() || facts.gpus.is_empty() {
        writeln!(out, "GPU Hardware Detected: {}", if has_hardware { "Yes" } else { "No" })?;
        writeln!(out, "GPU Available to TensorFlow Runtime: No")?;
    } else {
        writeln!(out, "GPU Available: Yes")?;
    }
    if tensorflow.is_none() {
        writeln!(out, "Error: TensorFlow not available")?;
    }
    if !facts.gpus.is_empty() {
        writeln!(out, "GPU Count: {}", facts.gpus.len())?;
        let sizes: Option<u64> = facts.gpus.iter().map(|gpu| gpu.sample.total).sum();
        writeln!(out, "Total GPU Memory: {}", gigabytes(sizes))?;
    }
    for gpu in &facts.gpus {
        writeln!(out, "\nGPU {}:", gpu.identity.device_id)?;
        writeln!(out, "  Name: {}", gpu.identity.name.as_deref().unwrap_or(UNKNOWN))?;
        writeln!(out, "  Current Memory: {}", gigabytes(gpu.sample.used))?;
        writeln!(out, "  Total Memory: {}", gigabytes(gpu.sample.total))?;
    }
    let runtime = if tensorflow.is_some() { facts.backend() } else { "cpu" };
    let count = if tensorflow.is_some() { facts.gpus.len() } else { 0 };
    writeln!(out, "\nTensorFlow Backend Diagnostics:\n{}", "-".repeat(30))?;
    writeln!(out, "Hardware GPU Detected: {}", truth(has_hardware))?;
    writeln!(out, "Runtime Backend: {runtime}")?;
    writeln!(out, "Runtime GPU Count: {count}")?;
    writeln!(out, "Apple Silicon: False")?;
    writeln!(out, "tensorflow-metal Installed: False")?;
    // What a build was made for is known only to TensorFlow itself.
    let build = if tensorflow.is_some() { UNKNOWN } else { "False" };
    for name in ["CUDA Build", "ROCm Build", "TensorRT Build"] {
        writeln!(out, "{name}: {build}")?;
    }
    Ok(())
}
