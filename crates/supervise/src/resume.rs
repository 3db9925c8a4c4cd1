//! Finishing a run whose supervisor was killed too: whoever looks at its directory next does what it no longer could.

use std::path::Path;

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use stormlog_collect::host::HostFacts;
use stormlog_collect::kernel_log::{KernelLog, OomKill};
use stormlog_collect::process::ProcessReader;
use stormlog_event::{SessionStatus, SessionSummary};
use stormlog_record::bundle::{BundleContent, BundleWriter, Environment, Evidence, ExceptionText, Retention};
use stormlog_record::verdict::{CgroupFacts, DeathFacts, Ending, judge};
use stormlog_store::recording::{RING_FILE, RecordedEvents, read_session, write_session};
use stormlog_store::run_record::read_run;

use crate::facts::kernel_kill;
use crate::naming::ProgramName;
use crate::run_dir::RunDirectory;
use crate::watched::now_ns;
use crate::{exceptions, maps};

/// How deep run directories may lie below a path that is looked at.
const MAX_DEPTH: usize = 3;

/// Finishes every abandoned run at or below `path`; how many there were. What cannot be finished is left as it is.
pub fn resume(path: &Path) -> usize {
    let mut finished = 0;
    visit(path, 0, &mut finished);
    finished
}

fn visit(path: &Path, depth: usize, finished: &mut usize) {
    if let Some(run) = RunDirectory::open(path) {
        *finished += usize::from(finish_abandoned(&run));
        return;
    }
    if depth >= MAX_DEPTH {
        return;
    }
    let Ok(entries) = std::fs::read_dir(path) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            visit(&entry.path(), depth + 1, finished);
        }
    }
}

/// True when the run was abandoned and is finished now.
fn finish_abandoned(run: &RunDirectory) -> bool {
    // The layout of another release is not ours to finish.
    let Ok(Some(mut record)) = read_run(run.path()) else { return false };
    if record.get("status").and_then(Value::as_str) != Some("running") || is_supervised(&record) {
        return false;
    }
    let words = record.get("command").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
    let program = ProgramName::of(&words).word;
    let kills = kills_during(&record);
    let mut last_ns = 0;
    for directory in sessions_of(run.path()) {
        if let Some(ended_ns) = finish_session(run, &directory, &program, kills.as_deref()) {
            last_ns = last_ns.max(ended_ns);
        }
    }
    remove_half_written(run.path());
    record.insert("status".into(), "interrupted".into());
    record.insert("ended_at_ns".into(), if last_ns > 0 { last_ns.into() } else { Value::Null });
    record.insert(
        "verdict".into(),
        "the supervisor was killed too; finished afterwards from its recording".into(),
    );
    run.write(&record).is_ok()
}

/// Removes what the supervisor was writing when it was killed: a capture takes its place only when it is whole.
fn remove_half_written(run: &Path) {
    let below = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    for file in below(run).flat_map(|folder| below(&folder.path())) {
        if file.file_name().as_encoded_bytes().ends_with(b".bin.tmp") {
            let _ = std::fs::remove_file(file.path());
        }
    }
}

/// The kills the kernel still remembers since the run began; `None` when it cannot say: after a restart, on another
/// machine, or where its log may not be read.
fn kills_during(record: &stormlog_event::Record) -> Option<Vec<OomKill>> {
    /// The log's clock and the others are not quite the same.
    const MARGIN_US: u64 = 2_000_000;
    let boot = record.get("supervisor").and_then(|supervisor| supervisor.get("boot_id")?.as_str());
    if boot.is_none() || boot != HostFacts::read().boot_id.as_deref() {
        return None;
    }
    let started_ns = record.get("started_at_ns").and_then(Value::as_u64)?;
    let age_us = now_ns().saturating_sub(started_ns) / 1000;
    let up = clock_gettime(ClockId::Monotonic);
    let up_us = u64::try_from(up.tv_sec).ok()?.saturating_mul(1_000_000) + up.tv_nsec as u64 / 1000;
    KernelLog::kills_since(up_us.saturating_sub(age_us + MARGIN_US)).ok().map(|report| report.kills)
}

