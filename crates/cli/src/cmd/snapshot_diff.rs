//! `stormlog diff` on two allocator snapshots: bytes and blocks by stack and by category.

use std::io::{self, Write};
use std::path::Path;

use stormlog_event::format_bytes;
use stormlog_torch::{Moment, Recording, SnapshotDiff};

use super::snapshot::{load, write_table};
use crate::exit::Exit;
use crate::table::Table;

/// Compares what two snapshots held at their peak or at their end, on the first device.
pub(crate) fn run(a: &Path, b: &Path, at_end: bool, top: usize, json: bool) -> anyhow::Result<Exit> {
    let (before, after) = (load(a)?, load(b)?);
    let at = if at_end { Moment::End } else { Moment::Peak };
    let found = stormlog_torch::diff(&Recording::new(&before, 0), &Recording::new(&after, 0), at);
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(&found)?)?;
    } else {
        write_page(&mut out, &found, at_end, top)?;
    }
    Ok(Exit::Ok)
}

fn write_page(out: &mut impl Write, found: &SnapshotDiff, at_end: bool, top: usize) -> io::Result<()> {
    let name = if at_end { "end" } else { "peak" };
    writeln!(
        out,
        "{name} {} → {}  ({}), {} → {} blocks; held from the driver {} → {}",
        format_bytes(found.total.before_bytes),
        format_bytes(found.total.after_bytes),
        signed(found.total.delta_bytes),
        found.total.before_count,
        found.total.after_count,
        format_bytes(found.before.reserved_bytes),
        format_bytes(found.after.reserved_bytes)
    )?;
    if found.stacks.is_empty() {
        return writeln!(out, "No difference.");
    }
    writeln!(out)?;
    let mut table = Table::new(&["CHANGE", "BLOCKS", "BEFORE", "AFTER", "FOR"], &[0, 1, 2, 3]);
    for entry in &found.categories {
        let sides = &entry.sides;
        table.row([
            signed(sides.delta_bytes),
            format!("{:+}", sides.delta_count),
            format_bytes(sides.before_bytes),
            format_bytes(sides.after_bytes),
            entry.category.name().to_owned(),
        ]);
    }
    write_table(out, &table)?;
    writeln!(out)?;
    let mut table = Table::new(&["CHANGE", "BLOCKS", "BEFORE", "AFTER", "TAKEN AT"], &[0, 1, 2, 3]);
    for entry in found.stacks.iter().take(top) {
        let sides = &entry.sides;
        table.row([
            signed(sides.delta_bytes),
            format!("{:+}", sides.delta_count),
            format_bytes(sides.before_bytes),
            format_bytes(sides.after_bytes),
            entry.site.clone().unwrap_or_else(|| "(no Python frames)".to_owned()),
        ]);
    }
    write_table(out, &table)?;
    if found.stacks.len() > top {
        let all = found.stacks.len();
        writeln!(out, "… {} smaller differences; -n {all} prints all", all - top)?;
    }
    Ok(())
}

fn signed(bytes: i64) -> String {
    let sign = if bytes < 0 { "−" } else { "+" };
    format!("{sign}{}", format_bytes(bytes.unsigned_abs()))
}
