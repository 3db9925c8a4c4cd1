//! What a capture says in a few lines: its peak, what lived when it mattered and where, the request that failed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stormlog_event::format_bytes;
use stormlog_heap::{Capture, FailedRequest, Frame, FrameKind, Heap, Mode, Profile, Watch};

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
        let capture = Capture::open(path).ok()?;
        let heap = capture.read(Watch::default()).ok()?;
        let stats = heap.stats(1, None);
        let failure = heap.last_failure().filter(|_| of_failure);
        let at_failure = failure.and_then(|change| held_at(&capture, change));
        Some(HeapDigest {
            path: path.to_owned(),
            peak_bytes: stats.peak_bytes,
            live_bytes: stats.live_at_end_bytes,
            is_held_at_failure: at_failure.is_some(),
            held: at_failure.unwrap_or_else(|| held_at_end(&heap)),
            failed: stats.failed_requests.last().map(failed),
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
    let profile = heap.profile(Mode::Leaks, None);
    let nodes = profile.nodes.iter().zip(0..).filter(|(node, _)| node.own.bytes > 0);
    by_place(&profile, nodes.map(|(node, id)| (id, node.own.bytes)))
}

/// What lived at a change of the heap; `None` when that cannot be told.
fn held_at(capture: &Capture, change: u64) -> Option<Vec<(u64, String)>> {
    let heap = capture.read(Watch { moments: vec![change], ..Watch::default() }).ok()?;
    let profile = heap.profile(Mode::Total, None);
    let alive = profile.lifetimes.iter().filter(|life| life.birth == 0 && life.death > 0);
    let places = by_place(&profile, alive.map(|life| (life.node, life.weight.bytes)));
    (!places.is_empty()).then_some(places)
}

/// Bytes of nodes, by the innermost line of the user's own code.
fn by_place(profile: &Profile, nodes: impl Iterator<Item = (u32, u64)>) -> Vec<(u64, String)> {
    let mut places: HashMap<String, u64> = HashMap::new();
    for (node, bytes) in nodes {
        let held = places.entry(place(profile.stack(node))).or_default();
        *held = held.saturating_add(bytes);
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
