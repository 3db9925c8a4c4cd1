//! The heap captures of an analysis, each read once: summed up for the rules, compared between ranks, and as the lines of the answer.
//!
//! A capture is the largest file of a run, and three parts of an analysis ask for it. What is kept of one is small; the capture itself is closed again.
//! What cannot be read is a sentence, never a failure.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};

use stormlog_analyze::Analysis;
use stormlog_analyze::rules::heap::{Capture, Kept};
use stormlog_catalog::run::Process;
use stormlog_heap_report::leaks::{Leak, leaks};
use stormlog_heap_report::live::{LiveLine, live_lines};
use stormlog_heap_report::rows::CodeLocation;
use stormlog_heap_report::{
    CaptureFile, Chosen, HeapDigest, HeapQuery, HeapQueryResult, MOMENTS, Reading, ViewError, captures, find,
};
use stormlog_model::Holder;
use stormlog_model::memory::{Memory, Selection};

use crate::evidence;

/// Lines kept of each capture with what they held over time; of those that are compared line by line, about all.
const LINES: usize = 50;
const ALL_LINES: usize = 1000;
/// Captures read of one directory, the main process's first and then those with the highest peaks: workers are alike.
const CAPTURES: usize = 32;

/// Reads captures, and keeps what an analysis asks of them.
#[derive(Default)]
pub struct CaptureReader {
    known: RefCell<Vec<CachedCapture>>,
    readings: Cell<usize>,
}

/// What is kept of a capture.
struct CachedCapture {
    path: PathBuf,
    /// One for each memory.
    memories: Vec<Capture>,
    /// The lines of the host's heap, without their time.
    lines: Option<Capture>,
    /// What is shown of it, for a process that did not and one that did die of a failed request.
    digests: [HeapDigest; 2],
}

impl CaptureReader {
    /// The captures at a path: of a directory, those of all processes that held much. None where there is none.
    #[must_use]
    pub fn at(&self, path: &Path) -> Vec<Result<Capture, String>> {
        let Ok(mut found) = captures(path) else { return Vec::new() };
        found.sort_by_key(|one: &CaptureFile| (!one.main, std::cmp::Reverse(one.peak_bytes)));
        found.truncate(CAPTURES);
        let one = |file: CaptureFile| match self.known(&file.path, |known| known.memories.clone()) {
            Ok(captures) => captures.into_iter().map(Ok).collect(),
            // A file that is not a capture at all is for the reader of events.
            Err(error) if !path.is_dir() && !error.is_of_import() => Vec::new(),
            Err(error) => vec![Err(error.to_string())],
        };
        found.into_iter().flat_map(one).collect()
    }

    /// Explains what the odd rank of a job keeps and the others do not, where their heaps were recorded.
    pub fn explain_ranks(&self, paths: &[PathBuf], analysis: &mut Analysis) {
        let of = |pid: &i64| {
            let pid = u32::try_from(*pid).ok()?;
            let mut chosen =
                paths.iter().filter(|path| path.is_dir()).filter_map(|path| find(path, Some(pid)).ok());
            self.known(&chosen.next()?.path, |known| known.lines.clone()).ok().flatten()
        };
        for odd in std::mem::take(&mut analysis.odd_ranks) {
            if let Some(own) = of(&odd.pid) {
                let others: Vec<Capture> = odd.typical.iter().filter_map(of).collect();
                analysis.explain_rank(&own, &others);
            }
        }
    }

    /// What is shown of the capture of a process.
    #[must_use]
    pub fn digest(&self, process: &Process) -> Option<HeapDigest> {
        let of_failure = evidence::is_of_failure(process.end.facts().and_then(|facts| facts.cause));
        let digest = |known: &CachedCapture| known.digests[usize::from(of_failure)].clone();
        process.captures.iter().find_map(|path| self.known(path, digest).ok())
    }

    /// Captures that were read so far.
    #[must_use]
    pub fn readings(&self) -> usize {
        self.readings.get()
    }

    /// Asks what is kept of a capture, which is read first where it was not.
    fn known<T>(&self, path: &Path, ask: impl Fn(&CachedCapture) -> T) -> Result<T, ViewError> {
        if let Some(known) = self.known.borrow().iter().find(|known| known.path == path) {
            return Ok(ask(known));
        }
        self.readings.set(self.readings.get() + 1);
        let read = CachedCapture::read(path)?;
        let answer = ask(&read);
        self.known.borrow_mut().push(read);
        Ok(answer)
    }
}

