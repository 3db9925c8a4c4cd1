//! Paths in, one recording out: what `analyze`, `check` and `compare` look at.
//!
//! Everything at every path is read once, as a stream. What cannot be read is an input with a problem, and the rest is read on. Heap captures
//! are read by the caller's function, because their reader needs this crate.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use serde_json::Value;
use stormlog_analyze::Recording;
use stormlog_analyze::compare::flatten;
use stormlog_analyze::report::Artifact;
use stormlog_analyze::rules::heap::Capture;
use stormlog_analyze::rules::inputs::Input;
use stormlog_analyze::rules::oom::Death;
use stormlog_model::{Event, SessionStatus, SessionSummary, selection_order};
use stormlog_postmortem::bundle::Bundle;
use stormlog_postmortem::{Cause, Ended};
use stormlog_store::{LoadOptions, ReadOptions, Source, StoreError, json, load_sessions};

use crate::run::layout::RUN_FILE;
use crate::run::{FinishedSession, SessionProcesses, find_runs, finish_abandoned};

/// Everything at some paths.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Its events, as the rules saw them.
    pub recording: Recording,
    /// Every file that was read, and what was wrong with it.
    pub inputs: Vec<Input>,
    /// In selection order: the default first.
    pub sessions: Vec<SessionSummary>,
    /// What there is beside the events.
    pub artifacts: Vec<Artifact>,
    /// Ends of processes, by their bundles.
    pub deaths: Vec<Death>,
    /// Heap captures beside the events, or instead of them.
    pub captures: Vec<Capture>,
    lives: FxHashMap<String, Life>,
}

/// What proves a session's life when no manifest states it.
#[derive(Debug)]
struct Life {
    first: Event,
    stop: Option<Event>,
    source: String,
}

/// The caller ended the reading.
#[derive(Debug, thiserror::Error)]
#[error("reading was stopped")]
pub struct Stopped;

/// What reading needs of its caller.
pub struct Reader<'a> {
    /// The heap captures at a path, each summed up; none where there is none.
    pub captures: &'a dyn Fn(&Path) -> Vec<Result<Capture, String>>,
    /// Called before each event; false ends the reading.
    pub keep_reading: &'a mut dyn FnMut() -> bool,
}

/// Reads everything. Only the caller's wish to stop is an error.
pub fn load(paths: &[PathBuf], reader: &mut Reader<'_>) -> Result<Loaded, Stopped> {
    let mut loaded = Loaded::default();
    let mut sources = Vec::new();
    for path in paths {
        let finished = finish_abandoned(path);
        // What was written is read with the rest.
        for run in finished.iter().filter(|run| !run.is_written) {
            loaded.deaths.extend(run.sessions.iter().filter_map(unwritten_death));
        }
        let has_capture = loaded.take_captures(path, reader);
        if has_capture && path.is_file() {
            continue;
        }
        match Source::find_known(path) {
            Ok(known) => {
                let notes: Vec<String> = known.skipped.iter().map(ToString::to_string).collect();
                if !notes.is_empty() {
                    let path = path.display().to_string();
                    loaded.inputs.push(Input { path, notes, ..Input::default() });
                }
                sources.extend(known.found);
            }
            // A capture beside no events is enough; events that cannot be read, or a run of another release, are not excused by it.
            Err(StoreError::Unrecognised { .. }) if has_capture => {}
            Err(error) => loaded.inputs.push(broken(path, error.to_string())),
        }
    }
    if sources.len() > 1 {
        // A bundle holds the end of what its log holds whole. The parts of a session come in the order they were written,
        // which is not that of their names: `events_10` is before `events_2`.
        sources.sort_by_cached_key(|source| (is_bundle(source), first_moment(source)));
    }
    for source in &sources {
        loaded.read(source, reader)?;
    }
    loaded.settle();
    if loaded.recording.disordered * 100 > loaded.recording.event_count {
        loaded.sort_by_time(paths);
    }
    // One process may have been sampled from outside and from inside.
    for path in paths {
        SessionProcesses::at(path).joined().for_each(|ids| loaded.recording.join(ids));
    }
    Ok(loaded)
}

