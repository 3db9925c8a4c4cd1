//! The page of `jaxmemprof info`, in the order of 0.4.3. The devices are those of the driver: no backend of JAX is started for it.

use std::io::{self, Write};

use super::facts::Facts;
use super::{UNKNOWN, bytes, gigabytes, known, truth};

pub(crate) fn print(out: &mut impl Write, facts: &Facts) -> io::Result<()> {
    let machine = rustix::system::uname().machine().to_string_lossy().into_owned();
    let python = facts.python.version.as_deref().and_then(|version| version.split(' ').next());
    let jax = facts.python.jax.as_deref();
    let plugin = facts.python.jax_plugin.as_deref();
    writeln!(out, "JAX Stormlog - System Information")?;
    writeln!(out, "{}", "=".repeat(50))?;
    writeln!(out, "Platform: Linux-{}-{machine}", facts.host.kernel.as_deref().unwrap_or(UNKNOWN))?;
    writeln!(out, "Python Version: {}", python.unwrap_or(UNKNOWN))?;
    writeln!(out, "JAX Version: {}", jax.unwrap_or("Not installed (pip install 'stormlog[jax]')"))?;
    if jax.is_some() {
        writeln!(out, "JAX GPU Plugin: {}", plugin.unwrap_or("none"))?;
    }
    writeln!(out, "CPU Count: {}", known(facts.host.cpus_online))?;
    writeln!(out, "Total System Memory: {}", gigabytes(facts.memory.total))?;
    writeln!(out, "Available Memory: {}", gigabytes(facts.memory.available))?;
    // Without its plugin JAX runs on the CPU, whatever hardware there is.
    let has_gpu = jax.is_some() && plugin.is_some() && !facts.gpus.is_empty();
    let backend = if has_gpu { "gpu" } else { "cpu" };
    let count = if has_gpu { facts.gpus.len() } else { usize::from(jax.is_some()) };
    writeln!(out, "\nJAX Backend Information:\n{}", "-".repeat(30))?;
    writeln!(out, "Runtime Backend: {backend}")?;
    writeln!(out, "Raw JAX Backend: {backend}")?;
    writeln!(out, "Accelerator Runtime: {}", truth(has_gpu))?;
    writeln!(out, "Is Apple Silicon: False")?;
    writeln!(out, "JAX Metal Active: False")?;
    writeln!(out, "Available Devices: {count}")?;
    if !facts.gpus.is_empty() && jax.is_some() && plugin.is_none() {
        writeln!(out, "JAX cannot use the GPU here: install its plugin with pip install 'jax[cuda]'")?;
    }
    if count == 0 {
        return Ok(());
    }
    writeln!(out, "\nDevice Information:\n{}", "-".repeat(20))?;
    if !has_gpu {
        writeln!(out, "\nDevice 0:\n  Name: cpu\n  Device Memory: unavailable")?;
        return writeln!(out, "  Reason: JAX does not count the memory of the CPU; the host's is below");
    }
    for gpu in &facts.gpus {
        writeln!(out, "\nDevice {}:", gpu.identity.device_id)?;
        writeln!(out, "  Name: {}", gpu.identity.name.as_deref().unwrap_or(UNKNOWN))?;
        writeln!(out, "  Used Memory: {} (all processes, JAX's pool included)", bytes(gpu.sample.used))?;
        writeln!(out, "  Total Memory: {}", bytes(gpu.sample.total))?;
    }
    Ok(())
}
