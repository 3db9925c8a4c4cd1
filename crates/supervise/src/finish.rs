//! The end of a run: what is known of each death is put together, judged, and kept as a bundle beside the recording.
//!
//! Nothing here can fail the run any more: what cannot be written is left out, and the program's exit status stands.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Instant;

use stormlog_collect::Roots;
use stormlog_collect::cgroup::{MemoryCgroup, OomWatch};
use stormlog_collect::kernel_log::{DEFAULT_RECORDS, KernelLog, OomKill};
use stormlog_collect::pressure::host_memory_pressure;
use stormlog_event::{Record, SessionStatus};
use stormlog_record::bundle::{
    BundleContent, BundleWriter, Environment, Evidence, ExceptionText, HeldBy, Retention,
};
use stormlog_record::classify::{Classification, ExceptionFacts, classify};
use stormlog_record::verdict::{DeathFacts, Ending, ReportedException, Verdict, judge};
use stormlog_store::recording::{RING_FILE, RecordedEvents};

use crate::exceptions::{self, Reported};
use crate::facts::{cgroups, full_name, held_by, host, kernel_kill, spelt};
use crate::outcome::{Ended, ProcessOutcome, RunOutcome};
use crate::run_dir::RunDirectory;
use crate::watch::{Watched, Watching, now_ns};

/// Sessions of children that ended without evidence are kept up to this many, the newest; a program that forks all day
/// must not fill the disk.
const KEPT_CHILDREN: usize = 256;
/// Rows of children in the outcome.
const MAX_ROWS: usize = 4096;

/// Where the evidence of a run is gathered while it goes on.
pub(crate) struct Scene {
    pub(crate) run: RunDirectory,
    pub(crate) record: Record,
    pub(crate) program: String,
    pub(crate) limit_as: Option<u64>,
    pub(crate) started: Instant,
    pub(crate) oom_watch: Option<OomWatch>,
    pub(crate) kernel_log: Option<KernelLog>,
    writer: BundleWriter,
    /// Kills the kernel reported so far.
    kills: Vec<OomKill>,
    /// OOM kills that are known to have hit a child.
    elsewhere: u64,
    children: Vec<ProcessOutcome>,
    plain: VecDeque<PathBuf>,
    dropped_sessions: u64,
    /// The processes by what they had resident when last seen, largest first.
    held_by: Vec<HeldBy>,
}

impl Scene {
    pub(crate) fn new(run: RunDirectory, record: Record, program: String, limit_as: Option<u64>) -> Self {
        Scene {
            run,
            record,
            program,
            limit_as,
            started: Instant::now(),
            // The program starts in our own cgroup; counting begins before it exists.
            oom_watch: MemoryCgroup::of(std::process::id()).ok().map(OomWatch::start),
            kernel_log: KernelLog::from_now().ok(),
            writer: BundleWriter::new(Retention::default()),
            kills: Vec::new(),
            elsewhere: 0,
            children: Vec::new(),
            plain: VecDeque::new(),
            dropped_sessions: 0,
            held_by: Vec::new(),
        }
    }

    /// A process that ended before the program did. Nobody waited for it, so only evidence makes more of it than gone.
    pub(crate) fn child_ended(&mut self, watched: Watched) {
        let death = self.judge(&watched, Ending::Vanished);
        let is_proven = death.verdict.cause.is_memory();
        let status = if is_proven { SessionStatus::Interrupted } else { SessionStatus::Incomplete };
        self.elsewhere += u64::from(is_proven);
        let outcome = self.close(watched, status, is_proven.then_some(death), now_ns());
        if !is_proven {
            self.plain.push_back(outcome.directory.clone());
        }
        if self.plain.len() > KEPT_CHILDREN
            && let Some(oldest) = self.plain.pop_front()
        {
            self.dropped_sessions += 1;
            self.children.retain(|child| child.directory != oldest);
            // Left behind, it only takes room.
            let _ = std::fs::remove_dir_all(oldest);
        }
        if self.children.len() < MAX_ROWS {
            self.children.push(outcome);
        }
    }

    /// The program itself: its exit status is known.
    fn main_ended(&mut self, watched: Watched, ended: Ended, ended_ns: u64) -> ProcessOutcome {
        let ending = match ended {
            Ended::Code(code) => Ending::Exited(code),
            Ended::Signal(signal) => Ending::Signaled(signal),
            Ended::Unknown => Ending::Vanished,
        };
        let clean = ended == Ended::Code(0);
        let death = (!clean).then(|| self.judge(&watched, ending));
        let status = if clean { SessionStatus::Completed } else { SessionStatus::Interrupted };
        self.close(watched, status, death, ended_ns)
    }

