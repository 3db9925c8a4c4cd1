//! Everything at some paths: what holds events, OOM bundles, runs that describe themselves, attachments that were named.
//!
//! One walk a path, twelve levels deep, finds all of it; nothing is opened further than its manifest. What a catalog lists stays as it was when
//! it was opened; only its warnings grow, when a source turns out to be damaged.

use std::path::{Path, PathBuf};

use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;
use stormlog_model::Record;
use stormlog_postmortem::bundle::Bundle;
use stormlog_store::run_record::RunHead;
use stormlog_store::sink::{self, MANIFEST_FILENAME, ROLLUP_FILENAME};
use stormlog_store::{Source, Sources, StoreError, json};

use super::envelope::{RUN_ENVELOPE_FILE, RunEnvelope};
use super::named::{ATTACHMENTS_FILE, NamedAttachment, read_sidecar};
use super::record;

const COMPANIONS: [&str; 2] = [RUN_ENVELOPE_FILE, ATTACHMENTS_FILE];
/// Words by which a file beside a sink's segments is known to hold events.
const EVENT_WORDS: [&str; 3] = ["event", "track", "telemetry"];
/// The suffixes of files that are read when they are named themselves.
const SUFFIXES: [&str; 6] = ["json", "jsonl", "csv", "parquet", "ring", "slog"];

/// How much a warning weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarningKind {
    /// Something could not be read.
    Damage,
    /// A run was left out because another release wrote it.
    Skipped,
    /// Nothing is at a path that exists.
    Empty,
    /// Rows contradict each other.
    Ambiguous,
}

/// Something that is missing from the rows.
#[derive(Debug, Clone)]
pub struct Warning {
    /// What it is about.
    pub path: String,
    /// What is wrong, in the words of 0.4.3 where it has them.
    pub message: String,
    /// The whole sentence, with the place and what to do.
    pub sentence: String,
    /// How much it weighs.
    pub kind: WarningKind,
}

/// Something that holds events.
#[derive(Debug, Clone)]
pub struct CatalogSource {
    /// What it is.
    pub source: Source,
    /// The files its events are in.
    pub event_paths: Vec<PathBuf>,
    /// Its manifest, where it is a directory that has one.
    pub manifest_path: Option<PathBuf>,
}

impl CatalogSource {
    /// The file or directory.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// The kind as scripts know it.
    pub fn kind(&self) -> &'static str {
        self.source.kind()
    }

    /// The object form.
    pub fn to_record(&self) -> Record {
        let text = |path: &PathBuf| Value::from(path.display().to_string());
        record([
            ("path", self.path().display().to_string().into()),
            ("source_kind", self.kind().into()),
            ("event_paths", self.event_paths.iter().map(text).collect()),
            ("manifest_path", self.manifest_path.as_ref().map_or(Value::Null, text)),
        ])
    }
}

/// A run directory of `stormlog run`.
#[derive(Debug, Clone)]
pub(super) struct RunDirectory {
    pub(super) path: PathBuf,
    pub(super) head: RunHead,
}

/// Everything at some paths.
#[derive(Debug, Default)]
pub struct Catalog {
    /// The paths as they were given.
    pub paths: Vec<PathBuf>,
    /// What holds events, in 0.4.3's order.
    pub sources: Vec<CatalogSource>,
    /// OOM bundles.
    pub bundles: Vec<Bundle>,
    /// What sidecars name.
    pub attachments: Vec<NamedAttachment>,
    /// Runs that a file describes.
    pub envelopes: Vec<RunEnvelope>,
    /// What is missing.
    pub warnings: Vec<Warning>,
    pub(super) runs: Vec<RunDirectory>,
    /// How many bundles each session left.
    pub(super) bundles_of: FxHashMap<String, u64>,
    seen: FxHashSet<(&'static str, PathBuf)>,
    claims: FxHashMap<String, Vec<PathBuf>>,
}

/// What one walk met.
#[derive(Default)]
struct WalkedSources {
    sources: Vec<Source>,
    runs: Vec<(PathBuf, RunHead)>,
    companions: Vec<PathBuf>,
    skipped: Vec<StoreError>,
}

impl Catalog {
    /// What is at some paths.
    pub fn open(paths: &[PathBuf]) -> Self {
        let mut catalog = Catalog { paths: paths.to_vec(), ..Catalog::default() };
        for path in paths {
            catalog.discover(path);
        }
        catalog
    }

