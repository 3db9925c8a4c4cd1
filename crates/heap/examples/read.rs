//! How long reading a capture takes: `read CAPTURE [REPEAT]` packs what a killed or unsupervised program left (`CAPTURE.live`), reads the
//! finished file to its peak, and says seconds, resident memory and size. For measurements only.
#![allow(clippy::print_stdout, reason = "printing is what this program is for")]

use std::path::Path;
use std::time::Instant;

use stormlog_capture::live::Live;
use stormlog_capture::{Compactor, Options};
use stormlog_heap::{Capture, HeapReadOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("which capture?")?;
    let repeat: u32 = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let path = Path::new(&path);
    if Live::path_of(path).exists() {
        let raw = std::fs::metadata(Live::path_of(path))?.len();
        let start = Instant::now();
        Compactor::open(path, Options::default())?.finish(serde_json::json!({}))?;
        println!("packed {raw} bytes in {:.3} s", start.elapsed().as_secs_f64());
    }
    println!("{} bytes", std::fs::metadata(path)?.len());
    for _ in 0..repeat {
        let start = Instant::now();
        let stats = Capture::open(path)?.read(HeapReadOptions::default())?.stats(10, None);
        let seconds = start.elapsed().as_secs_f64();
        let (count, peak) = (stats.total_allocations, stats.peak_bytes);
        let (forced, unknown) = (stats.forced_events, stats.unknown_frees);
        println!("{count} allocations, peak {peak}, {forced} forced, {unknown} unknown, {seconds:.3} s");
    }
    let status = std::fs::read_to_string("/proc/self/status")?;
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default());
    Ok(())
}
