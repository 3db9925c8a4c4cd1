//! The watcher: at steady intervals, one event for every process of the program's tree, into files of its own.
//!
//! Reads `/proc` from outside, so it works for any program and needs nothing of it. Must keep its pace whatever the
//! processes do, and count what it cannot record instead of failing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use stormlog_collect::cgroup::{MemoryCgroup, UsageReader};
use stormlog_collect::host::HostReader;
use stormlog_collect::process::ProcessReader;
use stormlog_collect::{ProcessTree, TreeMember};
use stormlog_event::{
    Counter, Counters, Env, Event, Head, Identity, IdentityInputs, Metadata, Record, SessionStatus,
    SessionSummary, new_session_id, resolve_identity,
};
use stormlog_store::recording::{Recorder, RecorderConfig};

use crate::finish::Scene;

const COLLECTOR: &str = "stormlog.process_tracker";
/// A process's ring keeps its last thousands of events; its history grows in small steps, for there may be many.
const RING_SLOTS: u64 = 4096;
const SEGMENT_BYTES: u64 = 1 << 20;
/// More processes than this at once are followed but not recorded, which is counted.
const MAX_RECORDED: usize = 512;
/// Looking for new children more often than this costs more than it tells.
const TREE_INTERVAL: Duration = Duration::from_millis(20);

/// The kernel's own high-water mark is a longer read; once in a while is enough, since it only rises.
const PEAK_INTERVAL: Duration = Duration::from_millis(500);

/// A process that is or was watched.
pub(crate) struct Watched {
    pub(crate) pid: u32,
    /// The name of the process when it was first seen.
    pub(crate) comm: String,
    pub(crate) summary: SessionSummary,
    pub(crate) directory: PathBuf,
    pub(crate) peak_rss: Option<u64>,
    pub(crate) last_rss: Option<u64>,
    pub(crate) last_event_ns: u64,
    pub(crate) recorder: Option<Recorder>,
    reader: ProcessReader,
    metadata: Arc<Metadata>,
    heads: BTreeMap<&'static str, Arc<Head>>,
}

/// What the watcher hands over when it stops.
pub(crate) struct Watching {
    /// Where the evidence is.
    pub(crate) scene: Scene,
    /// The processes that are still there, the program itself among them.
    pub(crate) alive: Vec<Watched>,
    pub(crate) peak_total_rss: u64,
    pub(crate) lost_records: u64,
    pub(crate) limit_bytes: Option<u64>,
}

/// Watches until told to stop.
pub(crate) struct Watcher {
    scene: Scene,
    host: String,
    interval: Duration,
    tree: ProcessTree,
    processes: BTreeMap<u32, Watched>,
    cgroup_usage: Option<UsageReader>,
    limit: Option<u64>,
    peak_total_rss: u64,
    lost_records: u64,
    next_tree_look: Instant,
    next_peak_look: Instant,
}

impl Watcher {
    /// A watcher of `pid` and its descendants. The scene comes back when the process is gone already.
    pub(crate) fn new(
        scene: Scene,
        host: String,
        interval: Duration,
        pid: u32,
    ) -> Result<Self, Box<Watching>> {
        let Ok(tree) = ProcessTree::of(pid) else {
            let nothing =
                Watching { scene, alive: Vec::new(), peak_total_rss: 0, lost_records: 0, limit_bytes: None };
            return Err(Box::new(nothing));
        };
        let cgroup = MemoryCgroup::of(pid).ok();
        let host_total = HostReader::open().ok().and_then(|mut host| host.memory().ok()?.total);
        let cgroup_limit =
            cgroup.as_ref().and_then(|cgroup| cgroup.read().effective_limit.map(|limit| limit.bytes));
        let limit = [host_total, cgroup_limit].into_iter().flatten().min();
        let cgroup_usage = cgroup.and_then(|cgroup| cgroup.usage_reader().ok());
        let mut watcher = Watcher {
            scene,
            host,
            interval,
            tree,
            processes: BTreeMap::new(),
            cgroup_usage,
            limit,
            peak_total_rss: 0,
            lost_records: 0,
            next_tree_look: Instant::now(),
            next_peak_look: Instant::now(),
        };
        let members: Vec<TreeMember> = watcher.tree.members().cloned().collect();
        for member in members {
            watcher.add(member);
        }
        Ok(watcher)
    }

