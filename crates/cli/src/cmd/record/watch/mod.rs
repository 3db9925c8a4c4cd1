//! What `monitor` and `track` share: whose memory is watched, and the loop that waits for the end of it.
//!
//! Without `--pid` every GPU is watched, or this command itself where there is none, as 0.4.3 does. With `--pid` it is
//! that process and its children, and the GPUs beside them.

pub(crate) mod keep;
mod part;
mod screen;
mod stop;

use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stormlog_alert::alerts::Thresholds;
use stormlog_collect::{CollectError, DeviceCapabilities};
use stormlog_model::{
    Event, Identity, IdentityInputs, SessionStatus, SessionSummary, new_session_id, resolve_identity,
};
use stormlog_postmortem::Cause;
use stormlog_supervise::{Attached, Departure};
use stormlog_track::{
    Config, GpuFacts, Group, HOST_DEVICE, HostSource, Listener, Outlets, Source, TreePids, TreeSource,
    Wording, gpus, host_metadata,
};

use crate::exit::MissingInput;

pub(crate) use part::{Part, gigabytes};
pub(crate) use screen::Screen;
pub(crate) use stop::Stop;

/// Events kept in memory, as 0.4.3's trackers keep.
pub(crate) const MAX_EVENTS: usize = 10_000;
/// How long a thread may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(5);
/// The longest the loop sleeps; a signal or the end of the process wakes it at once.
const BEAT: Duration = Duration::from_millis(250);

/// Whose memory, and how.
pub(crate) struct WatchOptions {
    pub(crate) pid: Option<u32>,
    /// A GPU's number, or -1 for the host alone.
    pub(crate) device: Option<i64>,
    pub(crate) interval: f64,
    pub(crate) alerts: bool,
    pub(crate) thresholds: Thresholds,
    /// Job, rank, local rank and world size as given.
    pub(crate) identity: [Value; 4],
    /// Events kept in memory.
    pub(crate) max_events: usize,
    /// Events kept for a bundle.
    pub(crate) flight_events: usize,
    pub(crate) source: &'static str,
}

impl WatchOptions {
    /// To look only: no alerts, no bundle, an identity of the environment's.
    pub(crate) fn look(pid: Option<u32>, device: Option<i64>, interval: f64, source: &'static str) -> Self {
        WatchOptions {
            pid,
            device,
            interval,
            alerts: false,
            thresholds: Thresholds::default(),
            identity: Default::default(),
            max_events: MAX_EVENTS,
            flight_events: 0,
            source,
        }
    }
}

/// Why watching ended.
pub(crate) enum Reason {
    /// The time was over.
    Elapsed,
    /// A signal asked for it.
    Signal(i32),
    /// The process ended.
    Departed(Departure),
    /// The reader of standard output has closed the pipe.
    ReaderGone,
}

impl Reason {
    /// The state the session ends in.
    pub(crate) fn status(&self) -> SessionStatus {
        match self {
            Reason::Elapsed => SessionStatus::Completed,
            Reason::Signal(_) | Reason::ReaderGone => SessionStatus::Interrupted,
            Reason::Departed(departure) => match &departure.verdict {
                // Nothing proves how it ended.
                None => SessionStatus::Incomplete,
                Some(verdict) if verdict.cause == Cause::Exit && verdict.exit_code == Some(0) => {
                    SessionStatus::Completed
                }
                Some(_) => SessionStatus::Interrupted,
            },
        }
    }

    /// The word under `stopped_by`.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Reason::Elapsed => "duration",
            Reason::Signal(_) => "signal",
            Reason::Departed(_) => "process_ended",
            Reason::ReaderGone => "closed_output",
        }
    }
}

/// Running trackers and the process they watch.
pub(crate) struct WatchSession {
    pub(crate) group: Group,
    pub(crate) parts: Vec<Part>,
    pub(crate) target: Option<Attached>,
    pub(crate) tree: Option<TreePids>,
    heard: Receiver<Event>,
    started: Instant,
}

/// What is to be watched: found, not started.
pub(crate) struct WatchTargets {
    wanted: WatchOptions,
    pub(crate) session: SessionSummary,
    identity: Identity,
    pub(crate) target: Option<Attached>,
    tree: Option<TreePids>,
    sources: Vec<(Part, Sampling)>,
}

