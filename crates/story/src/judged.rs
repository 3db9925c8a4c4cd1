//! A recording judged as every view shows it: what the rules find, the ends of processes beside it, and the answer. The command line, the report page
//! and the terminal call these functions, so that they agree. Must never print.

use std::path::{Path, PathBuf};

use stormlog_analyze::{Analysis, AnalysisOptions, analyze};
use stormlog_catalog::cuda_oom::snapshot_at;
use stormlog_catalog::recording::{self, Loaded, Reader, Stopped, broken};
use stormlog_model::Finding;
use stormlog_torch::ReportOptions;

use crate::Story;
use crate::captures::CaptureReader;

/// Bytes of recordings that are judged before a summary is printed: a run of hours is judged by `stormlog analyze`.
const MOST_BYTES: u64 = 32 << 20;
/// Files looked at for that.
const MOST_FILES: usize = 512;

/// Everything at one path, judged.
#[derive(Debug)]
pub struct Judged {
    /// What the rules found; its headline is the answer.
    pub analysis: Analysis,
    /// The processes.
    pub story: Story,
}

impl Judged {
    /// Reads and judges what is at a path: a run, a session, telemetry, a capture, a snapshot. `keep_reading` is asked before each event; false ends it.
    pub fn of_path(path: &Path, keep_reading: &mut dyn FnMut() -> bool) -> Result<Self, Stopped> {
        let captures = CaptureReader::default();
        let is_snapshot = stormlog_torch::is_snapshot(path);
        let paths = if is_snapshot { Vec::new() } else { vec![path.to_owned()] };
        let mut loaded = recording::load(
            &paths,
            &mut Reader { captures: &|path: &Path| captures.at(path), keep_reading },
        )?;
        let found = is_snapshot.then(|| snapshot_findings(path));
        if let Some(Err(sentence)) = &found {
            loaded.inputs.push(broken(path, sentence.clone()));
        }
        let mut analysis = judge(loaded);
        if let Some(Ok(findings)) = found {
            analysis.take_snapshot(findings);
        }
        let story = complete_analysis(&mut analysis, &paths, &captures);
        Ok(Judged { analysis, story })
    }
}

/// The rules over what was read, and the deaths beside it.
#[must_use]
pub fn judge(mut loaded: Loaded) -> Analysis {
    let deaths = loaded.unreported_deaths();
    let inputs = std::mem::take(&mut loaded.inputs);
    let mut analysis = analyze(loaded.recording, inputs, &AnalysisOptions::default());
    loaded.captures.iter().for_each(|capture| analysis.take_capture(capture));
    deaths.iter().for_each(|death| analysis.add_death(death));
    analysis
}

/// Completes an analysis by what its processes and their captures show: the line by which a rank differs, the answer, the layers.
pub fn complete_analysis(analysis: &mut Analysis, paths: &[PathBuf], captures: &CaptureReader) -> Story {
    captures.explain_ranks(paths, analysis);
    let judged = (analysis.findings.as_slice(), analysis.layers.as_slice());
    let story = Story::with(paths, judged, &mut |process| captures.digest(process));
    analysis.layer_lines = story.layer_lines();
    analysis.headline.clone_from(&story.headline);
    story
}

/// What the rules find in a run, where it is small.
#[must_use]
pub fn findings_if_small(run: &Path) -> Vec<Finding> {
    judge_if_small(run).map(|analysis| analysis.findings).unwrap_or_default()
}

/// The rules over a run that is read in a moment; `None` where it is large.
#[must_use]
pub fn judge_if_small(run: &Path) -> Option<Analysis> {
    if !is_small(run) {
        return None;
    }
    let captures = CaptureReader::default();
    let mut reader = Reader { captures: &|path: &Path| captures.at(path), keep_reading: &mut || true };
    recording::load(&[run.to_owned()], &mut reader).ok().map(judge)
}

fn snapshot_findings(path: &Path) -> Result<Vec<Finding>, String> {
    let file = snapshot_at(path).map_err(|error| error.to_string())?;
    let snapshot = stormlog_torch::load(&file).map_err(|error| error.to_string())?;
    let report = stormlog_torch::report(&snapshot, &ReportOptions::default());
    Ok(report.findings(&path.display().to_string(), "/payload/snapshots/0"))
}

/// Whether all files of a run together are small.
fn is_small(run: &Path) -> bool {
    let (mut bytes, mut files, mut pending) = (0_u64, 0, vec![run.to_owned()]);
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            files += 1;
            match metadata.is_dir() {
                true => pending.push(entry.path()),
                // Files that are mapped have holes.
                false => bytes += std::os::unix::fs::MetadataExt::blocks(&metadata) * 512,
            }
            if bytes > MOST_BYTES || files > MOST_FILES {
                return false;
            }
        }
    }
    true
}
