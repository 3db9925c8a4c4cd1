//! The heap captures at the paths of `analyze`, each summed up for the rules. What cannot be read is a sentence, never a failure.

use std::path::{Path, PathBuf};

use stormlog_analyze::Analysis;
use stormlog_analyze::rules::heap::{Capture, Kept};
use stormlog_heap_report::leaks::{Leak, Pattern, leaks};
use stormlog_heap_report::rows::Place;
use stormlog_heap_report::{MOMENTS, Question, Reading, ViewError, find};

/// Lines kept of each capture; of those that are compared line by line, about all.
const LINES: usize = 20;
const ALL_LINES: usize = 1000;

/// The capture at a path; of a directory with several, the main process's. `None` where there is none.
pub(crate) fn read(path: &Path) -> Option<Result<Capture, ViewError>> {
    let chosen = find(path, None).ok()?;
    Some(Reading::with(chosen, Question::Leaks, MOMENTS, |_| true).map(|reading| summed_up(&reading, LINES)))
}

/// What the odd rank of a job keeps and the others do not, where their heaps were recorded.
pub(crate) fn explain_ranks(paths: &[PathBuf], analysis: &mut Analysis) {
    let of = |pid: &i64| {
        let pid = u32::try_from(*pid).ok()?;
        let mut chosen =
            paths.iter().filter(|path| path.is_dir()).filter_map(|path| find(path, Some(pid)).ok());
        let reading = Reading::with(chosen.next()?, Question::Leaks, MOMENTS, |_| true).ok()?;
        Some(summed_up(&reading, ALL_LINES))
    };
    for odd in std::mem::take(&mut analysis.odd_ranks) {
        if let Some(own) = of(&odd.pid) {
            let others: Vec<Capture> = odd.typical.iter().filter_map(of).collect();
            analysis.explain_rank(&own, &others);
        }
    }
}

fn summed_up(reading: &Reading, lines: usize) -> Capture {
    let answer = reading.answer();
    let stats = reading.stats();
    Capture {
        path: reading.chosen.path.display().to_string(),
        pid: stats.pid,
        seconds: stats.duration_ns as f64 / 1e9,
        peak_bytes: stats.peak_bytes,
        kept: leaks(&answer).iter().take(lines).map(kept).collect(),
        failed: stats
            .failed_requests
            .last()
            .and_then(|_| Some((reading.notes().into_iter().next()?, stats.failed_request_count))),
    }
}

fn kept(leak: &Leak) -> Kept {
    Kept {
        place: words(&leak.place),
        caller: leak.caller.as_ref().map(words),
        bytes: leak.own_bytes,
        count: leak.count,
        is_steady: leak.pattern == Pattern::Steady,
        bytes_per_second: leak.growth_bytes_per_second.unwrap_or_default(),
        first_seconds: leak.first_seconds.unwrap_or_default(),
    }
}

fn words(place: &Place) -> String {
    let file =
        Path::new(&place.file).file_name().map_or(place.file.as_str().into(), |name| name.to_string_lossy());
    match place.line {
        0 => format!("{} ({file})", place.function),
        line => format!("{file}:{line} {}", place.function),
    }
}
