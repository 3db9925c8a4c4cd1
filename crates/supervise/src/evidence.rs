//! The evidence of a run: what is known of each death is put together, judged, and kept as a bundle beside the recording.
//!
//! Nothing here can fail the run: what cannot be written is left out. What is done once, when the program itself has ended, is in `finish.rs`.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Instant;

use stormlog_catalog::run::deaths::{DEATH, Deaths, is_death};
use stormlog_catalog::run::ends::Ends;
use stormlog_catalog::run::exceptions::{self, Reported};
use stormlog_catalog::run::layout::{CAPTURE_FILE, RING_FILE};
use stormlog_catalog::run::{RunDirectory, kernel_kill, memory_map};
use stormlog_collect::Roots;
use stormlog_collect::kernel_log::{DEFAULT_RECORDS, KernelLog, OomKill};
use stormlog_collect::pressure::host_memory_pressure;
use stormlog_heap_report::{HeapDigest, Holder};
use stormlog_model::memory::Memory;
use stormlog_model::{Record, SessionStatus};
use stormlog_pidfd::Standby;
use stormlog_postmortem::bundle::{
    BundleContent, BundleWriter, Environment, Evidence, ExceptionText, HeldBy, Retention,
};
use stormlog_postmortem::classify::Classification;
use stormlog_postmortem::elastic::write_error_file;
use stormlog_postmortem::verdict::{DeathFacts, Ending, FailedRequest, Sender, Verdict, judge};
use stormlog_postmortem::{BundlePolicy, Cause};
use stormlog_store::recording::RecordedEvents;
use stormlog_store::wall_ns;

use crate::circumstances::{Circumstances, kinds_of_memory};
use crate::facts::{HostKills, host, spelt};
use crate::groups::Groups;
use crate::heap::{Captures, HeapOptions, Unrecordable, WaitPhase, WaitReporter};
use crate::lineage::{Delivered, Lineage};
use crate::notices::Notices;
use crate::outcome::{Ended, ProcessOutcome};
use crate::requests::Answerer;
use crate::retention_requests::RetentionRequests;
use crate::supervise::HeapFinish;
use crate::termination::TerminationLog;
use crate::tracked_process::TrackedProcess;

/// A process is first seen shortly after its start, and may have ended by then.
const BIRTH_NS: u64 = 2_000_000_000;
/// Sessions of children are kept up to this many, the newest: of those that ended by themselves, and of those that were
/// killed. A program that forks continuously must not fill the disk.
const KEPT_CHILDREN: usize = 256;
/// A child that exits with an error sooner than this many samples is the answer of a tool, as of `grep`: it is counted and gets no bundle.
const SAMPLES_OF_A_WORKER: u64 = 2;
/// Warnings printed at the end: the last ones.
const MAX_WARNINGS: usize = 64;
/// Rows of children in the outcome.
const MAX_ROWS: usize = 4096;

/// The evidence of a run: gathered while its program runs, judged and written as each process ends.
pub(crate) struct RunEvidence {
    pub(crate) run: RunDirectory,
    pub(crate) record: Record,
    pub(crate) program: String,
    /// The program's own process.
    pub(crate) root: u32,
    /// Which ends leave a bundle.
    pub(crate) bundle_policy: BundlePolicy,
    pub(crate) limit_as: Option<u64>,
    pub(crate) started: Instant,
    pub(crate) groups: Groups,
    /// Which process started which.
    pub(crate) lineage: Lineage,
    /// The last signal that reached the program through its supervisor.
    pub(crate) delivered: Option<Delivered>,
    pub(crate) kernel_log: Option<KernelLog>,
    /// The machine's own count of kills.
    pub(crate) host_kills: HostKills,
    /// The most that the supervisor itself had resident when the program started.
    pub(crate) own_peak_rss: Option<u64>,
    /// The most that a process other than the program had resident.
    pub(crate) others_peak_rss: u64,
    /// Heap captures, where they are wanted.
    pub(crate) captures: Option<Captures>,
    pub(crate) heap_options: HeapOptions,
    /// Why the heap of the program itself cannot be recorded.
    pub(crate) unrecordable: Option<Unrecordable>,
    pub(crate) heap_finish: HeapFinish,
    /// Finishes the captures when the run is over, or when this process is killed.
    pub(crate) finisher: Option<Standby>,
    /// Reports the wait for the captures once the program has ended and it takes long.
    pub(crate) wait_reporter: Option<WaitReporter>,
    /// The termination message of the container, until the sampler keeps it.
    pub(crate) termination: Option<TerminationLog>,
    writer: BundleWriter,
    /// Kills the kernel reported so far.
    kills: Vec<OomKill>,
    pub(crate) children: Vec<ProcessOutcome>,
    plain: VecDeque<PathBuf>,
    killed: VecDeque<PathBuf>,
    pub(crate) dropped_sessions: u64,
    /// Deaths so far, those included whose directories were dropped.
    pub(crate) deaths: Deaths,
    pub(crate) warnings: VecDeque<String>,
    /// What processes were asked about their memory.
    pub(crate) retention_requests: RetentionRequests,
    pub(crate) answerer: Answerer,
    /// Where alerts and deaths are reported, if anywhere.
    pub(crate) notices: Option<Notices>,
}

