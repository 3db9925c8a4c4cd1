//! Joins what is in a run directory into processes: each directory, capture, bundle and exception goes to the process it is about.
//!
//! A number is used again by later processes: parts that have a start time go by that, the others to the process whose session was open when
//! they began. Reads each manifest once and no more of a recording than its first events; must never follow a link, and must never fail for
//! a part that is missing or damaged.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use stormlog_capture::source::Source as Capture;
use stormlog_liveness::Life;
use stormlog_model::naming::ProgramName;
use stormlog_model::{SessionStatus, scrub};
use stormlog_postmortem::bundle::BundleName;
use stormlog_postmortem::{Cause, Ended};
use stormlog_store::StoreError;
use stormlog_store::recording::{RecordedEvents, read_session};

use super::directory::RunDirectory;
use super::layout::{
    CAPTURES_DIRECTORY, EXCEPTIONS_DIRECTORY, LOG_DIRECTORY, RING_FILE, RUN_FILE, SNAPSHOT_FILE, SessionName,
    Viewpoint, is_session, retained_pid,
};
use super::life::{PROGRAM, session_life, start_ticks};
use super::process::{EndFacts, Process, ProcessEnd, ProcessSession, Run, RunStatus};
use super::record::{ProcessRow, RunRecord};
use crate::captures::captures_in;

/// Entries of one directory that are looked at: more of them are not ours.
const MAX_ENTRIES: usize = 100_000;
/// First events of a session that are asked for the name of its process.
const FIRST_EVENTS: usize = 8;

impl Run {
    /// The run in a directory. `None` where the file is another program's; a run of another version is an error.
    pub fn load(directory: &RunDirectory) -> Result<Option<Run>, StoreError> {
        let path = directory.path();
        let record = RunRecord::read(path)?;
        let mut joining = Joining::new(path, record.as_ref());
        joining.read();
        let Joining { processes, mut problems, .. } = joining;
        if record.is_none() && processes.is_empty() {
            return Ok(None);
        }
        if record.is_none() {
            problems.push(format!(
                "{}: cannot be read, so its recording is missing",
                path.join(RUN_FILE).display()
            ));
        }
        let record = record.unwrap_or_default();
        let processes = settled(processes, &record);
        Ok(Some(Run {
            path: path.to_owned(),
            id: path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            status: RunStatus::of_word(record.status.as_deref()),
            supervisor_pid: record.supervisor.as_ref().and_then(|supervisor| supervisor.pid),
            record,
            processes,
            problems,
        }))
    }

    /// The process that a session belongs to.
    #[must_use]
    pub fn process_of_session(&self, session_id: &str) -> Option<&Process> {
        self.processes.iter().find(|process| process.has_session(session_id))
    }

    /// The process that a file or directory of the run belongs to.
    #[must_use]
    pub fn process_of_path(&self, path: &Path) -> Option<&Process> {
        self.processes.iter().find(|process| {
            process.sessions.iter().any(|session| path.starts_with(&session.path))
                || process.captures.iter().chain(&process.bundles).any(|part| path.starts_with(part))
        })
    }
}

/// A run directory while it is read.
struct Joining<'a> {
    run: &'a Path,
    record: Option<&'a RunRecord>,
    processes: Vec<Process>,
    /// Looked up, not searched for: there may be thousands.
    by_pid: FxHashMap<u32, Vec<usize>>,
    problems: Vec<String>,
}

/// What is in a session's directory beside its session.
#[derive(Default)]
struct Parts {
    captures: Vec<PathBuf>,
    bundles: Vec<PathBuf>,
    snapshots: Vec<PathBuf>,
}

impl<'a> Joining<'a> {
    fn new(run: &'a Path, record: Option<&'a RunRecord>) -> Self {
        Joining { run, record, processes: Vec::new(), by_pid: FxHashMap::default(), problems: Vec::new() }
    }

    fn read(&mut self) {
        let mut sessions: Vec<(Option<SessionName>, PathBuf)> = Vec::new();
        let (mut growing, mut reported, mut retained) = (Vec::new(), Vec::new(), Vec::new());
        for (name, path, is_directory) in entries(self.run) {
            match name.as_str() {
                CAPTURES_DIRECTORY if is_directory => {
                    growing = captures_in(&path);
                }
                EXCEPTIONS_DIRECTORY if is_directory => reported = exceptions(&path),
                _ if !is_directory => retained.extend(retained_pid(&name).map(|pid| (pid, path))),
                _ => {
                    let parsed = SessionName::parse(&name);
                    if parsed.is_some() || is_session(&path) {
                        sessions.push((parsed, path));
                    }
                }
            }
        }
        // What was recorded from outside says which process there was; the rest is assigned to these.
        sessions.sort_by_key(|(name, path)| {
            let name = name.as_ref();
            (
                name.map(|name| (name.viewpoint, name.start_ticks)).is_none(),
                name.map(|name| (name.viewpoint, name.start_ticks)),
                path.clone(),
            )
        });
        for (name, path) in sessions {
            self.add_session(name, path);
        }
        for path in growing {
            self.add_capture(path);
        }
        for (pid, path) in reported {
            let at_ns = modified_ns(&path);
            let process = self.process(pid, None, at_ns);
            process.exceptions.push(path);
        }
        for (pid, path) in retained {
            let at_ns = modified_ns(&path);
            self.process(pid, None, at_ns).retained = Some(path);
        }
    }

