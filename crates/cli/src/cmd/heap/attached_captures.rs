//! The heap captures at the paths of `analyze`, each summed up for the rules. What cannot be read is a sentence, never a failure.

use std::path::{Path, PathBuf};

use stormlog_analyze::Analysis;
use stormlog_analyze::rules::heap::{Capture, Kept};
use stormlog_heap_report::leaks::{Leak, leaks};
use stormlog_heap_report::live::{LiveLine, live_lines};
use stormlog_heap_report::rows::Place;
use stormlog_heap_report::{CaptureFile, Chosen, MOMENTS, Question, Reading, ViewError, captures, find};
use stormlog_model::Holder;
use stormlog_model::memory::{Memory, Selection};

/// Lines kept of each capture; of those that are compared line by line, about all.
const LINES: usize = 50;
const ALL_LINES: usize = 1000;
/// Captures read of one directory, the main process's first and then those with the highest peaks: workers are alike.
const CAPTURES: usize = 32;

/// The captures at a path: of a directory, those of all processes that held much. None where there is none.
pub(crate) fn read(path: &Path) -> Vec<Result<Capture, ViewError>> {
    let Ok(mut found) = captures(path) else { return Vec::new() };
    found.sort_by_key(|one: &CaptureFile| (!one.main, std::cmp::Reverse(one.peak_bytes)));
    found.truncate(CAPTURES);
    let one = |file: CaptureFile| -> Result<Vec<Capture>, ViewError> {
        let chosen = Chosen { path: file.path, others: 0, reason: String::new() };
        let mut reading = Reading::with(chosen, Question::Leaks, MOMENTS, |_| true)?;
        let memories = reading.heap.memories();
        let of_memory = |memory: Memory| {
            reading.select(Selection::One(memory))?;
            Ok(summed_up(&reading, memory, LINES))
        };
        memories.into_iter().map(of_memory).collect()
    };
    let read = |file: CaptureFile| match one(file) {
        Ok(captures) => captures.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error)],
    };
    found.into_iter().flat_map(read).collect()
}

/// What the odd rank of a job keeps and the others do not, where their heaps were recorded.
pub(crate) fn explain_ranks(paths: &[PathBuf], analysis: &mut Analysis) {
    let of = |pid: &i64| {
        let pid = u32::try_from(*pid).ok()?;
        let mut chosen =
            paths.iter().filter(|path| path.is_dir()).filter_map(|path| find(path, Some(pid)).ok());
        let reading = Reading::with(chosen.next()?, Question::Leaks, MOMENTS, |_| true).ok()?;
        Some(summed_up(&reading, Memory::Host, ALL_LINES))
    };
    for odd in std::mem::take(&mut analysis.odd_ranks) {
        if let Some(own) = of(&odd.pid) {
            let others: Vec<Capture> = odd.typical.iter().filter_map(of).collect();
            analysis.explain_rank(&own, &others);
        }
    }
}

/// The selected memory of a reading, which is `memory`.
fn summed_up(reading: &Reading, memory: Memory, lines: usize) -> Capture {
    let answer = reading.answer();
    let stats = reading.stats();
    Capture {
        path: reading.chosen.path.display().to_string(),
        pid: stats.pid,
        memory,
        seconds: stats.duration_ns as f64 / 1e9,
        peak_bytes: stats.peak_bytes,
        sample_bytes: stats.sample_bytes.filter(|_| memory == Memory::Host),
        live: answer
            .moments
            .iter()
            .take(answer.end + 1)
            .map(|moment| (moment.time_us, moment.bytes))
            .collect(),
        kept: match reading.knows_when() {
            true => live_lines(&answer, lines).into_iter().map(line).collect(),
            false => leaks(&answer).iter().take(lines).map(kept).collect(),
        },
        failed: stats
            .failed_requests
            .last()
            // That of a device may have been caught and tried again; its bundle reports it.
            .filter(|_| memory == Memory::Host)
            .and_then(|_| Some((reading.notes().into_iter().next()?, stats.failed_request_count))),
    }
}

fn line(line: LiveLine) -> Kept {
    Kept {
        place: words(&line.place),
        holder: holder(&line.place),
        caller: line.caller.as_ref().map(words),
        bytes: line.live.last().map_or(0, |(_, bytes)| *bytes),
        count: line.count,
        live: line.live,
    }
}

/// A line of a capture that does not know when memory came.
fn kept(leak: &Leak) -> Kept {
    Kept {
        place: words(&leak.place),
        holder: holder(&leak.place),
        caller: leak.caller.as_ref().map(words),
        bytes: leak.own_bytes,
        count: leak.count,
        live: Vec::new(),
    }
}

fn holder(place: &Place) -> Holder {
    Holder { file: place.file.clone(), line: place.line, function: place.function.clone() }
}

fn words(place: &Place) -> String {
    let file =
        Path::new(&place.file).file_name().map_or(place.file.as_str().into(), |name| name.to_string_lossy());
    match place.line {
        0 => format!("{} ({file})", place.function),
        line => format!("{file}:{line} {}", place.function),
    }
}