fn is_bundle(source: &Source) -> bool {
    matches!(source, Source::OomBundle(_) | Source::DiagnoseBundle(_))
}

/// When a source begins; of one that cannot be read, the end of time.
fn first_moment(source: &Source) -> u64 {
    const LOOKS: usize = 16;
    let events = source.events(&ReadOptions::default()).ok();
    events
        .and_then(|events| events.take(LOOKS).find_map(Result::ok))
        .map_or(u64::MAX, |event| event.timestamp_ns)
}

/// An input that cannot be read, with the reason.
#[must_use]
pub fn broken(path: &Path, sentence: String) -> Input {
    let mut input = Input { path: path.display().to_string(), ..Input::default() };
    input.damage(sentence);
    input
}

impl Loaded {
    /// The heap captures at a path, if there are any; whether one could be read, or the path is one.
    fn take_captures(&mut self, path: &Path, reader: &Reader<'_>) -> bool {
        let mut is_any = false;
        for capture in (reader.captures)(path) {
            match capture {
                Ok(capture) => {
                    let (kind, path) = ("heap_capture".to_owned(), capture.path.clone());
                    // A capture has one summary for each memory.
                    if self.captures.last().is_none_or(|last| last.path != path) {
                        self.artifacts.push(Artifact { kind, path });
                    }
                    self.captures.push(capture);
                    is_any = true;
                }
                // The reader of events has nothing to add to what is wrong with a capture.
                Err(error) => {
                    self.inputs.push(broken(path, error));
                    is_any |= path.is_file();
                }
            }
        }
        is_any
    }

    fn read(&mut self, source: &Source, reader: &mut Reader<'_>) -> Result<(), Stopped> {
        let path = source.path().display().to_string();
        self.artifacts.push(Artifact { kind: source.kind().to_owned(), path: path.clone() });
        if let Source::OomBundle(directory) = source {
            self.deaths.extend(death(directory));
        }
        let mut input = Input { path, ..Input::default() };
        self.recording.next_source();
        let overlapping_before = self.recording.overlapping;
        match source.events(&ReadOptions::default()) {
            Err(error) => input.damage(error.to_string()),
            Ok(mut events) => {
                for event in events.by_ref() {
                    if !(reader.keep_reading)() {
                        return Err(Stopped);
                    }
                    match event {
                        Ok(event) => {
                            input.events += 1;
                            self.recording.observe(&event);
                            self.note_life(event, source);
                        }
                        Err(error) => input.damage(error.to_string()),
                    }
                }
                input.notes = events.notes();
            }
        }
        if !is_bundle(source) {
            input.overlapping = self.recording.overlapping - overlapping_before;
        }
        self.inputs.push(input);
        for summary in source.stated_sessions() {
            match self.sessions.iter_mut().find(|known| known.session_id == summary.session_id) {
                Some(known) if selection_order(&summary, known).is_lt() => *known = summary,
                Some(_) => {}
                None => self.sessions.push(summary),
            }
        }
        Ok(())
    }

    fn note_life(&mut self, event: Event, source: &Source) {
        let is_stop = event.head.event_type == "stop";
        if let Some(life) = self.lives.get_mut(&event.head.session_id) {
            if is_stop {
                life.stop = Some(event);
            } else if event.timestamp_ns < life.first.timestamp_ns {
                life.first = event;
            }
            return;
        }
        let name = source.path().file_name().map(|name| name.to_string_lossy().into_owned());
        let life = Life {
            stop: is_stop.then(|| event.clone()),
            source: format!("artifact:{}", name.unwrap_or_default()),
            first: event.clone(),
        };
        self.lives.insert(event.head.session_id.clone(), life);
    }

    /// Sessions that no manifest states are inferred from their events.
    fn settle(&mut self) {
        for (id, life) in std::mem::take(&mut self.lives) {
            if self.sessions.iter().any(|known| known.session_id == id) {
                continue;
            }
            let proof = std::iter::once(&life.first).chain(&life.stop);
            self.sessions.extend(SessionSummary::infer(&id, proof, &life.source, SessionStatus::Incomplete));
        }
        self.sessions.sort_by(selection_order);
    }

