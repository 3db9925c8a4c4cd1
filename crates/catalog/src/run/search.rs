//! Runs at a path. Bounded in depth and number, links are not followed: a hostile tree costs no more than a large one.

use std::path::{Path, PathBuf};
use std::{fs, io};

use rustc_hash::{FxHashMap, FxHashSet};
use stormlog_model::naming::ProgramName;
use stormlog_store::{Source, StoreError};

use super::RunDirectory;
use super::layout::{SESSION_FILE, is_session, run_around};
use super::process::{Process, ProcessEnd, ProcessSession, Run, Runs};
use crate::captures::CaptureHead;
use crate::sessions::{FoundSession, sessions_in};

/// How deep run directories are looked for below a path.
const MAX_DEPTH: usize = 3;
/// Directories looked at before the search ends.
const MAX_DIRECTORIES: usize = 1_000_000;
/// Levels below those in which runs are looked for only to report that there are some, and the directories that this may cost.
const PROBED_DEPTH: usize = 3;
const PROBED_DIRECTORIES: usize = 10_000;
/// Directories without permission that are named; more are not.
const MOST_DENIED: usize = 1_000;
/// What ext4 keeps at the top of a file system, for root alone.
const LOST_AND_FOUND: &str = "lost+found";
/// Levels between a part of a run and its directory: `RUN/rank0-pid7/oom_dump_…/events.json`.
const LEVELS: usize = 4;

/// The directories of runs.
#[derive(Debug, Default)]
pub struct FoundRuns {
    /// Sorted by name.
    pub directories: Vec<RunDirectory>,
    /// Directories of recordings without a run.
    pub sessions: Vec<PathBuf>,
    /// Directories that this user may not read: each may be a run.
    pub denied: Vec<PathBuf>,
    /// Whether the search left something out: there are too many directories, or a run is deeper than is searched.
    pub is_incomplete: bool,
}

/// The run directories at or below a path; for a path inside a run, that run.
pub fn find_runs(path: &Path) -> Result<FoundRuns, StoreError> {
    fs::metadata(path).map_err(|error| StoreError::input(path, error))?;
    if let Some(run) = run_around(path, LEVELS) {
        let directories = RunDirectory::open(run).into_iter().collect();
        return Ok(FoundRuns { directories, ..FoundRuns::default() });
    }
    let mut found = FoundRuns::default();
    let mut pending: Vec<(PathBuf, usize)> = vec![(path.to_owned(), 0)];
    let mut deeper: Vec<(PathBuf, usize)> = Vec::new();
    let mut looked_at = 0;
    while let Some((directory, depth)) = pending.pop() {
        looked_at += 1;
        if looked_at > MAX_DIRECTORIES {
            found.is_incomplete = true;
            break;
        }
        if let Some(run) = RunDirectory::open(&directory) {
            found.directories.push(run);
            continue;
        }
        if is_session(&directory) {
            found.sessions.push(directory);
            continue;
        }
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) => {
                let is_denied = error.kind() == io::ErrorKind::PermissionDenied
                    && !directory.ends_with(LOST_AND_FOUND)
                    && found.denied.len() < MOST_DENIED;
                found.denied.extend(is_denied.then_some(directory));
                continue;
            }
        };
        for entry in entries.flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if depth < MAX_DEPTH {
                pending.push((entry.path(), depth + 1));
            } else if deeper.len() < PROBED_DIRECTORIES {
                deeper.push((entry.path(), 1));
            }
        }
    }
    found.is_incomplete |= holds_recordings(deeper);
    found.directories.sort_by(|a, b| a.path().cmp(b.path()));
    Ok(found)
}

/// Whether a run or a session is at or below one of these directories, as far as a bounded look shows.
fn holds_recordings(mut pending: Vec<(PathBuf, usize)>) -> bool {
    let mut looked_at = 0;
    while let Some((directory, depth)) = pending.pop() {
        looked_at += 1;
        if RunDirectory::open(&directory).is_some() || directory.join(SESSION_FILE).is_file() {
            return true;
        }
        if looked_at >= PROBED_DIRECTORIES {
            return false;
        }
        if depth >= PROBED_DEPTH {
            continue;
        }
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        pending.extend(below.map(|entry| (entry.path(), depth + 1)));
    }
    false
}

/// The runs at a path with their processes, as they are: see [`finish_abandoned`](super::finish_abandoned) for those whose supervisor was
/// killed.
pub fn runs(path: &Path) -> Result<Runs, StoreError> {
    let found = find_runs(path)?;
    let mut runs = Runs { is_incomplete: found.is_incomplete, ..Runs::default() };
    for directory in &found.directories {
        match Run::load(directory) {
            Ok(Some(run)) => runs.runs.push(run),
            Ok(None) => {}
            Err(error) => runs.skipped.push(error),
        }
    }
    Ok(runs)
}

