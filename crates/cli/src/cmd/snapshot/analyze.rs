//! Allocator snapshots among the paths of `stormlog analyze`: read, judged, and put beside everything else that was found.

use std::path::PathBuf;

use serde_json::{Value, json};
use stormlog_analyze::Analysis;
use stormlog_analyze::report::Artifact;
use stormlog_catalog::recording::{Loaded, broken};
use stormlog_model::Record;
use stormlog_torch::{ReportOptions, SnapshotReport};

use crate::cmd::snapshot::report as snapshot;

/// The snapshots that could be read.
#[derive(Default)]
pub(crate) struct Snapshots {
    read: Vec<(PathBuf, SnapshotReport)>,
    /// Whether there is nothing else to look at.
    pub(crate) alone: bool,
}

impl Snapshots {
    /// Takes the snapshots out of the paths.
    pub(crate) fn among(paths: &[PathBuf]) -> (Vec<PathBuf>, Vec<PathBuf>) {
        paths.iter().cloned().partition(|path| stormlog_torch::is_snapshot(path))
    }

    /// Reads them; one that cannot be read is an input with a problem.
    pub(crate) fn read(paths: &[PathBuf], alone: bool, loaded: &mut Loaded) -> Self {
        let mut read = Vec::new();
        for path in paths {
            match snapshot::load(path) {
                Ok(snapshot) => {
                    let shown = path.display().to_string();
                    loaded.artifacts.push(Artifact { kind: "allocator_snapshot".to_owned(), path: shown });
                    let report = stormlog_torch::report(&snapshot, &ReportOptions::default());
                    read.push((path.clone(), report));
                }
                Err(error) => loaded.inputs.push(broken(path, error.to_string())),
            }
        }
        Snapshots { read, alone }
    }

    /// Adds what is wrong with each.
    pub(crate) fn judge(&self, analysis: &mut Analysis) {
        for (index, (path, report)) in self.read.iter().enumerate() {
            let pointer = format!("/payload/snapshots/{index}");
            analysis.take_snapshot(report.findings(&path.display().to_string(), &pointer));
        }
    }

    /// One page each, when there is nothing else to tell of.
    pub(crate) fn text(&self) -> anyhow::Result<Option<String>> {
        if !self.alone || self.read.is_empty() {
            return Ok(None);
        }
        let mut page = Vec::new();
        for (index, (path, report)) in self.read.iter().enumerate() {
            if index > 0 {
                page.push(b'\n');
            }
            stormlog_torch::write_snapshot_page(&mut page, path, report)?;
        }
        Ok(Some(String::from_utf8_lossy(&page).into_owned()))
    }

    /// The reports, beside the rest of the payload.
    pub(crate) fn payload(&self, mut others: Record) -> anyhow::Result<Record> {
        if self.alone {
            others.clear();
        }
        if !self.read.is_empty() {
            let mut all = Vec::new();
            for (path, report) in &self.read {
                let mut entry = json!({"path": path.display().to_string()});
                if let (Value::Object(entry), Value::Object(report)) =
                    (&mut entry, serde_json::to_value(report)?)
                {
                    entry.extend(report);
                }
                all.push(entry);
            }
            others.insert("snapshots".to_owned(), all.into());
        }
        Ok(others)
    }
}