impl RunEvidence {
    pub(crate) fn new(run: RunDirectory, record: Record, program: String, limit_as: Option<u64>) -> Self {
        RunEvidence {
            run,
            record,
            program,
            root: 0,
            bundle_policy: BundlePolicy::default(),
            limit_as,
            started: Instant::now(),
            groups: Groups::start(),
            lineage: Lineage::default(),
            delivered: None,
            kernel_log: KernelLog::from_now().ok(),
            host_kills: HostKills::default(),
            own_peak_rss: None,
            others_peak_rss: 0,
            captures: None,
            heap_options: HeapOptions::default(),
            unrecordable: None,
            heap_finish: HeapFinish::default(),
            finisher: None,
            wait_reporter: None,
            termination: None,
            writer: BundleWriter::new(Retention::default()),
            kills: Vec::new(),
            children: Vec::new(),
            plain: VecDeque::new(),
            killed: VecDeque::new(),
            dropped_sessions: 0,
            deaths: Deaths::new(),
            warnings: VecDeque::new(),
            retention_requests: RetentionRequests::default(),
            answerer: Answerer::default(),
            notices: None,
        }
    }

    /// A process that ended before the program did. Where its exit status could not be read, it is reported as a death only with other evidence.
    pub(crate) fn child_ended(
        &mut self,
        mut tracked: TrackedProcess,
        ended: Ended,
        circumstances: &Circumstances,
    ) {
        let ended_ns = wall_ns();
        // A process that ends within milliseconds is first seen when its command line can no longer be read.
        let pid = tracked.pid;
        tracked.name_by(|| self.captures.as_ref()?.command_of(pid));
        let death = (!ended.is_clean()).then(|| self.judge(&tracked, ended.ending(), circumstances));
        if let Some(death) = &death {
            death.report_to_launcher(&tracked, ended_ns);
        }
        let is_memory = death.as_ref().is_some_and(|death| death.verdict.cause.is_memory());
        let is_kill = matches!(ended, Ended::Signal(_)) || is_memory;
        if is_memory {
            self.groups.was_killed(tracked.group);
        }
        let status = match ended {
            Ended::Code(0) => SessionStatus::Completed,
            Ended::Unknown if !is_memory => SessionStatus::Incomplete,
            _ => SessionStatus::Interrupted,
        };
        let death = death.filter(|_| status == SessionStatus::Interrupted);
        let is_tool = !is_kill && tracked.session.samples() < SAMPLES_OF_A_WORKER;
        let is_tool = is_tool && death.as_ref().is_some_and(|death| death.exception.is_none());
        let outcome = self.close(tracked, status, ended, death, !is_tool, ended_ns);
        if let Some(notices) = self.notices.as_ref().filter(|_| !is_tool) {
            notices.child_ended(&outcome);
        }
        let queue = if is_kill { &mut self.killed } else { &mut self.plain };
        queue.push_back(outcome.directory.clone());
        if queue.len() > KEPT_CHILDREN
            && let Some(oldest) = queue.pop_front()
        {
            self.dropped_sessions += 1;
            self.children.retain(|child| child.directory != oldest);
            if let Some(captures) = &self.captures {
                captures.forget(&oldest);
            }
            // Kept, it would only take disk space.
            let _ = std::fs::remove_dir_all(oldest);
        }
        if self.children.len() < MAX_ROWS {
            self.children.push(outcome);
        }
    }

    /// A forecast became a warning, or ended.
    pub(crate) fn warned(&mut self, sentence: String) {
        if self.warnings.len() == MAX_WARNINGS {
            self.warnings.pop_front();
        }
        self.warnings.push_back(sentence);
    }

    /// The program itself: its exit status is known.
    pub(crate) fn main_ended(
        &mut self,
        tracked: TrackedProcess,
        ended: Ended,
        ended_ns: u64,
        circumstances: &Circumstances,
    ) -> ProcessOutcome {
        let death = (!ended.is_clean()).then(|| self.judge(&tracked, ended.ending(), circumstances));
        let status = if ended.is_clean() { SessionStatus::Completed } else { SessionStatus::Interrupted };
        self.close(tracked, status, ended, death, true, ended_ns)
    }

