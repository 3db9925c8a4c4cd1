//! The end of `stormlog run --heap`: which process completes the captures, and what is printed while the caller waits.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use stormlog_supervise::{HeapFinish, HeapOptions, WaitPhase, finish_captures};

use crate::cmd::record::run;
use crate::exit::Exit;

/// Of the command that a run starts for its captures.
pub(crate) struct Options {
    pub(crate) run: PathBuf,
    pub(crate) aggregate: bool,
    pub(crate) max_size: Option<u64>,
    pub(crate) sample_bytes: u64,
}

/// Completes the captures of a run.
pub(crate) fn finish(options: Options) -> Exit {
    let Options { run, aggregate, max_size, sample_bytes } = options;
    finish_captures(&run, &HeapOptions { aggregate, max_size, sample_bytes, ..HeapOptions::default() });
    Exit::Ok
}

/// What `run` does with its captures. `ourselves` is the command that starts this program again.
pub(crate) fn after(options: &run::Options, ourselves: &[OsString]) -> HeapFinish {
    let mut finisher = ourselves.to_vec();
    if !finisher.is_empty() {
        finisher.push("finish-captures".into());
        let heap = options.heap.as_ref();
        finisher.extend(heap.filter(|heap| heap.aggregate).map(|_| "--aggregate".into()));
        finisher
            .extend(heap.and_then(|heap| heap.max_size).map(|bytes| format!("--max-size={bytes}").into()));
        finisher.extend(
            heap.filter(|heap| heap.sample_bytes > 0)
                .map(|heap| format!("--sample={}", heap.sample_bytes).into()),
        );
    }
    HeapFinish {
        read: !options.quiet || options.json || options.heap_output.is_some(),
        finisher,
        // The file that was asked for is complete when the command returns, and does not wait for a process of the lowest priority.
        is_done_here: options.heap_output.is_some(),
        waits: options.wait,
        report: (!options.quiet && !options.json).then_some(report as fn(WaitPhase)),
    }
}

/// A line that counts on a terminal; elsewhere one line, once.
fn report(waiting: WaitPhase) {
    static IS_REPORTED: AtomicBool = AtomicBool::new(false);
    let mut out = io::stderr().lock();
    let is_terminal = out.is_terminal();
    let (what, time) = match waiting {
        WaitPhase::Reading(time) => ("reading the heap captures", time),
        WaitPhase::Compressing(time) => ("compressing the heap captures", time),
        WaitPhase::Done => {
            if is_terminal {
                let _ = write!(out, "\r\x1b[K");
            }
            return;
        }
    };
    // A terminal that is gone needs no line.
    if is_terminal {
        let _ = write!(out, "\r\x1b[Kstormlog: {what}, {:.1} s (Ctrl-C skips this)", time.as_secs_f64());
    } else if !IS_REPORTED.swap(true, Ordering::Relaxed) {
        let _ = writeln!(out, "stormlog: {what} (SIGINT skips this)");
    }
}
