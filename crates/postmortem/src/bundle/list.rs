//! Finding bundles below a path.
//!
//! Bounded in depth and in number, and links are not followed, so that a hostile tree costs no more than a large one.
//! Must never open the events: a list of a thousand bundles is a thousand small files.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use stormlog_model::Record;
use stormlog_store::StoreError;
use stormlog_store::run_record::read_run;

use super::EVIDENCE_FILE;
use super::name::BundleName;
use super::read::{Bundle, read_object};
use crate::Cause;

/// Directories are searched this deep; deeper trees are not runs.
const MAX_DEPTH: usize = 12;
/// Entries looked at before the search is called off.
const MAX_ENTRIES: usize = 1_000_000;

/// A bundle in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleRow {
    /// The directory.
    pub path: PathBuf,
    /// `2026-11-15T04:00:37Z`.
    pub created_at_utc: Option<String>,
    /// What ended the program.
    pub cause: Cause,
    /// `cuda`, `cpu`, …
    pub backend: Option<String>,
    /// The session.
    pub session_id: Option<String>,
}

impl BundleRow {
    /// The object of `oom list --json`.
    pub fn to_record(&self) -> Record {
        Record::from_iter([
            ("path".to_owned(), Value::from(self.path.to_string_lossy().into_owned())),
            ("created_at_utc".to_owned(), self.created_at_utc.as_deref().into()),
            ("cause".to_owned(), self.cause.as_str().into()),
            ("backend".to_owned(), self.backend.as_deref().into()),
            ("session_id".to_owned(), self.session_id.as_deref().into()),
        ])
    }
}

/// What was found.
#[derive(Debug, Default)]
pub struct Listing {
    /// Oldest first.
    pub bundles: Vec<BundleRow>,
    /// What could not be read.
    pub problems: Vec<StoreError>,
    /// Runs that were left out, each with the reason.
    pub skipped: Vec<StoreError>,
    /// Whether the search was called off before its end.
    pub incomplete: bool,
}

/// The bundles at `path` and below it.
pub fn list(path: &Path) -> Result<Listing, StoreError> {
    let mut listing = Listing::default();
    // The path itself may be a link, a bundle, or a file of one: it is what the user named.
    let metadata = fs::metadata(path).map_err(|error| StoreError::input(path, error))?;
    if !metadata.is_dir() {
        listing.add(path);
        return Ok(listing);
    }
    let mut pending = vec![(path.to_owned(), 0)];
    let mut entries = 0;
    while let Some((directory, depth)) = pending.pop() {
        if is_bundle(&directory) {
            listing.add(&directory);
            continue;
        }
        if let Err(error) = read_run(&directory) {
            listing.skipped.push(error);
            continue;
        }
        let found = match fs::read_dir(&directory) {
            Ok(found) => found,
            Err(error) => {
                listing.problems.push(StoreError::io(&directory, error));
                continue;
            }
        };
        for entry in found.filter_map(Result::ok) {
            entries += 1;
            if entries > MAX_ENTRIES {
                listing.incomplete = true;
                pending.clear();
                break;
            }
            // Hidden directories are bundles being written or removed.
            let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            if is_hidden || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if depth < MAX_DEPTH {
                pending.push((entry.path(), depth + 1));
            } else {
                listing.incomplete = true;
            }
        }
    }
    listing.sort();
    Ok(listing)
}

impl Listing {
    /// Adds what was found at another path.
    pub fn append(&mut self, mut other: Listing) {
        self.bundles.append(&mut other.bundles);
        self.problems.append(&mut other.problems);
        self.skipped.append(&mut other.skipped);
        self.incomplete |= other.incomplete;
        self.sort();
    }

    fn sort(&mut self) {
        self.bundles.sort_by(|a, b| (&a.created_at_utc, &a.path).cmp(&(&b.created_at_utc, &b.path)));
    }

    fn add(&mut self, path: &Path) {
        match Bundle::open(path) {
            Ok(bundle) => self.bundles.push(BundleRow {
                path: bundle.path,
                created_at_utc: bundle.created_at_utc,
                cause: bundle.cause,
                backend: bundle.backend,
                session_id: bundle.session_id,
            }),
            Err(error) => self.problems.push(error),
        }
    }
}

/// By its manifest; where that is missing or damaged, by its name and the files it has.
fn is_bundle(directory: &Path) -> bool {
    if let Ok(Some(manifest)) = read_object(&directory.join("manifest.json")) {
        return ["bundle_name", "reason", "backend", "event_count"]
            .iter()
            .all(|key| manifest.contains_key(*key));
    }
    let has = |file: &str| fs::symlink_metadata(directory.join(file)).is_ok_and(|found| found.is_file());
    let is_named = directory.file_name().and_then(|name| name.to_str()).and_then(BundleName::parse).is_some();
    (is_named || has("events.json")) && (has("metadata.json") || has(EVIDENCE_FILE))
}