    /// A process that outlived the program: recording it ends here.
    pub(crate) fn outlived(&mut self, tracked: TrackedProcess, ended_ns: u64) -> ProcessOutcome {
        self.close(tracked, SessionStatus::Incomplete, Ended::Unknown, None, false, ended_ns)
    }

    fn judge(&mut self, tracked: &TrackedProcess, ending: Ending, circumstances: &Circumstances) -> Death {
        if let Some(report) = self.kernel_log.as_mut().and_then(|log| log.read(DEFAULT_RECORDS).ok()) {
            self.kills.extend(report.kills);
        }
        let exception = exceptions::understood(&self.run.exceptions(), tracked.pid);
        let mut facts = DeathFacts::of(&self.name_of(tracked), tracked.pid.into(), ending);
        facts.ran_seconds = Some(tracked.since.elapsed().as_secs_f64());
        facts.exception = exception.as_ref().map(|exception| exceptions::fact(exception, ending));
        let (report, cgroups) = self.groups.look(tracked.group).unzip();
        facts.cgroups = cgroups.unwrap_or_default();
        facts.kernel = self.kernel_log.is_some().then(|| self.kills.iter().map(kernel_kill).collect());
        facts.host = host(self.host_kills.change());
        facts.rlimit_as_bytes = self.limit_as;
        let since_ns = u64::try_from(tracked.summary.started_at_ns).unwrap_or(0).saturating_sub(BIRTH_NS);
        let ends = Ends::read(self.run.path());
        facts.has_chosen_status = ends.has_exited_in_order(tracked.pid, since_ns);
        facts.failed_request = ends.failed_request(tracked.pid, since_ns).map(|failed| FailedRequest {
            is_device: failed.is_device,
            bytes: failed.bytes,
            seconds_before: wall_ns().saturating_sub(failed.at_ns) as f64 / 1e9,
        });
        self.lineage.set_group(tracked.pid, tracked.process_group);
        facts.sender = self.sender(tracked.pid, ending, &ends, since_ns);
        let seen = tracked.session.seen();
        facts.last_rss_bytes = seen.last_rss;
        facts.peak_vms_bytes = seen.peak_vms;
        facts.peak_rss_bytes = seen.peak_rss;
        facts.growth = circumstances.growth;
        facts.uses_gpu = circumstances.uses_gpu(tracked.pid);
        facts.held_by = circumstances.held_by.clone();
        let limits = report.as_ref().and_then(|report| serde_json::to_value(&report.levels).ok());
        let pressure = host_memory_pressure(&Roots::default()).ok().flatten();
        Death {
            verdict: judge(&facts),
            circumstances: circumstances.clone(),
            exception,
            limits: limits.into_iter().map(|levels| ("cgroup".to_owned(), levels)).collect(),
            pressure: pressure
                .and_then(|pressure| serde_json::to_value(pressure).ok())
                .into_iter()
                .map(|pressure| ("host".to_owned(), pressure))
                .collect(),
        }
    }

    /// Where the signal came from that ended a process.
    fn sender(&self, pid: u32, ending: Ending, ends: &Ends, since_ns: u64) -> Option<Sender> {
        let signal = match ending {
            Ending::Signaled(signal) => signal,
            Ending::Exited(code @ 129..160) => code - 128,
            _ => return None,
        };
        let delivered = self.delivered.filter(|delivered| pid == self.root && delivered.signal == signal);
        let delivered =
            delivered.map(|delivered| Sender::Supervisor { pid: delivered.sender.map(u64::from) });
        let name = |pid: u32| (pid == self.root).then(|| self.program.clone());
        delivered.or_else(|| self.lineage.sender(ends, (pid, signal), since_ns, name))
    }

    /// What the user would call the process: the program by what was requested, another one by its own command line.
    fn name_of(&self, tracked: &TrackedProcess) -> String {
        if tracked.pid == self.root { self.program.clone() } else { tracked.name().to_owned() }
    }