/// Every process at a path, of runs and of recordings without one.
#[derive(Debug, Default)]
pub struct Processes {
    /// Those of runs first.
    pub processes: Vec<Process>,
    /// Runs that were left out, each with the reason.
    pub skipped: Vec<StoreError>,
    /// Sources that are damaged, each with what is wrong.
    pub damaged: Vec<StoreError>,
    /// What else could not be read, a sentence each.
    pub problems: Vec<String>,
}

/// The processes at a path. When `keep_reading` returns false, what was found so far is the answer.
pub fn processes(path: &Path, keep_reading: &dyn Fn() -> bool) -> Result<Processes, StoreError> {
    let runs = runs(path)?;
    let directories: FxHashSet<&Path> = runs.runs.iter().map(|run| run.path.as_path()).collect();
    let mut all = Processes { skipped: runs.skipped, ..Processes::default() };
    let is_of_a_run = |source: &Source| source.path().ancestors().any(|path| directories.contains(path));
    match Source::find_known(path) {
        Ok(mut sources) => {
            sources.found.retain(|source| !is_of_a_run(source));
            let found = sessions_in(&sources.found, &FoundSession::is_dead, keep_reading);
            all.damaged = found.damaged;
            all.processes = found.sessions.iter().map(Process::of_session).collect();
        }
        // A run whose processes recorded no events, or a directory that has none of either.
        Err(_) if !runs.runs.is_empty() || !all.skipped.is_empty() => {}
        Err(StoreError::Unrecognised { .. }) => {}
        Err(error) => return Err(error),
    }
    let mut of_runs = Vec::new();
    for run in runs.runs {
        all.problems.extend(run.problems);
        of_runs.extend(run.processes);
    }
    of_runs.append(&mut all.processes);
    all.processes = of_runs;
    Ok(all)
}

/// The processes of sessions that were found at a path.
#[derive(Debug, Default)]
pub struct SessionProcesses {
    runs: Vec<Run>,
    by_session: FxHashMap<String, (usize, usize)>,
}

impl SessionProcesses {
    /// Of the runs at a path.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        let runs = runs(path).map(|runs| runs.runs).unwrap_or_default();
        let mut by_session = FxHashMap::default();
        for (number, run) in runs.iter().enumerate() {
            for (at, process) in run.processes.iter().enumerate() {
                for summary in process.sessions.iter().filter_map(|session| session.summary.as_ref()) {
                    by_session.entry(summary.session_id.clone()).or_insert((number, at));
                }
            }
        }
        SessionProcesses { runs, by_session }
    }

    /// The ids of the sessions of each process that has more than one.
    pub fn joined(&self) -> impl Iterator<Item = impl Iterator<Item = &str>> {
        let processes = self.runs.iter().flat_map(|run| &run.processes);
        processes.filter(|process| process.sessions.len() > 1).map(|process| {
            let stated = process.sessions.iter().filter_map(|session| session.summary.as_ref());
            stated.map(|summary| summary.session_id.as_str())
        })
    }

    /// The process of a session: of a run, or of its own where it is in none.
    #[must_use]
    pub fn of(&self, session: &FoundSession) -> std::borrow::Cow<'_, Process> {
        match self.by_session.get(&session.summary.session_id) {
            Some((run, at)) => std::borrow::Cow::Borrowed(&self.runs[*run].processes[*at]),
            None => std::borrow::Cow::Owned(Process::of_session(session)),
        }
    }
}

impl Process {
    /// The process that a part of a run belongs to: a session's directory, a capture, a bundle.
    #[must_use]
    pub fn of_part(path: &Path) -> Option<Process> {
        let path = std::path::absolute(path).ok()?;
        let run = RunDirectory::open(run_around(&path, LEVELS)?)?;
        Run::load(&run).ok()??.process_of_path(&path).cloned()
    }

    /// The process of a capture that is in no run; `None` where the file is not one.
    #[must_use]
    pub fn of_capture(path: &Path) -> Option<Process> {
        let head = CaptureHead::of(path);
        let mut process = Process::new(None, Some(head.pid?));
        let command = stormlog_model::scrub::command(&head.command);
        process.program = (!command.is_empty()).then(|| ProgramName::of(&command).word);
        process.captures.push(head.path);
        process.is_root = true;
        Some(process)
    }

    /// A session that is in no run: a process of which one recording is known.
    #[must_use]
    pub fn of_session(session: &FoundSession) -> Process {
        let summary = &session.summary;
        let mut process = Process::new(None, u32::try_from(summary.pid).ok());
        process.end = ProcessEnd::of_status(summary.status);
        let bundles = session.sources.iter().filter(|path| is_bundle(path));
        process.bundles = bundles.cloned().collect();
        process.sessions.push(ProcessSession {
            path: session.path.clone(),
            viewpoint: None,
            summary: Some(summary.clone()),
        });
        process
    }
}

fn is_bundle(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.and_then(stormlog_postmortem::bundle::BundleName::parse).is_some()
}
