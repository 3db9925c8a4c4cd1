//! What a flame graph page costs: `page_cost CAPTURE [temporal]` prints the seconds and the size of the page.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use stormlog_heap_report::{HeapQuery, MOMENTS, PageOptions, Reading, find, flamegraph};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("page_cost CAPTURE [temporal]")?;
    let temporal = arguments.next().is_some();
    let begun = Instant::now();
    let mut reading = Reading::with(find(Path::new(&path), None)?, HeapQuery::Peak, MOMENTS, |_| temporal)?;
    let read = begun.elapsed();
    let page = flamegraph(&mut reading, |answer| answer, PageOptions { inverted: false, source: true })?;
    let (read, all) = (read.as_secs_f64(), begun.elapsed().as_secs_f64());
    if let Some(out) = arguments.next() {
        std::fs::write(out, &page)?;
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("?").trim();
    writeln!(
        std::io::stdout(),
        "read {read:.2} s, page {:.2} s, {:.2} MB, peak {peak}",
        all - read,
        page.len() as f64 / 1e6
    )?;
    Ok(())
}