    pub(super) fn warn(&mut self, kind: WarningKind, path: &Path, message: &str, sentence: Option<String>) {
        let path = path.display().to_string();
        let sentence = sentence.unwrap_or_else(|| format!("{path}: {message}"));
        self.warnings.push(Warning { path, message: message.to_owned(), sentence, kind });
    }

    /// A source that could not be read.
    pub(super) fn load_failed(&mut self, path: &Path, error: &StoreError) {
        let message = format!("load failed: {error}");
        self.warn(WarningKind::Damage, path, &message, Some(error.to_string()));
    }

    fn discover(&mut self, path: &Path) {
        let known = self.sources.len();
        let result = match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => self.discover_directory(path),
            Ok(found) if found.is_file() => self.discover_file(path),
            Ok(_) => {
                self.warn(WarningKind::Damage, path, "path is neither a file nor a directory", None);
                return;
            }
            Err(error) => {
                let error = StoreError::input(path, error);
                let is_missing = matches!(error, StoreError::Missing { .. });
                let message = if is_missing { "path does not exist".to_owned() } else { error.to_string() };
                self.warn(WarningKind::Damage, path, &message, Some(error.to_string()));
                return;
            }
        };
        if let Err(error) = result {
            self.warn(WarningKind::Damage, path, &error.to_string(), Some(error.to_string()));
        }
        // As 0.4.3 lists them: what the directory itself is, then what has a manifest, then the files.
        let order = |source: &CatalogSource| {
            let place = source.manifest_path.clone().unwrap_or_else(|| source.path().to_owned());
            (source.path() != path, source.manifest_path.is_none(), place)
        };
        self.sources[known..].sort_by_cached_key(order);
    }

    fn discover_directory(&mut self, path: &Path) -> Result<(), StoreError> {
        let mut met = WalkedSources::default();
        met.take(Source::survey(path, &COMPANIONS)?);
        let mut at = 0;
        while let Some(source) = met.sources.get(at).cloned() {
            met.look_inside(&source)?;
            at += 1;
        }
        met.companions.sort();
        for name in COMPANIONS {
            let own = path.join(name);
            let others = met.companions.iter().filter(|file| **file != own);
            let own = met.companions.iter().filter(|file| **file == own);
            for file in own.chain(others).filter(|file| file.file_name().is_some_and(|found| found == name)) {
                self.read_companion(file);
            }
        }
        self.runs.extend(met.runs.into_iter().map(|(path, head)| RunDirectory { path, head }));
        let is_empty = met.sources.is_empty() && met.companions.is_empty();
        if is_empty && met.skipped.is_empty() {
            let error = Source::nothing_at(path).to_string();
            self.warn(WarningKind::Empty, path, &error, Some(error.clone()));
        }
        // A path at which every run is of another release has no answer; beside others they are left out.
        let kind = if met.sources.is_empty() { WarningKind::Damage } else { WarningKind::Skipped };
        for error in &met.skipped {
            self.warn(kind, path, &error.to_string(), Some(error.to_string()));
        }
        met.sources.into_iter().for_each(|source| self.add(source));
        Ok(())
    }

    fn discover_file(&mut self, path: &Path) -> Result<(), StoreError> {
        let name = path.file_name().unwrap_or_default();
        if COMPANIONS.iter().any(|companion| name == *companion) {
            self.read_companion(path);
            return Ok(());
        }
        if name == MANIFEST_FILENAME && !matches!(json::read_value(path), Ok(Value::Object(_))) {
            self.warn(WarningKind::Damage, path, "manifest is not a JSON object", None);
            return Ok(());
        }
        let suffix =
            path.extension().and_then(|suffix| suffix.to_str()).unwrap_or_default().to_ascii_lowercase();
        if !SUFFIXES.contains(&suffix.as_str()) {
            let error = Source::nothing_at(path).to_string();
            self.warn(WarningKind::Empty, path, &error, Some(error.clone()));
            return Ok(());
        }
        let mut met = WalkedSources::default();
        met.take(Source::survey(path, &COMPANIONS)?);
        met.sources.into_iter().for_each(|source| self.add(source));
        Ok(())
    }

