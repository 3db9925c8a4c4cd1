//! `rollups.json` on disk: put in place whole and synced, and read only while it covers the segments there are.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;
use stormlog_files::Draft;

use super::{RollupCoverage, RollupFile};
use crate::json::{parse_value, write::write_indented};
use crate::sink::manifest::read_manifest_file;
use crate::sink::{MANIFEST_FILENAME, ROLLUP_FILENAME, SinkError, SinkManifest, manifest_path};

/// The largest file looked at: a hundred times a rollup of a month in minutes. A larger one is not a summary.
const MAX_FILE: usize = 256 << 20;

/// Where the rollups of the sink are that a directory, manifest, segment or rollup file belongs to.
pub fn rollup_path(path: &Path) -> PathBuf {
    if path.is_file() {
        return path.with_file_name(ROLLUP_FILENAME);
    }
    path.join(ROLLUP_FILENAME)
}

impl RollupFile {
    /// The text of the file.
    pub fn to_text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        // Writing to memory cannot fail.
        let _ = write_indented(&mut text, self, 0);
        text.push(b'\n');
        text
    }

    /// Whether these rollups still cover what the manifest lists.
    pub fn covers(&self, manifest: &SinkManifest) -> bool {
        let now = RollupCoverage::of(&manifest.segments, None, None);
        self.source_manifest_schema_version == Some(manifest.schema_version)
            && self.coverage.retained_segment_filenames == now.retained_segment_filenames
            && self.coverage.retained_event_count == now.retained_event_count
            && self.coverage.retained_bytes == now.retained_bytes
    }
}

/// Writes the rollups of a sink; returns where.
pub fn write_rollups(path: &Path, rollups: &RollupFile) -> Result<PathBuf, SinkError> {
    write_rollup_text(path, &rollups.to_text())
}

/// Puts a text in the place of a sink's rollups at once, synced; returns where.
pub fn write_rollup_text(path: &Path, text: &[u8]) -> Result<PathBuf, SinkError> {
    let target = rollup_path(path);
    let directory = target.parent().unwrap_or(Path::new(""));
    stormlog_files::create_directory(directory).map_err(|error| SinkError::at(directory, error))?;
    let write = || -> io::Result<()> {
        let mut draft = Draft::at(&target)?;
        draft.file().write_all(text)?;
        draft.file().sync_all()?;
        draft.place().map(drop)
    };
    write().map_err(|error| SinkError::at(&target, error))?;
    // Best effort: some file systems cannot sync a directory.
    let _ = File::open(directory).and_then(|directory| directory.sync_all());
    Ok(target)
}

/// The rollups of a sink; `None` when there are none, they are broken, or they no longer cover its segments.
pub fn read_rollups(path: &Path) -> Option<RollupFile> {
    let target = rollup_path(path);
    let text = crate::file::read_bounded(&target, MAX_FILE).ok()?;
    let Ok(Value::Object(record)) = parse_value(&target, 1, &text) else { return None };
    let rollups = RollupFile::from_record(&record).ok()?;
    let manifest = manifest_path(path).unwrap_or_else(|| target.with_file_name(MANIFEST_FILENAME));
    match read_manifest_file(&manifest) {
        Some(manifest) if !rollups.covers(&manifest) => None,
        _ => Some(rollups),
    }
}