impl CachedCapture {
    fn read(path: &Path) -> Result<Self, ViewError> {
        let chosen = Chosen { path: path.to_owned(), others: 0, reason: String::new() };
        let mut reading = Reading::with(chosen, HeapQuery::Leaks, MOMENTS, |_| true)?;
        let selection = reading.heap.selection();
        let (mut memories, mut lines) = (Vec::new(), None);
        for memory in reading.heap.memories() {
            reading.select(Selection::One(memory))?;
            let answer = match reading.knows_when() {
                true => reading.answer(),
                false => reading.folded_answer().unwrap_or_else(|| reading.answer()),
            };
            memories.push(summed_up(&reading, &answer, memory));
            if memory == Memory::Host {
                lines = memories.last().map(|capture| Capture {
                    kept: all_lines(&answer),
                    live: Vec::new(),
                    ..capture.clone()
                });
            }
        }
        let plain = HeapDigest::of(&mut reading, false);
        let knows_failure =
            plain.failed.is_some() || plain.devices.iter().any(|one| one.failed_request.is_some());
        let failed = if knows_failure { HeapDigest::of(&mut reading, true) } else { plain.clone() };
        reading.select(selection)?;
        Ok(CachedCapture { path: path.to_owned(), memories, lines, digests: [plain, failed] })
    }
}

/// The selected memory of a reading, which is `memory`.
fn summed_up(reading: &Reading, answer: &HeapQueryResult, memory: Memory) -> Capture {
    let stats = reading.stats();
    Capture {
        path: reading.chosen.path.display().to_string(),
        pid: stats.pid,
        memory,
        started_at_ns: reading.started_at_ns(),
        seconds: stats.duration_ns as f64 / 1e9,
        peak_bytes: stats.peak_bytes,
        sample_bytes: stats.sample_bytes.filter(|_| memory == Memory::Host),
        live: answer
            .moments
            .iter()
            .take(answer.end + 1)
            .map(|moment| (moment.time_us, moment.bytes))
            .collect(),
        kept: match answer.lives.is_empty() {
            false => live_lines(answer, LINES).into_iter().map(line).collect(),
            true => leaks(answer).iter().take(LINES).map(kept).collect(),
        },
        never_freed: reading.heap.has_leaks_only(),
        failed: stats
            .failed_requests
            .last()
            // That of a device may have been caught and tried again; its bundle reports it.
            .filter(|_| memory == Memory::Host)
            .and_then(|_| Some((reading.notes().into_iter().next()?, stats.failed_request_count))),
    }
}

/// The lines that held memory when the heap was largest, for a comparison of the peaks of two processes; where the capture does not know when memory
/// came, those that hold it at the end.
fn all_lines(answer: &HeapQueryResult) -> Vec<Kept> {
    match answer.lives.is_empty() {
        false => {
            let moments = answer.moments.iter().take(answer.end + 1).enumerate();
            let peak = moments.max_by_key(|(_, moment)| moment.bytes).map_or(0, |(at, _)| at);
            let bytes = |found: &LiveLine| found.live.get(peak).map_or(0, |(_, bytes)| *bytes);
            let lines = live_lines(answer, ALL_LINES).into_iter();
            lines.map(|found| Kept { bytes: bytes(&found), live: Vec::new(), ..line(found) }).collect()
        }
        true => leaks(answer).iter().take(ALL_LINES).map(kept).collect(),
    }
}

fn line(line: LiveLine) -> Kept {
    Kept {
        place: words(&line.place),
        holder: holder(&line.place),
        caller: line.caller.as_ref().map(words),
        bytes: line.live.last().map_or(0, |(_, bytes)| *bytes),
        count: line.count,
        block_bytes: line.block_bytes,
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
        block_bytes: leak.own_bytes / leak.count.max(1),
        live: Vec::new(),
    }
}

fn holder(place: &CodeLocation) -> Holder {
    Holder { file: place.file.clone(), line: place.line, function: place.function.clone() }
}

fn words(place: &CodeLocation) -> String {
    let file =
        Path::new(&place.file).file_name().map_or(place.file.as_str().into(), |name| name.to_string_lossy());
    match place.line {
        0 => format!("{} ({file})", place.function),
        line => format!("{file}:{line} {}", place.function),
    }
}

#[cfg(test)]
mod tests {
    use stormlog_analyze::{AnalysisOptions, analyze};
    use stormlog_catalog::recording::{Reader, load};

    use super::*;
    use crate::Story;

    #[test]
    fn capture_of_a_run_is_read_once_for_the_rules_and_the_answer() {
        let run =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/recordings/leak_after_imports");
        let (paths, captures) = ([run], CaptureReader::default());
        let of_path = |path: &Path| captures.at(path);
        let loaded = load(&paths, &mut Reader { captures: &of_path, keep_reading: &mut || true }).unwrap();
        let mut analysis = analyze(loaded.recording, loaded.inputs, &AnalysisOptions::default());
        loaded.captures.iter().for_each(|capture| analysis.take_capture(capture));
        captures.explain_ranks(&paths, &mut analysis);
        let judged = (analysis.findings.as_slice(), analysis.layers.as_slice());
        let story = Story::with(&paths, judged, &mut |process| captures.digest(process));
        assert_eq!(captures.readings(), 1, "one capture is read once, for all callers");
        assert!(story.processes[0].held.iter().any(crate::Holder::is_line), "{:#?}", story.processes[0].held);
        let residual = &story.processes[0].residuals[0];
        assert!(residual.parts.iter().any(|part| part.name == "heap"), "{residual:#?}");
        assert!(story.layer_lines()[0].starts_with("  layers    RSS "), "{:#?}", story.layer_lines());
    }
}
