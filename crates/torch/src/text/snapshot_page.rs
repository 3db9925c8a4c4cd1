//! A snapshot on one page, judged at its peak or at the failed request: what `stormlog snapshot` prints and the terminal UI shows.

use std::io::{self, Write};
use std::path::Path;

use stormlog_model::format_bytes;
use stormlog_model::text::Table;

use crate::{Decomposition, DeviceReport, Holder, OomReport, PoolReport, PoolVerdict, SnapshotReport};

/// The page of `stormlog snapshot`.
pub fn write_snapshot_page(out: &mut impl Write, file: &Path, report: &SnapshotReport) -> io::Result<()> {
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
    write!(out, "{table}")?;
    writeln!(out)?;
    let total: u64 = report.categories.iter().map(|share| share.bytes).sum();
    let mut table = Table::new(&["BYTES", "%", "BLOCKS", "FOR", "TAKEN AT"], &[0, 1, 2]);
    for holder in &report.top {
        table.row([
            format_bytes(holder.bytes),
            format!("{:.1}", 100.0 * holder.bytes as f64 / total.max(1) as f64),
            holder.count.to_string(),
            holder.category.name().to_owned(),
            holder.place(),
        ]);
    }
    write!(out, "{table}")?;
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
        table.row([
            pool.name(),
            pool.stream_name(),
            size(pool.reserved_bytes),
            size(pool.active_bytes),
            size(pool.free_bytes),
            size(pool.largest_free_bytes),
            pool.verdict.word().to_owned(),
        ]);
    }
    writeln!(out)?;
    write!(out, "{table}")
}

fn write_decomposition(out: &mut impl Write, when: &str, parts: &Decomposition) -> io::Result<()> {
    let rows = [
        (parts.requested_bytes, "requested and held"),
        (parts.rounding_bytes, "added by rounding"),
        (parts.split_slack_bytes, "unsplit block remainders"),
        (parts.pending_free_bytes, "freed, but other streams may still use it"),
        (parts.stranded_bytes, "free beside live blocks (stranded)"),
        (parts.releasable_bytes, "free in whole segments (releasable)"),
        (parts.walled_off_bytes, "free in private pools"),
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

/// Why a request failed.
pub fn write_oom(out: &mut impl Write, oom: &OomReport) -> io::Result<()> {
    let size = format_bytes;
    writeln!(out, "{}", oom.sentence)?;
    let pool = if oom.small { "small" } else { "large" };
    let stream =
        if oom.stream == 0 { "the default stream".to_owned() } else { format!("stream {:#x}", oom.stream) };
    writeln!(
        out,
        "  request   {} (rounded to {} for the driver)",
        size(oom.request_bytes),
        size(oom.segment_bytes)
    )?;
    writeln!(out, "  pool      {pool} {:?}, {stream}", oom.pool)?;
    if let Some(site) = &oom.site {
        writeln!(out, "  site      {site}")?;
    }
    writeln!(
        out,
        "  free      {} in this pool, largest block {}",
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
        writeln!(out, "  hidden    unknown; give --device-total to account for the whole device")?;
    }
    write_decomposition(out, "in all", &oom.decomposition)
}

impl PoolReport {
    /// Its kind, and its number unless it is the default one.
    #[must_use]
    pub fn name(&self) -> String {
        let kind = if self.small { "small" } else { "large" };
        if self.pool == (0, 0) { kind.to_owned() } else { format!("{kind} of pool {:?}", self.pool) }
    }

    /// The stream it serves.
    #[must_use]
    pub fn stream_name(&self) -> String {
        if self.stream == 0 { "default".to_owned() } else { format!("{:#x}", self.stream) }
    }
}

impl PoolVerdict {
    /// The word in tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            PoolVerdict::Tight => "tight",
            PoolVerdict::Cached => "cache",
            PoolVerdict::Fragmented => "fragmented",
        }
    }
}

impl Holder {
    /// The line of the program and the operation below it, or why there is none.
    #[must_use]
    pub fn place(&self) -> String {
        match &self.site {
            // The same line of the program may hold through several operations.
            Some(site) => match self.frames.first() {
                Some(inner) if inner != site => format!("{site} ← {inner}"),
                _ => site.clone(),
            },
            None if self.before_recording => "(before recording started)".to_owned(),
            None => "(no Python frames: another thread, such as autograd's)".to_owned(),
        }
    }
}

fn moment(ns: i64) -> String {
    match jiff::Timestamp::from_nanosecond(ns.into()) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
        Err(_) => "unknown".to_owned(),
    }
}
