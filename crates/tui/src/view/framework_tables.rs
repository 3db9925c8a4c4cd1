//! What a snapshot, a capture or telemetry holds, as tables. Text of other programs is made harmless here.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use stormlog_catalog::frameworks::{FrameworkDevice, FrameworkTelemetry};
use stormlog_heap::DeviceStats;
use stormlog_heap_report::purposes;
use stormlog_model::format_bytes;
use stormlog_model::text::{Table, format_duration, format_whole_seconds, grouped};
use stormlog_torch::{DeviceReport, PoolVerdict, SnapshotReport};

use crate::read::frameworks::{Content, Detail};
use crate::text::{clean, fit, short_name, short_path, wrap};
use crate::view::theme::Theme;

/// What a source holds.
pub(crate) fn content_lines(
    detail: &Detail,
    at_ns: u64,
    columns: usize,
    theme: &Theme,
) -> Vec<Line<'static>> {
    match &detail.content {
        Content::Trouble(trouble) => {
            let lines = wrap(&clean(trouble), columns, 6);
            lines.into_iter().map(|line| Line::styled(line, theme.found())).collect()
        }
        Content::Snapshot { report, .. } => {
            let mut lines = snapshot_lines(report, columns, theme);
            lines.push(Line::default());
            lines.extend(holder_lines(report, columns, theme));
            lines
        }
        Content::Telemetry(found) => telemetry_lines(found, at_ns, columns, theme),
        Content::Capture(devices) => capture_lines(devices, columns, theme),
    }
}

/// Verdict, pools and categories of a snapshot.
pub(crate) fn snapshot_lines(report: &SnapshotReport, columns: usize, theme: &Theme) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut say = |word: &str, sentence: &str, most: usize, style: Style| {
        for (number, part) in wrap(&clean(sentence), columns.saturating_sub(9), most).into_iter().enumerate()
        {
            let word = if number == 0 { word } else { "" };
            let head = Span::styled(format!("{word:<9}"), theme.faint());
            lines.push(Line::from(vec![head, Span::styled(part, style)]));
        }
    };
    say("verdict", &report.verdict.sentence, 3, theme.title());
    if let Some(also) = report.also.first() {
        say("also", &also.sentence, 2, Style::new());
    }
    if let Some(advice) = report.advice.first() {
        say("try", &advice.sentence, 2, theme.found());
    }
    for device in report.devices.iter().filter(|device| device.device == report.device) {
        lines.push(Line::default());
        lines.extend(device_lines(device, columns, theme));
    }
    lines.push(Line::default());
    let when = if report.oom.is_some() { "when the request failed" } else { "when the most was allocated" };
    lines.push(Line::styled(fit(&format!("Held {when}"), columns).into_owned(), theme.title()));
    let mut table = Table::new(&["BYTES", "%", "", "FOR"], &[0, 1]);
    for share in &report.categories {
        table.row([
            format_bytes(share.bytes),
            format!("{:.1}", share.share * 100.0),
            bar(share.share, 20),
            share.category.name().to_owned(),
        ]);
    }
    lines.extend(table_lines(&table, columns, theme, |_| None));
    lines
}

/// The lines of the program that hold the most.
pub(crate) fn holder_lines(report: &SnapshotReport, columns: usize, theme: &Theme) -> Vec<Line<'static>> {
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
    table_lines(&table, columns, theme, |_| None)
}

fn device_lines(device: &DeviceReport, columns: usize, theme: &Theme) -> Vec<Line<'static>> {
    let size = format_bytes;
    let head = format!(
        "Device {}: peak {} allocated, {} active, {} reserved; at end {} allocated, {} reserved",
        device.device,
        size(device.peak_allocated_bytes),
        size(device.peak_active_bytes),
        size(device.peak_reserved_bytes),
        size(device.end_allocated_bytes),
        size(device.end_reserved_bytes)
    );
    let mut lines: Vec<Line<'static>> =
        wrap(&head, columns, 2).into_iter().map(|line| Line::styled(line, theme.title())).collect();
    let mut table = Table::new(
        &["POOL", "STREAM", "RESERVED", "IN USE", "FREE", "LARGEST FREE", "", "USE"],
        &[2, 3, 4, 5],
    );
    for pool in &device.pools_at_peak {
        table.row([
            pool.name(),
            pool.stream_name(),
            size(pool.reserved_bytes),
            size(pool.active_bytes),
            size(pool.free_bytes),
            size(pool.largest_free_bytes),
            pool.verdict.word().to_owned(),
            bar(pool.active_bytes as f64 / pool.reserved_bytes.max(1) as f64, 10),
        ]);
    }
    let is_bad = |row: usize| {
        let pool = device.pools_at_peak.get(row)?;
        (pool.verdict == PoolVerdict::Fragmented).then(|| theme.found())
    };
    lines.extend(table_lines(&table, columns, theme, is_bad));
    lines
}

