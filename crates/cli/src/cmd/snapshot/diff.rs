//! `stormlog diff` on two allocator snapshots: bytes and blocks by stack and by category, on all devices.

use std::io::{self, Write};
use std::path::Path;

use stormlog_model::format_bytes;
use stormlog_render::flamegraph::{self, FlameGraph};
use stormlog_torch::{NoSuchMark, Recording, Sides, SnapshotDiff, SnapshotMoment};

use crate::cmd::heap::diff::Options;
use crate::cmd::snapshot::report::load;
use crate::exit::{Exit, UsageError};
use crate::table::Table;

/// Compares what two snapshots held at the moment asked for.
pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let (before, after) = (load(&options.a)?, load(&options.b)?);
    let (before, after) = (Recording::all(&before), Recording::all(&after));
    let found = stormlog_torch::diff(&before, &after, &options.at).map_err(wrong)?;
    if options.html {
        let page = page(options, &before, &after, &found)?;
        options.output.write(&options.b, "diff.html", page.as_bytes())?;
        return Ok(Exit::Ok);
    }
    let mut out = io::stdout().lock();
    if options.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&found)?)?;
    } else {
        write_text(&mut out, &found, options.top)?;
    }
    Ok(Exit::Ok)
}

fn wrong(error: NoSuchMark) -> UsageError {
    UsageError(error.to_string())
}

/// The flame graph of the difference, by category and stack.
fn page(
    options: &Options,
    before: &[Recording<'_>],
    after: &[Recording<'_>],
    found: &SnapshotDiff,
) -> anyhow::Result<String> {
    let held = |side: &[Recording<'_>]| stormlog_torch::stack_profile(side, &options.at).map_err(wrong);
    let both = stormlog_heap_report::diff::diff(&held(before)?, &held(after)?);
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let facts = [
        ("before", format_bytes(found.total.before_bytes)),
        ("after", format_bytes(found.total.after_bytes)),
        ("difference", signed(found.total.delta_bytes)),
        ("colours", "red more, blue less".to_owned()),
    ];
    Ok(flamegraph::page(&FlameGraph {
        title: format!("{} → {}: GPU memory at {}", name(&options.a), name(&options.b), words(&options.at)),
        subtitle: format!("{} → {}", options.a.display(), options.b.display()),
        facts: facts.map(|(name, value)| (name.to_owned(), value)).into(),
        empty: "Neither snapshot holds anything here.".to_owned(),
        held: both.held,
        before: Some(both.before),
        ..FlameGraph::default()
    }))
}

fn words(at: &SnapshotMoment) -> String {
    match at {
        SnapshotMoment::Peak => "the peak".to_owned(),
        SnapshotMoment::End => "the end".to_owned(),
        SnapshotMoment::After(events) => format!("event {events}"),
        SnapshotMoment::Mark(mark) => format!("the {mark}"),
    }
}

fn write_text(out: &mut impl Write, found: &SnapshotDiff, top: usize) -> io::Result<()> {
    let total = &found.total;
    writeln!(
        out,
        "{} {} → {}  ({}), {} → {} blocks; held from the driver {} → {}",
        found.at,
        format_bytes(total.before_bytes),
        format_bytes(total.after_bytes),
        signed(total.delta_bytes),
        total.before_count,
        total.after_count,
        format_bytes(found.before.reserved_bytes),
        format_bytes(found.after.reserved_bytes)
    )?;
    if let [_, _, ..] = found.devices.as_slice() {
        let rows = found.devices.iter().map(|entry| (entry.total, format!("device {}", entry.device)));
        write_sides(out, "ON", rows)?;
    }
    if found.stacks.is_empty() {
        return writeln!(out, "No difference.");
    }
    let rows = found.categories.iter().map(|entry| (entry.sides, entry.category.name().to_owned()));
    write_sides(out, "FOR", rows)?;
    let rows = found.stacks.iter().take(top).map(|entry| {
        let site = entry.site.clone().unwrap_or_else(|| "(no Python frames)".to_owned());
        let place = match entry.frames.first() {
            Some(inner) if *inner != site => format!("{site} ← {inner}"),
            _ => site,
        };
        (entry.sides, place)
    });
    write_sides(out, "TAKEN AT", rows)?;
    if found.stacks.len() > top {
        let all = found.stacks.len();
        writeln!(out, "… {} smaller differences; -n {all} prints all", all - top)?;
    }
    Ok(())
}

fn write_sides(
    out: &mut impl Write,
    name: &'static str,
    rows: impl Iterator<Item = (Sides, String)>,
) -> io::Result<()> {
    let mut table = Table::new(&["CHANGE", "BLOCKS", "BEFORE", "AFTER", name], &[0, 1, 2, 3]);
    for (sides, what) in rows {
        table.row([
            signed(sides.delta_bytes),
            format!("{:+}", sides.delta_count),
            format_bytes(sides.before_bytes),
            format_bytes(sides.after_bytes),
            what,
        ]);
    }
    writeln!(out)?;
    write!(out, "{table}")
}

fn signed(bytes: i64) -> String {
    let sign = if bytes < 0 { "−" } else { "+" };
    format!("{sign}{}", format_bytes(bytes.unsigned_abs()))
}
