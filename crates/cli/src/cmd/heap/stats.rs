//! `stormlog stats`: the figures of a heap capture.

use std::io::{self, Write};
use std::path::PathBuf;

use stormlog_heap::{DeviceStats, DistinctFailure, GroupBy, LocationTotals, Stats};
use stormlog_heap_report::{Ask, End, HeapQuery, Reading, asked, forecast, not_recorded, purposes};
use stormlog_model::format_bytes;
use stormlog_model::memory::Selection;
use stormlog_model::stacks::Weight;
use stormlog_model::text::{nanoseconds_in_words, short_name};

use crate::cmd::heap::{Waiting, choose, warn_of_cut};
use crate::exit::Exit;
use crate::table::Table;

/// Width of the longest bar of the histogram.
const BAR: u64 = 40;

pub(crate) struct Options {
    pub(crate) capture: PathBuf,
    pub(crate) pid: Option<u32>,
    pub(crate) memory: Option<Selection>,
    pub(crate) json: bool,
    pub(crate) by: GroupBy,
    pub(crate) top: usize,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let chosen = choose(&options.capture, options.pid, options.memory)?;
    let waiting = Waiting::for_file(&chosen.path);
    let ask = Ask { query: HeapQuery::Peak, memory: options.memory };
    let reading = Reading::with(chosen, ask, 2, |_| false)?;
    let mut stats = reading.stats_by(options.by, options.top);
    forecast(&mut stats, &reading.chosen.path);
    drop(waiting);
    let mut out = io::stdout().lock();
    if options.json {
        warn_of_cut(&reading.end)?;
        writeln!(out, "{}", stats.json()?)?;
    } else {
        print(&mut out, &stats, &reading.end, options.by, not_recorded(&reading.heap))?;
        for device in stats.devices.iter().filter(|device| device.device != stats.memory) {
            print_device(&mut out, device, &reading.end, stats.has_blocks)?;
        }
    }
    Ok(Exit::Ok)
}

fn print(out: &mut impl Write, stats: &Stats, end: &End, by: GroupBy, notes: Vec<String>) -> io::Result<()> {
    if let Some(tool) = stats.imported {
        writeln!(out, "file        {tool}")?;
    } else if !stats.has_totals {
        writeln!(
            out,
            "This Memray capture was aggregated: it has what was held at the peak and at the end, and no totals."
        )?;
    } else if stats.total_allocations == 0 {
        writeln!(out, "{}", end.nothing())?;
        return writeln!(out, "end         {}", end.words(stats.duration_ns / 1000));
    }
    let about = if stats.sample_bytes.is_some() { "about " } else { "" };
    if stats.has_totals {
        writeln!(
            out,
            "allocated   {about}{} in {} allocations",
            format_bytes(stats.total_allocated_bytes),
            stats.total_allocations
        )?;
    }
    if let (Some(error), Some(mean)) = (stats.standard_error_bytes, stats.sample_bytes) {
        writeln!(out, "sampled     every {} on average, ± {}", format_bytes(mean), format_bytes(error))?;
    }
    let at = match stats.has_totals && stats.has_blocks {
        true => format!(", after {}", nanoseconds_in_words(stats.peak_time_ns)),
        false => String::new(),
    };
    writeln!(out, "peak        {}{at}", amount(stats.peak_bytes, stats.peak_blocks))?;
    let moment = match stats.code_end_ns {
        Some(time) => format!(", when the program's own code had ended after {}", nanoseconds_in_words(time)),
        None => String::new(),
    };
    writeln!(out, "{:<11} {}{moment}", end.moment(), amount(stats.leaked_bytes, stats.leaked_blocks))?;
    if stats.has_totals && stats.has_blocks {
        writeln!(
            out,
            "temporary   {} allocations were freed before the next one",
            stats.temporary_allocations
        )?;
    }
    if let Some(rss) = stats.peak_rss_bytes {
        writeln!(out, "resident    at most {}", format_bytes(rss))?;
    }
    if let Some(device) = stats.devices.iter().find(|device| device.device == stats.memory) {
        print_purposes(out, device)?;
    }
    writeln!(out, "end         {}", end.words(stats.duration_ns / 1000))?;
    if let Some(cut) = end.cut() {
        writeln!(out, "cut         {cut}")?;
    }
    for note in notes {
        writeln!(out, "{:<11} {note}", if stats.imported.is_some() { "note" } else { "not seen" })?;
    }
    if stats.lost_events > 0 {
        writeln!(out, "lost        {} events could not be written", stats.lost_events)?;
    }
    for failed in &stats.distinct_failures() {
        print_failed(out, failed)?;
    }
    let kept = stats.failed_requests.len() as u64;
    if stats.failed_request_count > kept {
        writeln!(out, "failed      {} more requests", stats.failed_request_count - kept)?;
    }
    writeln!(out)?;
    let titles = match stats.has_totals {
        true => ["LARGEST BY SIZE", "LARGEST BY COUNT", "LARGEST MODULES"],
        false => {
            ["AT THE PEAK, LARGEST BY SIZE", "AT THE PEAK, LARGEST BY COUNT", "AT THE PEAK, LARGEST MODULES"]
        }
    };
    print_places(out, titles[0], &stats.top_by_size)?;
    if stats.top_by_count.iter().any(|place| place.count > 0) {
        print_places(out, titles[1], &stats.top_by_count)?;
    }
    if by != GroupBy::Module {
        print_places(out, titles[2], &stats.top_by_module)?;
    }
    let most = stats.size_histogram.iter().map(|bucket| bucket.count).max().unwrap_or(1).max(1);
    let mut sizes = Table::new(&["SIZE UP TO", "COUNT", "BYTES", ""], &[0, 1, 2]);
    for bucket in &stats.size_histogram {
        let bar = "█".repeat((bucket.count.saturating_mul(BAR) / most) as usize);
        sizes.row([format_bytes(bucket.max), bucket.count.to_string(), format_bytes(bucket.bytes), bar]);
    }
    if stats.has_totals && stats.has_blocks {
        print_table(out, &sizes)?;
    }
    let counted = |figure: String| if stats.has_totals { figure } else { "-".to_owned() };
    let mut threads = Table::new(&["THREAD", "NAME", "COUNT", "BYTES", "AT PEAK", "LEFT"], &[0, 2, 3, 4, 5]);
    for thread in &stats.by_thread {
        threads.row([
            thread.thread.to_string(),
            thread.name.as_deref().map_or_else(|| "-".to_owned(), short_name),
            counted(thread.count.to_string()),
            counted(format_bytes(thread.bytes)),
            format_bytes(thread.peak_bytes),
            format_bytes(thread.leaked_bytes),
        ]);
    }
    print_table(out, &threads)?;
    let mut allocators = Table::new(&["ALLOCATOR", "COUNT", "BYTES", "AT PEAK", "LEFT"], &[1, 2, 3, 4]);
    for allocator in &stats.by_allocator {
        let (count, bytes) = (counted(allocator.count.to_string()), counted(format_bytes(allocator.bytes)));
        let (peak, left) = (format_bytes(allocator.peak_bytes), format_bytes(allocator.leaked_bytes));
        allocators.row([allocator.allocator.clone(), count, bytes, peak, left]);
    }
    print_table(out, &allocators)
}

