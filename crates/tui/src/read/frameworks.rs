//! Reads for the view of frameworks: the list of sources, the one that is chosen, and a replay of it step by step.
//!
//! A look is given as soon as a part of it is new: the list first, then what is chosen, then one setting of the replay after the other.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use stormlog_catalog::frameworks::{
    FrameworkSource, FrameworkSourceKind, FrameworkTelemetry, framework_sources, framework_telemetry,
};
use stormlog_heap::{DeviceStats, GroupBy};
use stormlog_heap_report::{HeapQuery, Reading, forecast};
use stormlog_torch::{ReplayProgress, ReportOptions, Snapshot, SnapshotReport};

/// The list is made again after this time, and after this multiple of what it took.
const LIST_REST: Duration = Duration::from_secs(5);
const LIST_SHARE: u32 = 40;
/// Places of a capture that are listed.
const TOP: usize = 20;
/// Telemetry whose last event is younger than this is read again at every look.
const RECENT_NS: u64 = 60_000_000_000;

/// What the view wants to know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FrameworksAsk {
    /// Where to look for sources.
    pub(crate) paths: Vec<PathBuf>,
    /// The source to read.
    pub(crate) chosen: Option<PathBuf>,
    /// Whether its requests are to be replayed.
    pub(crate) replays: bool,
}

/// What was read.
#[derive(Debug, Clone, Default)]
pub(crate) struct FrameworksLook {
    pub(crate) at_ns: u64,
    pub(crate) sources: Arc<Vec<FrameworkSource>>,
    pub(crate) detail: Option<Arc<Detail>>,
    pub(crate) replay: Option<Arc<Replay>>,
}

/// One source, read.
#[derive(Debug)]
pub(crate) struct Detail {
    pub(crate) path: PathBuf,
    pub(crate) content: Content,
}

#[derive(Debug)]
pub(crate) enum Content {
    /// With the page of `stormlog snapshot`.
    Snapshot {
        report: Box<SnapshotReport>,
        page: Vec<String>,
    },
    Telemetry(FrameworkTelemetry),
    /// The devices of a capture.
    Capture(Vec<DeviceStats>),
    /// Why it cannot be read.
    Trouble(String),
}

impl Detail {
    /// Whether it has samples of a moment ago: its process may live, and a mapped file changes without a new time.
    fn is_recent(&self) -> bool {
        let Content::Telemetry(found) = &self.content else { return false };
        let last_ns = found.devices.iter().map(|device| device.last_ns).max().unwrap_or(0);
        now_ns().saturating_sub(last_ns) < RECENT_NS
    }
}

/// A replay, as far as it is.
#[derive(Debug)]
pub(crate) struct Replay {
    pub(crate) path: PathBuf,
    pub(crate) done: usize,
    pub(crate) total: usize,
    /// The page of `stormlog replay`, or why there is none.
    pub(crate) page: Vec<String>,
}

/// The reader, with what it has read.
#[derive(Debug, Default)]
pub(crate) struct FrameworksReader {
    listed: Option<Listed>,
    sources: Arc<Vec<FrameworkSource>>,
    detail: Option<(u64, Arc<Detail>)>,
    snapshot: Option<(PathBuf, Snapshot)>,
    replay: Option<(PathBuf, ReplayProgress)>,
    shown: Option<Arc<Replay>>,
}

#[derive(Debug)]
struct Listed {
    paths: Vec<PathBuf>,
    at: Instant,
    rest: Duration,
}

impl FrameworksReader {
    /// The next part of what was requested, and whether there is more at once.
    pub(crate) fn look(&mut self, ask: &FrameworksAsk) -> (FrameworksLook, bool) {
        let is_new = self.list(ask);
        let is_behind = match ask.chosen.as_deref() {
            _ if is_new && self.detail.is_none() => true,
            None => false,
            Some(path) => match self.read(path) {
                true => ask.replays,
                false => ask.replays && self.replay_step(path),
            },
        };
        if !ask.replays {
            // A snapshot may be large: it is read again for a replay.
            (self.snapshot, self.replay) = (None, None);
        }
        let chosen = |path: &Path| ask.chosen.as_deref() == Some(path);
        let look = FrameworksLook {
            at_ns: now_ns(),
            sources: Arc::clone(&self.sources),
            detail: self.detail.as_ref().map(|(_, detail)| detail).filter(|it| chosen(&it.path)).cloned(),
            replay: self.shown.as_ref().filter(|it| ask.replays && chosen(&it.path)).cloned(),
        };
        (look, is_behind)
    }

    /// Makes the list where it is too old; true when it was made.
    fn list(&mut self, ask: &FrameworksAsk) -> bool {
        let is_fresh = |listed: &Listed| listed.paths == ask.paths && listed.at.elapsed() < listed.rest;
        if self.listed.as_ref().is_some_and(is_fresh) {
            return false;
        }
        let began = Instant::now();
        self.sources = Arc::new(framework_sources(&ask.paths));
        let rest = LIST_REST.max(began.elapsed().saturating_mul(LIST_SHARE));
        self.listed = Some(Listed { paths: ask.paths.clone(), at: Instant::now(), rest });
        true
    }

