//! `stormlog leaks`: what stayed, and what keeps growing.

use std::io::{self, Write};
use std::path::PathBuf;

use stormlog_heap_report::leaks::{Leak, Pattern, leaks, leaks_in_span};
use stormlog_heap_report::{Ask, HeapQuery, MOMENTS, Reading, when};
use stormlog_model::format_bytes;
use stormlog_model::memory::Selection;
use stormlog_model::stacks::Weight;

use super::table::named;
use super::{Waiting, amount, choose, count_cell, export, warn_of_cut};
use crate::exit::{Exit, UsageError};
use crate::table::Table;

pub(crate) struct Options {
    pub(crate) capture: PathBuf,
    pub(crate) pid: Option<u32>,
    pub(crate) memory: Option<Selection>,
    pub(crate) from: u64,
    /// `None`: when the program's own code had ended, or the end.
    pub(crate) to: Option<u64>,
    pub(crate) json: bool,
    pub(crate) top: usize,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    if options.to.is_some_and(|to| to <= options.from) {
        return Err(
            UsageError("the span ends before it begins: --to must be later than --from".to_owned()).into()
        );
    }
    let chosen = choose(&options.capture, options.pid, options.memory)?;
    let waiting = Waiting::for_file(&chosen.path);
    // What was there at a time is asked of the reader; moments are only where the heap was largest.
    let query = options.to.map_or(HeapQuery::Leaks, |to| HeapQuery::Span(options.from, to));
    let ask = Ask { query, memory: options.memory };
    let reading = Reading::with(chosen, ask, MOMENTS, |_| true)?;
    if !reading.knows_when() && (options.from > 0 || options.to.is_some()) {
        return Err(UsageError(
            "individual records are not stored in this capture (--aggregate, --max-size), so a span cannot be selected: leave out --from and --to to see everything that was live at the end"
                .to_owned(),
        )
        .into());
    }
    let answer = reading.answer();
    let is_all = options.from == 0 && options.to.is_none();
    let found = if is_all { leaks(&answer) } else { leaks_in_span(&answer, options.from, options.to) };
    let end = reading.heap.code_end().map_or(reading.heap.duration_us(), |(time, _)| time);
    let to = options.to.unwrap_or(end);
    drop(waiting);
    let mut out = io::stdout().lock();
    if options.json {
        warn_of_cut(&reading.end)?;
        out.write_all(&export::json(&found)?)?;
        return Ok(Exit::Ok);
    }
    print(&mut out, &reading, &found, to, options.top)?;
    Ok(Exit::Ok)
}

fn print(out: &mut impl Write, reading: &Reading, found: &[Leak], to: u64, top: usize) -> anyhow::Result<()> {
    let mut whole = Weight::default();
    found.iter().for_each(|leak| whole += Weight { bytes: leak.own_bytes, count: leak.count });
    let steady: Vec<&Leak> = found.iter().filter(|leak| leak.pattern == Pattern::Steady).collect();
    // A profile of one moment does not record how long after the start that was.
    let moment = match reading.heap.duration_us() {
        0 if reading.heap.has_leaks_only() => reading.words(),
        0 => "were held".to_owned(),
        end => format!("were live {} after the start", when(to.min(end))),
    };
    let growing = match reading.knows_when() {
        true => format!("; {} of {} lines keep growing", steady.len(), found.len()),
        false => String::new(),
    };
    writeln!(out, "{}: {} {moment}{growing}", reading.subject(), amount(whole))?;
    for note in reading.notes() {
        writeln!(out, "  {note}")?;
    }
    if found.is_empty() {
        writeln!(out, "No memory was left allocated.")?;
        return Ok(());
    }
    let mut table = Table::new(
        &["GROWTH", "STAYED", "COUNT", "SINCE", "PLACE", "FUNCTION", "CALLED FROM"],
        &[0, 1, 2, 3],
    );
    for leak in found.iter().take(top) {
        let growth = match leak.pattern {
            Pattern::Steady => {
                format!("{}/s", format_bytes(leak.growth_bytes_per_second.unwrap_or_default() as u64))
            }
            Pattern::Once => "once".to_owned(),
            Pattern::Unknown => "unknown".to_owned(),
        };
        let (function, place) = named(Some(&leak.place));
        let caller = leak.caller.as_ref().map_or_else(String::new, |caller| named(Some(caller)).1);
        let since = leak.first_seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1} s"));
        table.row([
            growth,
            format_bytes(leak.own_bytes),
            count_cell(whole, leak.count),
            since,
            place,
            function,
            caller,
        ]);
    }
    for line in table.lines() {
        writeln!(out, "{line}")?;
    }
    if found.len() > top {
        writeln!(out, "… {} more lines; -n {} prints all", found.len() - top, found.len())?;
    }
    Ok(())
}