    /// Ends a session and keeps the evidence of a death.
    fn close(
        &mut self,
        mut tracked: TrackedProcess,
        status: SessionStatus,
        ended: Ended,
        death: Option<Death>,
        may_leave_a_bundle: bool,
        ended_ns: u64,
    ) -> ProcessOutcome {
        if tracked.pid != self.root {
            self.others_peak_rss = self.others_peak_rss.max(tracked.session.seen().peak_rss.unwrap_or(0));
        }
        let sentence = death.as_ref().map(|death| death.verdict.sentence.clone());
        let judged = death.as_ref().map(|death| death.verdict.ended);
        let is_failure = judged == Some(stormlog_postmortem::Ended::Failed);
        let died_of = death.as_ref().map(|death| (death.verdict.ended, death.verdict.cause));
        let died_of = died_of.filter(|(ended, cause)| is_death(*ended, *cause, !may_leave_a_bundle));
        let died_of = died_of.map(|(_, cause)| cause);
        if let Some(cause) = died_of {
            tracked.session.set_fact(DEATH, cause.as_str().into());
        }
        match (&sentence, status) {
            // A deliberate end is not an error.
            (Some(sentence), _) if is_failure => {
                tracked.session.record_end("error", ended_ns, Some(sentence))
            }
            (Some(sentence), _) => tracked.session.record_end("stop", ended_ns, Some(sentence)),
            (None, SessionStatus::Completed) => tracked.session.record_end("stop", ended_ns, None),
            (None, _) => true,
        };
        let ended_at = i64::try_from(ended_ns).unwrap_or(i64::MAX);
        let has_log = tracked.session.is_recorded();
        tracked.session.close(status, ended_at);
        tracked.summary.status = status;
        tracked.summary.ended_at_ns = Some(ended_at);
        let of_failure = death
            .as_ref()
            .is_some_and(|death| matches!(death.verdict.cause, Cause::MemoryError | Cause::OomException));
        let cause = ended.to_json(death.as_ref().map(|death| death.verdict.cause));
        let policy = self.bundle_policy;
        let bundled = death
            .as_ref()
            .filter(|death| may_leave_a_bundle && policy.wants(&death.verdict, death.has_raised()));
        let heap = self.settle_heap(&tracked, cause, of_failure, bundled.is_some());
        let bundle = bundled.and_then(|death| self.bundle(&tracked, death, heap.as_ref(), ended_ns));
        if let Some(cause) = died_of {
            let name = bundle.as_ref().and_then(|path| path.file_name());
            let name = name.map(|name| name.to_string_lossy().into_owned());
            self.deaths.entry(cause).or_default().add(ended_at, name);
        }
        memory_map::discard(&tracked.directory);
        if has_log {
            // The history and the bundle have all that the ring has; from here on it only takes disk space.
            let _ = std::fs::remove_file(tracked.directory.join(RING_FILE));
        }
        let seen = tracked.session.seen();
        let exception = match &death {
            Some(death) => death.exception.as_ref().map(|(reported, _)| spelt(reported)),
            // A thread can fail although the program exits 0.
            None => exceptions::last_of(&self.run.exceptions(), tracked.pid).as_ref().map(spelt),
        };
        ProcessOutcome {
            pid: tracked.pid,
            program: self.name_of(&tracked),
            worker: tracked.worker.take(),
            identity: tracked.identity,
            session_id: tracked.summary.session_id,
            directory: tracked.directory,
            peak_rss: seen.peak_rss,
            last_rss: seen.last_rss,
            heap,
            cause: death.as_ref().map(|death| death.verdict.cause),
            judged: judged.unwrap_or_else(|| ended.without_evidence()),
            confidence: death.as_ref().map(|death| death.verdict.confidence),
            limit_bytes: death.as_ref().and_then(|death| death.verdict.limit_bytes),
            bundle,
            verdict: sentence,
            exception,
            advice: death.map(|death| death.verdict.tries).unwrap_or_default(),
        }
    }

    /// Ends the process's captures. What they come to, where the bundle needs it or the program itself has ended; of children it is requested
    /// at the end, because their sampler cannot wait.
    fn settle_heap(
        &mut self,
        tracked: &TrackedProcess,
        cause: serde_json::Value,
        of_failure: bool,
        is_bundled: bool,
    ) -> Option<HeapDigest> {
        let captures = self.captures.as_ref()?;
        let target = tracked.directory.join(CAPTURE_FILE);
        let is_kept = is_bundled || tracked.pid == self.root;
        if captures.is_halted() {
            captures.settle(tracked.pid, cause, &tracked.directory, is_kept);
            let is_wanted = is_bundled || (self.heap_finish.read && tracked.pid == self.root);
            let wait_reporter = self.wait_reporter.as_mut().filter(|_| is_wanted)?;
            return wait_reporter
                .wait(WaitPhase::Reading, move || HeapDigest::read_still(&target, of_failure))
                .flatten();
        }
        let read = || HeapDigest::read(&captures.newest_of(tracked.pid)?, of_failure);
        let digest = is_bundled.then(read).flatten();
        captures.settle(tracked.pid, cause, &tracked.directory, is_kept);
        digest.map(|digest| HeapDigest { path: target, ..digest })
    }

