//! One session of a living run, read from where it was left: its identity, its newest numbers, and how its process ended.
//!
//! The log is opened near its end: what was long ago is not a metric. Must never hold more than its newest numbers, and never read past a deadline.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use stormlog_catalog::run::deaths::DEATH;
use stormlog_catalog::run::layout::{LOG_DIRECTORY, SESSION_FILE, SessionName, Viewpoint};
use stormlog_catalog::run::{FileVersion, PROGRAM, SessionDirectory};
use stormlog_model::{Counter, Event, Head, Metadata, SessionStatus, SessionSummary};
use stormlog_postmortem::Cause;
use stormlog_postmortem::bundle::BundleName;
use stormlog_store::recording::{RecordedEvents, read_session};

use crate::device_now::DeviceNow;

/// Events between two looks at the clock.
const STRIDE: usize = 256;
/// A log that was not read for this long is reopened near its end.
const LONG_AGO: Duration = Duration::from_secs(180);
/// The host among the devices.
const HOST: i64 = -1;
/// Devices of one process that are kept.
const MOST_DEVICES: usize = 64;
/// Counting what was lost opens every segment.
const LOSS_INTERVAL: Duration = Duration::from_secs(60);

/// What a sample is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SampleSubject {
    Resident,
    Allocated(i64),
    Reserved(i64),
    DeviceProcess(i64),
    /// Its process has ended; there is no number.
    Gone,
}

/// A number at a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) at_ns: u64,
    pub(crate) pid: u32,
    pub(crate) rank: i64,
    pub(crate) what: SampleSubject,
    pub(crate) value: u64,
}

/// The host's side of a process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HostNow {
    pub(crate) rss: Option<u64>,
    pub(crate) file_backed: Option<u64>,
    pub(crate) swap: Option<u64>,
    /// The nearest limit, and what is left of it.
    pub(crate) limit: Option<u64>,
    pub(crate) left: Option<u64>,
    pub(crate) at_ns: u64,
}

/// What the supervisor found out about the process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub(crate) ppid: Option<u32>,
    pub(crate) comm: String,
    pub(crate) program: String,
}

/// A session and where its reading is.
pub(crate) struct Session {
    pub(crate) name: SessionName,
    pub(crate) summary: SessionSummary,
    pub(crate) facts: Facts,
    pub(crate) host: HostNow,
    pub(crate) devices: BTreeMap<i64, DeviceNow>,
    pub(crate) death: Option<(Cause, u64)>,
    pub(crate) dropped: u64,
    directory: PathBuf,
    version: Option<FileVersion>,
    log: Option<RecordedEvents>,
    looked_at: Instant,
    counted_at: Option<Instant>,
    metadata: Option<Arc<Metadata>>,
    /// Samples since the metadata of one was read.
    unread_metadata: u32,
}

/// Samples of the host whose metadata is not read: what changes in it is a second old at most, at ten samples a second.
const METADATA_STRIDE: u32 = 10;

/// Samples of devices have numbers in it, and an event that is not a sample reports an end.
fn wants_metadata(head: &Head, unread: &mut u32) -> bool {
    *unread += 1;
    let wants = *unread >= METADATA_STRIDE || head.device_id >= 0 || head.event_type != "sample";
    if wants {
        *unread = 0;
    }
    wants
}

impl Session {
    /// The session in a directory; `None` where there is none that can be read yet.
    pub(crate) fn open(found: &SessionDirectory) -> Option<Self> {
        let version = FileVersion::of(&found.path.join(SESSION_FILE)).ok()?;
        let summary = read_session(&found.path).ok()?;
        Some(Session {
            name: found.name,
            summary,
            facts: Facts::default(),
            host: HostNow::default(),
            devices: BTreeMap::new(),
            death: None,
            dropped: 0,
            directory: found.path.clone(),
            version: Some(version),
            log: None,
            looked_at: Instant::now(),
            counted_at: None,
            metadata: None,
            unread_metadata: 0,
        })
    }

    /// Where it is.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether it is being recorded.
    pub(crate) fn is_running(&self) -> bool {
        self.summary.status == SessionStatus::Running
    }

