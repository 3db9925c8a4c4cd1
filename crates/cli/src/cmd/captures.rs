//! The heap captures at the paths of `analyze`, each summed up for the rules. What cannot be read is a sentence, never a failure.

use std::path::Path;

use stormlog_analyze::rules::heap::{Capture, Kept};
use stormlog_view::leaks::{Leak, Pattern, leaks, settled};
use stormlog_view::rows::Place;
use stormlog_view::{MOMENTS, Question, Reading, ViewError, find};

/// Lines kept of each capture.
const LINES: usize = 20;

/// The capture at a path; of a directory with several, the largest. `None` where there is none.
pub(crate) fn read(path: &Path) -> Option<Result<Capture, ViewError>> {
    let chosen = find(path, None).ok()?;
    Some(Reading::with(chosen, Question::Leaks, MOMENTS, |_| true).map(|reading| summed_up(&reading)))
}

fn summed_up(reading: &Reading) -> Capture {
    let answer = reading.answer();
    let end = settled(&answer.moments, reading.stats.complete);
    let stats = &reading.stats;
    Capture {
        path: reading.chosen.path.display().to_string(),
        pid: stats.pid,
        seconds: stats.duration_ns as f64 / 1e9,
        peak_bytes: stats.peak_bytes,
        kept: leaks(&answer, 0, end).iter().take(LINES).map(kept).collect(),
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
        bytes_per_second: leak.growth_bytes_per_second,
        first_seconds: leak.first_seconds,
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
