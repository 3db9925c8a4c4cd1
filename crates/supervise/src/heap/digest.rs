//! What a capture says in a few lines: its peak, what lived when it mattered and where, the request that failed.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stormlog_heap::{Capture, FailedRequest, Heap, HeldAt, Mode, Names, Watch, responsible_frame};
use stormlog_model::format_bytes;
use stormlog_model::own_code::OwnCode;

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
}

impl HeapDigest {
    /// Reads the capture at `path`; `None` when it cannot be read. Who died of a failed request lived on until its exception had let
    /// go of everything: `of_failure` asks who held the memory when the request failed.
    #[must_use]
    pub fn read(path: &Path, of_failure: bool) -> Option<Self> {
        Self::of(path, &Capture::open(path).ok()?, of_failure)
    }

    /// As [`read`](Self::read), of a capture whose process has ended and which no compactor works on.
    pub(crate) fn read_still(path: &Path, of_failure: bool) -> Option<Self> {
        Self::of(path, &Capture::open_still(path).ok()?, of_failure)
    }

    fn of(path: &Path, capture: &Capture, of_failure: bool) -> Option<Self> {
        let heap = capture.read(Watch::default()).ok()?;
        let stats = heap.stats(1, None);
        let failed = match stats.failed_requests.is_empty() {
            true => None,
            // Names of native functions, where a stack has nothing else, are looked up only for this.
            false => heap
                .stats(1, Some(&mut Names::default()))
                .failed_requests
                .last()
                .map(|request| failed(request, &stats.own_code)),
        };
        let failure = heap.last_failure().filter(|_| of_failure);
        let at_failure = failure.and_then(|change| held_at(capture, change));
        Some(HeapDigest {
            path: path.to_owned(),
            peak_bytes: stats.peak_bytes,
            live_bytes: stats.leaked_bytes,
            is_held_at_failure: at_failure.is_some(),
            held: at_failure.unwrap_or_else(|| held_at_end(&heap)),
            failed,
            lost_events: stats.lost_events,
        })
    }

    /// When what is [`held`](Self::held) was held.
    #[must_use]
    pub fn held_when(&self) -> &'static str {
        if self.is_held_at_failure { "when the request failed" } else { "at the end" }
    }

    /// For `evidence.json` and the outcome.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let held: Vec<Value> =
            self.held.iter().map(|(bytes, place)| json!({"bytes": bytes, "place": place})).collect();
        json!({
            "path": self.path.display().to_string(), "peak_bytes": self.peak_bytes, "live_bytes": self.live_bytes,
            "held_by": held, "held_when": self.held_when(), "failed_request": self.failed, "lost_events": self.lost_events,
        })
    }
}

fn held_at_end(heap: &Heap) -> Vec<(u64, String)> {
    held(heap, HeldAt::Mode(Mode::Leaks))
}

/// What lived at a change of the heap; `None` when that cannot be told.
fn held_at(capture: &Capture, change: u64) -> Option<Vec<(u64, String)>> {
    let heap = capture.read(Watch { moments: vec![change], ..Watch::default() }).ok()?;
    let places = held(&heap, HeldAt::FirstMoment);
    (!places.is_empty()).then_some(places)
}

/// The responsible lines, native ones with the names of their functions.
fn held(heap: &Heap, at: HeldAt) -> Vec<(u64, String)> {
    let holders = heap.holders(at, PLACES, Some(&mut Names::default()));
    holders.into_iter().map(|place| (place.bytes, place.words())).collect()
}

fn failed(request: &FailedRequest, own_code: &OwnCode) -> String {
    let mut text = format!("{} for {}", request.allocator, format_bytes(request.bytes));
    match responsible_frame(&request.stack, own_code) {
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