/// What differs between the trackers of a group.
struct Sampling {
    collector: String,
    metadata: stormlog_model::Record,
    source: Box<dyn Source>,
}

/// Finds what is requested; nothing is written yet.
pub(crate) fn find(wanted: WatchOptions) -> anyhow::Result<WatchTargets> {
    // 0.4.3's sentence and code: scripts that pass a computed interval match it.
    if !(wanted.interval > 0.0 && wanted.interval.is_finite()) {
        anyhow::bail!("sampling_interval must be > 0");
    }
    let mut sources = Vec::new();
    let (target, tree) = match wanted.pid {
        None => (None, None),
        Some(pid) => {
            let target = Attached::open(pid).map_err(|error| not_there(pid, &error))?;
            let source = TreeSource::open(pid).map_err(|error| not_there(pid, &error))?;
            let tree = source.pids();
            sources.push((
                Part::process(target.name(), pid),
                host(&DeviceCapabilities::of_process(), Box::new(source)),
            ));
            (Some(target), Some(tree))
        }
    };
    let explicit = wanted.identity.each_ref().map(|value| (!value.is_null()).then_some(value));
    let identity = match &target {
        Some(target) => target.identity(explicit),
        None => {
            let env = |name: &str| std::env::var(name).ok();
            resolve_identity(&IdentityInputs { explicit, env: Some(&env), ..IdentityInputs::default() })
        }
    };
    let identity = identity.map_err(|problem| anyhow::anyhow!(problem.message))?;
    if wanted.device != Some(HOST_DEVICE) {
        let found = gpus();
        let numbers: Vec<String> =
            found.iter().map(|gpu| gpu.facts().identity.device_id.to_string()).collect();
        let before = sources.len();
        for gpu in found {
            let facts = GpuFacts::clone(gpu.facts());
            if wanted.device.is_none_or(|device| device == facts.identity.device_id) {
                let GpuFacts { identity, collector, metadata } = facts;
                sources.push((Part::gpu(&identity), Sampling { collector, metadata, source: Box::new(gpu) }));
            }
        }
        // Without any GPU the number is ignored, as 0.4.3 does.
        if !numbers.is_empty() && sources.len() == before {
            let device = wanted.device.unwrap_or_default();
            anyhow::bail!("Invalid device ID {device}: the GPUs here are {}", numbers.join(", "));
        }
    }
    if sources.is_empty() {
        sources
            .push((Part::this(), host(&DeviceCapabilities::of_cpu_tracker(), Box::new(HostSource::open()?))));
    }
    let session = session(&wanted, &identity);
    Ok(WatchTargets { wanted, session, identity, target, tree, sources })
}

fn host(stated: &DeviceCapabilities, source: Box<dyn Source>) -> Sampling {
    let collector = stated.telemetry_collector.clone();
    Sampling { collector, metadata: host_metadata(stated), source }
}

fn not_there(pid: u32, error: &CollectError) -> anyhow::Error {
    let sentence = match error {
        CollectError::ProcessGone { .. } => {
            format!("there is no process {pid}; `ps -e` lists the running ones")
        }
        other => format!("cannot watch process {pid}: {other}"),
    };
    anyhow::Error::new(MissingInput(sentence))
}

fn session(wanted: &WatchOptions, identity: &Identity) -> SessionSummary {
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    SessionSummary {
        session_id: new_session_id(),
        status: SessionStatus::Running,
        started_at_ns: signed(stormlog_store::wall_ns()),
        ended_at_ns: None,
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        pid: wanted.pid.unwrap_or_else(std::process::id).into(),
        job_id: identity.job_id.clone(),
        rank: signed(identity.rank),
        local_rank: signed(identity.local_rank),
        world_size: signed(identity.world_size),
        attempt: None,
        source: wanted.source.to_owned(),
    }
}

impl WatchTargets {
    /// Whether any GPU is among what is watched.
    pub(crate) fn has_gpu(&self) -> bool {
        self.sources.iter().any(|(part, _)| part.is_gpu())
    }

    /// The GPUs' backend, or `cpu`.
    pub(crate) fn backend(&self) -> &str {
        let gpu = self.sources.iter().find(|(part, _)| part.is_gpu());
        gpu.map_or("cpu", |(part, _)| part.backend.as_str())
    }

