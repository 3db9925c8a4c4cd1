//! `stormlog snapshot`: a PyTorch allocator snapshot on one page, judged at its peak or at the failed request.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use stormlog_catalog::cuda_oom::snapshot_at;
use stormlog_model::format_bytes;
use stormlog_torch::{Decomposition, DeviceReport, OomReport, PoolVerdict, ReportOptions, SnapshotReport};

use crate::exit::{Exit, NotThere, Wrong};
use crate::table::{Table, moment};

pub(crate) struct Options {
    pub(crate) file: PathBuf,
    pub(crate) oom: bool,
    pub(crate) json: bool,
    pub(crate) report: ReportOptions,
}

/// Reads a snapshot: a file, or the newest one of a bundle or a run. What is wrong with the file is the user's to know, with the file's name.
pub(crate) fn load(path: &Path) -> anyhow::Result<stormlog_torch::Snapshot> {
    let file = snapshot_at(path).map_err(|error| NotThere(error.to_string()))?;
    stormlog_torch::load(&file).map_err(|error| match error {
        // Says the file's name itself.
        stormlog_torch::SnapshotError::Open { .. } => NotThere(error.to_string()).into(),
        error => NotThere(format!("{}: {error}", file.display())).into(),
    })
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let snapshot = load(&options.file)?;
    let report = stormlog_torch::report(&snapshot, &options.report);
    let mut out = io::stdout().lock();
    if options.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
        return Ok(Exit::Ok);
    }
    if options.oom {
        let Some(oom) = &report.oom else {
            return Err(
                Wrong(format!("{}: no request failed in this recording", options.file.display())).into()
            );
        };
        write_oom(&mut out, oom)?;
        return Ok(Exit::Ok);
    }
    write_page(&mut out, &options.file, &report)?;
    Ok(Exit::Ok)
}

/// The page; `stormlog analyze` prints it too.
pub(crate) fn write_page(out: &mut impl Write, file: &Path, report: &SnapshotReport) -> io::Result<()> {
    writeln!(out, "{}", file.display())?;
    writeln!(out, "  verdict   {}", report.verdict.sentence)?;
    for verdict in &report.also {
        writeln!(out, "  also      {}", verdict.sentence)?;
    }
    for advice in &report.advice {
        writeln!(out, "  try       {}", advice.sentence)?;
    }
    if let Some(nothing) = report.no_setting_helps() {
        writeln!(out, "  try       {nothing}")?;
    }
    for hint in &report.hints {
        writeln!(out, "  change    {hint}")?;
    }
    for caution in &report.cautions {
        writeln!(out, "  caution   {caution}")?;
    }
    let settings = if report.settings.is_empty() { "defaults" } else { &report.settings };
    writeln!(out, "  settings  {settings}")?;
    if let Some(matched) = report.self_match {
        let doubt = if matched.is_sound() { "" } else { " — too few to predict anything" };
        writeln!(
            out,
            "  model     {} of {} recorded addresses predicted{doubt}",
            matched.matched, matched.total
        )?;
    }
    for device in &report.devices {
        write_device(out, device)?;
    }
    let when = if report.oom.is_some() { "when the request failed" } else { "when the most was allocated" };
    writeln!(out, "\nHeld {when}, device {}", report.device)?;
    let mut table = Table::new(&["BYTES", "%", "FOR"], &[0, 1]);
    for share in &report.categories {
        table.row([
            format_bytes(share.bytes),
            format!("{:.1}", share.share * 100.0),
            share.category.name().to_owned(),
        ]);
    }
    write_table(out, &table)?;
    writeln!(out)?;
    let total: u64 = report.categories.iter().map(|share| share.bytes).sum();
    let mut table = Table::new(&["BYTES", "%", "BLOCKS", "FOR", "TAKEN AT"], &[0, 1, 2]);
    for holder in &report.top {
        let site = match &holder.site {
            // The same line of the program may hold through several operations.
            Some(site) => match holder.frames.first() {
                Some(inner) if inner != site => format!("{site} ← {inner}"),
                _ => site.clone(),
            },
            None if holder.before_recording => "(before recording started)".to_owned(),
            None => "(no Python frames: another thread, such as autograd's)".to_owned(),
        };
        table.row([
            format_bytes(holder.bytes),
            format!("{:.1}", 100.0 * holder.bytes as f64 / total.max(1) as f64),
            holder.count.to_string(),
            holder.category.name().to_owned(),
            site,
        ]);
    }
    write_table(out, &table)?;
    if report.oom.is_some() {
        writeln!(out, "\n  more      stormlog snapshot {} --oom", file.display())?;
    }
    Ok(())
}