/// A device beside the memory that the figures above are of.
fn print_device(out: &mut impl Write, device: &DeviceStats, end: &End, has_blocks: bool) -> io::Result<()> {
    writeln!(out, "{}", device.device.title())?;
    let allocated = format_bytes(device.total_allocated_bytes);
    if has_blocks {
        writeln!(out, "allocated   {allocated} in {} allocations", device.allocations)?;
    }
    let reserved =
        device.peak_reserved_bytes.map(|bytes| format!(", reserved at most {}", format_bytes(bytes)));
    let peak = format_bytes(device.peak_bytes);
    let after = match has_blocks {
        true => format!(", after {}", nanoseconds_in_words(device.peak_time_ns)),
        false => String::new(),
    };
    writeln!(out, "peak        {peak}{after}{}", reserved.unwrap_or_default())?;
    let left = format_bytes(device.live_bytes);
    writeln!(out, "{:<11} {left} in {} blocks", end.moment(), device.live_blocks)?;
    print_purposes(out, device)?;
    if device.before_recording_bytes > 0 {
        let before = format_bytes(device.before_recording_bytes);
        writeln!(out, "before      {before} were allocated before the recording began")?;
    }
    if device.failed_requests > 0 {
        writeln!(out, "failed      {} requests", device.failed_requests)?;
    }
    writeln!(out)?;
    let title = if device.top_at == "end" { "HELD AT THE END" } else { "HELD AT THE PEAK" };
    print_places(out, title, &device.top)
}

/// Bytes, and blocks where they were counted.
fn amount(bytes: u64, blocks: u64) -> String {
    let blocks = Weight { bytes, count: blocks }.counted();
    let blocks = blocks.map_or_else(String::new, |blocks| format!(" in {blocks} blocks"));
    format!("{}{blocks}", format_bytes(bytes))
}

fn print_purposes(out: &mut impl Write, device: &DeviceStats) -> io::Result<()> {
    purposes(device).into_iter().try_for_each(|(label, text)| writeln!(out, "{label:<11} {text}"))
}

fn print_failed(
    out: &mut impl Write,
    DistinctFailure { last: failed, count, frame }: &DistinctFailure<'_>,
) -> io::Result<()> {
    let place = frame.map_or_else(String::new, |frame| {
        short_name(&format!("  ← {}:{} {}", frame.file, frame.line, frame.function))
    });
    let limit =
        failed.limit_bytes.map_or_else(String::new, |limit| format!(", limit {}", format_bytes(limit)));
    let bytes = asked(failed.bytes);
    let times = if *count > 1 { format!("{count} times, last ") } else { String::new() };
    writeln!(
        out,
        "failed      {} of {bytes}, {times}after {}{limit}{place}",
        failed.allocator,
        nanoseconds_in_words(failed.time_ns)
    )
}

fn print_places(out: &mut impl Write, title: &'static str, places: &[LocationTotals]) -> io::Result<()> {
    let mut rows = Table::new(&["BYTES", "COUNT", title], &[0, 1]);
    for place in places {
        let line = if place.line == 0 { String::new() } else { format!(":{}", place.line) };
        let name = match place.file.is_empty() && place.line == 0 {
            true => short_name(&place.function),
            false => short_name(&format!("{} ({}{line})", place.function, place.file)),
        };
        let count = if place.count == 0 { "-".to_owned() } else { place.count.to_string() };
        rows.row([format_bytes(place.bytes), count, name]);
    }
    print_table(out, &rows)
}

fn print_table(out: &mut impl Write, table: &Table) -> io::Result<()> {
    for line in table.lines() {
        writeln!(out, "{line}")?;
    }
    writeln!(out)
}
