//! `stormlog attach` and `detach`: records the heap of a process that runs already, until it ends, Ctrl-C, or a detach.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use stormlog_heap_report::HeapDigest;
use stormlog_model::format_bytes;
use stormlog_supervise::{AttachError, AttachMethod, Attached, Call, HeapKeeper, HeapOptions, attach};

use crate::cmd::record::run_heap::check_output;
use crate::exit::{Exit, MissingInput, UsageError};

const STEP: Duration = Duration::from_millis(50);

pub(crate) struct Options {
    pub(crate) pid: u32,
    pub(crate) heap: HeapOptions,
    pub(crate) output: Option<PathBuf>,
    pub(crate) force: bool,
    pub(crate) duration: Option<Duration>,
    pub(crate) method: AttachMethod,
    pub(crate) quiet: bool,
    pub(crate) json: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let name = options.output.clone().unwrap_or_else(|| free_name(options.pid));
    check_output(&name, options.force)?;
    // A live file exists while a recording writes it, and stays when its process was killed: it is never overwritten, not even with --force.
    check_output(&live_path(&name), false)?;
    let output = std::path::absolute(&name).with_context(|| name.display().to_string())?;
    if output.to_string_lossy().contains([';', '%']) {
        return Err(UsageError(format!(
            "{}: a capture's path must not contain ';' or '%'",
            output.display()
        ))
        .into());
    }
    let mut process = Attached::open(options.pid).map_err(|_| said(AttachError::NoProcess(options.pid)))?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot watch for Ctrl-C")?;
    }
    let room = ScriptDirectory::new()?;
    let library = stormlog_hook_image()?;
    let spec = options.heap.hook_spec(&output);
    if output.exists() {
        std::fs::remove_file(&output).with_context(|| output.display().to_string())?;
    }
    attach(options.pid, &library, Call::Start(&spec), options.method, &room.0).map_err(said)?;
    let is_terminal = io::stderr().is_terminal();
    if !options.quiet && is_terminal {
        writeln!(io::stderr(), "stormlog: recording the heap of pid {}; Ctrl-C ends it", options.pid)?;
    }
    let mut keeper = HeapKeeper::for_capture(&output, options.heap.clone());
    let begun = Instant::now();
    let over = |keeper: &HeapKeeper| {
        stop.load(Ordering::Acquire)
            || options.duration.is_some_and(|longest| begun.elapsed() >= longest)
            || keeper.has_stopped()
    };
    let departure = loop {
        keeper.step();
        if let Some(departure) = process.wait(STEP) {
            break Some(departure);
        }
        if over(&keeper) {
            break None;
        }
    };
    let mut cause = json!({"cause": "stopped"});
    match &departure {
        Some(departure) => {
            let verdict = departure.verdict.as_ref();
            cause = json!({
                "cause": verdict.map(|verdict| verdict.cause.as_str()),
                "exit_code": verdict.and_then(|verdict| verdict.exit_code),
                "signal": verdict.and_then(|verdict| verdict.signal),
            });
        }
        None if keeper.has_stopped() => {}
        None => attach(options.pid, &library, Call::Stop, options.method, &room.0).map_err(said)?,
    }
    keeper.finish(options.pid, &cause);
    summarise(options, &output, departure.map(|departure| departure.sentence))
}

/// A process may be attached to more than once.
fn live_path(capture: &Path) -> PathBuf {
    let mut name = capture.as_os_str().to_owned();
    name.push(".live");
    name.into()
}

fn free_name(pid: u32) -> PathBuf {
    let names = (2_u32..).map(|number| PathBuf::from(format!("stormlog-heap-{pid}-{number}.bin")));
    let mut names = std::iter::once(PathBuf::from(format!("stormlog-heap-{pid}.bin"))).chain(names);
    names.find(|name| !name.exists() && !live_path(name).exists()).unwrap_or_default()
}

pub(crate) fn detach(pid: u32, method: AttachMethod) -> anyhow::Result<Exit> {
    let room = ScriptDirectory::new()?;
    attach(pid, &stormlog_hook_image()?, Call::Stop, method, &room.0).map_err(said)?;
    Ok(Exit::Ok)
}

fn summarise(options: &Options, output: &Path, ended: Option<String>) -> anyhow::Result<Exit> {
    let digest = HeapDigest::read(output, false);
    if options.json {
        let digest = digest.as_ref().map(HeapDigest::to_json);
        writeln!(io::stdout(), "{:#}", json!({"pid": options.pid, "ended": ended, "heap": digest}))?;
        return Ok(Exit::Ok);
    }
    if options.quiet {
        return Ok(Exit::Ok);
    }
    let mut out = io::stderr().lock();
    writeln!(out, "stormlog: {}", ended.unwrap_or_else(|| format!("detached from pid {}.", options.pid)))?;
    if let Some(heap) = digest {
        writeln!(
            out,
            "  heap      peak {} · now {}",
            format_bytes(heap.peak_bytes),
            format_bytes(heap.live_bytes)
        )?;
        for (index, (bytes, place)) in heap.held.iter().enumerate() {
            let word = if index == 0 { "held by" } else { "" };
            writeln!(out, "  {word:<9} {:>11}  {place}", format_bytes(*bytes))?;
        }
    }
    writeln!(out, "  more      stormlog flamegraph {}", output.display())?;
    Ok(Exit::Ok)
}

pub(crate) fn stormlog_hook_image() -> anyhow::Result<PathBuf> {
    Ok(stormlog_supervise::recording_library()?)
}

/// What the user can do something about is a sentence of its own.
pub(crate) fn said(error: AttachError) -> anyhow::Error {
    match error {
        AttachError::NoProcess(_) => MissingInput(error.to_string()).into(),
        _ => UsageError(error.to_string()).into(),
    }
}

/// A directory of our own for the scripts that the attached process runs.
pub(crate) struct ScriptDirectory(pub(crate) PathBuf);

impl ScriptDirectory {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let random = RandomState::new().hash_one(std::process::id());
        let path = std::env::temp_dir().join(format!("stormlog-attach-{random:016x}"));
        // The process that is entered finds its files here; it may be another user's.
        std::fs::DirBuilder::new().mode(0o711).create(&path).with_context(|| path.display().to_string())?;
        Ok(ScriptDirectory(path))
    }
}

impl Drop for ScriptDirectory {
    fn drop(&mut self) {
        // Two small files in the temporary directory at worst.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
