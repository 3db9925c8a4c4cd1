//! What a path is, and the events in it: the one door through which every other part reads telemetry.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;
use stormlog_model::layout::{LOG_DIRECTORY, RING_FILE, RUN_FILE};
use stormlog_model::{Event, SessionSummary, legacy_session_id};

use crate::bundle::{self, ManifestKind};
use crate::csv::CsvReader;
use crate::json::{self, EventReader};
#[cfg(feature = "parquet")]
use crate::parquet::ParquetReader;
use crate::run_record::{RunHead, run_head};
use crate::{ReadOptions, SourcePosition, StoreError, file, recording, sink};

/// Directories are searched this deep; deeper trees are not recordings.
const MAX_DEPTH: usize = 12;

/// Enough of a file for its magic bytes, or for the first columns of a CSV header.
const HEADER: u64 = 4096;

/// One thing that holds telemetry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// A JSON or JSONL file.
    Json(PathBuf),
    /// A CSV file.
    Csv(PathBuf),
    /// A Parquet file.
    #[cfg(feature = "parquet")]
    Parquet(PathBuf),
    /// A directory of append-only segments.
    Sink(PathBuf),
    /// A directory made at an out-of-memory error.
    OomBundle(PathBuf),
    /// A directory made by `diagnose`.
    DiagnoseBundle(PathBuf),
    /// A crash-safe ring of events.
    Ring(PathBuf),
    /// A directory of crash-safe log segments.
    Log(PathBuf),
}

/// What is at a path.
#[derive(Debug, Default)]
pub struct Sources {
    /// Everything that holds telemetry.
    pub found: Vec<Source>,
    /// Runs that were left out, each with the reason.
    pub skipped: Vec<StoreError>,
    /// Directories of runs that were not left out, each with what its file states first.
    pub runs: Vec<(PathBuf, RunHead)>,
    /// Files of the names that were requested.
    pub companions: Vec<PathBuf>,
}

/// Events as they are read, and what was noticed on the way.
pub trait Events: Iterator<Item = Result<Event, StoreError>> {
    /// Sentences about what is missing: a torn last line, records the writer lost. Complete once reading has ended.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Events for EventReader {
    fn notes(&self) -> Vec<String> {
        let torn = "the last line is truncated (its writer was killed) and was left out";
        if self.torn_tail() { vec![torn.to_owned()] } else { Vec::new() }
    }
}

impl Events for CsvReader {}

#[cfg(feature = "parquet")]
impl Events for ParquetReader {}

impl Events for std::vec::IntoIter<Result<Event, StoreError>> {}