    fn add_session(&mut self, name: Option<SessionName>, path: PathBuf) {
        let summary = read_session(&path).ok().map(|mut summary| {
            let is_dead =
                || session_life(&path, summary.pid, &summary.host, summary.started_at_ns) == Life::Dead;
            if summary.status == SessionStatus::Running && is_dead() {
                summary.status = SessionStatus::Interrupted;
            }
            summary
        });
        let viewpoint = name.map(|name| name.viewpoint);
        let parts = parts_of(&path);
        let stated = summary.as_ref().and_then(|summary| u32::try_from(summary.pid).ok());
        let Some(pid) = name.map(|name| name.pid).or(stated) else {
            self.problems.push(format!("{}: no file names its process", path.display()));
            return;
        };
        let is_outside = viewpoint == Some(Viewpoint::Outside);
        let (started, program) = if is_outside { first_facts(&path) } else { (None, None) };
        let started = name.and_then(|name| name.start_ticks).or(started);
        let at_ns = summary.as_ref().map(|summary| summary.started_at_ns);
        let process = match is_outside {
            true => self.push(pid, started),
            false => self.process(pid, started, at_ns),
        };
        process.program = process.program.take().or(program);
        process.captures.extend(parts.captures);
        process.bundles.extend(parts.bundles);
        process.snapshots.extend(parts.snapshots);
        process.sessions.push(ProcessSession { path, viewpoint, summary });
    }

    /// A capture that its process still writes, or that no supervisor has settled.
    fn add_capture(&mut self, path: PathBuf) {
        let header = Capture::open(&path).and_then(|source| source.header()).ok();
        let named =
            path.file_name().and_then(OsStr::to_str).and_then(|name| name.split('.').next()?.parse().ok());
        let Some(pid) = header.as_ref().map(|header| header.pid).or(named) else { return };
        let started = header.as_ref().map(|header| header.process_start_ticks).filter(|ticks| *ticks > 0);
        let at_ns = header.as_ref().and_then(|header| i64::try_from(header.start_realtime_ns).ok());
        let process = self.process(pid, started, at_ns);
        process.captures.insert(0, path);
        if process.program.is_none() {
            process.program = header.as_ref().and_then(|header| program_of(&header.metadata));
        }
    }

    fn push(&mut self, pid: u32, start_ticks: Option<u64>) -> &mut Process {
        let mut process = Process::new(Some(self.run.to_owned()), Some(pid));
        process.start_ticks = start_ticks;
        process.is_root = self.record.is_some_and(|record| record.pid == Some(pid));
        self.processes.push(process);
        let last = self.processes.len() - 1;
        self.by_pid.entry(pid).or_default().push(last);
        &mut self.processes[last]
    }

    /// The process of that number: by its start where both are known, else the last one that had begun at `at_ns`.
    fn process(&mut self, pid: u32, started: Option<u64>, at_ns: Option<i64>) -> &mut Process {
        let of_number = self.by_pid.get(&pid).into_iter().flatten();
        let is_other = |process: &Process| {
            started.zip(process.start_ticks).is_some_and(|(wanted, known)| wanted != known)
        };
        let candidates: Vec<(usize, i64)> = of_number
            .filter(|at| !is_other(&self.processes[**at]))
            .map(|at| (*at, self.processes[*at].started_at_ns().unwrap_or(i64::MIN)))
            .collect();
        let begun = candidates.iter().filter(|(_, began)| at_ns.is_none_or(|at_ns| *began <= at_ns));
        let found = begun
            .max_by_key(|(_, began)| *began)
            .or_else(|| candidates.iter().min_by_key(|(_, began)| *began));
        match found {
            Some(&(at, _)) => &mut self.processes[at],
            None => self.push(pid, started),
        }
    }
}

/// The end of each process, what the run's own file knows of it, and the order of the list.
fn settled(mut processes: Vec<Process>, record: &RunRecord) -> Vec<Process> {
    let program = ProgramName::of(&record.command).word;
    let by_session = record.processes.iter().filter_map(|row| Some((row.session_id.as_deref()?, row)));
    let rows: FxHashMap<&str, &ProcessRow> = by_session.collect();
    for process in &mut processes {
        process.sessions.sort_by_key(|session| (session.viewpoint.is_none(), session.viewpoint));
        let ids = process.sessions.iter().filter_map(|session| session.summary.as_ref());
        let row = ids.filter_map(|summary| rows.get(summary.session_id.as_str()).copied()).next();
        process.peak_rss_bytes = row.and_then(|row| row.peak_rss_bytes);
        process.heap_peak_bytes = row.and_then(|row| row.heap_peak_bytes);
        process.end = end_of(process, row, record);
        process.worker = row.and_then(|row| row.worker.clone());
        // A framework names its workers after they were first seen.
        process.program = row.and_then(|row| row.program.clone()).or(process.program.take());
        if process.is_root && !record.command.is_empty() {
            process.program = Some(program.clone());
        }
    }
    processes.sort_by_key(|process| (!process.is_root, process.started_at_ns(), process.pid));
    processes
}

