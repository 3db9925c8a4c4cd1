//! The sessions at one path, and what was wrong there.

use std::fs;
use std::path::{Path, PathBuf};

use stormlog_model::{Event, SessionStatus, SessionSummary};
use stormlog_store::{LoadOptions, LoadedSession, ReadOptions, Source, load_sessions, sink};

use super::merge::{self, Merger};
use super::timeline::{self, RankNumbers, TIMELINE_FILE};

/// Directories are searched this deep; deeper trees are not artifacts.
const MAX_DEPTH: usize = 12;
/// Rows of one CSV file whose problems are reported one by one.
const MAX_ROW_WARNINGS: usize = 100;

/// What one input holds.
#[derive(Debug, Default)]
pub(super) struct Input {
    pub(super) sessions: Vec<LoadedSession>,
    pub(super) warnings: Vec<String>,
}

impl Input {
    fn warning(text: String) -> Self {
        Input { sessions: Vec::new(), warnings: vec![text] }
    }
}

/// Loads a path.
pub(super) fn load(path: &Path, ranks: &mut RankNumbers) -> Input {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => of_directory(path, ranks),
        Ok(metadata) if metadata.is_file() => of_file(path, ranks),
        Ok(_) => Input::warning(format!("Unsupported path type: {}", path.display())),
        Err(_) => Input::warning(format!("Path does not exist: {}", path.display())),
    }
}

/// The extension in lower case.
pub(super) fn extension(path: &Path) -> String {
    path.extension().map(|extension| extension.to_string_lossy().to_lowercase()).unwrap_or_default()
}

fn of_file(path: &Path, ranks: &mut RankNumbers) -> Input {
    if path.file_name().is_some_and(|name| name == TIMELINE_FILE) {
        return timeline::load(path, ranks);
    }
    let mut input = match extension(path).as_str() {
        "json" | "jsonl" => match load_sessions(path, &LoadOptions::default()) {
            Ok(sessions) => Input { sessions, warnings: Vec::new() },
            Err(error) => {
                return Input::warning(format!(
                    "Failed to parse JSON telemetry file {}: {error}",
                    path.display()
                ));
            }
        },
        "csv" => of_csv(path),
        // Recordings of ours have names that 0.4.3 did not know.
        "ring" | "slog" | "parquet" => of_recording(path),
        _ => return Input::warning(format!("Unsupported artifact file type: {}", path.display())),
    };
    register(&mut input, ranks);
    input
}

fn of_recording(path: &Path) -> Input {
    match load_sessions(path, &LoadOptions::default()) {
        Ok(sessions) => Input { sessions, warnings: Vec::new() },
        Err(error) => Input::warning(format!("Failed to read {}: {error}", path.display())),
    }
}

fn of_csv(path: &Path) -> Input {
    let reader = match Source::Csv(path.to_owned()).events(&ReadOptions::default()) {
        Ok(reader) => reader,
        Err(error) => return Input::warning(format!("Failed to read CSV file {}: {error}", path.display())),
    };
    let (mut events, mut warnings, mut unlisted) = (Vec::new(), Vec::new(), 0_u64);
    for event in reader {
        match event {
            Ok(event) => events.push(event),
            Err(error) if warnings.len() < MAX_ROW_WARNINGS => {
                warnings.push(format!("CSV parse error {error}"))
            }
            Err(_) => unlisted += 1,
        }
    }
    if unlisted > 0 {
        warnings.push(format!("CSV parse error {}: {unlisted} more rows", path.display()));
    }
    let sessions = by_session(events)
        .into_iter()
        .filter_map(|events| {
            let summary = summary_of(path, &events)?;
            let sources = vec![path.to_owned()];
            Some(LoadedSession { summary, events, sources, warnings: warnings.clone() })
        })
        .collect();
    Input { sessions, warnings }
}

