//! `info`: the machine on one page: host, limits, pressure, every GPU. The first lines are those of 0.4.3.

mod facts;
mod hardware;
mod jax;
mod tensorflow;

use std::io::{self, Write};

use stormlog_collect::cgroup::Limit;
use stormlog_collect::pressure::Stall;
use stormlog_model::format_bytes;

use facts::{Facts, GpuFacts};

use crate::cmd::record::framework::Framework;
use crate::exit::Exit;

pub(crate) struct Options {
    pub(crate) device: Option<i64>,
    pub(crate) detailed: bool,
    pub(crate) json: bool,
    pub(crate) page: Page,
}

/// Which page is printed; with `--json` there is one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Page {
    General,
    /// That of `tfmemprof` or `jaxmemprof`.
    Framework(Framework),
}

const UNKNOWN: &str = "unknown";

/// The page as `--json` has it.
pub(crate) fn page() -> serde_json::Value {
    Facts::read().to_json()
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let facts = Facts::read();
    let mut out = io::stdout().lock();
    if options.json {
        writeln!(out, "{:#}", facts.to_json())?;
        return Ok(Exit::Ok);
    }
    match options.page {
        Page::Framework(Framework::Tensorflow) => tensorflow::print(&mut out, &facts)?,
        Page::Framework(Framework::Jax) => jax::print(&mut out, &facts)?,
        Page::General => {
            print_system(&mut out, &facts)?;
            match facts.gpus.is_empty() {
                true => print_cpu(&mut out, &facts, options)?,
                false => print_gpus(&mut out, &facts, options)?,
            }
        }
    }
    print_host(&mut out, &facts)?;
    print_limits(&mut out, &facts)?;
    Ok(Exit::Ok)
}

fn print_system(out: &mut impl Write, facts: &Facts) -> io::Result<()> {
    writeln!(out, "Stormlog - System Information")?;
    writeln!(out, "{}", "=".repeat(50))?;
    writeln!(out, "Platform: Linux")?;
    writeln!(out, "Python Version: {}", facts.python.version.as_deref().unwrap_or(UNKNOWN))?;
    writeln!(out, "CUDA Available: {}", truth(facts.backend() == "cuda"))?;
    writeln!(out, "Detected Backend: {}", facts.backend())
}

fn print_cpu(out: &mut impl Write, facts: &Facts, options: &Options) -> io::Result<()> {
    writeln!(out, "MPS Built: False")?;
    writeln!(out, "MPS Available: False")?;
    writeln!(out, "GPU Hardware Detected: {}", if facts.adapters.is_empty() { "No" } else { "Yes" })?;
    if options.device.is_some() {
        writeln!(out, "Ignoring --device because no supported PyTorch GPU runtime is active.")?;
    }
    if !facts.adapters.is_empty() {
        writeln!(out, "Detected GPU Hardware:")?;
        for adapter in &facts.adapters {
            writeln!(out, "  {}", adapter.name)?;
        }
    }
    writeln!(out, "GPU Available to PyTorch Runtime: No")?;
    if facts.adapters.is_empty() {
        writeln!(out, "CUDA is not available. Falling back to CPU-only profiling.")?;
    } else if options.detailed {
        writeln!(out, "\nHardware Probe Details:\n{}", "-".repeat(30))?;
        for (number, adapter) in facts.adapters.iter().enumerate() {
            writeln!(out, "  Device {number}: {}", adapter.name)?;
            writeln!(out, "    Vendor: {}", adapter.vendor)?;
            writeln!(out, "    Source: sysfs ({})", adapter.address)?;
        }
    }
    print_process(out, facts)
}

fn print_gpus(out: &mut impl Write, facts: &Facts, options: &Options) -> anyhow::Result<()> {
    if facts.backend() == "cuda" {
        writeln!(out, "CUDA Version: {}", facts.driver.cuda.as_deref().unwrap_or(UNKNOWN))?;
        writeln!(out, "Driver Version: {}", facts.driver.driver.as_deref().unwrap_or(UNKNOWN))?;
    }
    writeln!(out, "GPU Device Count: {}", facts.gpus.len())?;
    // A framework starts on device 0 by default.
    writeln!(out, "Current Device: {}", options.device.unwrap_or(0))?;
    let chosen = |gpu: &&GpuFacts| options.device.is_none_or(|device| device == gpu.identity.device_id);
    let gpus: Vec<&GpuFacts> = facts.gpus.iter().filter(chosen).collect();
    if gpus.is_empty() {
        let device = options.device.unwrap_or_default();
        let numbers: Vec<String> = facts.gpus.iter().map(|gpu| gpu.identity.device_id.to_string()).collect();
        anyhow::bail!("Invalid device ID {device}: the GPUs here are {}", numbers.join(", "));
    }
    for gpu in gpus {
        print_gpu(out, gpu, options.detailed)?;
    }
    writeln!(out)?;
    print_process(out, facts)?;
    Ok(())
}

