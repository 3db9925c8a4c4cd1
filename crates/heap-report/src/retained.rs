//! What keeps the memory of a process, line by line: its own report of holders (`retained-PID.json`) joined with its heap capture by the addresses
//! of the blocks. Must never fail for a capture that is missing or damaged: the holders are known without it.

use std::path::Path;

use rustc_hash::FxHashMap;
use stormlog_catalog::retained::{Retained, Retention};
use stormlog_catalog::run::Process;
use stormlog_heap::{Capture, HeapReadOptions, Locate, LocationTotals, Names};
use stormlog_model::memory::Memory;

/// Lines of one holder with less than this part of its bytes count to its largest line.
const SMALLEST_PART: u64 = 20;
/// Blocks that the capture does not know are attributed to a holder's known lines up to this multiple of what those lines hold.
const MOST_UNKNOWN: u64 = 4;

/// Blocks of a sampled capture that are needed to attribute what a holder keeps to their lines.
const FEWEST_RECORDED: usize = 3;

/// What keeps the memory of a process, each row with the line that allocated it where its capture has it; the largest first. `None` where the process
/// reported nothing.
#[must_use]
pub fn retention(process: &Process) -> Option<Retention> {
    let report = process.retention()?;
    Some(match process.captures.first() {
        Some(capture) => with_lines(report, capture),
        None => report,
    })
}

/// The same with a capture that is known.
#[must_use]
pub fn with_lines(mut report: Retention, capture: &Path) -> Retention {
    if let Some(places) = places(&report, capture) {
        report.held = report.held.into_iter().flat_map(|row| split(row, &places)).collect();
        report.held.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    }
    report
}

/// File, line and function, where they are known.
type Line = Option<(String, u32, String)>;
type TotalsByLocation = FxHashMap<(String, u64), LocationTotals>;

fn places(report: &Retention, capture: &Path) -> Option<TotalsByLocation> {
    let taken_at_ns = u64::try_from(report.taken_at_ns?).ok()?;
    let of_row = |row: &Retained| -> Vec<u64> {
        row.blocks.iter().map(|block| block.address).chain(row.recorded.iter().copied()).collect()
    };
    let mut addresses: Vec<u64> = report.held.iter().flat_map(of_row).collect();
    addresses.sort_unstable();
    addresses.dedup();
    if addresses.is_empty() {
        return None;
    }
    let capture = Capture::open(capture).ok()?;
    let start_ns = capture.start_realtime_ns().ok()?;
    let at_us = taken_at_ns.saturating_sub(start_ns) / 1000;
    let heap = capture
        .read(HeapReadOptions { locate: Some(Locate { at_us, addresses }), ..HeapReadOptions::default() })
        .ok()?;
    let mut names = Names::default();
    let mut found = TotalsByLocation::default();
    for memory in heap.memories() {
        let located = heap.located(memory, Some(&mut names));
        found.extend(located.into_iter().map(|(address, place)| ((word(memory), address), place)));
    }
    Some(found)
}

fn word(memory: Memory) -> String {
    memory.to_string()
}

