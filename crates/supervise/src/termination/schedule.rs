//! When the termination message is written while the program runs: at its start, when memory becomes short or is forecast to, and when that picture has
//! changed, at most once a second.
//!
//! What holds the memory is read from the live capture by a thread of its own, rarely: the capture of a program that allocates much is large, and reading it
//! takes memory of the same cgroup. Until it is read, processes and kinds of memory are named. Must cost a few comparisons a sample while memory is not short.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use stormlog_heap_report::HeapDigest;
use stormlog_model::memory::Memory;
use stormlog_story::{Holder, Outlook};

use super::log::{Kind, TerminationLog};
use crate::heap::{capture_bytes, newest_capture};

/// Memory is short from here on, in percent of the limit, and no longer below the second.
const SHORT_PERCENT: u64 = 80;
const CALM_PERCENT: u64 = 70;
/// Between two texts.
const PAUSE: Duration = Duration::from_secs(1);
/// A text is another one when the use has moved by this part of the limit.
const STEP: u64 = 50;
/// A capture is read again when the use has grown by this part of the limit, and after this many times of what the last reading took.
const HEAP_STEP: u64 = 20;
const HEAP_REST: u32 = 100;
/// A holder of less than this part of the largest is not worth a line.
const LEAST_SHARE: u64 = 50;
/// A larger capture is not read.
const LARGEST_CAPTURE: u64 = 64 << 20;
/// Reading one takes this many times its size, and a little.
const READ_FACTOR: u64 = 4;
const READ_LEAST: u64 = 8 << 20;

/// What is known at a sample.
pub(crate) struct Picture {
    /// Bytes in use, the limit, and bytes that the kernel can take back at once.
    pub(crate) used: Option<u64>,
    pub(crate) limit: Option<u64>,
    pub(crate) reclaimable: u64,
    pub(crate) limit_source: Option<String>,
    /// Growth in bytes a second and seconds left, where a forecast warns.
    pub(crate) forecast: Option<(f64, f64)>,
    /// An alert began or ended with this sample.
    pub(crate) has_alert: bool,
    pub(crate) at_ns: u64,
}

impl Picture {
    /// Percent of the limit that the program needs; what the kernel can take back does not count.
    fn percent(&self) -> Option<u64> {
        let (used, limit) = (self.used?, self.limit.filter(|limit| *limit > 0)?);
        Some(used.saturating_sub(self.reclaimable) / (limit / 100).max(1))
    }
}

/// The last text.
struct LastText {
    at: Instant,
    is_short: bool,
    used: u64,
    has_lines: bool,
}

/// The lines that hold memory, by the last reading of a capture.
#[derive(Default)]
struct Lines {
    held: Vec<Holder>,
    pid: u32,
    /// A text has them.
    is_shown: bool,
    used: u64,
    took: Duration,
    at: Option<Instant>,
    pending: Option<(u32, Instant, Receiver<Vec<Holder>>)>,
}

/// Keeps the message written.
pub(crate) struct MessageSchedule {
    log: TerminationLog,
    run: PathBuf,
    /// Where captures grow; `None` where no heap is recorded.
    captures: Option<PathBuf>,
    shown: Option<LastText>,
    lines: Lines,
}

impl MessageSchedule {
    pub(crate) fn new(log: TerminationLog, run: &Path, captures: Option<PathBuf>) -> Self {
        MessageSchedule { log, run: run.to_owned(), captures, shown: None, lines: Lines::default() }
    }

    /// The file, for the text about the end.
    pub(crate) fn into_log(self) -> TerminationLog {
        self.log
    }

    /// Whether there is something to write now. `largest`: the process that has most resident.
    pub(crate) fn is_due(&mut self, now: Instant, picture: &Picture, largest: Option<u32>) -> bool {
        let is_short = self.is_short(picture);
        if is_short {
            self.hear();
            if let Some(pid) = largest {
                self.read_lines(now, picture, pid);
            }
        }
        let Some(shown) = &self.shown else { return true };
        let has_news = !self.lines.is_shown && !self.lines.held.is_empty();
        if is_short && (!shown.is_short || has_news && !shown.has_lines) {
            return true;
        }
        if now.saturating_duration_since(shown.at) < PAUSE {
            return false;
        }
        let limit = picture.limit.unwrap_or(u64::MAX);
        let is_moved = picture.used.is_some_and(|used| used.abs_diff(shown.used) >= limit / STEP);
        match is_short {
            true => is_moved || has_news || picture.has_alert,
            false => shown.is_short,
        }
    }