fn end_of(process: &Process, row: Option<&ProcessRow>, record: &RunRecord) -> ProcessEnd {
    // From inside a process can only tell that it was stopped in order; from outside its end was seen.
    let status = process.identity().map(|summary| summary.status);
    let end = status.map_or(ProcessEnd::Unknown(EndFacts::default()), ProcessEnd::of_status);
    let (exit_code, signal) = match process.is_root {
        true => (record.exit_code, record.signal),
        false => (None, None),
    };
    let cause = row.and_then(|row| row.cause.as_deref()).and_then(Cause::of_word);
    let verdict = row.and_then(|row| row.verdict.clone());
    let is_failure = matches!(end, ProcessEnd::Failed(_))
        || cause.is_some_and(|cause| cause != Cause::Unknown)
        || signal.is_some()
        || exit_code.is_some_and(|code| code != 0);
    let confidence = row.and_then(|row| row.confidence);
    let facts = EndFacts { exit_code, signal, cause, verdict, confidence };
    // The supervisor judged it by evidence that is gone by now; older ones did not.
    match row.and_then(|row| row.ended.as_deref()).and_then(Ended::of_word) {
        Some(Ended::Deliberate) => ProcessEnd::Deliberate(facts),
        Some(Ended::Failed) => ProcessEnd::Failed(facts),
        Some(Ended::Unknown) => ProcessEnd::Unknown(facts),
        Some(Ended::Completed) => ProcessEnd::Completed,
        _ if is_failure => ProcessEnd::Failed(facts),
        _ if matches!(end, ProcessEnd::Unknown(_)) => ProcessEnd::Unknown(facts),
        _ => end,
    }
}

/// Start and name of a process, from the first events that its supervisor recorded.
fn first_facts(session: &Path) -> (Option<u64>, Option<String>) {
    let log = RecordedEvents::log(&session.join(LOG_DIRECTORY));
    let events = log.or_else(|_| RecordedEvents::ring(&session.join(RING_FILE)));
    let (mut started, mut program) = (None, None);
    for event in events.into_iter().flatten().flatten().take(FIRST_EVENTS) {
        started = started.or_else(|| start_ticks(&event));
        let name = event.metadata.map.get(PROGRAM).and_then(|name| name.as_str());
        // A worker gets its name a moment after its birth.
        program = name.map(str::to_owned).or(program);
    }
    (started, program)
}

fn parts_of(session: &Path) -> Parts {
    let mut parts = Parts { captures: captures_in(session), ..Parts::default() };
    for (name, path, is_directory) in entries(session) {
        if is_directory && BundleName::parse(&name).is_some() {
            let snapshot = path.join(SNAPSHOT_FILE);
            let is_file = fs::symlink_metadata(&snapshot).is_ok_and(|found| found.is_file());
            parts.snapshots.extend(is_file.then_some(snapshot));
            parts.bundles.push(path);
        }
    }
    parts
}

/// `exceptions/PID-N.json`, by process and number.
fn exceptions(directory: &Path) -> Vec<(u32, PathBuf)> {
    let parsed = |(name, path, is_directory): (String, PathBuf, bool)| {
        let (pid, number) = name.strip_suffix(".json").filter(|_| !is_directory)?.split_once('-')?;
        Some((pid.parse().ok()?, number.parse::<u64>().ok()?, path))
    };
    let mut found: Vec<(u32, u64, PathBuf)> = entries(directory).into_iter().filter_map(parsed).collect();
    found.sort();
    found.into_iter().map(|(pid, _, path)| (pid, path)).collect()
}

/// Files and directories in a directory, by name. Links and names that are not text are left out.
fn entries(directory: &Path) -> Vec<(String, PathBuf, bool)> {
    let Ok(listing) = fs::read_dir(directory) else { return Vec::new() };
    let entry = |entry: fs::DirEntry| {
        let kind = entry.file_type().ok().filter(|kind| kind.is_dir() || kind.is_file())?;
        Some((entry.file_name().into_string().ok()?, entry.path(), kind.is_dir()))
    };
    let mut found: Vec<_> = listing.flatten().take(MAX_ENTRIES).filter_map(entry).collect();
    found.sort();
    found
}

fn modified_ns(path: &Path) -> Option<i64> {
    let since =
        fs::symlink_metadata(path).ok()?.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_nanos()).ok()
}

/// What the user would call the program of a capture, by its command line.
fn program_of(metadata: &[u8]) -> Option<String> {
    let about: serde_json::Value = serde_json::from_slice(metadata).ok()?;
    let words = about.get("command")?.as_array()?.iter().filter_map(|word| word.as_str().map(str::to_owned));
    let words = scrub::command(&words.collect::<Vec<String>>());
    (!words.is_empty()).then(|| ProgramName::of(&words).word)
}
