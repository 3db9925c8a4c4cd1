//! What the user named, and which processes are there.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use stormlog_capture::layout::LIVE_SUFFIX;
use stormlog_capture::live::Live;
use stormlog_catalog::captures::last_capture;
use stormlog_catalog::run::layout::{RING_FILE, RUN_VARIABLE, SESSION_FILE, is_session, run_around};
use stormlog_catalog::run::{ListedProcess, find_runs};
use stormlog_collect::ProcessTree;
use stormlog_store::Source;
use stormlog_store::run_record::read_run;
use stormlog_story::FollowedSessions;

use crate::error::TuiError;
use crate::read::output::last_line;

/// Most processes of a tree that are listed.
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

/// Where the list of processes is read, at every look.
#[derive(Debug)]
pub(super) enum ProcessSource {
    Run(PathBuf),
    Session(PathBuf),
    Capture(PathBuf),
    /// Telemetry that is in no run, of any version, and the processes in it once it was read.
    Telemetry(PathBuf, Option<Vec<ListedProcess>>),
    /// A process without any recording, and its children.
    Tree(Box<ProcessTree>),
}

impl ProcessSource {
    /// The source, and the selected process in it.
    pub(super) fn of(target: &LiveTarget) -> Result<(ProcessSource, Option<u32>), TuiError> {
        match target {
            LiveTarget::Process(pid) => of_process(*pid).map(|source| (source, Some(*pid))),
            LiveTarget::Path(path) => of_path(path).map(|source| (source, None)),
        }
    }

    /// The first line of the screen.
    pub(super) fn title(&self) -> String {
        let last = |path: &Path| path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        match self {
            ProcessSource::Tree(tree) => format!("process {}", tree.root()),
            recorded => recorded.path().map(last).unwrap_or_default(),
        }
    }

    /// Where it is recorded, if it is.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            ProcessSource::Run(path)
            | ProcessSource::Session(path)
            | ProcessSource::Capture(path)
            | ProcessSource::Telemetry(path, _) => Some(path),
            ProcessSource::Tree(_) => None,
        }
    }

    /// What the program printed last, where its run keeps that.
    pub(super) fn output(&self) -> Option<String> {
        match self {
            ProcessSource::Run(path) => last_line(path),
            _ => None,
        }
    }

    /// The processes that are there now.
    pub(super) fn processes(&mut self) -> Vec<ListedProcess> {
        match self {
            ProcessSource::Capture(path) => vec![ListedProcess::of_capture(path)],
            ProcessSource::Session(path) => vec![ListedProcess::of_session(path)],
            ProcessSource::Run(path) => ListedProcess::of_run(path),
            ProcessSource::Telemetry(path, known) => known.get_or_insert_with(|| of_telemetry(path)).clone(),
            ProcessSource::Tree(tree) => {
                tree.refresh();
                let found = |pid| ListedProcess { pid, ..ListedProcess::default() };
                let mut all: Vec<ListedProcess> = tree.members().map(|member| found(member.pid)).collect();
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
    read_run(session.parent()?).ok().flatten().map(Value::Object)
}

fn of_path(path: &Path) -> Result<ProcessSource, TuiError> {
    if run_around(path, 0).is_some() {
        return Ok(ProcessSource::Run(path.to_owned()));
    }
    if is_session(path) || last_capture(path).is_some() {
        return Ok(ProcessSource::Session(path.to_owned()));
    }
    if path.is_dir() {
        // A directory of runs: the one that began last.
        let newest = find_runs(path).ok().and_then(|mut found| found.directories.pop());
        let run = newest.map(|run| ProcessSource::Run(run.path().to_owned()));
        return run.or_else(|| telemetry(path)).ok_or_else(|| TuiError::NotARecording(path.to_owned()));
    }
    if path.file_name().is_some_and(|name| name == RING_FILE || name == SESSION_FILE)
        && let Some(session) = path.parent()
    {
        return Ok(ProcessSource::Session(session.to_owned()));
    }
    let capture = path.as_os_str().as_bytes().strip_suffix(LIVE_SUFFIX.as_bytes());
    let capture = capture.map_or_else(|| path.to_owned(), |name| PathBuf::from(OsStr::from_bytes(name)));
    if !capture.exists() && !Live::path_of(&capture).exists() {
        return Err(TuiError::NotARecording(path.to_owned()));
    }
    // Says what is wrong with it before the screen is taken.
    match stormlog_heap::Follow::open(&capture) {
        Ok(_) => Ok(ProcessSource::Capture(capture)),
        Err(error) => telemetry(path).ok_or_else(|| error.into()),
    }
}

fn telemetry(path: &Path) -> Option<ProcessSource> {
    let known = Source::find_known(path).ok()?;
    (!known.found.is_empty()).then(|| ProcessSource::Telemetry(path.to_owned(), None))
}

/// The processes of a telemetry file, which the name of the file stands for.
fn of_telemetry(path: &Path) -> Vec<ListedProcess> {
    let mut sessions = FollowedSessions::default();
    sessions.look(&[path.to_owned()], &mut |_, _| {});
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let found = |(pid, rank)| ListedProcess {
        pid,
        rank,
        command: vec![name.clone()],
        sessions: vec![path.to_owned()],
        ..ListedProcess::default()
    };
    sessions.processes().into_iter().take(MOST).map(found).collect()
}

fn of_process(pid: u32) -> Result<ProcessSource, TuiError> {
    let tree = ProcessTree::of(pid).map_err(|_| TuiError::NoProcess(pid))?;
    if let Some(run) = variable(pid, RUN_VARIABLE).map(PathBuf::from)
        && ListedProcess::of_run(&run).iter().any(|found| found.pid == pid)
    {
        return Ok(ProcessSource::Run(run));
    }
    let here = PathBuf::from(format!("/proc/{pid}/cwd"));
    let ordered = variable(pid, "STORMLOG_HEAP").and_then(|order| {
        let path = order.split(';').find_map(|part| part.strip_prefix("path="))?;
        Some(here.join(path.replace("%p", &pid.to_string())))
    });
    // Where `stormlog.heap.start()` writes by default.
    let usual = here.join(format!("stormlog-heap-{pid}.bin"));
    let mut captures = ordered.into_iter().chain([usual]);
    match captures.find(|path| ListedProcess::of_capture(path).pid == pid) {
        Some(path) => Ok(ProcessSource::Capture(path)),
        None => Ok(ProcessSource::Tree(Box::new(tree))),
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

/// The program without its directory, and its arguments.
pub(super) fn short_command(words: &[impl AsRef<str>]) -> String {
    let mut words = words.iter().map(AsRef::as_ref);
    let program = words.next().map(|word| word.rsplit('/').next().unwrap_or(word)).unwrap_or_default();
    std::iter::once(program).chain(words).collect::<Vec<_>>().join(" ")
}