    /// A file whose records are in no order is read a second time, whole and sorted.
    fn sort_by_time(&mut self, paths: &[PathBuf]) {
        let mut recording = Recording::default();
        for path in paths {
            let Ok(sessions) = load_sessions(path, &LoadOptions::default()) else { return };
            for session in sessions {
                recording.next_source();
                session.events.iter().for_each(|event| recording.observe(event));
            }
        }
        self.recording = recording;
    }

    /// Keeps one session; false when there is none of that id.
    pub fn keep(&mut self, session_id: &str) -> bool {
        self.recording.sessions.retain(|session| session.session_id == session_id);
        self.recording.event_count = self.recording.sessions.iter().map(|session| session.event_count).sum();
        self.deaths.retain(|death| death.session_id.as_deref().is_none_or(|id| id == session_id));
        self.sessions.iter().any(|session| session.session_id == session_id)
    }

    /// The deaths that no event reports already.
    #[must_use]
    pub fn unreported_deaths(&self) -> Vec<Death> {
        let is_reported = |death: &&Death| {
            let id = death.session_id.as_deref();
            let session =
                self.recording.sessions.iter().find(|session| Some(session.session_id.as_str()) == id);
            session.is_some_and(|session| {
                let streams = session.ranks.iter().flat_map(|rank| &rank.streams);
                streams.map(|stream| stream.facts.oom.count).sum::<u64>() > 0
            })
        };
        self.deaths.iter().filter(|death| !is_reported(death)).cloned().collect()
    }

    /// The sentences about what could not be read.
    pub fn problems(&self) -> impl Iterator<Item = &String> {
        self.inputs.iter().flat_map(|input| &input.problems)
    }
}

/// The death of a process whose run this user may not write to.
fn unwritten_death(session: &FinishedSession) -> Option<Death> {
    (session.verdict.cause != Cause::Unknown).then(|| Death {
        path: session.directory.display().to_string(),
        cause: session.verdict.cause.as_str().to_owned(),
        is_memory: session.verdict.cause.is_memory(),
        is_failure: session.verdict.ended == Ended::Failed,
        verdict: Some(session.verdict.sentence.clone()),
        session_id: Some(session.summary.session_id.clone()),
        at_ns: Some(session.last_ns),
        process: Some(session.summary.pid),
    })
}

fn death(directory: &Path) -> Option<Death> {
    let bundle = Bundle::read(directory).ok()?;
    let verdict = bundle.evidence.get("verdict").and_then(Value::as_str).map(str::to_owned);
    Some(Death {
        path: directory.display().to_string(),
        cause: bundle.cause.as_str().to_owned(),
        is_memory: bundle.cause.is_memory(),
        is_failure: bundle.ended.is_none_or(|ended| ended == Ended::Failed),
        verdict,
        session_id: bundle.session_id,
        at_ns: bundle.last_event_timestamp_ns,
        process: bundle.session.as_ref().map(|session| session.pid),
    })
}

/// What the run at a path recorded about itself (command, environment, versions), flattened for a comparison: the run itself, or the only
/// one in a directory of runs.
#[must_use]
pub fn settings_of(path: &Path) -> BTreeMap<String, String> {
    const ENVIRONMENT_FILE: &str = "environment.json";
    const PARTS: [&str; 7] = ["command", "environment", "env", "versions", "system", "interval", "limit"];
    let runs = find_runs(path).map(|found| found.directories).unwrap_or_default();
    let run = match runs.as_slice() {
        [only] => only.path(),
        _ => path,
    };
    let mut settings = BTreeMap::new();
    for file in [RUN_FILE, ENVIRONMENT_FILE] {
        let Ok(Value::Object(record)) = json::read_value(&run.join(file)) else { continue };
        for part in PARTS {
            if let Some(value) = record.get(part) {
                flatten(part, value, &mut settings);
            }
        }
    }
    settings
}
