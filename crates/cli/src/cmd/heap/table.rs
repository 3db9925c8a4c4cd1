//! `stormlog table`: one row a line of code.

use std::cmp::Reverse;
use std::io::{self, Write};

use stormlog_heap_report::rows::{By, CodeLocation, Row, grouped};
use stormlog_heap_report::{owners, table_page};
use stormlog_model::format_bytes;
use stormlog_model::text::short_name;

use super::{CaptureSelection, Output, count_cell, export, head, read_answer, warn_of_cut};
use crate::exit::Exit;
use crate::table::Table;

pub(crate) struct Options {
    pub(crate) selection: CaptureSelection,
    pub(crate) output: Output,
    pub(crate) html: bool,
    pub(crate) json: bool,
    pub(crate) by: By,
    pub(crate) sort: Sort,
    pub(crate) filter: Option<String>,
    pub(crate) top: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    Own,
    Total,
    Count,
    Function,
    File,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let (reading, answer) = read_answer(&options.selection)?;
    let held = &answer.held;
    let mut rows = grouped(held, options.by);
    if let Some(wanted) = &options.filter {
        let wanted = wanted.to_lowercase();
        let matches = |place: &CodeLocation| {
            place.function.to_lowercase().contains(&wanted) || place.file.to_lowercase().contains(&wanted)
        };
        rows.retain(|row| row.stack.iter().any(matches));
    }
    sort(&mut rows, options.sort);
    if options.html {
        let page = table_page(&reading, &rows, &owners(&answer, &rows, options.by));
        options.output.write(&reading.chosen.path, "table.html", page.as_bytes())?;
        return Ok(Exit::Ok);
    }
    let mut out = io::stdout().lock();
    if options.json {
        warn_of_cut(&reading.end)?;
        out.write_all(&export::json(&rows)?)?;
        return Ok(Exit::Ok);
    }
    head(&mut out, &reading, held)?;
    if rows.is_empty() {
        if options.filter.is_some() {
            writeln!(out, "No line matches the filter.")?;
        }
        return Ok(Exit::Ok);
    }
    let columns = ["OWN", "TOTAL", "COUNT", "FUNCTION", "PLACE", "THREAD", "ALLOCATOR"];
    let mut table = Table::new(&columns, &[0, 1, 2]);
    let (shown, whole) = (&rows[..rows.len().min(options.top)], held.whole());
    for (row, (threads, allocators)) in shown.iter().zip(owners(&answer, shown, options.by)) {
        let (function, place) = named(row.stack.first());
        let count = count_cell(whole, row.count);
        let sizes = [format_bytes(row.own_bytes), format_bytes(row.total_bytes), count];
        table.row(sizes.into_iter().chain([function, place, threads, allocators]));
    }
    for line in table.lines() {
        writeln!(out, "{line}")?;
    }
    if rows.len() > options.top {
        writeln!(out, "… {} more rows; -n 0 prints all, --filter finds some", rows.len() - options.top)?;
    }
    Ok(Exit::Ok)
}

pub(crate) fn sort(rows: &mut [Row], by: Sort) {
    let name = |row: &Row| row.stack.first().cloned();
    match by {
        Sort::Own => rows.sort_by_key(|row| Reverse(row.own_bytes)),
        Sort::Total => rows.sort_by_key(|row| Reverse(row.total_bytes)),
        Sort::Count => rows.sort_by_key(|row| Reverse(row.count)),
        Sort::Function => rows.sort_by_cached_key(|row| name(row).map(|place| place.function)),
        Sort::File => rows.sort_by_cached_key(|row| name(row).map(|place| (place.file, place.line))),
    }
}

/// Function and `file:line` for a terminal.
pub(crate) fn named(place: Option<&CodeLocation>) -> (String, String) {
    match place {
        None => ("(no stack)".to_owned(), String::new()),
        Some(place) if place.line == 0 => (short_name(&place.function), short_name(&place.file)),
        Some(place) => (short_name(&place.function), format!("{}:{}", short_name(&place.file), place.line)),
    }
}
