//! One run from start to end: directory, program, sampler, evidence.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stormlog_catalog::run::layout::RUN_VARIABLE;
use stormlog_catalog::run::{RunDirectory, RunStart, finish_abandoned};
use stormlog_collect::host::HostFacts;
use stormlog_collect::process::ProcessReader;
use stormlog_liveness::lock;
use stormlog_postmortem::BundlePolicy;
use stormlog_push::Courier;
use stormlog_store::wall_ns;

use crate::child::{Launch, Program};
use crate::error::RunError;
use crate::evidence::RunEvidence;
use crate::finish::finish;
use crate::heap::{Captures, HeapOptions, Unrecordable, WaitPhase, stand_by};
use crate::naming::ProgramName;
use crate::notices::Notices;
use crate::orphans::Orphans;
use crate::outcome::RunOutcome;
use crate::sampler::{Sampler, SamplerOutput};
use crate::shipping::{Shipper, Shipping};
use crate::signals::{Intake, Terminal, Witness};
use crate::sitecustomize;
use crate::sitecustomize::TorchHistory;
use crate::termination::TerminationLog;

/// How a program is to be run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Where run directories are made.
    pub root: PathBuf,
    /// Time between two samples.
    pub interval: Duration,
    /// A limit of the program's address space.
    pub limit_as: Option<u64>,
    /// Whether the program is killed when the supervisor is killed.
    pub die_with_supervisor: bool,
    /// Whether Python programs report the exception they die of.
    pub report_exceptions: bool,
    /// Whether Python programs report what keeps their memory.
    pub report_why: bool,
    /// Whether Python programs that import torch record it, where the package is installed.
    pub record_torch: bool,
    /// Whether these follow the GPU driver's own allocations too.
    pub follow_cuda_driver: bool,
    /// The command that answers requests to processes which do not take them themselves: it gets the run's directory as its last word and calls
    /// [`answer_requests`](crate::answer_requests). Empty: none does.
    pub answerer: Vec<OsString>,
    /// The signal that asks a Python process for a snapshot.
    pub snapshot_signal: Option<i32>,
    /// What PyTorch's own history keeps; `None` leaves that to the program's environment.
    pub torch_history: Option<TorchHistory>,
    /// Record the heap of every process.
    pub heap: Option<HeapOptions>,
    /// The heap is recorded by default, not by an option: what cannot be recorded is left out without an error.
    pub heap_is_default: bool,
    /// Open the run's directory to its group.
    pub is_shared: bool,
    /// Record the environment: values of variables on the allow-list, names of the others.
    pub records_environment: bool,
    /// Which ends leave a bundle.
    pub bundle_policy: BundlePolicy,
    /// What is done with the captures when the program has ended.
    pub heap_finish: HeapFinish,
    /// Called with one sentence when the memory limit is foreseen, and when it no longer is.
    pub warn: Option<fn(&str)>,
    /// Called with one sentence for each run below `root` that its killed supervisor left unfinished, and that is finished now.
    pub earlier: Option<fn(&str)>,
    /// Takes reports of alerts and deaths.
    pub courier: Option<Courier>,
    /// Ships the run elsewhere while it is recorded.
    pub shipper: Option<Shipper>,
    /// Called with one sentence when the program starts, for each part of its run that cannot be recorded.
    pub missing: fn(&str),
}

/// What is done with heap captures after the program's end.
#[derive(Debug, Clone, Default)]
pub struct HeapFinish {
    /// Read them, so that the outcome says what they come to. Those of deaths are read anyhow.
    pub read: bool,
    /// The command that completes them after this process has returned or was killed, and compacts those of processes that live on. It gets the
    /// run's directory as its last word and calls [`finish_captures`](crate::finish_captures). Empty: they are completed before
    /// [`Running::wait`] returns.
    pub finisher: Vec<OsString>,
    /// Whether the captures of ended processes are completed by this process before [`Running::wait`] returns.
    pub is_done_here: bool,
    /// Whether [`Running::wait`] waits for the finisher.
    pub waits: bool,
    /// Called ten times a second when the caller has to wait for long. From then on Ctrl-C ends the waiting.
    pub report: Option<fn(WaitPhase)>,
}

/// Streams of the program that are not ours; `None` where they are.
#[derive(Debug, Default)]
pub struct Streams {
    /// Standard input.
    pub input: Option<File>,
    /// Standard output.
    pub output: Option<File>,
    /// Standard error.
    pub error: Option<File>,
}

/// Runs the program to its end.
pub fn run(options: &RunOptions) -> Result<RunOutcome, RunError> {
    Ok(start(options, Terminal::Programs, |_| Ok(Streams::default()))?.wait())
}

/// A run that is not over: the program, and the thread that watches it.
pub struct Running {
    directory: PathBuf,
    /// What the user would call the program.
    name: String,
    program: Program,
    /// The program's signals.
    intake: Intake,
    started_ns: u64,
    sampling: io::Result<JoinHandle<SamplerOutput>>,
    /// Finishes what earlier supervisors left.
    finishing: Option<JoinHandle<()>>,
    /// Closed to end the sampling.
    stop: PipeWriter,
    /// Shows that we live.
    lock: Option<lock::Held>,
    shipping: Option<Shipping>,
}