    /// Samples at once and then at each interval, until `stop` speaks or is gone.
    pub(crate) fn run(mut self, stop: &Receiver<()>) -> Watching {
        let mut next = Instant::now();
        loop {
            self.tick();
            next += self.interval;
            let now = Instant::now();
            // After a stall there is nothing to catch up with: the past cannot be sampled.
            next = next.max(now);
            match stop.recv_timeout(next - now) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Watching {
            scene: self.scene,
            alive: self.processes.into_values().collect(),
            peak_total_rss: self.peak_total_rss,
            lost_records: self.lost_records,
            limit_bytes: self.limit,
        }
    }

    fn tick(&mut self) {
        if Instant::now() >= self.next_tree_look {
            self.look_for_children();
        }
        let free = self.cgroup_usage.as_mut().and_then(|reader| reader.usage().ok());
        let free = self.limit.zip(free).map(|(limit, usage)| limit.saturating_sub(usage));
        let mut total = 0;
        let refresh_peaks = Instant::now() >= self.next_peak_look;
        if refresh_peaks {
            self.next_peak_look = Instant::now() + PEAK_INTERVAL;
        }
        for watched in self.processes.values_mut() {
            // One that has just ended is told by the tree, not by a failed reading.
            let Ok(memory) = watched.reader.memory() else { continue };
            if memory.rss == 0 {
                continue; // a zombie, or one that is going
            }
            total += memory.rss;
            if refresh_peaks {
                watched.refresh_peak();
            }
            self.lost_records += watched.record("sample", Some(memory.rss), self.limit, free, None);
        }
        self.peak_total_rss = self.peak_total_rss.max(total);
    }

    fn look_for_children(&mut self) {
        self.next_tree_look = Instant::now() + TREE_INTERVAL;
        let change = self.tree.refresh();
        for member in change.gone {
            // The program itself is waited for; how it ended is known better elsewhere.
            if member.pid != self.tree.root()
                && let Some(watched) = self.processes.remove(&member.pid)
            {
                self.scene.child_ended(watched);
            }
        }
        for member in change.added {
            self.add(member);
        }
    }

    fn add(&mut self, member: TreeMember) {
        let Ok(reader) = ProcessReader::open(member.pid) else { return };
        let identity = identity_of(member.pid);
        let now = now_ns();
        let summary = SessionSummary {
            session_id: new_session_id(),
            status: SessionStatus::Running,
            started_at_ns: i64::try_from(now).unwrap_or(i64::MAX),
            ended_at_ns: None,
            host: self.host.clone(),
            pid: member.pid.into(),
            job_id: identity.job_id.clone(),
            rank: identity.rank as i64,
            local_rank: identity.local_rank as i64,
            world_size: identity.world_size as i64,
            source: "stormlog.run".to_owned(),
        };
        let mut directory = self.scene.run.process(&identity, member.pid);
        if directory.exists() {
            // The number was used before in this run.
            directory.set_extension(member.start_time.to_string());
        }
        let config = RecorderConfig { ring_slots: RING_SLOTS, keep_log: true, segment_bytes: SEGMENT_BYTES };
        let recorder = if self.processes.len() < MAX_RECORDED {
            Recorder::create(&directory, summary.clone(), &config).ok()
        } else {
            None
        };
        let mut watched = Watched {
            pid: member.pid,
            comm: member.comm.clone(),
            directory,
            peak_rss: None,
            last_rss: None,
            last_event_ns: now,
            recorder,
            reader,
            metadata: Arc::new(metadata(&member)),
            heads: heads(&summary, &identity, self.interval),
            summary,
        };
        let rss = watched.reader.memory().ok().map(|memory| memory.rss);
        self.lost_records += watched.record("start", rss, self.limit, None, None);
        self.processes.insert(watched.pid, watched);
    }
}

impl Watched {
    /// Records an event; the number of records lost, 0 or 1.
    pub(crate) fn record(
        &mut self,
        event_type: &'static str,
        rss: Option<u64>,
        limit: Option<u64>,
        free: Option<u64>,
        context: Option<&str>,
    ) -> u64 {
        let mut counters = Counters::UNKNOWN;
        // A process can have more resident than its limit says for a moment; the limit is then not what bounds it.
        let total = limit.filter(|limit| rss.is_none_or(|rss| rss <= *limit));
        counters.set(Counter::Used, rss);
        counters.set(Counter::Total, total);
        counters.set(Counter::Free, free.filter(|free| total.is_some_and(|total| *free <= total)));
        self.last_event_ns = now_ns();
        if rss.is_some() {
            self.last_rss = rss;
            self.peak_rss = self.peak_rss.max(rss);
        }
        let Some(head) = self.heads.get(event_type) else { return 1 };
        let event = Event {
            timestamp_ns: self.last_event_ns,
            counters,
            context: context.map(Into::into),
            head: Arc::clone(head),
            metadata: Arc::clone(&self.metadata),
        };
        match &mut self.recorder {
            Some(recorder) => u64::from(!recorder.append(&event)),
            None => 1,
        }
    }