impl Source {
    /// What is at `path`: a file is one source; a directory is what it is by its manifest, or everything found in it. A run of an
    /// unknown version is an error.
    pub fn find(path: &Path) -> Result<Vec<Source>, StoreError> {
        let sources = Source::find_known(path)?;
        match sources.skipped.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(sources.found),
        }
    }

    /// The same for listings: runs of an unknown version are skipped, unless there is nothing else.
    pub fn find_known(path: &Path) -> Result<Sources, StoreError> {
        let found = Source::survey(path, &[])?;
        if found.found.is_empty() {
            return Err(match found.skipped.into_iter().next() {
                Some(error) => error,
                None => Source::nothing_at(path),
            });
        }
        Ok(found)
    }

    /// The same, with the files named `companions` that are met on the way; nothing at all is not an error.
    pub fn survey(path: &Path, companions: &[&str]) -> Result<Sources, StoreError> {
        let metadata = std::fs::metadata(path).map_err(|error| StoreError::input(path, error))?;
        let mut found = Sources::default();
        if metadata.is_dir() {
            search(path, 0, companions, &mut found)?;
        } else {
            found.found.push(Source::of_file(path)?);
        }
        Ok(found)
    }

    /// What is wrong with a directory in which nothing was found.
    pub fn nothing_at(path: &Path) -> StoreError {
        let message = "no telemetry found here (looked for sinks, bundles, recordings, and event files)";
        StoreError::Unrecognised { path: path.to_owned(), message: message.to_owned() }
    }

    fn of_file(path: &Path) -> Result<Source, StoreError> {
        let extension = path.extension().and_then(|text| text.to_str()).unwrap_or("").to_ascii_lowercase();
        if path.file_name().is_some_and(|name| name == "manifest.json")
            && let Some(source) = of_manifest(&parent_of(path))
        {
            return Ok(source);
        }
        let mut start = Vec::new();
        let input = file::open_regular(path)?;
        input.take(HEADER).read_to_end(&mut start).map_err(|error| StoreError::io(path, error))?;
        let path = path.to_owned();
        if start.starts_with(b"PAR1") {
            #[cfg(feature = "parquet")]
            return Ok(Source::Parquet(path));
            #[cfg(not(feature = "parquet"))]
            return Err(StoreError::Unrecognised { path, message: "this build cannot read Parquet".into() });
        }
        if start.starts_with(&stormlog_ring::MAGIC_BYTES) {
            let is_segment = extension == "slog";
            return Ok(if is_segment { Source::Log(parent_of(&path)) } else { Source::Ring(path) });
        }
        // `gpumemprof track --output run.json` writes CSV unless `--format` asks for JSON: the name does not decide.
        if extension == "csv" || has_csv_header(&start) {
            return Ok(Source::Csv(path));
        }
        if extension == "parquet" {
            return Err(StoreError::malformed(
                SourcePosition::file(path),
                "not a Parquet file: it does not start with PAR1",
            ));
        }
        Ok(Source::Json(path))
    }

    /// The path of the file or directory.
    pub fn path(&self) -> &Path {
        match self {
            Source::Json(path)
            | Source::Csv(path)
            | Source::Sink(path)
            | Source::OomBundle(path)
            | Source::DiagnoseBundle(path)
            | Source::Ring(path)
            | Source::Log(path) => path,
            #[cfg(feature = "parquet")]
            Source::Parquet(path) => path,
        }
    }

    /// The kind as scripts know it.
    pub fn kind(&self) -> &'static str {
        match self {
            Source::Json(path) if path.extension().is_some_and(|e| e == "jsonl") => "telemetry_jsonl",
            Source::Json(_) => "telemetry_json",
            Source::Csv(_) => "telemetry_csv",
            #[cfg(feature = "parquet")]
            Source::Parquet(_) => "telemetry_parquet",
            Source::Sink(_) => "sink",
            Source::OomBundle(_) => "oom_bundle",
            Source::DiagnoseBundle(_) => "diagnose_bundle",
            Source::Ring(_) => "ring",
            Source::Log(_) => "log",
        }
    }

    /// The sessions the artifact itself states, whether or not it has events of them.
    pub fn stated_sessions(&self) -> Vec<SessionSummary> {
        match self {
            Source::Sink(path) => {
                sink::read_manifest(path).map(|manifest| manifest.sessions).unwrap_or_default()
            }
            Source::OomBundle(path) | Source::DiagnoseBundle(path) => {
                bundle::stated_session(path).into_iter().collect()
            }
            Source::Ring(path) | Source::Log(path) => recording::stated_session(path).into_iter().collect(),
            // A segment on its own still has its manifest beside it.
            Source::Json(path) if is_segment(path) => {
                sink::read_manifest(path).map(|manifest| manifest.sessions).unwrap_or_default()
            }
            Source::Json(path) => {
                let reader = EventReader::open(path, &ReadOptions::default());
                reader.ok().and_then(|reader| reader.summary().cloned()).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// A session inferred from this source's events, with its state corrected by what the writers left.
    #[must_use]
    pub fn judge(&self, summary: SessionSummary) -> SessionSummary {
        match self {
            Source::Ring(path) | Source::Log(path) => recording::judge(path, summary),
            _ => summary,
        }
    }

    /// The events, in the order they were recorded.
    pub fn events(&self, options: &ReadOptions) -> Result<Box<dyn Events>, StoreError> {
        Ok(match self {
            Source::Json(path) if path.file_name().is_some_and(|name| name == "telemetry_timeline.json") => {
                timeline(path)?
            }
            Source::Json(path) if options.session_id.is_none() && is_segment(path) => {
                Box::new(Segments::open(path, options)?)
            }
            Source::Json(path) => Box::new(EventReader::open(path, options)?),
            Source::Csv(path) => Box::new(CsvReader::open(path, options)?),
            #[cfg(feature = "parquet")]
            Source::Parquet(path) => Box::new(ParquetReader::open(path, options)?),
            Source::Sink(path) => Box::new(Segments::open(path, options)?),
            Source::OomBundle(path) => {
                let session = bundle::stated_session(path).map(|session| session.session_id);
                let session_id = options.session_id.clone().or(session);
                let options = ReadOptions { session_id, ..options.clone() };
                Box::new(EventReader::open(&bundle::events_file(path, ManifestKind::Oom), &options)?)
            }
            Source::DiagnoseBundle(path) => timeline(&bundle::events_file(path, ManifestKind::Diagnose))?,
            Source::Ring(path) => Box::new(recording::RecordedEvents::ring(path)?),
            Source::Log(path) => Box::new(recording::RecordedEvents::log(path)?),
        })
    }
}

fn timeline(path: &Path) -> Result<Box<dyn Events>, StoreError> {
    let events: Vec<_> = bundle::timeline_events(path)?.into_iter().map(Ok).collect();
    Ok(Box::new(events.into_iter()))
}

/// The segments of a sink, each with the session its records belong to when they do not say.
pub(crate) fn sink_segments(path: &Path) -> Result<Vec<(PathBuf, String)>, StoreError> {
    let segments = sink::segment_paths(path);
    if segments.is_empty() {
        let message = "Telemetry sink retained no segments".to_owned();
        return Err(StoreError::Unrecognised { path: path.to_owned(), message });
    }
    let listed = sink::read_manifest(path).map(|manifest| manifest.segments).unwrap_or_default();
    let resolved = file::resolved(path);
    let fallback = legacy_session_id([resolved.to_string_lossy().as_ref(), "sink"]);
    let session_of = |segment: &Path| {
        let name = segment.file_name().and_then(|name| name.to_str());
        let listed = listed.iter().find(|listed| Some(listed.filename.as_str()) == name);
        listed.and_then(|listed| listed.session_id.clone()).unwrap_or_else(|| fallback.clone())
    };
    Ok(segments.into_iter().map(|segment| (segment.clone(), session_of(&segment))).collect())
}

/// The events of a sink's segments, one after the other.
struct Segments {
    segments: std::vec::IntoIter<(PathBuf, String)>,
    current: Option<EventReader>,
    options: ReadOptions,
    notes: Vec<String>,
}

impl Segments {
    fn open(path: &Path, options: &ReadOptions) -> Result<Self, StoreError> {
        let segments = sink_segments(path)?.into_iter();
        Ok(Segments { segments, current: None, options: options.clone(), notes: Vec::new() })
    }

    fn next_segment(&mut self) -> Option<Result<EventReader, StoreError>> {
        let (path, session) = self.segments.next()?;
        let session_id = Some(self.options.session_id.clone().unwrap_or(session));
        Some(EventReader::open(&path, &ReadOptions { session_id, ..self.options.clone() }))
    }
}

impl Iterator for Segments {
    type Item = Result<Event, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(reader) = &mut self.current {
                if let Some(event) = reader.next() {
                    return Some(event);
                }
                self.notes.extend(Events::notes(reader));
                self.current = None;
            }
            match self.next_segment()? {
                Ok(reader) => self.current = Some(reader),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl Events for Segments {
    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}

fn is_segment(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(sink::is_segment_name)
}

/// Whether a file starts with the line of column names that every CSV file of events has.
fn has_csv_header(start: &[u8]) -> bool {
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut columns = line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    line.first().is_some_and(u8::is_ascii_alphabetic) && columns.any(|name| name.starts_with(b"timestamp"))
}

fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// A directory's kind by its manifest.
fn of_manifest(directory: &Path) -> Option<Source> {
    let Ok(Value::Object(manifest)) = json::read_value(&directory.join("manifest.json")) else { return None };
    let directory = directory.to_owned();
    Some(match bundle::manifest_kind(&manifest)? {
        ManifestKind::Oom => Source::OomBundle(directory),
        ManifestKind::Diagnose => Source::DiagnoseBundle(directory),
        ManifestKind::Sink => Source::Sink(directory),
    })
}

fn search(
    directory: &Path,
    depth: usize,
    companions: &[&str],
    found: &mut Sources,
) -> Result<(), StoreError> {
    let mut entries = Vec::new();
    let listing = std::fs::read_dir(directory).map_err(|error| StoreError::io(directory, error))?;
    for entry in listing {
        entries.push(entry.map_err(|error| StoreError::io(directory, error))?);
    }
    entries.sort_by_cached_key(std::fs::DirEntry::file_name);
    let is_companion = |entry: &&std::fs::DirEntry| companions.iter().any(|name| entry.file_name() == *name);
    found.companions.extend(entries.iter().filter(is_companion).map(std::fs::DirEntry::path));
    let name_of = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().to_lowercase();
    // Most directories have no manifest, and a listing costs less than an attempt to open one in each of 10,000 runs.
    if entries.iter().any(|entry| entry.file_name() == "manifest.json")
        && let Some(source) = of_manifest(directory)
    {
        found.found.push(source);
        return Ok(());
    }
    if entries.iter().any(|entry| sink::is_segment_name(&entry.file_name().to_string_lossy())) {
        found.found.push(Source::Sink(directory.to_owned()));
        return Ok(());
    }
    if entries.iter().any(|entry| name_of(entry).ends_with(".slog")) {
        found.found.push(Source::Log(directory.to_owned()));
        return Ok(());
    }
    let has = |name: &str| entries.iter().any(|entry| entry.file_name() == *name);
    if has(RUN_FILE) {
        match run_head(directory) {
            Ok(head) => found.runs.extend(head.map(|head| (directory.to_owned(), head))),
            Err(error) => {
                found.skipped.push(error);
                return Ok(());
            }
        }
    }
    if has("events.json") && has("metadata.json") {
        // A bundle whose manifest, written last, is missing: its writer died in the middle.
        found.found.push(Source::OomBundle(directory.to_owned()));
        return Ok(());
    }
    // A session with its whole history does not need the ring, which holds the end of the same events.
    let has_history = has(LOG_DIRECTORY) || has("events");
    for entry in entries {
        let kind = entry.file_type().map_err(|error| StoreError::io(entry.path(), error))?;
        let name = name_of(&entry);
        if kind.is_dir() {
            if depth < MAX_DEPTH {
                search(&entry.path(), depth + 1, companions, found)?;
            }
        } else if kind.is_file() {
            let eventful = ["event", "track", "telemetry"].iter().any(|word| name.contains(word));
            let wanted = match name.rsplit('.').next().unwrap_or("") {
                "jsonl" => true,
                "json" | "csv" | "parquet" => eventful,
                "ring" => !(has_history && name == RING_FILE),
                _ => false,
            };
            if wanted {
                found.found.push(Source::of_file(&entry.path())?);
            }
        }
    }
    Ok(())
}
