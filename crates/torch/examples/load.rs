//! Loads a snapshot and says how long it took and what it took: `load FILE`. For `bench/snapshot`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this program is for")]

use std::time::Instant;

fn main() {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: load FILE");
        std::process::exit(2);
    };
    let start = Instant::now();
    match stormlog_torch::load(path.as_ref()) {
        Ok(snapshot) => {
            let seconds = start.elapsed().as_secs_f64();
            let events: usize = (0..snapshot.device_count()).map(|device| snapshot.event_count(device)).sum();
            let megabytes = snapshot.file_bytes() as f64 / 1e6;
            let peak = peak_kib().map_or(f64::NAN, |kib| kib as f64 / 1000.0 * 1.024);
            println!(
                "{{\"seconds\": {seconds:.3}, \"mb_per_s\": {:.0}, \"events\": {events}, \"stacks\": {}, \"peak_mb\": {peak:.0}, \"file_mb\": {megabytes:.0}}}",
                megabytes / seconds,
                snapshot.tables.stack_count(),
            );
        }
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(5);
        }
    }
}

fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?
        .trim()
        .trim_end_matches(" kB")
        .trim()
        .parse()
        .ok()
}
