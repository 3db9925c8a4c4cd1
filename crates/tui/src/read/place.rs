//! What the user named, and which processes are there.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use stormlog_capture::layout::LIVE_SUFFIX;
use stormlog_capture::live::Live;
use stormlog_capture::source::Source;
use stormlog_collect::ProcessTree;
use stormlog_model::layout::{
    CAPTURE_FILE, CAPTURES_DIRECTORY, RING_FILE, RUN_FILE, RUN_VARIABLE, SESSION_FILE,
};
use stormlog_store::json::read_value;
use stormlog_store::recording::read_session;

use crate::error::TuiError;
use crate::read::output::last_line;

/// Most processes of one run that are listed.
const MOST: usize = 1024;
/// Most of a process's environment that is looked through.
const MOST_ENVIRONMENT: u64 = 4 << 20;

/// What to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LiveTarget {
    /// A process that runs.
    Process(u32),
    /// A run, a session or a capture.
    Path(PathBuf),
}

impl LiveTarget {
    /// What a word on the command line means: a path when there is one, else a process number.
    #[must_use]
    pub fn of(word: &OsStr) -> LiveTarget {
        let path = PathBuf::from(word);
        let pid = word.to_str().and_then(|text| text.parse().ok()).filter(|pid| *pid > 0);
        match pid {
            Some(pid) if !path.exists() => LiveTarget::Process(pid),
            _ => LiveTarget::Path(path),
        }
    }
}

/// Where processes are found, again and again.
#[derive(Debug)]
pub(super) enum Place {
    Run(PathBuf),
    Session(PathBuf),
    Capture(PathBuf),
    /// A process without any recording, and its children.
    Tree(Box<ProcessTree>),
}

/// A process that was found.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    pub(super) pid: u32,
    pub(super) name: Option<String>,
    pub(super) rank: Option<u32>,
    pub(super) session: Option<PathBuf>,
    pub(super) capture: Option<PathBuf>,
    /// When the capture began, nanoseconds since 1970.
    pub(super) since_ns: u64,
}

impl Place {
    /// The place, and the process in it that is meant.
    pub(super) fn of(target: &LiveTarget) -> Result<(Place, Option<u32>), TuiError> {
        match target {
            LiveTarget::Process(pid) => of_process(*pid).map(|place| (place, Some(*pid))),
            LiveTarget::Path(path) => of_path(path).map(|place| (place, None)),
        }
    }

    /// The first line of the screen.
    pub(super) fn title(&self) -> String {
        let last = |path: &Path| path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        match self {
            Place::Run(path) | Place::Session(path) | Place::Capture(path) => last(path),
            Place::Tree(tree) => format!("process {}", tree.root()),
        }
    }

    /// What the program printed last, where its run keeps that.
    pub(super) fn output(&self) -> Option<String> {
        match self {
            Place::Run(path) => last_line(path),
            _ => None,
        }
    }

    /// The processes that are there now.
    pub(super) fn processes(&mut self) -> Vec<Found> {
        match self {
            Place::Capture(path) => vec![of_capture(path)],
            Place::Session(path) => vec![of_session(path)],
            Place::Run(path) => of_run(path),
            Place::Tree(tree) => {
                tree.refresh();
                let found = |pid| Found { pid, ..Found::default() };
                let mut all: Vec<Found> = tree.members().map(|member| found(member.pid)).collect();
                let root = tree.root();
                if !all.iter().any(|found| found.pid == root) {
                    all.push(found(root));
                }
                all.sort_by_key(|found| (found.pid != root, found.pid));
                all.truncate(MOST);
                all
            }
        }
    }
}

/// How a whole run ended, as its supervisor wrote it down.
pub(super) fn run_record(session: &Path) -> Option<Value> {
    read_value(&session.parent()?.join(RUN_FILE)).ok()
}

fn of_path(path: &Path) -> Result<Place, TuiError> {
    if path.join(RUN_FILE).is_file() {
        return Ok(Place::Run(path.to_owned()));
    }
    if path.join(SESSION_FILE).is_file() || path.join(RING_FILE).is_file() || capture_in(path).is_some() {
        return Ok(Place::Session(path.to_owned()));
    }
    if path.is_dir() {
        // A directory of runs: the one that began last.
        let newest = entries(path).into_iter().filter(|path| path.join(RUN_FILE).is_file()).max();
        return newest.map(Place::Run).ok_or_else(|| TuiError::NotARecording(path.to_owned()));
    }
    if path.file_name().is_some_and(|name| name == RING_FILE || name == SESSION_FILE)
        && let Some(session) = path.parent()
    {
        return Ok(Place::Session(session.to_owned()));
    }
    let capture = path.as_os_str().as_bytes().strip_suffix(LIVE_SUFFIX.as_bytes());
    let capture = capture.map_or_else(|| path.to_owned(), |name| PathBuf::from(OsStr::from_bytes(name)));
    if !capture.exists() && !Live::path_of(&capture).exists() {
        return Err(TuiError::NotARecording(path.to_owned()));
    }
    // Says what is wrong with it before the screen is taken.
    stormlog_heap::Follow::open(&capture)?;
    Ok(Place::Capture(capture))
}

