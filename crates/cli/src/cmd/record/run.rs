//! `stormlog run`: the program's own output and exit status, and afterwards a few lines about its memory.

use std::cell::LazyCell;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use stormlog_model::format_bytes;
use stormlog_model::text::{inert_lines, nanoseconds_in_words};
use stormlog_postmortem::BundlePolicy;
use stormlog_postmortem::verdict::without_message;
use stormlog_push::Deliveries;
use stormlog_story::Story;
use stormlog_supervise::{Ended, HeapOptions, RunError, RunOptions, RunOutcome, TorchHistory};

use stormlog_heap_report::Chosen;

use crate::cmd::record::notify;
use crate::cmd::record::retention::{self, Keep};
use crate::cmd::record::run_finish;
use crate::cmd::record::run_live;
use crate::cmd::record::run_start;
use crate::cmd::record::run_story;
use crate::cmd::record::ship;
use crate::cmd::record::{run_heap, run_jax};

use crate::exit::UsageError;
use crate::interpreter;

/// Children named in the summary.
const MOST_CHILDREN: usize = 8;

pub(crate) struct Options {
    pub(crate) command: Vec<OsString>,
    pub(crate) interval: Duration,
    pub(crate) keep: Keep,
    pub(crate) notify: notify::NotifyOptions,
    pub(crate) ship: Option<ship::TransferOptions>,
    pub(crate) root: PathBuf,
    pub(crate) quiet: bool,
    pub(crate) limit: Option<u64>,
    pub(crate) die_with_supervisor: bool,
    pub(crate) json: bool,
    pub(crate) is_shared: bool,
    pub(crate) records_environment: bool,
    pub(crate) report_exceptions: bool,
    pub(crate) report_why: bool,
    pub(crate) record_torch: bool,
    pub(crate) follow_cuda_driver: bool,
    pub(crate) torch_history: Option<TorchHistory>,
    pub(crate) snapshot_signal: Option<i32>,
    pub(crate) heap: Option<HeapOptions>,
    /// No flag asked for it.
    pub(crate) heap_is_default: bool,
    pub(crate) heap_output: Option<PathBuf>,
    pub(crate) force: bool,
    /// Wait until the captures are complete.
    pub(crate) wait: bool,
    pub(crate) live: bool,
    pub(crate) bundle_policy: BundlePolicy,
}

/// The exit code is the program's. Where a signal ended the program, the same signal ends this process.
pub(crate) fn run(options: &Options) -> anyhow::Result<u8> {
    let mut command = options.command.clone();
    if command.first().is_some_and(|program| is_for_python(program)) {
        command.insert(0, interpreter::for_scripts());
    } else if let Some(word) = command.first().filter(|word| word.as_encoded_bytes().starts_with(b"-")) {
        let word = word.display();
        return Err(UsageError(format!(
            "unknown option {word}; `stormlog run --help` lists the options before the command"
        ))
        .into());
    }
    if let Some(program) = command.first() {
        run_start::look_up(program)?;
    }
    let ourselves = ourselves().unwrap_or_default();
    let (courier, deliveries) = notify::start(&options.notify, &ourselves)?;
    let run = RunOptions {
        root: options.root.clone(),
        interval: options.interval,
        is_shared: options.is_shared,
        records_environment: options.records_environment,
        report_exceptions: options.report_exceptions,
        report_why: options.report_why,
        record_torch: options.record_torch,
        follow_cuda_driver: options.follow_cuda_driver,
        torch_history: options.torch_history,
        snapshot_signal: options.snapshot_signal,
        answerer: match ourselves.is_empty() {
            true => Vec::new(),
            false => ourselves.iter().cloned().chain(["answer-requests".into()]).collect(),
        },
        limit_as: options.limit,
        bundle_policy: options.bundle_policy,
        die_with_supervisor: options.die_with_supervisor,
        heap: options.heap.clone(),
        heap_is_default: options.heap_is_default,
        heap_finish: run_finish::after(options, &ourselves),
        warn: prints_alerts(options).then_some(say as fn(&str)),
        earlier: (!options.quiet && !options.json).then_some(say as fn(&str)),
        courier: courier.clone(),
        shipper: options.ship.as_ref().map(|transfer| transfer.shipper(&ourselves)).transpose()?,
        missing: say,
        command,
    };
    if options.live {
        run_live::check_terminal()?;
    }
    if let Some(output) = &options.heap_output {
        run_heap::check_output(output, options.force)?;
    }
    let ran = if options.live { run_live::run(&run) } else { stormlog_supervise::run(&run) };
    let mut outcome = ran.map_err(|error| match error {
        RunError::Start { program, source } => run_start::refused(&program, &source).into(),
        RunError::NoCommand => anyhow::Error::new(UsageError(error.to_string())),
        other => other.into(),
    })?;
    let mut chosen = run_heap::chosen(&outcome);
    let is_heap_wanted = options.heap.as_ref().is_some_and(|heap| !heap.skip_host);
    if is_heap_wanted && chosen.is_none() {
        outcome.warnings.push(run_heap::not_recorded(&outcome));
    }
    let hand_over = |output: &Path| run_heap::hand_over(&mut outcome, &mut chosen, output);
    let kept = options.heap_output.as_deref().map(hand_over).transpose();
    let (termination, shipping) = (outcome.termination.take(), outcome.shipping.take());
    let story = LazyCell::new(|| run_story::of(&outcome));
    run_story::report_to_launcher(&outcome, &story);
    run_story::leave_message(termination, &outcome, &story);
    // Held by nothing but `courier` from here on: the end of the last ends the deliveries.
    drop(run);
    if let Some(courier) = courier
        && let Some(notice) = outcome.death_notice(|| story.headline.clone())
    {
        courier.send(notice);
    }
    let mut out = io::stderr().lock();
    // The exit status is the program's, whatever happened to the file, the terminal, or the reader of the pipe.
    let _ = if options.json {
        writeln!(out, "{:#}", outcome_json(&outcome, &story))
    } else if !options.quiet {
        let mut page = Vec::new();
        summarise(&mut page, &outcome, chosen.as_ref(), &story)
            .and_then(|()| out.write_all(inert_lines(&String::from_utf8_lossy(&page)).as_bytes()))
    } else {
        Ok(())
    };
    if let Err(error) = kept {
        let _ = line(&mut out, &format!("{error:#}"));
    }
    for sentence in
        deliveries.into_iter().flat_map(Deliveries::finish).filter(|_| !options.quiet && !options.json)
    {
        let _ = line(&mut out, &sentence);
    }
    let shipped = options
        .ship
        .as_ref()
        .and_then(|transfer| ship::at_end(&outcome.directory, shipping, options.wait, transfer))
        .filter(|_| !options.quiet && !options.json);
    if let Some(sentence) = shipped {
        let _ = line(&mut out, &sentence);
    }
    let removed = retention::after_run(&options.root, &options.keep);
    if let Some(sentence) = removed.filter(|_| !options.quiet && !options.json) {
        let _ = line(&mut out, &sentence);
    }
    if let Ended::Signal(signal) = outcome.ended {
        // Not held while nothing comes after it.
        drop(out);
        let _ = io::stdout().flush();
        stormlog_supervise::die_of(signal);
    }
    Ok(outcome.ended.shell_code())
}