fn telemetry_lines(
    found: &FrameworkTelemetry,
    at_ns: u64,
    columns: usize,
    theme: &Theme,
) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let head = format!("{} events, {} alerts", grouped(found.events), grouped(found.alerts));
    lines.push(Line::styled(fit(&head, columns).into_owned(), theme.title()));
    for note in &found.notes {
        lines.push(Line::styled(fit(&clean(note), columns).into_owned(), theme.found()));
    }
    lines.push(Line::default());
    let known = |bytes: Option<u64>| bytes.map_or_else(|| "–".to_owned(), format_bytes);
    let header =
        ["DEVICE", "RANK", "CURRENT", "PEAK", "RESERVED", "FRAGMENTED", "USED", "ACTIVE", "INACTIVE"];
    let mut table = Table::new(&header, &[1, 2, 3, 4, 5, 6, 7, 8]);
    for device in &found.devices {
        let share =
            device.fragmentation.map_or_else(|| "–".to_owned(), |share| format!("{:.0} %", share * 100.0));
        table.row([
            device_name(device),
            device.rank.to_string(),
            known(device.allocated.or(device.used)),
            known(device.peak_allocated.or(device.peak_used)),
            known(device.reserved),
            share,
            known(device.used),
            known(device.active),
            known(device.inactive),
        ]);
    }
    let is_bad =
        |row: usize| found.devices.get(row).filter(|device| device.is_fragmented()).map(|_| theme.found());
    lines.extend(table_lines(&table, columns, theme, is_bad));
    if found.devices.is_empty() {
        lines.push(Line::styled("no sample", theme.faint()));
    }
    if !found.phases.is_empty() {
        lines.push(Line::default());
        let mut table = Table::new(
            &["PHASE", "PEAK", "CHANGE (MEAN)", "DURATION (MEAN)", "CALLS", "ENDED"],
            &[1, 2, 3, 4, 5],
        );
        for phase in &found.phases {
            let change = phase.mean_change.map_or_else(
                || "–".to_owned(),
                |change| {
                    format!("{}{}", if change < 0 { "-" } else { "+" }, format_bytes(change.unsigned_abs()))
                },
            );
            table.row([
                phase.path.clone(),
                known(phase.peak),
                change,
                format_duration(phase.mean_ns as f64 / 1e9),
                grouped(phase.calls),
                format!("{} ago", age(at_ns, phase.last_ns)),
            ]);
        }
        lines.extend(table_lines(&table, columns, theme, |_| None));
    }
    lines
}

fn capture_lines(devices: &[DeviceStats], columns: usize, theme: &Theme) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if devices.is_empty() {
        let word = "no device memory in this capture; view 2 shows what the host holds";
        return vec![Line::styled(fit(word, columns).into_owned(), theme.faint())];
    }
    for device in devices {
        let reserved =
            device.peak_reserved_bytes.map(|bytes| format!(", reserved at most {}", format_bytes(bytes)));
        let head = format!(
            "{}: peak {}{}; live {} in {} blocks",
            device.device,
            format_bytes(device.peak_bytes),
            reserved.unwrap_or_default(),
            format_bytes(device.live_bytes),
            grouped(device.live_blocks)
        );
        lines.push(Line::styled(fit(&clean(&head), columns).into_owned(), theme.title()));
        for (label, text) in purposes(device).iter().filter(|(label, _)| *label != "for") {
            lines.push(Line::from(fit(&format!("{label:<9}{text}"), columns).into_owned()));
        }
        let mut parts: Vec<(&str, u64)> =
            device.categories.iter().map(|(name, amount)| (*name, amount.bytes)).collect();
        parts.sort_by_key(|(name, bytes)| (std::cmp::Reverse(*bytes), *name));
        let mut table = Table::new(&["BYTES", "%", "", "FOR"], &[0, 1]);
        for (name, bytes) in parts.into_iter().filter(|(_, bytes)| *bytes > 0) {
            let share = bytes as f64 / device.live_bytes.max(1) as f64;
            table.row([
                format_bytes(bytes),
                format!("{:.1}", share * 100.0),
                bar(share, 20),
                name.to_owned(),
            ]);
        }
        if !device.categories.is_empty() {
            lines.extend(table_lines(&table, columns, theme, |_| None));
        }
        let title = if device.top_at == "end" { "HELD AT THE END" } else { "HELD AT THE PEAK" };
        let mut table = Table::new(&["BYTES", "BLOCKS", title], &[0, 1]);
        for place in &device.top {
            let line = if place.line == 0 { String::new() } else { format!(":{}", place.line) };
            let at = format!("{}{line}  {}", short_path(&place.file), short_name(&place.function));
            table.row([format_bytes(place.bytes), grouped(place.count), at]);
        }
        lines.extend(table_lines(&table, columns, theme, |_| None));
        lines.push(Line::default());
    }
    lines
}

fn device_name(device: &FrameworkDevice) -> String {
    if device.device_id < 0 {
        device.backend.clone()
    } else {
        format!("{}:{}", device.backend, device.device_id)
    }
}

/// A share as a bar.
pub(crate) fn bar(share: f64, columns: usize) -> String {
    let filled = (share.clamp(0.0, 1.0) * columns as f64).round() as usize;
    format!("{}{}", "█".repeat(filled), "░".repeat(columns - filled))
}

/// The rows of a table under its header; `style` gives the emphasis of a row.
fn table_lines(
    table: &Table,
    columns: usize,
    theme: &Theme,
    style: impl Fn(usize) -> Option<Style>,
) -> Vec<Line<'static>> {
    let lines = table.lines();
    let shown = lines.iter().enumerate().map(|(number, line)| {
        let text = fit(&clean(line), columns).into_owned();
        match number.checked_sub(1) {
            None => Line::styled(text, theme.header()),
            Some(row) => Line::styled(text, style(row).unwrap_or_default()),
        }
    });
    shown.collect()
}

/// How long ago a moment was.
pub(crate) fn age(now_ns: u64, at_ns: u64) -> String {
    if at_ns == 0 {
        "–".to_owned()
    } else {
        format_whole_seconds(now_ns.saturating_sub(at_ns) as f64 / 1e9)
    }
}