    /// Reads what is new; false where the deadline came first.
    pub(crate) fn look(&mut self, deadline: Instant, rank: i64, samples: &mut Vec<Sample>) -> bool {
        self.refresh_state();
        if self.log.is_none() || self.looked_at.elapsed() > LONG_AGO {
            self.log = RecordedEvents::recent_log(&self.directory.join(LOG_DIRECTORY)).ok();
        }
        let Some(mut log) = self.log.take() else { return true };
        let mut is_whole = true;
        let mut taken = 0;
        loop {
            if taken % STRIDE == 0 && Instant::now() >= deadline {
                is_whole = false;
                break;
            }
            taken += 1;
            let mut wants = |head: &Head| wants_metadata(head, &mut self.unread_metadata);
            match log.next_sparsely(&mut wants) {
                Some(Ok(event)) => self.take(&event, rank, samples),
                // A damaged record is one sample less.
                Some(Err(_)) => {}
                None => break,
            }
        }
        if is_whole {
            self.looked_at = Instant::now();
        }
        if self.counted_at.is_none_or(|at| at.elapsed() >= LOSS_INTERVAL) {
            self.counted_at = Some(Instant::now());
            self.dropped = log.loss().records;
        }
        log.release();
        self.log = self.is_running().then_some(log);
        if is_whole && !self.is_running() && self.name.viewpoint == Viewpoint::Outside {
            let at_ns = self.host.at_ns.saturating_add(1);
            samples.push(Sample { at_ns, pid: self.name.pid, rank, what: SampleSubject::Gone, value: 0 });
        }
        is_whole
    }

    /// The bundle that its process left, by its name.
    pub(crate) fn bundle(&self) -> Option<String> {
        let entries = std::fs::read_dir(&self.directory).ok()?.flatten().take(4096);
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| BundleName::parse(name).is_some()).max()
    }

    fn refresh_state(&mut self) {
        let version = FileVersion::of(&self.directory.join(SESSION_FILE)).ok();
        if version == self.version {
            return;
        }
        self.version = version;
        match read_session(&self.directory) {
            Ok(summary) => self.summary = summary,
            // Its directory was dropped or replaced: it is not recorded any more.
            Err(_) => self.summary.status = SessionStatus::Incomplete,
        }
    }

    fn take(&mut self, event: &Event, rank: i64, samples: &mut Vec<Sample>) {
        self.learn(event);
        let pid = self.name.pid;
        let mut push = |what, value: Option<u64>| {
            samples.extend(value.map(|value| Sample { at_ns: event.timestamp_ns, pid, rank, what, value }));
        };
        let device = event.head.device_id;
        if device == HOST {
            let used = event.counter(Counter::Used);
            push(SampleSubject::Resident, used);
            if used.is_some() {
                self.host.rss = used;
                self.host.limit = event.counter(Counter::Total).or(self.host.limit);
                self.host.left = event.counter(Counter::Free).or(self.host.left);
                self.host.at_ns = self.host.at_ns.max(event.timestamp_ns);
            }
            return;
        }
        if device < 0 || (self.devices.len() >= MOST_DEVICES && !self.devices.contains_key(&device)) {
            return;
        }
        self.devices.entry(device).or_default().take(event);
        push(SampleSubject::Allocated(device), event.counter(Counter::Allocated));
        push(SampleSubject::Reserved(device), event.counter(Counter::Reserved));
        let of_process = event.metadata.map.get("process_device_used_bytes").and_then(Value::as_u64);
        push(SampleSubject::DeviceProcess(device), of_process);
    }

    /// Facts are in the metadata, which events share as long as it does not change.
    fn learn(&mut self, event: &Event) {
        if self.metadata.as_ref().is_some_and(|known| Arc::ptr_eq(known, &event.metadata)) {
            return;
        }
        self.metadata = Some(Arc::clone(&event.metadata));
        let map = &event.metadata.map;
        let number = |key: &str| map.get(key).and_then(Value::as_u64);
        let text = |key: &str, kept: &mut String| {
            if let Some(text) = map.get(key).and_then(Value::as_str) {
                text.clone_into(kept);
            }
        };
        if let Some(ppid) = number("ppid").and_then(|ppid| u32::try_from(ppid).ok()) {
            self.facts.ppid = Some(ppid);
        }
        text("comm", &mut self.facts.comm);
        text(PROGRAM, &mut self.facts.program);
        self.host.file_backed = number("file_backed_bytes").or(self.host.file_backed);
        self.host.swap = number("process_swap_bytes").or(self.host.swap);
        let died = map.get(DEATH).and_then(Value::as_str).and_then(Cause::of_word);
        if let Some(cause) = died {
            self.death.get_or_insert((cause, event.timestamp_ns));
        }
    }
}