    fn bundle(
        &mut self,
        tracked: &TrackedProcess,
        death: &Death,
        heap: Option<&HeapDigest>,
        ended_ns: u64,
    ) -> Option<PathBuf> {
        let verdict = &death.verdict;
        let mut evidence = Evidence::from(verdict);
        evidence.peak_rss_bytes = tracked.session.seen().peak_rss;
        evidence.last_event_timestamp_ns = Some(tracked.session.last_event_ns());
        evidence.limits = death.limits.clone();
        evidence.pressure = death.pressure.clone();
        evidence.memory_map = tracked.mapped.rows.clone();
        evidence.held_by = holders(tracked, heap, &death.circumstances);
        evidence.devices = death.circumstances.devices(tracked);
        let exception = death.exception.as_ref().map(|(reported, _)| ExceptionText {
            type_name: &reported.type_name,
            module: &reported.module,
            message: &reported.message,
        });
        let reason = death.exception.as_ref().and_then(|(_, meaning)| meaning.reason.as_deref());
        let mut metadata = Record::new();
        metadata.insert("run_directory".into(), self.run.path().display().to_string().into());
        if let Some(heap) = heap {
            metadata.insert("heap".into(), heap.to_json());
        }
        metadata.insert("command".into(), self.record.get("command").cloned().unwrap_or_default());
        if let Some((reported, _)) = &death.exception {
            let frame = |(file, line, function): &(String, u64, String)| serde_json::json!({"file": file, "line": line, "function": function});
            metadata.insert("traceback".into(), reported.frames.iter().map(frame).collect());
        }
        let environment = Record::new();
        let cwd = self.record.get("working_directory").and_then(serde_json::Value::as_str);
        let content = BundleContent {
            created_at_ns: ended_ns,
            pid: tracked.pid.into(),
            backend: "cpu",
            reason: reason.unwrap_or(verdict.cause.as_str()),
            exception,
            context: Some(&verdict.sentence),
            session: Some(&tracked.summary),
            custom_metadata: &metadata,
            environment: Environment { cwd, system: &environment },
            evidence: &evidence,
        };
        let events = RecordedEvents::ring(&tracked.directory.join(RING_FILE)).ok();
        let events = events.into_iter().flatten().filter_map(Result::ok);
        self.writer.write(&tracked.directory, &content, events).ok().map(|written| written.path)
    }
}

/// What held the memory: lines of this process, where its heap was recorded; then the processes, or the kinds of memory of the only one; and
/// those on the GPUs.
fn holders(
    tracked: &TrackedProcess,
    heap: Option<&HeapDigest>,
    circumstances: &Circumstances,
) -> Vec<HeldBy> {
    let by_line = |heap: &HeapDigest| -> Vec<HeldBy> {
        let line = |holder: &Holder| HeldBy {
            place: match holder.memory {
                Memory::Host => holder.words(),
                device => format!("{device} {}", holder.words()),
            },
            bytes: holder.bytes,
            note: heap.held_note(holder.memory),
        };
        heap.holders.iter().map(line).collect()
    };
    let mut holders = heap.map(by_line).unwrap_or_default();
    // A line of this process does not explain memory that another one held.
    match circumstances.held_by.is_empty() {
        true => holders.extend(kinds_of_memory(&tracked.mapped.rows)),
        false => holders.extend(circumstances.held_by.iter().cloned()),
    }
    holders.extend(circumstances.held_on_gpus(tracked.pid));
    holders
}

/// A judged death.
struct Death {
    verdict: Verdict,
    circumstances: Circumstances,
    exception: Option<(Reported, Classification)>,
    /// Each level of the cgroup as it was found.
    limits: Record,
    pressure: Record,
}

impl Death {
    /// Leaves the verdict where torchrun looks for it. Its agent looks within 100 ms after the death, so this comes before all that takes longer.
    fn report_to_launcher(&self, tracked: &TrackedProcess, ended_ns: u64) {
        let is_failure = self.verdict.ended == stormlog_postmortem::Ended::Failed;
        if let Some(path) = tracked.error_file.as_ref().filter(|_| tracked.is_rank && is_failure) {
            // The rank may have no directory for it; the verdict is in the bundle all the same.
            let _ = write_error_file(path, std::slice::from_ref(&self.verdict.sentence), ended_ns);
        }
    }

    /// Whether an exception that was not caught ended it.
    fn has_raised(&self) -> bool {
        self.exception.as_ref().is_some_and(|(reported, _)| reported.is_in_main_thread())
    }
}
