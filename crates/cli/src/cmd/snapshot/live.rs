//! `stormlog snapshot --pid`: the memory of a process that runs, by the process itself where it takes requests, from outside elsewhere.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;
use stormlog_catalog::request::{
    Kind, Listener, RequestProgress, Target, ask_in, asked_of, listener_of, new_snapshot_directory_in,
};
use stormlog_catalog::run::layout::CAPTURE_FILE;
use stormlog_files::Directory;
use stormlog_heap_report::snapshot::MemorySnapshot;
use stormlog_model::text::inert_lines;
use stormlog_supervise::{AttachMethod, HeapOptions, recorded_at, snapshot_from_outside};

use crate::cmd::record::attach::{self, said};
use crate::exit::{CtrlC, Exit, MissingInput, UsageError};

const LOOK: Duration = Duration::from_millis(20);
const ASKED_BY: &str = "stormlog snapshot";

pub(crate) struct Options {
    pub(crate) pid: u32,
    /// How long to record the heap, where it is not being recorded already.
    pub(crate) heap: Option<Duration>,
    pub(crate) output: Option<PathBuf>,
    pub(crate) timeout: Duration,
    pub(crate) method: AttachMethod,
    pub(crate) json: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let pid = options.pid;
    if let Some(output) = &options.output {
        check_is_new(output)?;
    }
    // First what can be wrong with the number: not there, not ours.
    let seen = snapshot_from_outside(pid, None).map_err(said)?;
    let run = recorded_at(pid);
    let listener = run.as_ref().and_then(|run| listener_of(run.path(), pid));
    let mut late = None;
    let answered = match (&run, &listener) {
        (Some(run), Some(listener)) => match asked_process(options, run, listener)? {
            Some(found) => Some(found),
            None => {
                late = Some(format!(
                    "the process did not answer within {:.0} s, so its tensors are unknown; it may be stopped, or in one long call",
                    options.timeout.as_secs_f64()
                ));
                None
            }
        },
        _ => None,
    };
    let (directory, mut found) = match answered {
        Some(found) => found,
        None => from_outside(options, run.as_ref(), seen)?,
    };
    found.notes.extend(late);
    let signal = listener.as_ref().and_then(|listener| listener.signal.zip(listener.signal_state));
    found.notes.extend(signal.and_then(|(signal, state)| state.note(signal)));
    let directory = match &options.output {
        Some(output) if *output != directory => copied(&directory, output)?,
        _ => directory,
    };
    show(&found, &directory, options.json)
}

/// Prints a snapshot.
pub(crate) fn show(found: &MemorySnapshot, directory: &Path, json: bool) -> anyhow::Result<Exit> {
    let mut out = io::stdout().lock();
    if json {
        let mut value = serde_json::to_value(found)?;
        if let Some(object) = value.as_object_mut() {
            object.insert("path".into(), json!(directory));
            object.insert("total_bytes".into(), found.total_bytes().into());
        }
        writeln!(out, "{value:#}")?;
        return Ok(Exit::Ok);
    }
    for line in found.lines() {
        writeln!(out, "{}", inert_lines(&line))?;
    }
    writeln!(out, "In {}", directory.display())?;
    if let Some(name) = &found.allocator_snapshot {
        writeln!(
            out,
            "More: stormlog snapshot {}",
            inert_lines(&directory.join(name).display().to_string())
        )?;
    }
    if let Some(capture) = &found.capture {
        writeln!(out, "More: stormlog flamegraph {}", inert_lines(&capture.display().to_string()))?;
    }
    Ok(Exit::Ok)
}

/// A snapshot by the process itself; `None` where it takes no requests or does not answer in time.
pub(crate) fn of_process(pid: u32, timeout: Duration) -> anyhow::Result<Option<PathBuf>> {
    let Some(run) = recorded_at(pid) else { return Ok(None) };
    let Some(listener) = listener_of(run.path(), pid) else { return Ok(None) };
    let options = Options { pid, heap: None, output: None, timeout, method: AttachMethod::Auto, json: false };
    Ok(asked_process(&options, &run, &listener)?.map(|(directory, _)| directory))
}

/// The snapshot that the process takes of itself, and its directory; `None` where it does not answer in time.
fn asked_process(
    options: &Options,
    run: &Directory,
    listener: &Listener,
) -> anyhow::Result<Option<(PathBuf, MemorySnapshot)>> {
    let target = Target {
        run: run.path().to_owned(),
        pid: options.pid,
        start_ticks: listener.start_ticks,
        rank: listener.rank,
        world_size: listener.world_size,
        host: Some(listener.host.clone()),
        listens: true,
    };
    let kind = if options.heap.is_some() { Kind::Heap } else { Kind::Snapshot };
    let mut request = asked_of(&target, kind, ASKED_BY);
    request.heap_seconds = options.heap.map(|time| time.as_secs_f64());
    let patience = options.timeout + options.heap.unwrap_or_default();
    request.expires_at_ns = Some(request.asked_at_ns.saturating_add(patience.as_nanos() as i64));
    let asked = ask_in(run, target, request).map_err(|error| UsageError(error.to_string()))?;
    let mut progress = RequestProgress::of(asked);
    let Some(directory) = wait(&mut progress, patience)? else {
        progress.withdraw();
        return Ok(None);
    };
    let mut found = MemorySnapshot::read(&directory)
        .ok_or_else(|| UsageError(format!("{}: the snapshot cannot be read", directory.display())))?;
    if found.holders.is_none() {
        // Too large a capture for the program itself.
        found.add_heap(run.path());
    }
    Ok(Some((directory, found)))
}