/// Whether the supervisor still lives. On another machine or after a restart it does not.
fn is_supervised(record: &stormlog_event::Record) -> bool {
    let Some(supervisor) = record.get("supervisor") else { return false };
    let boot = supervisor.get("boot_id").and_then(Value::as_str);
    let facts = HostFacts::read();
    if boot.is_none() || boot != facts.boot_id.as_deref() {
        return false;
    }
    let pid = supervisor.get("pid").and_then(Value::as_u64).and_then(|pid| u32::try_from(pid).ok());
    let start = supervisor.get("start_time").and_then(Value::as_u64);
    pid.and_then(alive).is_some_and(|reader| Some(reader.start_time()) == start)
}

/// Whether there is a process of that number that has not ended.
pub fn is_alive(pid: u32) -> bool {
    alive(pid).is_some()
}

/// The process of that number, unless it is gone or only waits to be reaped.
fn alive(pid: u32) -> Option<ProcessReader> {
    let mut reader = ProcessReader::open(pid).ok()?;
    let stat = reader.stat().ok()?;
    (!stat.has_exited()).then_some(reader)
}

fn sessions_of(run: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(run) else { return Vec::new() };
    let directories = entries.flatten().map(|entry| entry.path());
    directories.filter(|path| path.join(RING_FILE).is_file()).collect()
}

/// Ends a session that is still open, with a bundle of its last events; the moment of the last one.
fn finish_session(
    run: &RunDirectory,
    directory: &Path,
    program: &str,
    kills: Option<&[OomKill]>,
) -> Option<u64> {
    let summary = read_session(directory).ok()?;
    if summary.status != SessionStatus::Running {
        return None;
    }
    let events: Vec<_> =
        RecordedEvents::ring(&directory.join(RING_FILE)).ok()?.filter_map(Result::ok).collect();
    let last_ns = events.last().map(|event| event.timestamp_ns)?;
    let pid = u32::try_from(summary.pid).ok()?;
    let lives_on = is_alive(pid);
    let status = if lives_on { SessionStatus::Incomplete } else { SessionStatus::Interrupted };
    let summary =
        SessionSummary { status, ended_at_ns: Some(i64::try_from(last_ns).unwrap_or(i64::MAX)), ..summary };
    if !lives_on {
        let exception = exceptions::understood(&run.exceptions(), pid);
        let is_in_log = kills.is_some_and(|kills| kills.iter().any(|kill| kill.pid == pid));
        let exits = exception.as_ref().filter(|(reported, _)| reported.is_in_main_thread() && !is_in_log);
        // Python ends with 1 after an exception that nobody caught.
        let ending = exits.map_or(Ending::Vanished, |_| Ending::Exited(1));
        let mut facts = DeathFacts::of(program, pid.into(), ending);
        facts.last_rss_bytes = events.last().and_then(|event| event.counter(stormlog_event::Counter::Used));
        facts.exception = exception.as_ref().map(|exception| exceptions::fact(exception, ending));
        facts.kernel = kills.map(|kills| kills.iter().map(kernel_kill).collect());
        facts.cgroups =
            kills.unwrap_or_default().iter().filter(|kill| kill.pid == pid).map(met_limit).collect();
        let verdict = judge(&facts);
        let mut evidence = Evidence::from(&verdict);
        evidence.memory_map = maps::kept(directory);
        evidence.last_event_timestamp_ns = Some(last_ns);
        let text = exception.as_ref().map(|(reported, _)| ExceptionText {
            type_name: &reported.type_name,
            module: &reported.module,
            message: &reported.message,
        });
        let nothing = stormlog_event::Record::new();
        let mut metadata = stormlog_event::Record::new();
        metadata.insert("run_directory".into(), run.path().display().to_string().into());
        let content = BundleContent {
            created_at_ns: last_ns,
            pid: pid.into(),
            backend: "cpu",
            reason: verdict.cause.as_str(),
            exception: text,
            context: Some(&verdict.sentence),
            session: Some(&summary),
            custom_metadata: &metadata,
            environment: Environment { cwd: None, system: &nothing },
            evidence: &evidence,
        };
        // Without room for a bundle the session is still ended.
        let _ = BundleWriter::new(Retention::default()).write(directory, &content, events);
    }
    write_session(directory, &summary).ok()?;
    Some(last_ns)
}

/// The cgroup as the kernel's own message tells it: of the counters there is nobody left who saw them before.
fn met_limit(kill: &OomKill) -> CgroupFacts {
    CgroupFacts {
        path: kill.cgroup.clone().unwrap_or_default(),
        limit_bytes: kill.limit,
        usage_bytes: kill.usage,
        ..CgroupFacts::default()
    }
}
