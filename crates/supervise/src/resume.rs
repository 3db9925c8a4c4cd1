//! Finishing a run whose supervisor was killed too: whoever looks at its directory next does what it no longer could.

use std::path::Path;

use serde_json::Value;
use stormlog_collect::host::HostFacts;
use stormlog_collect::process::ProcessReader;
use stormlog_event::{SessionStatus, SessionSummary};
use stormlog_record::bundle::{BundleContent, BundleWriter, Environment, Evidence, Retention};
use stormlog_record::verdict::{DeathFacts, Ending, judge};
use stormlog_store::recording::{RING_FILE, RecordedEvents, read_session, write_session};

use crate::run_dir::RunDirectory;

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
    let mut record = run.read();
    if record.get("status").and_then(Value::as_str) != Some("running") || is_supervised(&record) {
        return false;
    }
    let program = record.get("command").and_then(Value::as_array).and_then(|words| words.last()?.as_str());
    let program = program.unwrap_or("the program").to_owned();
    let mut last_ns = 0;
    for directory in sessions_of(run.path()) {
        if let Some(ended_ns) = finish_session(run, &directory, &program) {
            last_ns = last_ns.max(ended_ns);
        }
    }
    crate::inject::remove(run.path());
    record.insert("status".into(), "interrupted".into());
    record.insert("ended_at_ns".into(), if last_ns > 0 { last_ns.into() } else { Value::Null });
    record.insert(
        "verdict".into(),
        "the supervisor was killed too; finished afterwards from its recording".into(),
    );
    run.write(&record).is_ok()
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
fn finish_session(run: &RunDirectory, directory: &Path, program: &str) -> Option<u64> {
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
        let mut facts = DeathFacts::of(program, pid.into(), Ending::Vanished);
        facts.last_rss_bytes = events.last().and_then(|event| event.counter(stormlog_event::Counter::Used));
        let verdict = judge(&facts);
        let mut evidence = Evidence::of(verdict.cause);
        evidence.signal = verdict.signal;
        evidence.verdict = Some(verdict.sentence.clone());
        evidence.tries = verdict.tries.clone();
        evidence.notes = verdict.notes.clone();
        evidence.last_event_timestamp_ns = Some(last_ns);
        let nothing = stormlog_event::Record::new();
        let mut metadata = stormlog_event::Record::new();
        metadata.insert("run_directory".into(), run.path().display().to_string().into());
        let content = BundleContent {
            created_at_ns: last_ns,
            pid: pid.into(),
            backend: "cpu",
            reason: verdict.cause.as_str(),
            exception: None,
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
