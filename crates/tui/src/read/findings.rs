//! Judges recordings for the view of findings: one at a time, the newest run first, each again only when it changed.
//!
//! Judging is `stormlog_story`'s; here is only which recording is next. A large recording may take long: it is cancelled when something else is requested.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stormlog_catalog::run::{FileVersion, ObservedState, RunDirectory, find_runs};
use stormlog_story::Judged;

use crate::state::findings::{FindingsLook, JudgedRecording, short};

/// Between two searches for runs.
const SEARCH_EVERY: Duration = Duration::from_secs(10);
/// A recording that grows is judged again after this time at the earliest, and after this multiple of what the last time took.
const JUDGE_EVERY: Duration = Duration::from_secs(30);
const JUDGE_REST: u32 = 20;
/// Recordings that are judged for one question, and judged ones that are kept for others.
const MOST_WANTED: usize = 4000;
const MOST_KEPT: usize = 5000;
/// Findings kept of one recording, the worst first.
const MOST_FINDINGS: usize = 200;

/// What is requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FindingsAsk {
    /// One recording, or all runs.
    pub(crate) subject: Option<PathBuf>,
    /// How many of the newest runs.
    pub(crate) most: usize,
    /// The number of this question: a reading for another one is cancelled.
    pub(crate) turn: u64,
}

struct CachedJudgement {
    version: Option<FileVersion>,
    /// It may have grown since.
    is_growing: bool,
    judged_at: Instant,
    took: Duration,
    judged: Arc<JudgedRecording>,
}

/// Reads for the view.
pub(crate) struct FindingsReader {
    roots: Vec<PathBuf>,
    /// The question that is asked now.
    turn: Arc<AtomicU64>,
    known: HashMap<PathBuf, CachedJudgement>,
    runs: Vec<PathBuf>,
    searched: Option<Instant>,
}

impl FindingsReader {
    pub(crate) fn new(roots: Vec<PathBuf>, turn: Arc<AtomicU64>) -> Self {
        FindingsReader { roots, turn, known: HashMap::new(), runs: Vec::new(), searched: None }
    }

    /// Judges at most one recording, and gives everything that was judged; true where there is more to judge.
    pub(crate) fn look(&mut self, ask: &FindingsAsk) -> (FindingsLook, bool) {
        let all = match &ask.subject {
            Some(path) => vec![path.clone()],
            None => self.runs().to_vec(),
        };
        let found = all.len();
        let wanted: Vec<PathBuf> = all.into_iter().take(ask.most.min(MOST_WANTED)).collect();
        if self.known.len() > MOST_KEPT {
            let wanted: HashSet<&PathBuf> = wanted.iter().collect();
            self.known.retain(|path, _| wanted.contains(path));
        }
        let next = wanted.iter().find(|path| self.is_missing(path));
        let next = next.or_else(|| wanted.iter().find(|path| self.is_stale(path))).cloned();
        let is_whole = next.is_none_or(|path| self.judge(&path, ask.turn));
        // A cancelled one is not requested again.
        let is_behind = is_whole && wanted.iter().any(|path| self.is_missing(path));
        let judged =
            wanted.iter().filter_map(|path| self.of(path)).map(|known| Arc::clone(&known.judged)).collect();
        let look =
            FindingsLook { subject: ask.subject.clone(), found, wanted: wanted.len(), judged, is_behind };
        (look, is_behind)
    }

    fn of(&self, path: &Path) -> Option<&CachedJudgement> {
        self.known.get(path)
    }

    fn is_missing(&self, path: &Path) -> bool {
        self.of(path).is_none_or(|known| !known.is_growing && known.version != version(path))
    }

    fn is_stale(&self, path: &Path) -> bool {
        self.of(path).is_some_and(|known| {
            let rest = JUDGE_EVERY.max(known.took.saturating_mul(JUDGE_REST));
            known.is_growing && known.judged_at.elapsed() > rest
        })
    }