impl Running {
    /// Starts the program beside a screen, which handles the terminal's signals. `streams` gets the run's directory and says which streams
    /// are not to be shared with the program.
    pub fn start(
        options: &RunOptions,
        streams: impl FnOnce(&Path) -> io::Result<Streams>,
    ) -> Result<Running, RunError> {
        start(options, Terminal::Shared, streams)
    }

    /// The run's directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether the program has ended. It is still there to be waited for.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.program.has_ended()
    }

    /// Waits for the end of the program, and gathers the evidence of it.
    #[must_use]
    pub fn wait(mut self) -> RunOutcome {
        let pid = self.program.pid();
        let (ended, peak_rss, delivered) = self.program.wait();
        let ended_ns = wall_ns();
        self.intake.end();
        drop(self.stop);
        let mut outcome = match self.sampling.map(JoinHandle::join) {
            Ok(Ok(sampling)) => finish(sampling, pid, ended, ended_ns, peak_rss, delivered),
            // Without a thread to watch with there is still an exit status.
            _ => {
                let duration_ns = ended_ns.saturating_sub(self.started_ns);
                RunOutcome::unwatched(self.directory, self.name, ended, duration_ns)
            }
        };
        // It only reads and writes files; one that failed leaves them to the next reader.
        let _ = self.finishing.map(JoinHandle::join);
        // The run is finished on disk by now.
        drop(self.lock);
        if let Some(run) = RunDirectory::open(&outcome.directory) {
            run.sweep_locks(true);
        }
        if let Some(shipping) = &mut self.shipping {
            shipping.end();
        }
        outcome.shipping = self.shipping;
        outcome
    }
}

fn start(
    options: &RunOptions,
    terminal: Terminal,
    streams: impl FnOnce(&Path) -> io::Result<Streams>,
) -> Result<Running, RunError> {
    stormlog_pidfd::keep_small();
    if options.command.is_empty() {
        return Err(RunError::NoCommand);
    }
    let started_ns = wall_ns();
    // Before any thread exists: each has the mask of the one that starts it.
    let intake = Intake::begin(terminal);
    // It gets ready while the run's files are made.
    let witness = Witness::start(&options.command);
    let launch = Launch {
        command: &options.command,
        limit_as: options.limit_as,
        die_with_supervisor: options.die_with_supervisor,
    };
    let evidence =
        RunDirectory::create(&options.root, &options.command, started_ns as i64, options.is_shared)
            .map_err(RunError::from)
            .and_then(|run| {
                begin(options, streams, &run, started_ns, &launch, (&intake, terminal), witness)
                    .inspect_err(|_| run.remove())
            });
    match evidence {
        Ok(begun) => Ok(begun.watch(options, intake, started_ns)),
        Err(error) if error.is_of_recording() => {
            (options.missing)(&format!("the program runs unrecorded: {error}{}", error.hint()));
            Err(launch.replace_us(&intake))
        }
        Err(error) => Err(error),
    }
}

/// A program that has just been started, and what is known of its run.
struct StartedRun {
    program: Program,
    evidence: RunEvidence,
    /// What cannot be recorded of it.
    missing: Vec<String>,
    host: String,
    orphans: Orphans,
    stopped: PipeReader,
    stop: PipeWriter,
    lock: Option<lock::Held>,
}