fn write_device(out: &mut impl Write, device: &DeviceReport) -> io::Result<()> {
    let size = format_bytes;
    writeln!(
        out,
        "\nDevice {}: {} events, peak {} allocated, {} active, {} reserved",
        device.device,
        device.events,
        size(device.peak_allocated_bytes),
        size(device.peak_active_bytes),
        size(device.peak_reserved_bytes)
    )?;
    let time =
        |us: Option<i64>| us.map_or("at an unknown time".to_owned(), |us| moment(us.saturating_mul(1000)));
    let allocated = match device.peak_allocated_event {
        Some(event) => format!("event {event}, {}", time(device.peak_allocated_time_us)),
        None => "before the first event".to_owned(),
    };
    writeln!(out, "  peak      allocated at {allocated}")?;
    writeln!(out, "            reserved at event {}, {}", device.peak_event, time(device.peak_time_us))?;
    writeln!(
        out,
        "  at end    {} allocated, {} reserved",
        size(device.end_allocated_bytes),
        size(device.end_reserved_bytes)
    )?;
    let before = device.live_before_recording_bytes;
    match device.overflowed {
        Some(true) => {
            writeln!(out, "  lost      the ring was full: the oldest events are gone (raise max_entries)")?
        }
        None if before > 0 => {
            writeln!(
                out,
                "  before    {} were live before the first event; whether events were lost is unknown",
                size(before)
            )?;
        }
        _ => {}
    }
    if device.anomalies > 0 {
        writeln!(
            out,
            "  caution   {} events contradict each other or the allocator's rules",
            device.anomalies
        )?;
    }
    write_decomposition(out, "at peak", &device.decomposition_at_peak)?;
    let mut table =
        Table::new(&["POOL", "STREAM", "RESERVED", "IN USE", "FREE", "LARGEST FREE", ""], &[2, 3, 4, 5]);
    for pool in &device.pools_at_peak {
        let kind = if pool.small { "small" } else { "large" };
        let name =
            if pool.pool == (0, 0) { kind.to_owned() } else { format!("{kind} of pool {:?}", pool.pool) };
        let stream = if pool.stream == 0 { "default".to_owned() } else { format!("{:#x}", pool.stream) };
        table.row([
            name,
            stream,
            size(pool.reserved_bytes),
            size(pool.active_bytes),
            size(pool.free_bytes),
            size(pool.largest_free_bytes),
            match pool.verdict {
                PoolVerdict::Tight => "tight",
                PoolVerdict::Cached => "cache",
                PoolVerdict::Fragmented => "fragmented",
            }
            .to_owned(),
        ]);
    }
    writeln!(out)?;
    write_table(out, &table)
}

fn write_decomposition(out: &mut impl Write, when: &str, parts: &Decomposition) -> io::Result<()> {
    let rows = [
        (parts.requested_bytes, "asked for and held"),
        (parts.rounding_bytes, "added by rounding"),
        (parts.split_slack_bytes, "ends of blocks not worth splitting off"),
        (parts.pending_free_bytes, "given back, but other streams may still use it"),
        (parts.stranded_bytes, "free beside something live (stranded)"),
        (parts.releasable_bytes, "free and whole (releasable)"),
        (parts.walled_off_bytes, "free in private pools (walled off)"),
        (parts.other_stream_bytes, "free, but cached for other streams"),
        (parts.reserved_bytes, "= held by the allocator"),
        (parts.outside_bytes.unwrap_or(0), "used outside the allocator, other processes included"),
        (parts.device_free_bytes.unwrap_or(0), "free on the device"),
        (parts.device_total_bytes.unwrap_or(0), "= the device"),
    ];
    let mut label = when;
    for (bytes, what) in rows.into_iter().filter(|(bytes, _)| *bytes > 0) {
        writeln!(out, "  {label:<8}  {:>11}  {what}", format_bytes(bytes))?;
        label = "";
    }
    Ok(())
}

fn write_oom(out: &mut impl Write, oom: &OomReport) -> io::Result<()> {
    let size = format_bytes;
    writeln!(out, "{}", oom.sentence)?;
    let pool = if oom.small { "small" } else { "large" };
    let stream =
        if oom.stream == 0 { "the default stream".to_owned() } else { format!("stream {:#x}", oom.stream) };
    writeln!(
        out,
        "  request   {}, for which {} were wanted from the driver",
        size(oom.request_bytes),
        size(oom.segment_bytes)
    )?;
    writeln!(out, "  fell into the {pool} pool {:?} of {stream}", oom.pool)?;
    if let Some(site) = &oom.site {
        writeln!(out, "  asked at  {site}")?;
    }
    writeln!(
        out,
        "  there     {} free, the largest block {}",
        size(oom.usable_free_bytes),
        size(oom.largest_usable_free_bytes)
    )?;
    writeln!(
        out,
        "  retries   {}; {} were given back to the driver in the attempt",
        oom.retries,
        size(oom.released_by_retry_bytes)
    )?;
    let below = oom.limit.below.map(|below| format!(", less than {}", size(below))).unwrap_or_default();
    writeln!(out, "  limit     at least {}{below}", size(oom.limit.at_least))?;
    match oom.device_free_bytes {
        Some(free) => writeln!(out, "  driver    {} free", size(free))?,
        None => writeln!(out, "  driver    unknown")?,
    }
    if oom.decomposition.outside_bytes.is_none() {
        writeln!(out, "  hidden    unknown; say --device-total to account for the whole device")?;
    }
    write_decomposition(out, "in all", &oom.decomposition)
}

pub(crate) fn write_table(out: &mut impl Write, table: &Table) -> io::Result<()> {
    for line in table.lines() {
        writeln!(out, "{line}")?;
    }
    Ok(())
}