    /// The process's own record of its highest resident memory, which no interval misses.
    pub(crate) fn refresh_peak(&mut self) {
        if let Ok(status) = self.reader.status() {
            self.peak_rss = self.peak_rss.max(status.peak_rss);
        }
    }
}

fn heads(
    summary: &SessionSummary,
    identity: &Identity,
    interval: Duration,
) -> BTreeMap<&'static str, Arc<Head>> {
    let head = |event_type: &'static str| {
        let head = Head {
            session_id: summary.session_id.clone(),
            event_type: event_type.to_owned(),
            collector: COLLECTOR.to_owned(),
            sampling_interval_ms: u64::try_from(interval.as_millis()).unwrap_or(0),
            pid: summary.pid,
            host: summary.host.clone(),
            identity: identity.clone(),
            device_id: -1,
        };
        (event_type, Arc::new(head))
    };
    ["start", "sample", "stop", "error", "warning"].into_iter().map(head).collect()
}

fn metadata(member: &TreeMember) -> Metadata {
    let capabilities = serde_json::json!({
        "backend": "cpu", "telemetry_collector": COLLECTOR, "sampling_source": "/proc/PID/statm",
        "supports_allocator_allocated": false, "supports_allocator_reserved": false,
        "supports_allocator_active": false, "supports_allocator_inactive": false, "supports_device_used": true,
        "supports_device_free": true, "supports_device_total": true, "supports_native_allocator_history": false,
        "supports_fragmentation_analysis": false, "supports_allocator_attribution": false,
        "supports_bounded_profiling": false,
    });
    let map: Record = [
        ("comm".to_owned(), member.comm.as_str().into()),
        ("ppid".to_owned(), member.ppid.into()),
        ("memory_capabilities".to_owned(), capabilities),
    ]
    .into_iter()
    .collect();
    // The literal above is complete; were it not, the capabilities would only be empty.
    Metadata::read(map, COLLECTOR, &Counters::UNKNOWN).unwrap_or(Metadata {
        map: Record::new(),
        capabilities: Default::default(),
        inferred: true,
    })
}

/// Rank and job from the process's own environment, as its launcher set it.
fn identity_of(pid: u32) -> Identity {
    const MOST: usize = 1 << 20;
    let text = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let text = &text[..text.len().min(MOST)];
    let lookup: &Env<'_> = &|name: &str| {
        let entries = text.split(|byte| *byte == 0);
        let mut found = entries.filter_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        found.next().map(|value| String::from_utf8_lossy(value).into_owned())
    };
    resolve_identity(&IdentityInputs { env: Some(lookup), ..Default::default() }).unwrap_or_default()
}

pub(crate) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