/// The events of each session, in the order of time, each once; sessions in the order they appear.
pub(super) fn by_session(events: Vec<Event>) -> Vec<Vec<Event>> {
    let mut places = rustc_hash::FxHashMap::default();
    let mut sessions: Vec<Vec<Event>> = Vec::new();
    for event in events {
        let place = match places.get(event.head.session_id.as_str()) {
            Some(place) => *place,
            None => {
                places.insert(event.head.session_id.clone(), sessions.len());
                sessions.push(Vec::new());
                sessions.len() - 1
            }
        };
        sessions[place].push(event);
    }
    sessions.iter_mut().for_each(merge::put_in_order);
    sessions
}

/// What the events of a session in a flat file prove: the session completed where the last of them is its `stop`.
fn summary_of(path: &Path, events: &[Event]) -> Option<SessionSummary> {
    let (first, last) = (events.first()?, events.last()?);
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let is_stopped = last.head.event_type == "stop";
    let inferred = SessionSummary::infer(
        &first.head.session_id,
        [first],
        &format!("artifact:{name}"),
        if is_stopped { SessionStatus::Completed } else { SessionStatus::Incomplete },
    )?;
    let ended_at_ns = is_stopped.then(|| i64::try_from(last.timestamp_ns).unwrap_or(i64::MAX));
    Some(SessionSummary { ended_at_ns, ..inferred })
}

fn of_directory(directory: &Path, ranks: &mut RankNumbers) -> Input {
    let mut warnings = Vec::new();
    let mut merger = Merger::default();
    let mut sessionless = Vec::new();
    let is_sink = !sink::segment_paths(directory).is_empty();
    if is_sink {
        match load_sessions(directory, &LoadOptions::default()) {
            Ok(sessions) => {
                let mut input = Input { sessions, warnings: Vec::new() };
                register(&mut input, ranks);
                merger.add(input.sessions);
            }
            Err(error) => {
                let place = directory.display();
                warnings.push(format!("Failed to parse telemetry sink directory {place}: {error}"));
            }
        }
    }
    let mut files = Vec::new();
    search(directory, 0, &mut files);
    files.sort();
    let is_timeline = |path: &PathBuf| path.file_name().is_some_and(|name| name == TIMELINE_FILE);
    let (timelines, events): (Vec<PathBuf>, Vec<PathBuf>) = files.into_iter().partition(is_timeline);
    if !is_sink && timelines.is_empty() && events.is_empty() {
        // A run directory of ours, or a directory of them.
        let mut input = of_recording(directory);
        input.warnings.clear();
        register(&mut input, ranks);
        merger.add(input.sessions);
    }
    for path in events {
        let input = of_file(&path, ranks);
        warnings.extend(input.warnings);
        if super::is_sessionless(&path, &input.sessions) {
            sessionless.extend(input.sessions);
        } else {
            merger.add(input.sessions);
        }
    }
    for path in timelines {
        let input = timeline::load(&path, ranks);
        warnings.extend(input.warnings);
        merger.add(input.sessions);
    }
    merger.add(merge::sessionless(sessionless));
    let sessions = merger.finish();
    if sessions.is_empty() {
        warnings.push(format!("No telemetry event payloads found in directory: {}", directory.display()));
    }
    Input { sessions, warnings }
}

/// The files whose names promise events, and timelines.
fn search(directory: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() && depth < MAX_DEPTH {
            search(&entry.path(), depth + 1, found);
        }
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let stem = name.strip_suffix(".json").or_else(|| name.strip_suffix(".csv"));
        let is_named = stem.is_some_and(|stem| stem.contains("events") || stem.contains("track"));
        if kind.is_file() && (is_named || name == TIMELINE_FILE) {
            found.push(entry.path());
        }
    }
}

fn register(input: &mut Input, ranks: &mut RankNumbers) {
    let heads = input.sessions.iter().flat_map(|session| &session.events).map(|event| &event.head.identity);
    heads.for_each(|identity| ranks.register(identity.rank, identity.world_size));
}