fn of_process(pid: u32) -> Result<Place, TuiError> {
    let tree = ProcessTree::of(pid).map_err(|_| TuiError::NoProcess(pid))?;
    if let Some(run) = variable(pid, RUN_VARIABLE).map(PathBuf::from)
        && of_run(&run).iter().any(|found| found.pid == pid)
    {
        return Ok(Place::Run(run));
    }
    let here = PathBuf::from(format!("/proc/{pid}/cwd"));
    let ordered = variable(pid, "STORMLOG_HEAP").and_then(|order| {
        let path = order.split(';').find_map(|part| part.strip_prefix("path="))?;
        Some(here.join(path.replace("%p", &pid.to_string())))
    });
    // Where `stormlog.heap.start()` writes when it is told nothing.
    let usual = here.join(format!("stormlog-heap-{pid}.bin"));
    let mut captures = ordered.into_iter().chain([usual]);
    match captures.find(|path| of_capture(path).pid == pid) {
        Some(path) => Ok(Place::Capture(path)),
        None => Ok(Place::Tree(Box::new(tree))),
    }
}

/// A variable of another process's environment, as it was when that began.
fn variable(pid: u32, name: &str) -> Option<String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(format!("/proc/{pid}/environ")).ok()?;
    file.take(MOST_ENVIRONMENT).read_to_end(&mut bytes).ok()?;
    let mut entries = bytes.split(|byte| *byte == 0);
    let value = entries.find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    Some(String::from_utf8_lossy(value).into_owned())
}

fn of_capture(path: &Path) -> Found {
    let header = Source::open(path).and_then(|source| source.header()).unwrap_or_default();
    let about: Value = serde_json::from_slice(&header.metadata).unwrap_or_default();
    Found {
        pid: header.pid,
        name: command(&about),
        capture: Some(path.to_owned()),
        since_ns: header.start_realtime_ns,
        ..Found::default()
    }
}

fn of_session(directory: &Path) -> Found {
    let summary = read_session(directory).ok();
    let capture = capture_in(directory);
    let recorded = capture.as_deref().map(of_capture).unwrap_or_default();
    Found {
        pid: summary.as_ref().and_then(|summary| u32::try_from(summary.pid).ok()).unwrap_or(recorded.pid),
        name: recorded.name,
        rank: summary
            .filter(|summary| summary.world_size > 1)
            .and_then(|summary| u32::try_from(summary.rank).ok()),
        session: Some(directory.to_owned()),
        capture,
        since_ns: recorded.since_ns,
    }
}

/// The sessions of a run, in the order they began, with the captures that are still being written.
fn of_run(run: &Path) -> Vec<Found> {
    let mut sessions: Vec<PathBuf> = entries(run);
    sessions.retain(|path| path.join(SESSION_FILE).is_file() || path.join(RING_FILE).is_file());
    let mut found: Vec<Found> = sessions.iter().take(MOST).map(|session| of_session(session)).collect();
    let mut written: Vec<PathBuf> =
        entries(&run.join(CAPTURES_DIRECTORY)).into_iter().filter_map(capture_name).collect();
    written.sort();
    written.dedup();
    let mut captures: Vec<Found> = written.iter().take(MOST).map(|capture| of_capture(capture)).collect();
    // A process that became another program by exec began another capture; the last one is what it is now.
    captures.sort_by_key(|capture| capture.since_ns);
    for new in captures {
        match found.iter_mut().find(|known| known.pid == new.pid) {
            Some(known) => {
                *known = Found { rank: known.rank, session: known.session.take(), ..new };
            }
            None if new.pid != 0 => found.push(new),
            None => {}
        }
    }
    let record = read_value(&run.join(RUN_FILE)).unwrap_or_default();
    let first = record.get("pid").and_then(Value::as_u64);
    if let Some(program) = found.iter_mut().find(|found| Some(u64::from(found.pid)) == first) {
        program.name = program.name.take().or_else(|| command(&record));
    }
    found.sort_by_key(|found| (found.rank, found.pid));
    found.dedup_by_key(|found| found.pid);
    found
}

fn capture_in(directory: &Path) -> Option<PathBuf> {
    let path = directory.join(CAPTURE_FILE);
    (path.is_file() || Live::path_of(&path).is_file()).then_some(path)
}

/// The capture a file belongs to.
fn capture_name(path: PathBuf) -> Option<PathBuf> {
    let bytes = path.as_os_str().as_bytes();
    let bytes = bytes.strip_suffix(LIVE_SUFFIX.as_bytes()).unwrap_or(bytes);
    let (name, number) = bytes.split_at(bytes.iter().rposition(|byte| !byte.is_ascii_digit())? + 1);
    let name = if number.is_empty() { name } else { name.strip_suffix(b".")? };
    name.ends_with(b".bin").then(|| PathBuf::from(OsStr::from_bytes(bytes)))
}

fn command(about: &Value) -> Option<String> {
    let words: Vec<&str> = about.get("command")?.as_array()?.iter().filter_map(Value::as_str).collect();
    (!words.is_empty()).then(|| short_command(&words))
}

/// The program without its directory, and its arguments.
pub(super) fn short_command(words: &[impl AsRef<str>]) -> String {
    let mut words = words.iter().map(AsRef::as_ref);
    let program = words.next().map(|word| word.rsplit('/').next().unwrap_or(word)).unwrap_or_default();
    std::iter::once(program).chain(words).collect::<Vec<_>>().join(" ")
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).collect()
}