/// All that can fail comes before the program exists: from then on it is not to be left alone.
fn begin(
    options: &RunOptions,
    streams: impl FnOnce(&Path) -> io::Result<Streams>,
    run: &RunDirectory,
    started_ns: u64,
    launch: &Launch<'_>,
    signals: (&Intake, Terminal),
    witness: Option<Witness>,
) -> Result<StartedRun, RunError> {
    let facts = HostFacts::read();
    let host = facts.hostname.unwrap_or_else(|| "unknown".to_owned());
    let interval_ms = u64::try_from(options.interval.as_millis()).unwrap_or(u64::MAX);
    let start = RunStart {
        command: &options.command,
        host: &host,
        started_at_ns: started_ns as i64,
        interval_ms,
        records_environment: options.records_environment,
    };
    let mut record = start.to_record();
    record.insert("supervisor".into(), run.supervisor_record());
    record.insert("bundle_policy".into(), options.bundle_policy.as_str().into());
    // Readers of another namespace know by it that we live; without it they know nothing.
    let lock = run.hold_lock();
    run.write(&record)?;

    let mut missing = Vec::new();
    let mut env = vec![sitecustomize::mark(run.path())];
    let (exceptions, torch) = (options.report_exceptions, options.record_torch);
    let (cuda_driver, torch_history) = (options.follow_cuda_driver, options.torch_history);
    let (why, snapshot_signal) = (options.report_why, options.snapshot_signal);
    let wanted =
        sitecustomize::ScriptFeatures { exceptions, torch, why, cuda_driver, torch_history, snapshot_signal };
    match sitecustomize::prepare(wanted) {
        Ok(variables) => env.extend(variables),
        Err(error) => missing.push(format!("Python programs cannot report their exceptions: {error}")),
    }
    let mut unrecordable = options.command.first().and_then(|program| Unrecordable::find(program));
    let is_refused = unrecordable.as_ref().is_some_and(Unrecordable::is_refused);
    let captures = options.heap.as_ref().filter(|_| !is_refused).and_then(|heap| {
        match Captures::begin(run.path(), heap, options.heap_finish.read) {
            Ok((captures, variables)) => {
                env.extend(variables);
                Some(captures)
            }
            Err(error) => {
                let sentence = format!("{error}{}", error.hint());
                // What was not asked for is missed in the summary.
                missing.extend(
                    (!options.heap_is_default).then(|| format!("the heap is not recorded: {sentence}")),
                );
                unrecordable = Some(Unrecordable::Failed(sentence));
                None
            }
        }
    });
    let termination = TerminationLog::find().unwrap_or_else(|(path, error)| {
        missing.push(format!("the termination message cannot be written: {}: {error}", path.display()));
        None
    });
    let orphans = Orphans::marked(RUN_VARIABLE, run.path());
    let (stopped, stop) = std::io::pipe().map_err(|error| RunError::directory(run.path(), error))?;
    let name = ProgramName::of(&options.command).word;
    let mut evidence = RunEvidence::new(run.clone(), record, name, options.limit_as);
    evidence.finisher = captures.as_ref().and_then(|_| stand_by(&options.heap_finish.finisher, run.path()));
    evidence.captures = captures;
    evidence.termination = termination;
    evidence.unrecordable = unrecordable;
    evidence.bundle_policy = options.bundle_policy;
    evidence.retention_requests.is_off = !options.report_why;
    evidence.answerer.command = options.answerer.clone();
    evidence.notices = options
        .courier
        .clone()
        .map(|courier| Notices::new(courier, run.path().to_owned(), evidence.program.clone(), host.clone()));
    evidence.heap_options = options.heap.clone().unwrap_or_default();
    evidence.heap_finish = options.heap_finish.clone();
    let streams = streams(run.path()).map_err(|error| RunError::directory(run.path(), error))?;
    let program = Program::start(launch, &env, streams, signals, witness)?;
    // A program has its parent's peak until it has a larger one.
    evidence.own_peak_rss =
        ProcessReader::this().and_then(|mut reader| reader.status()).ok().and_then(|own| own.peak_rss);
    Ok(StartedRun { program, evidence, missing, host, orphans, stopped, stop, lock })
}

impl StartedRun {
    fn watch(mut self, options: &RunOptions, intake: Intake, started_ns: u64) -> Running {
        self.missing.iter().for_each(|sentence| (options.missing)(sentence));
        let pid = self.program.pid();
        self.evidence.record.insert("pid".into(), pid.into());
        // A disk that is full by now costs this line of the record, never the program.
        let _ = self.evidence.run.write(&self.evidence.record);

        allow_many_descriptors();
        let (directory, name) = (self.evidence.run.path().to_owned(), self.evidence.program.clone());
        // After the program's start, which does not wait for it.
        let shipping = options.shipper.as_ref().and_then(|shipper| {
            let failed = |error| (options.missing)(&format!("the run is not shipped: {error}"));
            shipper.start(&directory).map_err(failed).ok()
        });
        // Only this process reaps the program, so `/proc/PID` exists even if the program has ended already.
        let StartedRun { program, evidence, host, orphans, stopped, stop, lock, .. } = self;
        let sampler = Sampler::new(evidence, host, options.interval, pid, orphans, options.warn);
        let (root, earlier) = (options.root.clone(), options.earlier);
        // After the program's start, which must not wait for it. Without a thread the next reader does it.
        let finishing = thread::Builder::new().name("stormlog-finish".into());
        let finishing = finishing.spawn(move || finish_earlier(&root, earlier)).ok();
        let sampling =
            thread::Builder::new().name("stormlog-watch".into()).spawn(move || sampler.run(&stopped));
        Running { directory, name, program, intake, started_ns, sampling, finishing, stop, lock, shipping }
    }
}

/// Finishes the runs whose supervisors were killed with their programs: in a container that is restarted nothing else does.
fn finish_earlier(root: &Path, report: Option<fn(&str)>) {
    for run in finish_abandoned(root).iter().filter(|run| run.is_written) {
        let verdict = run.record.get("verdict").and_then(serde_json::Value::as_str).unwrap_or_default();
        if let Some(report) = report {
            report(&format!("completed an earlier run: {verdict}; stormlog analyze {}", run.path.display()));
        }
    }
}

/// Each tracked process takes a few. The program has its own limit by now, which this does not change.
fn allow_many_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // With fewer, fewer processes are recorded, and the losses counted.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
