//! What a capture says in a few lines: its peak, what lived when it mattered and where, the request that failed. Must name the lines that every other
//! view names, and read the capture once.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stormlog_heap::{FailedRequest, Mode, Names};
use stormlog_model::format_bytes;
use stormlog_model::own_code::OwnCode;

use crate::ask::Reading;
use crate::find::Chosen;
use crate::question::Question;

/// Places named.
const PLACES: usize = 5;

/// A capture in a few lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeapDigest {
    /// The capture.
    pub path: PathBuf,
    /// Most bytes on the heap at one time.
    pub peak_bytes: u64,
    /// Bytes that lived when the program's own code had ended, or at the end.
    pub live_bytes: u64,
    /// What lived at the moment that matters and where it was allocated, largest first: bytes and place.
    pub held: Vec<(u64, String)>,
    /// That moment is when the last request failed, not the end.
    pub is_held_at_failure: bool,
    /// The last request that got no memory, in words.
    pub failed: Option<String>,
    /// Records that could not be written.
    pub lost_events: u64,
    /// Mean bytes between the allocations that were recorded: the numbers are estimates. `None` where all were.
    pub sample_bytes: Option<u64>,
}

impl HeapDigest {
    /// Reads the capture at `path`; `None` when it cannot be read. A process that died of a failed request lived on until its exception had let
    /// go of everything: `of_failure` asks what held the memory when the request failed.
    #[must_use]
    pub fn read(path: &Path, of_failure: bool) -> Option<Self> {
        let chosen = Chosen { path: path.to_owned(), others: 0, reason: String::new() };
        let reading = Reading::with(chosen, Question::Leaks, 2, |_| false).ok()?;
        Some(Self::of(&reading, of_failure))
    }

    /// As [`read`](Self::read), of a capture whose process has ended and which no compactor works on.
    #[must_use]
    pub fn read_still(path: &Path, of_failure: bool) -> Option<Self> {
        Some(Self::of(&Reading::still(path, Question::Leaks).ok()?, of_failure))
    }

    fn of(reading: &Reading, of_failure: bool) -> Self {
        let heap = &reading.heap;
        let mut names = Names::default();
        let mut holders = Vec::new();
        if of_failure && heap.knows_failure() {
            holders = heap.holders(Mode::Failure, PLACES, Some(&mut names));
        }
        let is_held_at_failure = !holders.is_empty();
        if !is_held_at_failure {
            holders = heap.holders(Mode::Leaks, PLACES, Some(&mut names));
        }
        let last = heap.last_failed_request(Some(&mut names));
        HeapDigest {
            path: reading.chosen.path.clone(),
            peak_bytes: heap.peak_bytes(),
            live_bytes: heap.leaked().bytes,
            held: holders.into_iter().map(|place| (place.bytes, place.words())).collect(),
            is_held_at_failure,
            failed: last.map(|request| failed(&request, &heap.own_code())),
            lost_events: heap.lost_events,
            sample_bytes: Some(heap.header.sample_bytes).filter(|mean| *mean > 0),
        }
    }

    /// When what is [`held`](Self::held) was held.
    #[must_use]
    pub fn held_when(&self) -> &'static str {
        if self.is_held_at_failure { "when the request failed" } else { "at the end" }
    }

    /// Before a number that is an estimate.
    #[must_use]
    pub fn about(&self) -> &'static str {
        if self.sample_bytes.is_some() { "about " } else { "" }
    }

    /// What is to be known of each line of [`held`](Self::held) beside its bytes.
    #[must_use]
    pub fn held_note(&self) -> Option<String> {
        let when = self.is_held_at_failure.then(|| self.held_when());
        let how = self.sample_bytes.map(|_| "estimated from a sample");
        let words: Vec<&str> = when.into_iter().chain(how).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// For `evidence.json` and the outcome.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let held: Vec<Value> =
            self.held.iter().map(|(bytes, place)| json!({"bytes": bytes, "place": place})).collect();
        json!({
            "path": self.path.display().to_string(), "peak_bytes": self.peak_bytes, "live_bytes": self.live_bytes,
            "held_by": held, "held_when": self.held_when(), "failed_request": self.failed, "lost_events": self.lost_events,
            "sample_bytes": self.sample_bytes,
        })
    }
}

fn failed(request: &FailedRequest, own_code: &OwnCode) -> String {
    let mut text = format!("{} for {}", request.allocator, format_bytes(request.bytes));
    match own_code.responsible_frame(&request.stack) {
        Some(frame) if frame.line > 0 => {
            text.push_str(&format!(" at {}:{} {}", frame.file, frame.line, frame.function));
        }
        Some(frame) => text.push_str(format!(" at {} {}", frame.file, frame.function).trim_end()),
        None => text.push_str(" at native code without a Python stack"),
    }
    match (request.limit_bytes, request.address_space_bytes) {
        (Some(limit), Some(used)) => {
            text.push_str(&format!(" (address space {} of {})", format_bytes(used), format_bytes(limit)));
        }
        (Some(limit), None) => text.push_str(&format!(" (limit {})", format_bytes(limit))),
        _ => {}
    }
    text
}