/// One row for each line that allocated a good part of what a holder keeps. Blocks that the capture does not know keep the row without a line.
fn split(row: Retained, places: &TotalsByLocation) -> Vec<Retained> {
    let mut lines: FxHashMap<Line, u64> = FxHashMap::default();
    let line_of = |address: u64| -> Line {
        let place = places.get(&(row.memory.clone(), address)).filter(|place| place.line > 0)?;
        Some((place.file.clone(), place.line, place.function.clone()))
    };
    for block in &row.blocks {
        *lines.entry(line_of(block.address)).or_default() += block.bytes;
    }
    // Of a sampled capture some blocks are not known: they were allocated where the others of the holder were.
    let unknown = lines.get(&None).copied().unwrap_or(0);
    let recorded: Vec<Line> =
        row.recorded.iter().map(|address| line_of(*address)).filter(Option::is_some).collect();
    if recorded.len() >= FEWEST_RECORDED && unknown > 0 {
        let each = unknown / recorded.len() as u64;
        for line in recorded {
            *lines.entry(line).or_default() += each.max(1);
        }
        lines.remove(&None);
    }
    let unknown = lines.get(&None).copied().unwrap_or(0);
    let known = lines.values().sum::<u64>() - unknown;
    if known >= unknown / MOST_UNKNOWN && known > 0 {
        lines.remove(&None);
    }
    let sampled: u64 = lines.values().sum();
    let mut lines: Vec<(Line, u64)> = lines.into_iter().collect();
    lines.sort_by_key(|(line, bytes)| (std::cmp::Reverse(*bytes), line.clone()));
    let kept = lines.iter().filter(|(_, bytes)| *bytes >= sampled / SMALLEST_PART).count();
    let small: u64 = lines.iter().skip(kept).map(|(_, bytes)| bytes).sum();
    lines.truncate(kept);
    match lines.first_mut() {
        Some((_, largest)) => *largest += small,
        None => return vec![row],
    }
    let share = |part: u64, of: u64| (u128::from(part) * u128::from(of) / u128::from(sampled.max(1))) as u64;
    let rows = lines.into_iter().map(|(line, bytes)| {
        let (file, line, function) = match line {
            Some((file, line, function)) => (Some(file), Some(u64::from(line)), Some(function)),
            None => (None, None, None),
        };
        Retained {
            file,
            line,
            function,
            bytes: share(bytes, row.bytes),
            objects: share(bytes, row.objects).max(1),
            blocks: Vec::new(),
            recorded: Vec::new(),
            ..row.clone()
        }
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stormlog_catalog::retained::HeldBlock;

    #[test]
    fn holder_of_two_lines_becomes_two_rows_and_small_parts_go_to_the_largest() {
        let block = |address, bytes| HeldBlock { address, bytes };
        let row = Retained {
            memory: "host".to_owned(),
            bytes: 1000,
            objects: 10,
            kept_by: "`keep`, a list".to_owned(),
            blocks: vec![block(1, 600), block(2, 390), block(3, 10)],
            ..Retained::default()
        };
        let place =
            |line| LocationTotals { function: "f".into(), file: "a.py".into(), line, bytes: 0, count: 0 };
        let places = TotalsByLocation::from_iter([
            (("host".to_owned(), 1), place(5)),
            (("host".to_owned(), 2), place(9)),
            (("host".to_owned(), 3), place(20)),
        ]);
        let rows = split(row.clone(), &places);
        let seen: Vec<_> = rows.iter().map(|row| (row.line, row.bytes, row.kept_by.as_str())).collect();
        assert_eq!(seen, [(Some(5), 610, "`keep`, a list"), (Some(9), 390, "`keep`, a list")]);
        assert_eq!(split(row.clone(), &TotalsByLocation::default())[0].line, None, "unknown stays unknown");
        let mut sampled = Retained { recorded: vec![71, 72, 73, 74], ..row.clone() };
        let known = |lines: &[(u64, u32)]| -> TotalsByLocation {
            lines.iter().map(|(address, line)| (("host".to_owned(), *address), place(*line))).collect()
        };
        let rows = split(sampled.clone(), &known(&[(71, 5), (72, 5), (73, 5), (74, 9)]));
        let seen: Vec<_> = rows.iter().map(|row| (row.line, row.bytes)).collect();
        assert_eq!(
            seen,
            [(Some(5), 750), (Some(9), 250)],
            "the recorded blocks tell the lines of the others"
        );
        sampled.recorded.truncate(2);
        assert_eq!(split(sampled, &known(&[(71, 5), (72, 5)]))[0].line, None, "two are too few");
        let one = TotalsByLocation::from_iter([(("host".to_owned(), 1), place(5))]);
        let rows = split(row, &one);
        assert_eq!(
            (rows.len(), rows[0].line, rows[0].bytes),
            (1, Some(5), 1000),
            "a sample stands for the rest"
        );
    }
}
