//! Heap profiles of living ranks for Pyroscope: one POST a minute, the live heap of the main process as pprof, of the host and of each device.
//!
//! The capture is read like any other file; the program is not asked. A profile without threads: there, each label of a sample is a series.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use stormlog_export::{About, HeapProfile, pprof};
use stormlog_heap_report::{HeapQuery, Reading, ViewError};
use stormlog_model::memory::{Memory, Selection};
use stormlog_push::{Client, PushError, Request, Url};
use stormlog_store::wall_ns;

const PATH: &str = "push.v1.PusherService/Push";
const TIMEOUT: Duration = Duration::from_secs(20);
/// Time between two rounds.
pub(crate) const INTERVAL: Duration = Duration::from_secs(60);
/// Bytes of a capture that is read every minute; a larger one is left to the views.
const MOST_CAPTURE: u64 = 256 << 20;

/// A Pyroscope.
#[derive(Debug)]
pub struct Pyroscope {
    url: Url,
    token: Option<String>,
    client: Client,
    /// Time between two rounds.
    pub(crate) interval: Duration,
}

/// The capture of a living rank, and what its profile is labelled with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveCapture {
    /// The file.
    pub path: PathBuf,
    /// The job, or the program's name.
    pub job: String,
    /// Its rank.
    pub rank: i64,
    /// Where two living runs have both.
    pub slot: String,
    /// The machine.
    pub host: String,
}

impl Pyroscope {
    /// At that base URL; `token` is sent as bearer.
    pub fn new(
        url: &str,
        token: Option<String>,
        interval: Option<Duration>,
        secure: Vec<std::ffi::OsString>,
    ) -> Result<Self, PushError> {
        let url = Url::parse(url)?.join(PATH)?;
        let client = Client { timeout: TIMEOUT, secure };
        client.check(&url)?;
        Ok(Pyroscope { url, token, client, interval: interval.unwrap_or(INTERVAL) })
    }

    /// Sends the profiles of one capture. `false`: there is nothing to send yet.
    pub fn send(&self, capture: &LiveCapture) -> Result<bool, PushError> {
        let series = profiles(capture).unwrap_or_default();
        if series.is_empty() {
            return Ok(false);
        }
        let body = json!({"series": series}).to_string();
        let token = self.token.iter().map(|token| ("Authorization".to_owned(), format!("Bearer {token}")));
        let headers: Vec<(String, String)> = token.collect();
        let request = Request {
            url: &self.url,
            content_type: "application/json",
            headers: &headers,
            body: body.as_bytes(),
        };
        self.client.post(&request).map(|_| true)
    }
}

/// A series for each memory that holds something.
fn profiles(capture: &LiveCapture) -> Result<Vec<Value>, ViewError> {
    if std::fs::metadata(&capture.path).is_ok_and(|file| file.len() > MOST_CAPTURE) {
        return Ok(Vec::new());
    }
    let mut reading = Reading::of(&capture.path, None, HeapQuery::AtDeath)?;
    let mut series = Vec::new();
    for memory in reading.heap.memories() {
        reading.select(Selection::One(memory))?;
        let (held, allocated) = (reading.stack_profile(), reading.allocated().held);
        if held.rows.is_empty() {
            continue;
        }
        let title = reading.title();
        let about = About { title: &title, start_ms: wall_ns() / 1_000_000, pid: reading.heap.header.pid };
        let profile = HeapProfile {
            held: &held,
            allocated: &allocated,
            duration_ns: reading.heap.duration_us().saturating_mul(1000),
            period: reading.heap.header.sample_bytes,
            by_thread: false,
        };
        let raw = STANDARD.encode(pprof(&profile, &about));
        let id = uuid::Uuid::new_v4().to_string();
        series.push(json!({"labels": labels(capture, memory), "samples": [{"ID": id, "rawProfile": raw}]}));
    }
    Ok(series)
}

/// Names are identifiers: one that is not has the whole profile refused.
fn labels(capture: &LiveCapture, memory: Memory) -> Vec<Value> {
    let (rank, memory) = (capture.rank.to_string(), memory.to_string());
    let pairs = [
        ("__name__", "memory"),
        ("service_name", capture.job.as_str()),
        ("rank", rank.as_str()),
        ("slot", capture.slot.as_str()),
        ("hostname", capture.host.as_str()),
        ("memory", memory.as_str()),
    ];
    let given = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    given.map(|(name, value)| json!({"name": name, "value": value})).collect()
}