/// Whether warnings are printed while the program runs: only on a terminal. A log file is read afterwards, and has the summary.
fn prints_alerts(options: &Options) -> bool {
    !options.quiet && !options.json && !options.live && io::stderr().is_terminal()
}

fn say(warning: &str) {
    // A terminal that is gone can no longer be warned.
    let _ = line(&mut io::stderr(), warning);
}

/// In one write: the program writes to the same stream, which is not buffered.
fn line(out: &mut impl Write, sentence: &str) -> io::Result<()> {
    out.write_all(format!("stormlog: {}\n", inert_lines(sentence)).as_bytes())
}

/// Something Python runs that the system could not start by itself: a file, a module, code.
fn is_for_python(word: &OsStr) -> bool {
    let path = Path::new(word);
    if word == "-m" || word == "-c" || path.join("__main__.py").is_file() {
        return true;
    }
    let is_python = ["py", "pyz"].iter().any(|ending| path.extension() == Some(OsStr::new(ending)));
    let is_executable = path.metadata().is_ok_and(|file| file.permissions().mode() & 0o111 != 0);
    // `train.py` without a slash would be looked for in PATH, not here.
    is_python && path.is_file() && !(is_executable && path.components().count() > 1)
}

/// The command that starts this program again.
fn ourselves() -> io::Result<Vec<OsString>> {
    match interpreter::this_process() {
        Some(python) => Ok(vec![python.into(), "-m".into(), "stormlog".into()]),
        None => Ok(vec![std::env::current_exe()?.into_os_string()]),
    }
}