    /// How many things are watched.
    pub(crate) fn count(&self) -> usize {
        self.sources.len()
    }

    /// Takes the first samples and starts.
    pub(crate) fn start(self, outlets: Outlets) -> anyhow::Result<WatchSession> {
        let WatchTargets { wanted, session, identity, target, tree, sources } = self;
        let (tell, heard) = mpsc::channel();
        let mut parts = Vec::new();
        let mut configs = Vec::new();
        for (part, rest) in sources {
            let is_gpu = part.is_gpu();
            let config = Config {
                session: session.clone(),
                identity: identity.clone(),
                collector: rest.collector,
                interval: Duration::try_from_secs_f64(wanted.interval).unwrap_or(Duration::MAX),
                max_events: wanted.max_events,
                flight_events: wanted.flight_events,
                metadata: rest.metadata,
                wording: if is_gpu { Wording::Device } else { Wording::Cpu },
                says_health: is_gpu,
                alerts: wanted.alerts,
                thresholds: wanted.thresholds,
                total_bytes: None,
            };
            configs.push((config, rest.source));
            parts.push(part);
        }
        let group = Group::new(configs, outlets, Some(Arc::new(AlertSender(Mutex::new(tell)))))
            .map_err(|problem| anyhow::anyhow!(problem.message))?;
        group.start()?;
        for (part, tracker) in parts.iter_mut().zip(group.trackers()) {
            part.baseline = part.bytes(&tracker.statistics());
        }
        Ok(WatchSession { group, parts, target, tree, heard, started: Instant::now() })
    }
}

impl WatchSession {
    /// Seconds since it began.
    pub(crate) fn elapsed(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Calls `each` several times a second with the alerts since the last call, until the end.
    pub(crate) fn run(
        &mut self,
        duration: Option<f64>,
        stop: &Stop,
        mut each: impl FnMut(&WatchSession, &[Event]) -> bool,
    ) -> Reason {
        loop {
            let alerts: Vec<Event> = self.heard.try_iter().collect();
            if !each(self, &alerts) {
                return Reason::ReaderGone;
            }
            if let Some(signal) = stop.signal() {
                return Reason::Signal(signal);
            }
            let left = duration.map(|duration| duration - self.elapsed());
            if left.is_some_and(|left| left <= 0.0) {
                return Reason::Elapsed;
            }
            let left = left.and_then(|left| Duration::try_from_secs_f64(left).ok());
            let wait = left.map_or(BEAT, |left| left.min(BEAT));
            if let Some(departure) = self.wait(wait) {
                return Reason::Departed(departure);
            }
        }
    }

    fn wait(&mut self, wait: Duration) -> Option<Departure> {
        match &mut self.target {
            Some(target) => target.wait(wait),
            None => {
                std::thread::sleep(wait);
                None
            }
        }
    }

    /// Ends the session, and returns what was recorded since the last look.
    pub(crate) fn finish(&self, reason: &Reason) -> Vec<Event> {
        if let (Reason::Departed(departure), Some(tracker)) = (reason, self.group.trackers().first()) {
            tracker.add(part::departed(departure));
        }
        self.group.stop(reason.status(), STOP_WITHIN);
        self.heard.try_iter().collect()
    }
}

/// Hands alerts to the loop, which alone prints.
struct AlertSender(Mutex<mpsc::Sender<Event>>);

impl Listener for AlertSender {
    fn alert(&self, event: &Event) {
        // The loop is gone once the command ends; nothing is left to notify.
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).send(event.clone());
    }
}

/// What `--json` says of the process watched; null without one.
pub(crate) fn process_json(watch: &WatchSession, reason: &Reason) -> Value {
    let Some(target) = &watch.target else { return Value::Null };
    let departure = match reason {
        Reason::Departed(departure) => Some(departure),
        _ => None,
    };
    let verdict = departure.and_then(|departure| departure.verdict.as_ref());
    json!({
        "pid": target.pid(), "name": target.name(), "has_ended": departure.is_some(),
        "cause": verdict.map(|verdict| verdict.cause.as_str()), "signal": verdict.and_then(|it| it.signal),
        "exit_code": verdict.and_then(|verdict| verdict.exit_code),
        "verdict": departure.map(|departure| departure.sentence.as_str()),
        "advice": verdict.map(|verdict| verdict.tries.clone()),
    })
}
