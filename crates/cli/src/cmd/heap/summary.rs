//! `stormlog summary`: what held the memory, function by function.

use std::io::{self, Write};

use stormlog_heap_report::rows::{By, grouped};
use stormlog_model::format_bytes;
use stormlog_model::text::short_name;

use crate::cmd::heap::table::{Sort, sort};
use crate::cmd::heap::{CaptureSelection, count_cell, export, head, read, warn_of_cut};
use crate::exit::Exit;
use crate::table::Table;

pub(crate) struct Options {
    pub(crate) selection: CaptureSelection,
    pub(crate) json: bool,
    pub(crate) sort: Sort,
    pub(crate) top: usize,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let (reading, held) = read(&options.selection)?;
    let mut rows = grouped(&held, By::Function);
    sort(&mut rows, options.sort);
    let mut out = io::stdout().lock();
    if options.json {
        warn_of_cut(&reading.end)?;
        out.write_all(&export::json(&rows)?)?;
        return Ok(Exit::Ok);
    }
    head(&mut out, &reading, &held)?;
    if rows.is_empty() {
        return Ok(Exit::Ok);
    }
    let whole = held.whole();
    let share = |bytes: u64| format!("{:.1}", 100.0 * bytes as f64 / whole.bytes.max(1) as f64);
    let mut table = Table::new(&["OWN", "%", "TOTAL", "%", "COUNT", "FUNCTION"], &[0, 1, 2, 3, 4]);
    for row in rows.iter().take(options.top) {
        let name = row.stack.first().map_or_else(
            || "(no stack)".to_owned(),
            |place| match place.file.is_empty() {
                true => short_name(&place.function),
                false => short_name(&format!("{} ({})", place.function, place.file)),
            },
        );
        table.row([
            format_bytes(row.own_bytes),
            share(row.own_bytes),
            format_bytes(row.total_bytes),
            share(row.total_bytes),
            count_cell(whole, row.count),
            name,
        ]);
    }
    for line in table.lines() {
        writeln!(out, "{line}")?;
    }
    if rows.len() > options.top {
        writeln!(out, "… {} more functions; -n 0 prints all", rows.len() - options.top)?;
    }
    Ok(Exit::Ok)
}