    fn judge(&mut self, watched: &Watched, ending: Ending) -> Death {
        if let Some(report) = self.kernel_log.as_mut().and_then(|log| log.read(DEFAULT_RECORDS).ok()) {
            self.kills.extend(report.kills);
        }
        let reported = exceptions::last_of(&self.run.exceptions(), watched.pid);
        let exception = reported.map(|reported| {
            let bases: Vec<&str> = reported.bases.iter().map(String::as_str).collect();
            let meaning = classify(&ExceptionFacts {
                type_name: &reported.type_name,
                module: &reported.module,
                bases: &bases,
                message: &reported.message,
                errno: reported.errno,
            });
            (reported, meaning)
        });
        let mut facts = DeathFacts::of(&self.program, watched.pid.into(), ending);
        facts.ran_seconds = Some(self.started.elapsed().as_secs_f64());
        facts.exception = exception.as_ref().map(|(reported, meaning)| ReportedException {
            type_name: full_name(reported),
            message: reported.message.clone(),
            cause: meaning.cause(),
            // One that ended only a thread explains nothing that comes later.
            is_fatal: reported.thread.as_deref() == Some("MainThread") && ending != Ending::Exited(0),
        });
        let report = self.oom_watch.as_ref().map(OomWatch::look);
        facts.cgroups = report.iter().flat_map(|report| cgroups(report, self.elsewhere)).collect();
        facts.kernel = self.kernel_log.is_some().then(|| self.kills.iter().map(kernel_kill).collect());
        facts.host = host();
        facts.rlimit_as_bytes = self.limit_as;
        facts.last_rss_bytes = watched.last_rss;
        facts.peak_rss_bytes = watched.peak_rss;
        facts.held_by = self.held_by.clone();
        let limits = report.as_ref().and_then(|report| serde_json::to_value(&report.levels).ok());
        let pressure = host_memory_pressure(&Roots::default()).ok().flatten();
        Death {
            verdict: judge(&facts),
            exception,
            limits: limits.into_iter().map(|levels| ("cgroup".to_owned(), levels)).collect(),
            pressure: pressure
                .and_then(|pressure| serde_json::to_value(pressure).ok())
                .into_iter()
                .map(|pressure| ("host".to_owned(), pressure))
                .collect(),
        }
    }

    /// Ends a session and keeps the evidence of a death.
    fn close(
        &mut self,
        mut watched: Watched,
        status: SessionStatus,
        death: Option<Death>,
        ended_ns: u64,
    ) -> ProcessOutcome {
        let sentence = death.as_ref().map(|death| death.verdict.sentence.clone());
        match (&sentence, status) {
            (Some(sentence), _) => watched.record("error", None, None, None, Some(sentence)),
            (None, SessionStatus::Completed) => watched.record("stop", None, None, None, None),
            (None, _) => 0,
        };
        let last_event_ns = watched.last_event_ns;
        let ended_at = i64::try_from(ended_ns).unwrap_or(i64::MAX);
        let has_log = watched.recorder.is_some();
        if let Some(recorder) = watched.recorder.take() {
            // The recording itself is safe in its files; only the state would stay `running`, which readers correct.
            let _ = recorder.close(status, ended_at);
        }
        watched.summary.status = status;
        watched.summary.ended_at_ns = Some(ended_at);
        let bundle = death.as_ref().and_then(|death| self.bundle(&watched, death, last_event_ns, ended_ns));
        if bundle.is_none() && has_log {
            // The history has all that the ring has; without a death the ring only takes room.
            let _ = std::fs::remove_file(watched.directory.join(RING_FILE));
        }
        ProcessOutcome {
            pid: watched.pid,
            session_id: watched.summary.session_id,
            directory: watched.directory,
            peak_rss: watched.peak_rss,
            last_rss: watched.last_rss,
            cause: death.as_ref().map(|death| death.verdict.cause),
            bundle,
            verdict: sentence,
            exception: death
                .as_ref()
                .and_then(|death| death.exception.as_ref())
                .map(|(reported, _)| spelt(reported)),
            advice: death.map(|death| death.verdict.tries).unwrap_or_default(),
        }
    }