    /// False where it was cancelled.
    fn judge(&mut self, path: &Path, turn: u64) -> bool {
        let began = Instant::now();
        let version = version(path);
        let is_growing = is_growing(path);
        let current = Arc::clone(&self.turn);
        let judged = Judged::of_path(path, &mut || current.load(Ordering::Relaxed) == turn);
        let Ok(judged) = judged else { return false };
        let mut rows = judged.finding_rows();
        rows.truncate(MOST_FINDINGS);
        let problems = judged.analysis.inputs.iter().flat_map(|input| input.problems.clone()).collect();
        let recording = JudgedRecording {
            path: path.to_owned(),
            name: short(path),
            headline: judged.analysis.headline,
            rows,
            problems,
        };
        let known = CachedJudgement {
            version,
            is_growing,
            judged_at: Instant::now(),
            took: began.elapsed(),
            judged: Arc::new(recording),
        };
        self.known.insert(path.to_owned(), known);
        true
    }

    /// The runs below the roots, the newest first: their names begin with their time.
    fn runs(&mut self) -> &[PathBuf] {
        if self.searched.is_none_or(|at| at.elapsed() > SEARCH_EVERY) {
            let found = self.roots.iter().filter_map(|root| find_runs(root).ok());
            self.runs = found.flat_map(|found| found.directories).map(|run| run.path().to_owned()).collect();
            self.runs.sort_by(|a, b| b.file_name().cmp(&a.file_name()).then_with(|| a.cmp(b)));
            self.runs.dedup();
            self.searched = Some(Instant::now());
        }
        &self.runs
    }
}

/// The version of a run's record, or of a file.
fn version(path: &Path) -> Option<FileVersion> {
    match RunDirectory::open(path) {
        Some(run) => run.version().ok(),
        None => FileVersion::of(path).ok(),
    }
}

/// Whether more may be recorded without a change of its version: a run that lives, a directory that is not a run.
fn is_growing(path: &Path) -> bool {
    match RunDirectory::open(path) {
        Some(run) => run.observe().ok().flatten().is_some_and(|run| run.state == ObservedState::Living),
        None => path.is_dir(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    fn ask(subject: Option<PathBuf>, most: usize, turn: u64) -> FindingsAsk {
        FindingsAsk { subject, most, turn }
    }

    #[test]
    fn runs_are_judged_one_by_one_and_again_only_when_they_changed() {
        let recorded =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/recordings/leak_after_imports");
        let turn = Arc::new(AtomicU64::new(7));
        let mut reader = FindingsReader::new(vec![recorded.clone()], Arc::clone(&turn));
        let (look, is_behind) = reader.look(&ask(None, 50, 7));
        assert_eq!((look.found, look.wanted, look.judged.len(), is_behind), (1, 1, 1, false));
        let rows = &look.judged[0].rows;
        assert!(rows.iter().any(|row| row.finding.kind == "leak" && row.pid.is_some()), "{rows:#?}");
        assert!(!look.judged[0].headline.is_empty());
        let (again, _) = reader.look(&ask(None, 50, 7));
        assert!(Arc::ptr_eq(&look.judged[0], &again.judged[0]), "kept");
        turn.store(8, Ordering::Relaxed);
        let mut other = FindingsReader::new(vec![recorded], turn);
        let (let_go, is_behind) = other.look(&ask(None, 50, 7));
        assert!(let_go.judged.is_empty() && !is_behind, "another question is asked");
    }

    #[test]
    fn path_without_a_recording_gives_one_sentence() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("notes.txt");
        std::fs::write(&file, "not telemetry").unwrap();
        let mut reader = FindingsReader::new(Vec::new(), Arc::new(AtomicU64::new(0)));
        let (look, _) = reader.look(&ask(Some(file), 50, 0));
        assert_eq!(look.judged[0].problems.len(), 1, "{look:#?}");
    }
}
