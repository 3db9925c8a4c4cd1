//! What a capture says in a few lines: its peak, what lived at the end and where, the request that failed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stormlog_event::format_bytes;
use stormlog_heap::{Capture, FailedRequest, Frame, FrameKind, Heap, Mode, Watch};

/// Places named.
const PLACES: usize = 5;

/// A capture in a few lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeapDigest {
    /// The capture.
    pub path: PathBuf,
    /// Most bytes on the heap at one time.
    pub peak_bytes: u64,
    /// Bytes that lived at the end.
    pub live_bytes: u64,
    /// Where they were allocated, largest first: bytes and place.
    pub held: Vec<(u64, String)>,
    /// The last request that got no memory, in words.
    pub failed: Option<String>,
    /// Records that could not be written.
    pub lost_events: u64,
}

impl HeapDigest {
    /// Reads the capture at `path`; `None` when it cannot be read.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        let heap = Capture::open(path).ok()?.read(Watch::default()).ok()?;
        let stats = heap.stats(1, None);
        Some(HeapDigest {
            path: path.to_owned(),
            peak_bytes: stats.peak_bytes,
            live_bytes: stats.live_at_end_bytes,
            held: held(&heap),
            failed: stats.failed_requests.last().map(failed),
            lost_events: stats.lost_events,
        })
    }

    /// For `evidence.json` and the outcome.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let held: Vec<Value> =
            self.held.iter().map(|(bytes, place)| json!({"bytes": bytes, "place": place})).collect();
        json!({
            "path": self.path.display().to_string(), "peak_bytes": self.peak_bytes, "live_bytes": self.live_bytes,
            "held_by": held, "failed_request": self.failed, "lost_events": self.lost_events,
        })
    }
}

/// What lived at the end, by the innermost line of the user's own code.
fn held(heap: &Heap) -> Vec<(u64, String)> {
    let profile = heap.profile(Mode::Leaks, None);
    let mut places: HashMap<String, u64> = HashMap::new();
    for (id, node) in profile.nodes.iter().enumerate().filter(|(_, node)| node.own.bytes > 0) {
        let place = place(profile.stack(id as u32));
        *places.entry(place).or_default() += node.own.bytes;
    }
    let mut rows: Vec<(u64, String)> = places.into_iter().map(|(place, bytes)| (bytes, place)).collect();
    rows.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    rows.truncate(PLACES);
    rows
}

/// `dataset.py:88 Cache.put`, from a stack given the innermost first.
fn place<'a>(stack: impl Iterator<Item = &'a Frame>) -> String {
    let frames: Vec<&Frame> = stack.collect();
    let user = frames.iter().find(|frame| frame.is_user_code());
    let python = frames.iter().find(|frame| frame.kind == FrameKind::Python);
    match user.or(python).or(frames.first()) {
        Some(frame) if frame.line > 0 => format!("{}:{} {}", frame.file, frame.line, frame.function),
        Some(frame) => format!("{} {}", frame.file, frame.function).trim().to_owned(),
        None => "native code without a Python stack".to_owned(),
    }
}

fn failed(request: &FailedRequest) -> String {
    let mut text = format!("{} for {}", request.allocator, format_bytes(request.bytes));
    text.push_str(&format!(" at {}", place(request.stack.iter())));
    match (request.limit_bytes, request.address_space_bytes) {
        (Some(limit), Some(used)) => {
            text.push_str(&format!(" (address space {} of {})", format_bytes(used), format_bytes(limit)));
        }
        (Some(limit), None) => text.push_str(&format!(" (limit {})", format_bytes(limit))),
        _ => {}
    }
    text
}