fn summarise(
    out: &mut impl Write,
    outcome: &RunOutcome,
    chosen: Option<&Chosen>,
    story: &Story,
) -> io::Result<()> {
    let main = outcome.processes.first();
    let own = main.and_then(|process| process.verdict.clone()).unwrap_or_else(|| plainly(outcome));
    match story.headline.split_first() {
        Some((first, rest)) => {
            writeln!(out, "\nstormlog: {first}")?;
            rest.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        }
        None => writeln!(out, "\nstormlog: {own}")?,
    }
    let has = |text: &str| story.headline.iter().any(|line| line.contains(text.trim_end_matches('.')));
    // The answer is about a child, or about a GPU.
    if main.is_some_and(|process| process.verdict.is_some()) && !has(&own) && !story.headline.is_empty() {
        let message = main.and_then(|process| process.exception.as_ref()?.text.split_once(": "));
        let own = without_message(&own, message.map(|(_, message)| message).unwrap_or_default());
        writeln!(out, "  program   {own}")?;
    }
    if let Some(raised) = main.and_then(|process| process.exception.as_ref()) {
        let place = raised.place.as_ref().map(|place| format!("   ← {place}")).unwrap_or_default();
        let thread = raised.thread.as_ref().map(|name| format!("   in thread {name}")).unwrap_or_default();
        // Its message may be in the answer.
        let (kind, message) = raised.text.split_once(": ").unwrap_or((&raised.text, ""));
        let is_shown = story.headline.iter().any(|line| line.starts_with("  raised"));
        if !is_shown || raised.thread.is_some() {
            let text = if !message.is_empty() && has(message) { kind } else { &raised.text };
            writeln!(out, "  raised    {text}{place}{thread}")?;
        }
    }
    let peak = main.and_then(|process| process.peak_rss);
    let count = outcome.processes.len();
    let mut memory = Vec::new();
    memory.extend(peak.map(|peak| format!("peak {}", format_bytes(peak))));
    if count > 1 {
        memory.push(format!("{count} processes together {}", format_bytes(outcome.peak_total_rss)));
    }
    if outcome.ended != Ended::Code(0) {
        memory.extend(main.and_then(|p| p.last_rss).map(|last| format!("at the end {}", format_bytes(last))));
    }
    memory.extend(outcome.limit_bytes.map(|limit| format!("limit {}", format_bytes(limit))));
    if !memory.is_empty() {
        writeln!(out, "  memory    {}", memory.join(" · "))?;
    }
    run_heap::say(out, outcome, chosen)?;
    run_jax::say(out, &outcome.directory)?;
    let roots = story.processes.iter().filter(|process| process.is_root);
    for failed in roots.flat_map(|process| &process.failed_requests).filter(|failed| !has(failed)) {
        writeln!(out, "  failed    {failed}")?;
    }
    let children = outcome.processes.iter().skip(1).filter(|process| process.bundle.is_some());
    for child in children.take(MOST_CHILDREN) {
        let sentence = child.verdict.as_deref().unwrap_or("ended");
        if !has(sentence) {
            writeln!(out, "  child     {sentence}")?;
        }
    }
    if let Some(warning) = outcome.warnings.first() {
        let more = outcome.warnings.len() - 1;
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        writeln!(out, "  warned    {warning}{more}")?;
    }
    if outcome.lost_records > 0 {
        writeln!(out, "  lost      {} records could not be stored", outcome.lost_records)?;
    }
    match main.and_then(|process| process.bundle.as_ref()) {
        Some(bundle) => writeln!(out, "  more      stormlog oom show {}", bundle.display())?,
        None => writeln!(out, "  more      stormlog sessions {}", outcome.directory.display())?,
    }
    run_heap::say_more(out, outcome, chosen)?;
    run_live::say_more(out, &outcome.directory)
}

/// The sentence of a run whose end needs no verdict.
fn plainly(outcome: &RunOutcome) -> String {
    let how = match outcome.ended {
        Ended::Code(code) => format!("exited {code}"),
        Ended::Signal(signal) => format!("was terminated by {}", stormlog_postmortem::signal_name(signal)),
        Ended::Unknown => "ended".to_owned(),
    };
    let pid = outcome.processes.first().map(|process| format!(" (pid {})", process.pid)).unwrap_or_default();
    format!("{}{pid} {how} after {}.", outcome.program, nanoseconds_in_words(outcome.duration_ns))
}

fn outcome_json(outcome: &RunOutcome, story: &Story) -> serde_json::Value {
    let (exit_code, signal) = match outcome.ended {
        Ended::Code(code) => (Some(code), None),
        Ended::Signal(signal) => (None, Some(signal)),
        Ended::Unknown => (None, None),
    };
    let processes: Vec<_> = outcome
        .processes
        .iter()
        .map(|process| {
            json!({
                "pid": process.pid, "session_id": process.session_id,
                "path": process.directory.display().to_string(), "peak_rss_bytes": process.peak_rss,
                "last_rss_bytes": process.last_rss, "cause": process.cause.map(|cause| cause.as_str()),
                "verdict": process.verdict, "advice": process.advice, "ended": process.judged.as_str(),
                "heap": process.heap.as_ref().map(stormlog_heap_report::HeapDigest::to_json),
                "exception": process.exception.as_ref().map(|raised| &raised.text),
                "raised_at": process.exception.as_ref().and_then(|raised| raised.place.as_ref()),
                "raised_in_thread": process.exception.as_ref().and_then(|raised| raised.thread.as_ref()),
                "bundle": process.bundle.as_ref().map(|path| path.display().to_string()),
            })
        })
        .collect();
    json!({
        "path": outcome.directory.display().to_string(), "exit_code": exit_code, "signal": signal,
        "duration_ns": outcome.duration_ns, "peak_rss_bytes": outcome.peak_rss, "peak_total_rss_bytes": outcome.peak_total_rss,
        "limit_bytes": outcome.limit_bytes, "lost_records": outcome.lost_records, "warnings": outcome.warnings,
        "headline": story.headline, "processes": processes,
    })
}