    /// Writes the text of this moment. `others`: what is known to hold memory without a capture.
    pub(crate) fn write(&mut self, now: Instant, picture: &Picture, name: String, others: Vec<Holder>) {
        let is_short = self.is_short(picture);
        let mut held = if is_short { self.lines.held.clone() } else { Vec::new() };
        let has_lines = !held.is_empty();
        if is_short {
            let own = format!("(pid {}", self.lines.pid);
            // Beside its lines neither a process nor the kinds of its memory are holders.
            let is_beside = |other: &Holder| {
                !has_lines || (other.function.contains("(pid ") && !other.function.contains(&own))
            };
            held.extend(others.into_iter().filter(is_beside));
            let most = held.iter().map(|holder| holder.bytes).max().unwrap_or(0);
            held.retain(|holder| holder.bytes >= most / LEAST_SHARE);
        }
        held.sort_by_key(|holder| (holder.memory != Memory::Host, std::cmp::Reverse(holder.bytes)));
        let outlook = Outlook {
            name,
            at_ns: picture.at_ns,
            is_short,
            used_bytes: picture.used,
            limit_bytes: picture.limit,
            limit_source: picture.limit_source.clone(),
            growth: picture.forecast,
            held,
            run: self.run.clone(),
        };
        let kind = if is_short { Kind::Ahead } else { Kind::Start };
        // A text that another wrote stays, and is looked at again after the pause.
        self.log.put(kind, &outlook.lines());
        self.lines.is_shown = has_lines;
        self.shown = Some(LastText { at: now, is_short, used: picture.used.unwrap_or(0), has_lines });
    }

    fn is_short(&self, picture: &Picture) -> bool {
        let was_short = self.shown.as_ref().is_some_and(|shown| shown.is_short);
        let enough = if was_short { CALM_PERCENT } else { SHORT_PERCENT };
        picture.forecast.is_some() || picture.percent().is_some_and(|percent| percent >= enough)
    }

    fn hear(&mut self) {
        let Some((pid, since, reading)) = &self.lines.pending else { return };
        let held = match reading.try_recv() {
            Err(TryRecvError::Empty) => return,
            found => found.unwrap_or_default(),
        };
        self.lines.took = since.elapsed();
        if !held.is_empty() {
            (self.lines.held, self.lines.pid, self.lines.is_shown) = (held, *pid, false);
        }
        self.lines.pending = None;
    }

    /// Has the capture of a process read, when that is worth it and there is room for it.
    fn read_lines(&mut self, now: Instant, picture: &Picture, pid: u32) {
        let Some(directory) = self.captures.as_ref().filter(|_| self.lines.pending.is_none()) else { return };
        let (used, limit) = (picture.used.unwrap_or(0), picture.limit.unwrap_or(u64::MAX));
        let lines = &self.lines;
        let is_rested = lines.at.is_none_or(|at| now.saturating_duration_since(at) >= lines.took * HEAP_REST);
        let is_grown = lines.at.is_none() || pid != lines.pid || used >= lines.used + limit / HEAP_STEP;
        if !is_rested || !is_grown {
            return;
        }
        let room = limit.saturating_sub(used.saturating_sub(picture.reclaimable));
        let (sender, receiver) = sync_channel(1);
        let directory = directory.clone();
        let read = move || {
            // The sampler may have ended meanwhile.
            let _ = sender.send(lines_of(&directory, pid, room));
        };
        self.lines.at = Some(now);
        self.lines.used = used;
        // Without a thread the message has no lines.
        if thread::Builder::new().name("stormlog-ahead".into()).spawn(read).is_ok() {
            self.lines.pending = Some((pid, now, receiver));
        }
    }
}

/// The lines of a process that hold memory now, where there is room to find out.
fn lines_of(directory: &Path, pid: u32, room: u64) -> Vec<Holder> {
    let Some(capture) = newest_capture(directory, pid) else { return Vec::new() };
    let bytes = capture_bytes(&capture);
    if bytes > LARGEST_CAPTURE || room < READ_LEAST + bytes.saturating_mul(READ_FACTOR) {
        return Vec::new();
    }
    let Some(digest) = HeapDigest::read(&capture, false) else { return Vec::new() };
    let holder = |found: &stormlog_heap_report::Holder| Holder {
        is_estimate: digest.is_sampled(found.memory),
        ..Holder::from(found)
    };
    digest.holders.iter().map(holder).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    fn picture(percent: u64) -> Picture {
        Picture {
            used: Some(percent << 20),
            limit: Some(100 << 20),
            reclaimable: 0,
            limit_source: None,
            forecast: None,
            has_alert: false,
            at_ns: 0,
        }
    }

    #[test]
    fn text_is_written_when_the_picture_changes_and_at_most_once_a_second() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        std::fs::write(&path, "").unwrap();
        let log = TerminationLog::at(&path).unwrap();
        let mut schedule = MessageSchedule::new(log, place.path(), None);
        let begun = Instant::now();
        let mut texts = 0;
        // Ten samples a second: calm, then two percent more each, then calm again.
        let course = (0..50).map(|_| 10).chain((0..50).map(|at| 50 + at)).chain((0..50).map(|_| 20));
        for (at, percent) in course.enumerate() {
            let now = begun + Duration::from_millis(100 * at as u64);
            let picture = picture(percent);
            if schedule.is_due(now, &picture, None) {
                schedule.write(now, &picture, "a (pid 1)".to_owned(), Vec::new());
                texts += 1;
            }
        }
        assert_eq!(texts, 1 + 2 + 1, "start; at 80 % and a second later; calm again");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("memory was not tight: 20.00 MiB of 100.0 MiB"), "{text}");
    }

    #[test]
    fn cache_that_the_kernel_can_take_back_is_not_a_shortage() {
        let mut full_of_cache = picture(99);
        full_of_cache.reclaimable = 60 << 20;
        assert_eq!(full_of_cache.percent(), Some(39));
    }
}
