//! Measures what one reading of each kind costs on this machine. Best and median of rounds; nothing is asserted.
#![allow(clippy::print_stdout, reason = "printing is what this example is for")]

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use stormlog_collect::cgroup::MemoryCgroup;
use stormlog_collect::host::HostReader;
use stormlog_collect::pressure::PressureReader;
use stormlog_collect::process::{MapLimits, ProcessReader};
use stormlog_collect::{Collector, ExternalCounters, ProcessTree, Pushed, Roots, discover_gpus};

const ROUNDS: usize = 15;

fn main() -> Result<(), Box<dyn Error>> {
    let roots = Roots::default();
    let own = std::process::id();
    let mut process = ProcessReader::this()?;
    // Something to walk for the costly ones.
    let block = black_box(vec![1u8; 256 << 20]);
    println!("{:<44} {:>10} {:>10}", "reading (with 256 MiB resident)", "best µs", "median µs");
    cost("process: rss, vms, shared (statm)", 2000, || process.memory().is_ok());
    cost("process: state, faults, threads (stat)", 1000, || process.stat().is_ok());
    cost("process: swap, peaks, split (status)", 1000, || process.status().is_ok());
    cost("process: pss, uss (smaps_rollup)", 20, || process.detail().is_ok());
    cost("process: map summary (smaps)", 10, || process.map_summary(MapLimits::default()).is_ok());
    cost("process: peak reset (clear_refs)", 200, || process.reset_peak().is_ok());
    cost("process: open a reader", 200, || ProcessReader::open(own).is_ok());
    let mut tree = ProcessTree::of(own)?;
    cost("tree: refresh", 20, || tree.refresh().added.is_empty());
    let mut host = HostReader::open()?;
    cost("host: meminfo", 500, || host.memory().is_ok());
    if let Ok(mut pressure) = PressureReader::host(&roots) {
        cost("pressure: host", 500, || pressure.pressure().is_ok());
    }
    if let Ok(cgroup) = MemoryCgroup::of(own) {
        let mut usage = cgroup.usage_reader()?;
        cost("cgroup: usage", 1000, || usage.usage().is_ok());
        cost("cgroup: all levels", 100, || !cgroup.read().levels.is_empty());
    }
    let counters = Arc::new(ExternalCounters::default());
    let pushed = Pushed { allocated: Some(1), reserved: Some(2), ..Pushed::default() };
    cost("external: push", 100_000, || {
        counters.push(black_box(&pushed));
        true
    });
    cost("external: latest", 100_000, || counters.latest().is_some());
    for mut gpu in discover_gpus(&roots) {
        let name = format!("{} {}", gpu.name(), gpu.identity().device_id);
        cost(&format!("{name}: sample"), 1000, || gpu.sample().is_ok());
        cost(&format!("{name}: processes"), 50, || gpu.held_by(&[own]).is_some());
    }
    drop(block);
    Ok(())
}

fn cost(name: &str, times: u32, mut reading: impl FnMut() -> bool) {
    if !reading() {
        println!("{name:<44} {:>10}", "failed");
        return;
    }
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let started = Instant::now();
            for _ in 0..times {
                black_box(reading());
            }
            started.elapsed().as_secs_f64() * 1e6 / f64::from(times)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{name:<44} {:>10.3} {:>10.3}", rounds[0], rounds[ROUNDS / 2]);
}