    fn add(&mut self, source: Source) {
        let path = source.path().to_owned();
        if path.file_name().is_some_and(|name| name == MANIFEST_FILENAME) {
            self.warn(WarningKind::Damage, &path, "unrecognized manifest shape", None);
            return;
        }
        if !self.is_new(source.kind(), &path) {
            return;
        }
        let manifest_path = matches!(source, Source::Sink(_) | Source::DiagnoseBundle(_))
            .then(|| path.join(MANIFEST_FILENAME));
        let event_paths = match &source {
            Source::OomBundle(_) => {
                match Bundle::summary(&path) {
                    Ok(bundle) => {
                        if let Some(session) = &bundle.session_id {
                            *self.bundles_of.entry(session.clone()).or_default() += 1;
                        }
                        self.bundles.push(bundle);
                    }
                    Err(error) => self.load_failed(&path, &error),
                }
                return;
            }
            Source::DiagnoseBundle(_) => Vec::new(),
            Source::Sink(path) => sink::segment_paths(path),
            _ => vec![path],
        };
        self.sources.push(CatalogSource { source, event_paths, manifest_path });
    }

    /// Whether something was not met before: one that is below two of the paths is listed once.
    fn is_new(&mut self, kind: &'static str, path: &Path) -> bool {
        // Below one path nothing is met twice.
        let key = if self.paths.len() > 1 { std::fs::canonicalize(path).ok() } else { None };
        self.seen.insert((kind, key.unwrap_or_else(|| path.to_owned())))
    }

    fn read_companion(&mut self, file: &Path) {
        let is_run = file.file_name().is_some_and(|name| name == RUN_ENVELOPE_FILE);
        if !self.is_new(if is_run { "run" } else { "sidecar" }, file) {
            return;
        }
        let content = json::read_value(file).ok().filter(Value::is_object);
        if is_run {
            self.take_envelope(file, content);
            return;
        }
        let (found, wrong) = read_sidecar(file, content);
        self.attachments.extend(found);
        wrong.iter().for_each(|message| self.warn(WarningKind::Damage, file, message, None));
    }

    fn take_envelope(&mut self, file: &Path, content: Option<Value>) {
        let Some(content) = content else {
            self.warn(WarningKind::Damage, file, "run envelope is not a JSON object", None);
            return;
        };
        let Some(run) = RunEnvelope::of(&content, file) else {
            self.warn(WarningKind::Damage, file, "unrecognized run envelope shape", None);
            return;
        };
        let claims = self.claims.entry(run.run_id.clone()).or_default();
        claims.push(file.to_owned());
        let claimants = match claims.len() {
            1 => {
                self.envelopes.push(run);
                return;
            }
            2 => claims.clone(),
            _ => vec![file.to_owned()],
        };
        // Two files that claim one run: neither is believed.
        self.envelopes.retain(|known| known.run_id != run.run_id);
        let message = format!("duplicate run envelope run_id {}", quoted(&run.run_id));
        for claimant in claimants {
            self.warn(WarningKind::Damage, &claimant, &message, None);
        }
    }
}

/// A text in quotes, as Python shows one.
pub(super) fn quoted(text: &str) -> String {
    if text.contains('\'') && !text.contains('"') {
        format!("\"{text}\"")
    } else {
        format!("'{}'", text.replace('\'', "\\'"))
    }
}

impl WalkedSources {
    fn take(&mut self, found: Sources) {
        self.sources.extend(found.found);
        self.runs.extend(found.runs);
        self.companions.extend(found.companions);
        self.skipped.extend(found.skipped);
    }

    /// A sink or a bundle of `diagnose` may have others inside; a sink, files beside its segments.
    fn look_inside(&mut self, source: &Source) -> Result<(), StoreError> {
        let (directory, is_sink) = match source {
            Source::Sink(path) => (path, true),
            Source::DiagnoseBundle(path) => (path, false),
            _ => return Ok(()),
        };
        let Ok(listing) = std::fs::read_dir(directory) else { return Ok(()) };
        let mut children: Vec<PathBuf> = listing.flatten().map(|entry| entry.path()).collect();
        children.sort();
        for child in children {
            let is_inside = if child.is_dir() { true } else { is_sink && is_beside(&child) };
            if is_inside {
                self.take(Source::survey(&child, &COMPANIONS)?);
            }
        }
        Ok(())
    }
}

/// Whether a file beside a sink's segments is named for events of its own.
fn is_beside(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    if sink::is_segment_name(&name) || name == MANIFEST_FILENAME || name == ROLLUP_FILENAME || !path.is_file()
    {
        return false;
    }
    match name.rsplit('.').next().unwrap_or_default() {
        "jsonl" => true,
        "json" | "csv" => EVENT_WORDS.iter().any(|word| name.contains(word)),
        _ => false,
    }
}