fn print_gpu(out: &mut impl Write, gpu: &GpuFacts, detailed: bool) -> io::Result<()> {
    let kind = match &gpu.identity {
        identity if identity.unified => " (unified memory)",
        identity if identity.parent_uuid.is_some() => " (MIG instance)",
        _ => "",
    };
    writeln!(out, "\nGPU {}{kind} Information:", gpu.identity.device_id)?;
    writeln!(out, "  Name: {}", gpu.identity.name.as_deref().unwrap_or(UNKNOWN))?;
    writeln!(out, "  Total Memory: {}", gigabytes(gpu.sample.total))?;
    writeln!(out, "  Used: {}", gigabytes(gpu.sample.used))?;
    writeln!(out, "  Free: {}", gigabytes(gpu.sample.free))?;
    // What a framework's allocator holds is known only inside its process.
    writeln!(out, "  Allocated: {}", gigabytes(gpu.sample.allocated))?;
    writeln!(out, "  Reserved: {}", gigabytes(gpu.sample.reserved))?;
    writeln!(out, "  Multiprocessors: {}", known(gpu.vitals.multiprocessors))?;
    if !detailed {
        return Ok(());
    }
    writeln!(out, "  UUID: {}", gpu.identity.uuid.as_deref().unwrap_or(UNKNOWN))?;
    writeln!(out, "  PCI: {}", gpu.identity.pci.as_deref().unwrap_or(UNKNOWN))?;
    writeln!(out, "  Reserved by the Driver: {}", gigabytes(gpu.sample.driver_reserved))?;
    let percent = gpu.vitals.busy_percent.map(|percent| format!("{percent}%"));
    writeln!(out, "  GPU Utilization: {}", known(percent))?;
    writeln!(
        out,
        "  Temperature: {}",
        known(gpu.vitals.temperature_c.map(|degrees| format!("{degrees}°C")))
    )?;
    writeln!(out, "  Power Draw: {}", known(gpu.vitals.power_w.map(|watts| format!("{watts:.1} W"))))?;
    match &gpu.processes {
        None => writeln!(out, "  Processes: {UNKNOWN}"),
        Some(processes) if processes.is_empty() => writeln!(out, "  Processes: none"),
        Some(processes) => {
            writeln!(out, "  Processes:")?;
            for process in processes {
                writeln!(out, "    pid {}: {}", process.pid, gigabytes(process.used))?;
            }
            Ok(())
        }
    }
}

fn print_process(out: &mut impl Write, facts: &Facts) -> io::Result<()> {
    let size = |bytes: Option<u64>| bytes.map_or_else(|| UNKNOWN.to_owned(), decimal_named);
    writeln!(out, "Process RSS: {}", size(facts.process.map(|process| process.rss)))?;
    writeln!(out, "Process VMS: {}", size(facts.process.map(|process| process.vms)))?;
    let (physical, logical) = (known(facts.physical_cores), known(facts.host.cpus_online));
    writeln!(out, "CPU Count: {physical} physical / {logical} logical")
}

fn print_host(out: &mut impl Write, facts: &Facts) -> io::Result<()> {
    let (host, memory) = (&facts.host, &facts.memory);
    writeln!(out, "\nHost:\n{}", "-".repeat(30))?;
    writeln!(out, "Name: {}", host.hostname.as_deref().unwrap_or(UNKNOWN))?;
    writeln!(out, "Kernel: {}", host.kernel.as_deref().unwrap_or(UNKNOWN))?;
    writeln!(out, "Usable CPUs: {}", known(host.cpus_usable))?;
    writeln!(out, "Memory: {} available of {}", bytes(memory.available), bytes(memory.total))?;
    writeln!(out, "Swap: {} used of {}", bytes(memory.swap_used()), bytes(memory.swap_total))?;
    let pressure = facts.pressure;
    writeln!(
        out,
        "Memory Pressure: {}",
        pressure.map_or_else(|| UNKNOWN.to_owned(), |it| stalls(it.some, it.full))
    )
}

fn print_limits(out: &mut impl Write, facts: &Facts) -> io::Result<()> {
    writeln!(out, "\nMemory Cgroup:\n{}", "-".repeat(30))?;
    let Some(cgroup) = &facts.cgroup else { return writeln!(out, "Group: {UNKNOWN}") };
    writeln!(out, "Group: {}", cgroup.path)?;
    let own = cgroup.own();
    let limit = match own.and_then(|own| own.limit) {
        None => UNKNOWN.to_owned(),
        Some(Limit::Unlimited) => "none".to_owned(),
        Some(Limit::Bytes(limit)) => format_bytes(limit),
    };
    writeln!(out, "Limit: {limit}")?;
    writeln!(out, "Usage: {}", bytes(own.and_then(|own| own.usage)))?;
    match &cgroup.effective_limit {
        None => writeln!(out, "Effective Limit: none")?,
        Some(limit) => {
            let place = limit.directory.as_ref().map(|path| format!(" at {}", path.display()));
            let place = place.unwrap_or_else(|| " in a cgroup that is not visible from here".to_owned());
            writeln!(
                out,
                "Effective Limit: {}{place}, {} used",
                format_bytes(limit.bytes),
                bytes(limit.usage)
            )?;
        }
    }
    writeln!(out, "OOM Kills: {}", known(own.and_then(|own| own.events.oom_kill)))?;
    let pressure = cgroup.pressure;
    writeln!(out, "Pressure: {}", pressure.map_or_else(|| UNKNOWN.to_owned(), |it| stalls(it.some, it.full)))
}

/// Shares of the last ten seconds in which some task, or every task, waited for memory.
fn stalls(some: Option<Stall>, full: Option<Stall>) -> String {
    let percent =
        |stall: Option<Stall>| known(stall.and_then(|stall| stall.avg10).map(|share| format!("{share:.2}%")));
    format!("some {}, full {} (last 10 s)", percent(some), percent(full))
}

fn truth(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

fn known<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| value.to_string())
}

fn bytes(value: Option<u64>) -> String {
    known(value.map(format_bytes))
}

fn gigabytes(value: Option<u64>) -> String {
    known(value.map(crate::cmd::record::watch::gigabytes))
}

/// `20.72 MB`: powers of 1024 under the decimal names, as 0.4.3's lines have it.
fn decimal_named(bytes: u64) -> String {
    format_bytes(bytes).replace("iB", "B")
}