    /// Reads a source that was not read since it changed, or that may be written by a process that lives; true when it was read.
    fn read(&mut self, path: &Path) -> bool {
        let source = self.sources.iter().find(|source| source.path == path);
        let modified_ns = source.map_or(0, |source| source.modified_ns);
        let is_known = |(of_ns, detail): &(u64, Arc<Detail>)| *of_ns == modified_ns && detail.path == path;
        if self.detail.as_ref().is_some_and(|known| is_known(known) && !known.1.is_recent()) {
            return false;
        }
        let content = match source.map(|source| &source.kind) {
            Some(FrameworkSourceKind::Telemetry(source)) => match framework_telemetry(source, &|| true) {
                Ok(found) => Content::Telemetry(found),
                Err(error) => Content::Trouble(error.to_string()),
            },
            Some(FrameworkSourceKind::Capture) => capture_content(path),
            Some(FrameworkSourceKind::Snapshot) | None => snapshot_content(path),
        };
        self.detail = Some((modified_ns, Arc::new(Detail { path: path.to_owned(), content })));
        (self.snapshot, self.replay, self.shown) = (None, None, None);
        true
    }

    /// One more setting; false when there is nothing left to try.
    fn replay_step(&mut self, path: &Path) -> bool {
        let device = match self.detail.as_ref().map(|(_, detail)| &detail.content) {
            Some(Content::Snapshot { report, .. }) => report.device,
            _ => return false,
        };
        if self.snapshot.as_ref().is_none_or(|(of, _)| of != path) {
            self.snapshot = stormlog_torch::load(path).ok().map(|snapshot| (path.to_owned(), snapshot));
        }
        let Some((_, snapshot)) = &self.snapshot else { return false };
        let problem = snapshot.replay_problem(device);
        let progress = match (&mut self.replay, problem) {
            (_, Some(problem)) => {
                let page = vec![problem];
                self.shown = Some(Arc::new(Replay { path: path.to_owned(), done: 0, total: 0, page }));
                return false;
            }
            (Some((of, progress)), None) if of == path => {
                if !progress.step(snapshot) {
                    return false;
                }
                progress
            }
            (replay, None) => {
                &mut replay.insert((path.to_owned(), ReplayProgress::begin(snapshot, device, None))).1
            }
        };
        let report = progress.report();
        self.shown = Some(Arc::new(Replay {
            path: path.to_owned(),
            done: progress.done(),
            total: progress.total(),
            page: lines(|out| stormlog_torch::write_replay_page(out, &report)),
        }));
        true
    }
}

/// A snapshot with its page.
fn snapshot_content(path: &Path) -> Content {
    let snapshot = match stormlog_torch::load(path) {
        Ok(snapshot) => snapshot,
        Err(error) => return Content::Trouble(error.to_string()),
    };
    let report = stormlog_torch::report(&snapshot, &ReportOptions::default());
    let page = lines(|out| stormlog_torch::write_snapshot_page(out, path, &report));
    Content::Snapshot { report: Box::new(report), page }
}

/// What a capture has of devices.
fn capture_content(path: &Path) -> Content {
    let reading = match Reading::still(path, HeapQuery::Peak) {
        Ok(reading) => reading,
        Err(error) => return Content::Trouble(error.to_string()),
    };
    let mut stats = reading.stats_by(GroupBy::Line, TOP);
    forecast(&mut stats, path);
    Content::Capture(stats.devices)
}

fn lines(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> Vec<String> {
    let mut page = Vec::new();
    // Writing to memory cannot fail.
    let _ = write(&mut page);
    String::from_utf8_lossy(&page).lines().map(str::to_owned).collect()
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../torch/tests/data").join(name)
    }

    #[test]
    fn a_snapshot_is_listed_read_and_replayed_step_by_step() {
        let path = fixture("streams-s11-default.pickle.gz");
        let mut reader = FrameworksReader::default();
        let mut ask = FrameworksAsk { paths: vec![path.clone()], ..FrameworksAsk::default() };
        let (look, _) = reader.look(&ask);
        assert_eq!(look.sources.len(), 1);
        ask.chosen = Some(path.clone());
        let (look, _) = reader.look(&ask);
        let Content::Snapshot { page, .. } = &look.detail.unwrap().content else { panic!() };
        assert!(page[1].starts_with("  verdict "), "{page:?}");
        ask.replays = true;
        let mut seen = Vec::new();
        loop {
            let (look, is_behind) = reader.look(&ask);
            seen.extend(look.replay.map(|replay| (replay.done, replay.total)));
            if !is_behind {
                break;
            }
        }
        let (done, total) = *seen.last().unwrap();
        assert_eq!(done, total);
        assert!(seen.first().unwrap().0 < done, "{seen:?}");
    }

    #[test]
    fn the_devices_of_a_capture_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("heap.bin");
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../heap/tests/data/devices.bin");
        std::fs::copy(fixture, &path).unwrap();
        let ask =
            FrameworksAsk { paths: vec![directory.path().to_owned()], chosen: Some(path), replays: false };
        let mut reader = FrameworksReader::default();
        while reader.look(&ask).1 {}
        let (look, _) = reader.look(&ask);
        let Content::Capture(devices) = &look.detail.unwrap().content else { panic!() };
        assert!(devices.iter().any(|device| device.peak_bytes > 0), "{devices:?}");
    }

    #[test]
    fn non_snapshot_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.pickle");
        std::fs::write(&path, "nothing").unwrap();
        let ask =
            FrameworksAsk { paths: vec![directory.path().to_owned()], chosen: Some(path), replays: true };
        let mut reader = FrameworksReader::default();
        while reader.look(&ask).1 {}
        let (look, _) = reader.look(&ask);
        assert!(matches!(&look.detail.unwrap().content, Content::Trouble(_)));
        assert!(look.replay.is_none());
    }
}