    fn bundle(
        &mut self,
        watched: &Watched,
        death: &Death,
        last_event_ns: u64,
        ended_ns: u64,
    ) -> Option<PathBuf> {
        let verdict = &death.verdict;
        let mut evidence = Evidence::of(verdict.cause);
        evidence.signal = verdict.signal;
        evidence.exit_code = verdict.exit_code;
        evidence.verdict = Some(verdict.sentence.clone());
        evidence.tries = verdict.tries.clone();
        evidence.notes = verdict.notes.clone();
        evidence.limit_bytes = verdict.limit_bytes;
        evidence.limit_source = verdict.limit_source.clone();
        evidence.usage_bytes = verdict.usage_bytes;
        evidence.peak_rss_bytes = watched.peak_rss;
        evidence.last_event_timestamp_ns = Some(last_event_ns);
        evidence.limits = death.limits.clone();
        evidence.pressure = death.pressure.clone();
        evidence.held_by = self.held_by.clone();
        let exception = death.exception.as_ref().map(|(reported, _)| ExceptionText {
            type_name: &reported.type_name,
            module: &reported.module,
            message: &reported.message,
        });
        let reason = death.exception.as_ref().and_then(|(_, meaning)| meaning.reason.as_deref());
        let mut metadata = Record::new();
        metadata.insert("run_directory".into(), self.run.path().display().to_string().into());
        metadata.insert("command".into(), self.record.get("command").cloned().unwrap_or_default());
        if let Some((reported, _)) = &death.exception {
            let frame = |(file, line, function): &(String, u64, String)| serde_json::json!({"file": file, "line": line, "function": function});
            metadata.insert("traceback".into(), reported.frames.iter().map(frame).collect());
        }
        let environment = Record::new();
        let cwd = self.record.get("working_directory").and_then(serde_json::Value::as_str);
        let content = BundleContent {
            created_at_ns: ended_ns,
            pid: watched.pid.into(),
            backend: "cpu",
            reason: reason.unwrap_or(verdict.cause.as_str()),
            exception,
            context: Some(&verdict.sentence),
            session: Some(&watched.summary),
            custom_metadata: &metadata,
            environment: Environment { cwd, system: &environment },
            evidence: &evidence,
        };
        let events = RecordedEvents::ring(&watched.directory.join(RING_FILE)).ok();
        let events = events.into_iter().flatten().filter_map(Result::ok);
        self.writer.write(&watched.directory, &content, events).ok().map(|written| written.path)
    }

    fn write_record(&mut self, ended: Ended, ended_ns: u64, processes: &[ProcessOutcome]) {
        let (exit_code, signal) = match ended {
            Ended::Code(code) => (Some(code), None),
            Ended::Signal(signal) => (None, Some(signal)),
            Ended::Unknown => (None, None),
        };
        let main = processes.first();
        let dropped = self.dropped_sessions;
        let clean = ended == Ended::Code(0);
        let rows: Vec<serde_json::Value> = processes
            .iter()
            .map(|process| {
                serde_json::json!({
                    "pid": process.pid, "session_id": process.session_id, "peak_rss_bytes": process.peak_rss,
                    "cause": process.cause.map(|cause| cause.as_str()), "verdict": process.verdict,
                })
            })
            .collect();
        let mut put = |key: &str, value: serde_json::Value| self.record.insert(key.to_owned(), value);
        put("status", if clean { "completed" } else { "interrupted" }.into());
        put("ended_at_ns", ended_ns.into());
        put("exit_code", exit_code.into());
        put("signal", signal.into());
        put("cause", main.and_then(|main| main.cause).map(|cause| cause.as_str()).into());
        put("verdict", main.and_then(|main| main.verdict.clone()).into());
        put("processes", rows.into());
        put("sessions_dropped", dropped.into());
        // A run directory that can no longer be written keeps what it had.
        let _ = self.run.write(&self.record);
    }
}

/// Ends what is left of a run and says what became of it.
pub(crate) fn finish(watching: Watching, pid: u32, ended: Ended, ended_ns: u64) -> RunOutcome {
    let Watching { mut scene, alive, peak_total_rss, lost_records, limit_bytes } = watching;
    let duration_ns = u64::try_from(scene.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    scene.held_by = held_by(&alive);
    let mut processes = Vec::new();
    let mut left_behind = Vec::new();
    for watched in alive {
        if watched.pid == pid {
            processes.push(scene.main_ended(watched, ended, ended_ns));
        } else {
            // It outlived the program; recording it ends here.
            left_behind.push(scene.close(watched, SessionStatus::Incomplete, None, ended_ns));
        }
    }
    processes.append(&mut scene.children);
    processes.append(&mut left_behind);
    scene.write_record(ended, ended_ns, &processes);
    let limit_bytes = [limit_bytes, scene.limit_as].into_iter().flatten().min();
    RunOutcome {
        directory: scene.run.path().to_owned(),
        ended,
        duration_ns,
        processes,
        peak_total_rss,
        limit_bytes,
        lost_records,
    }
}

/// A judged death.
struct Death {
    verdict: Verdict,
    exception: Option<(Reported, Classification)>,
    /// Each level of the cgroup as it was found.
    limits: Record,
    pressure: Record,
}
