//! `stormlog summary`: who held the memory at the peak, function by function.

use std::io::{self, Write};
use std::path::PathBuf;

use stormlog_event::format_bytes;
use stormlog_view::rows::{By, grouped};
use stormlog_view::{Question, plain};

use super::heap::{Asked, export, head, read};
use crate::exit::Exit;
use crate::table::Table;

pub(crate) struct Options {
    pub(crate) capture: PathBuf,
    pub(crate) json: bool,
    pub(crate) top: usize,
    pub(crate) leaks: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let question = if options.leaks { Question::Leaks } else { Question::Peak };
    let asked = Asked { capture: options.capture.clone(), pid: None, question, python_only: false };
    let (reading, held) = read(&asked)?;
    let mut rows = grouped(&held, By::Function);
    let mut out = io::stdout().lock();
    if options.json {
        out.write_all(&export::json(&rows)?)?;
        return Ok(Exit::Ok);
    }
    rows.truncate(options.top);
    head(&mut out, &reading, &held)?;
    if rows.is_empty() {
        return Ok(Exit::Ok);
    }
    let whole = held.whole().bytes.max(1) as f64;
    let share = |bytes: u64| format!("{:.1}", 100.0 * bytes as f64 / whole);
    let mut table = Table::new(&["OWN", "%", "TOTAL", "%", "COUNT", "FUNCTION"], &[0, 1, 2, 3, 4]);
    for row in &rows {
        let name = row.stack.first().map_or_else(
            || "(no stack)".to_owned(),
            |place| plain(&format!("{} ({})", place.function, place.file)),
        );
        table.row([
            format_bytes(row.own_bytes),
            share(row.own_bytes),
            format_bytes(row.total_bytes),
            share(row.total_bytes),
            row.count.to_string(),
            name,
        ]);
    }
    for line in table.lines() {
        writeln!(out, "{line}")?;
    }
    Ok(Exit::Ok)
}
