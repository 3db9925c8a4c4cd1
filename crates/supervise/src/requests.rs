//! Requests to processes that do not take them themselves (`catalog::request`): native programs, and Python without PyTorch.
//!
//! The supervisor only sees that there are some, and starts a process of its own that answers; reading a heap costs memory that the supervisor must not
//! take. Must never wait, and never start more than one.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use stormlog_catalog::request::{
    Answer, Inbox, Kind, Request, State, is_run_of, new_snapshot_directory, pending_without_listener, user_of,
};
use stormlog_catalog::run::layout::{RING_FILE, RUN_VARIABLE, SessionName};
use stormlog_collect::process::ProcessReader;
use stormlog_files::Directory;
use stormlog_heap_report::snapshot::{FORMAT, MemorySnapshot, MemoryTotal, VERSION};
use stormlog_store::wall_ns;

use crate::attach::{AttachError, check};
use crate::environ::Environ;
use crate::naming::{ProgramName, command_of};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(250);
/// More of a process's mappings is not read.
const MOST_MAPS: usize = 16 << 20;

/// Has requests answered.
#[derive(Debug, Default)]
pub(crate) struct Answerer {
    /// The command that answers; it gets the run's directory as its last word and calls [`answer_requests`]. Empty: none does.
    pub(crate) command: Vec<OsString>,
    child: Option<Child>,
    next: Option<Instant>,
}

impl Answerer {
    /// Looks, where it is time to.
    pub(crate) fn look(&mut self, now: Instant, run: &Path) {
        if self.command.is_empty() || self.next.is_some_and(|next| now < next) {
            return;
        }
        self.next = Some(now + PAUSE);
        if let Some(child) = &mut self.child {
            match child.try_wait() {
                Ok(None) => return,
                _ => self.child = None,
            }
        }
        if pending_without_listener(run).is_empty() {
            return;
        }
        let mut words = self.command.iter();
        let Some(program) = words.next() else { return };
        let mut command = Command::new(program);
        command.args(words).arg(run).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // The terminal's signals are the program's.
        self.child = command.process_group(0).spawn().ok();
    }
}

/// Answers every request of a run to a process that does not take them itself.
pub fn answer_requests(run: &Path) {
    for pid in pending_without_listener(run) {
        let user = user_of(pid);
        let inbox = Inbox::new(
            run,
            pid,
            stormlog_liveness::start_ticks(pid),
            user.unwrap_or_else(|| rustix::process::geteuid().as_raw()),
        );
        for request in inbox.take() {
            let answer = match reply(run, &request) {
                Ok(path) => Answer { path: Some(path), ..answer_to(&request, State::Done, None) },
                Err(reason) => answer_to(&request, State::Refused, Some(reason)),
            };
            // A full disk: the caller waits until its deadline.
            let _ = answer.write(run);
        }
    }
}

fn answer_to(request: &Request, state: State, reason: Option<String>) -> Answer {
    Answer {
        id: request.id.clone(),
        pid: request.pid,
        state,
        path: None,
        reason,
        step: None,
        answered_at_ns: wall_ns() as i64,
    }
}

fn reply(run: &Path, request: &Request) -> Result<PathBuf, String> {
    if named_run(request.pid).is_none_or(|found| found != run) {
        return Err(format!("process {} is not one of this run", request.pid));
    }
    if let Some(step) = request.at_step {
        return Err(format!(
            "process {} counts no steps, so it cannot wait for step {step}; call stormlog.step(), or use an optimizer of PyTorch",
            request.pid
        ));
    }
    let mut found = snapshot_from_outside(request.pid, Some(run)).map_err(|error| error.to_string())?;
    if request.kind == Kind::Heap && found.holders.is_none() {
        return Err("the heap of this process is not recorded; `stormlog snapshot --pid PID --heap SECONDS` on its machine records it for a while".to_owned());
    }
    found.id.clone_from(&request.id);
    found.asked_by.clone_from(&request.asked_by);
    let made = new_snapshot_directory(run, request.pid, &request.id).map_err(|error| error.to_string())?;
    found.write(&made).map_err(|error| format!("{}: {error}", made.path().display()))?;
    Ok(made.path().to_owned())
}

/// The memory of a process, seen from outside: what is resident, and the lines that hold the heap where it is recorded in `run`.
pub fn snapshot_from_outside(pid: u32, run: Option<&Path>) -> Result<MemorySnapshot, AttachError> {
    check(pid)?;
    let memory = ProcessReader::open(pid).and_then(|mut reader| reader.memory());
    let memory = memory.map_err(|_| AttachError::NoProcess(pid))?;
    let host = MemoryTotal { memory: "host".to_owned(), bytes: memory.rss, ..MemoryTotal::default() };
    let program = command_of(pid).map(|command| ProgramName::of(&command).word);
    let mut found = MemorySnapshot {
        format: FORMAT.to_owned(),
        schema_version: VERSION,
        pid,
        program,
        taken_at_ns: wall_ns() as i64,
        memories: vec![host],
        ..MemorySnapshot::default()
    };
    if let Some(run) = run {
        found.add_heap(run);
    }
    found.notes.extend(recorded_parent(pid).map(|parent| {
        format!(
            "forked from process {parent}: lines are of what it allocated since; `stormlog snapshot --pid {parent}` names those of what it inherited"
        )
    }));
    Ok(found)
}

/// The process of the same run that `pid` is a copy of; `None` for a program that was executed.
fn recorded_parent(pid: u32) -> Option<u32> {
    let stat = ProcessReader::open(pid).and_then(|mut reader| reader.stat()).ok()?;
    let run = named_run(pid).filter(|_| stat.is_copy)?;
    (named_run(stat.ppid)? == run).then_some(stat.ppid)
}

/// The directory that a process records into, open: of its run, or its own where it records itself. `None` where it is not recorded or hidden from us, and
/// where it names a directory that its user has no right to: root is not led into one.
#[must_use]
pub fn recorded_at(pid: u32) -> Option<Directory> {
    named_run(pid).and_then(|run| Directory::open(&run).ok()).filter(|run| is_run_of(run, pid))
}

/// The directory that a process names, in its environment or by a recording that it has open.
fn named_run(pid: u32) -> Option<PathBuf> {
    let run = Environ::of(pid, false).get(RUN_VARIABLE).filter(|run| !run.is_empty());
    if let Some(run) = run.map(PathBuf::from).filter(|run| run.is_dir()) {
        return Some(run);
    }
    let mut maps = std::fs::read(format!("/proc/{pid}/maps")).ok()?;
    maps.truncate(MOST_MAPS);
    let maps = String::from_utf8_lossy(&maps);
    let mapped = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let session =
        mapped.filter(|path| path.file_name().is_some_and(|name| name == RING_FILE)).find_map(|path| {
            let session = path.parent()?;
            let name = SessionName::parse(session.file_name()?.to_str()?)?;
            (name.pid == pid).then(|| session.parent().map(Path::to_owned)).flatten()
        });
    session.filter(|run| run.is_dir())
}