fn wait(progress: &mut RequestProgress, patience: Duration) -> anyhow::Result<Option<PathBuf>> {
    let (begun, stop, pid) = (Instant::now(), CtrlC::watch(), progress.target.pid);
    while begun.elapsed() < patience {
        stop.check()?;
        progress.look();
        if progress.is_open() {
            std::thread::sleep(LOOK);
        } else if progress.has_ended() {
            return Err(MissingInput(format!("process {pid} ended before it answered")).into());
        } else if let (true, Some(path)) = (progress.is_done(), progress.path()) {
            return Ok(Some(path.to_owned()));
        } else {
            let reason = progress.reason().unwrap_or_else(|| "it gave no reason".to_owned());
            return Err(UsageError(format!("process {pid} took no snapshot: {reason}")).into());
        }
    }
    Ok(None)
}

fn from_outside(
    options: &Options,
    run: Option<&Directory>,
    seen: MemorySnapshot,
) -> anyhow::Result<(PathBuf, MemorySnapshot)> {
    let mut found = MemorySnapshot { asked_by: ASKED_BY.to_owned(), ..seen };
    if let Some(run) = run {
        found.add_heap(run.path());
    }
    let target = Target {
        run: PathBuf::new(),
        pid: options.pid,
        start_ticks: None,
        rank: 0,
        world_size: None,
        host: None,
        listens: false,
    };
    found.id = asked_of(&target, Kind::Snapshot, ASKED_BY).id;
    let made = match run.map(|run| new_snapshot_directory_in(run, options.pid, &found.id)) {
        Some(Ok(made)) => made,
        // A run that only its owner may write to, and one without a run.
        _ => {
            let path = options.output.clone().unwrap_or_else(|| free_directory(options.pid));
            let made = stormlog_files::create_directory(&path);
            made.with_context(|| path.display().to_string())?
        }
    };
    match options.heap {
        Some(duration) if found.holders.is_none() => {
            let capture = made.path().join(CAPTURE_FILE);
            attach::run(&attach::Options {
                pid: options.pid,
                heap: HeapOptions::default(),
                output: Some(capture.clone()),
                force: false,
                duration: Some(duration),
                method: options.method,
                quiet: true,
                json: false,
            })?;
            found.add_heap(&capture);
            let seconds = duration.as_secs_f64();
            let is_empty = found.holders.as_ref().is_none_or(Vec::is_empty);
            found.notes.push(match is_empty {
                true => format!(
                    "nothing that was allocated in these {seconds:.0} s is still held; the heap of this process was not recorded before: `stormlog why PID` names the Python objects that hold it"
                ),
                false => format!(
                    "lines are from the last {seconds:.0} s only: the heap of this process was not recorded before"
                ),
            });
        }
        None if found.holders.is_none() => found.notes.push(
            "lines are unknown: the heap of this process is not recorded; --heap 10 records it for 10 s, `stormlog why PID` names the Python objects that hold it".to_owned(),
        ),
        _ => {}
    }
    found.write(&made).with_context(|| made.path().display().to_string())?;
    Ok((made.path().to_owned(), found))
}

fn free_directory(pid: u32) -> PathBuf {
    let more = (2_u32..).map(|number| PathBuf::from(format!("stormlog-snapshot-{pid}-{number}")));
    let mut names = std::iter::once(PathBuf::from(format!("stormlog-snapshot-{pid}"))).chain(more);
    names.find(|name| !name.exists()).unwrap_or_default()
}

/// A directory that the user named has nothing in it: files of two snapshots side by side look like one.
fn check_is_new(output: &Path) -> Result<(), UsageError> {
    let has_files = std::fs::read_dir(output).is_ok_and(|mut entries| entries.next().is_some());
    match has_files {
        true => Err(UsageError(format!("{} is not empty; name a new directory", output.display()))),
        false => Ok(()),
    }
}

/// The files of a snapshot again, in a directory that the user named.
fn copied(from: &Path, to: &Path) -> anyhow::Result<PathBuf> {
    let made = stormlog_files::create_directory(to).with_context(|| to.display().to_string())?;
    for entry in std::fs::read_dir(from).with_context(|| from.display().to_string())?.flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let mut file = stormlog_files::open_regular(&entry.path())?;
        let mut draft = made.draft(entry.file_name())?;
        io::copy(&mut file, draft.file())?;
        draft.place()?;
    }
    Ok(to.to_owned())
}
