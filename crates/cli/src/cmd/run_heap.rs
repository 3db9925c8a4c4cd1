//! What `stormlog run` says about the heap it recorded, and where the capture goes.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use stormlog_event::format_bytes;
use stormlog_files::{Existing, Output, link_output};
use stormlog_supervise::{HeapDigest, ProcessOutcome, RunOutcome};

use crate::exit::Wrong;

/// A file that is there already is found out before the program runs for a day; `force` says that it may be written over.
pub(super) fn check_output(output: &Path, force: bool) -> anyhow::Result<()> {
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_in_the_way = output.is_dir() || (output.is_file() && !force);
    if is_in_the_way {
        let advice =
            if output.is_file() { "choose another --output, or --force" } else { "choose another --output" };
        return Err(Wrong(format!("{} exists; {advice}", output.display())).into());
    }
    if !folder.is_dir() {
        return Err(Wrong(format!("{}: no such directory for --output", folder.display())).into());
    }
    Ok(())
}

/// Puts the program's capture where the user wants it: that of the process whose heap was largest, which behind a shell is not the
/// first. Its session keeps it too where that costs nothing.
pub(super) fn hand_over(outcome: &mut RunOutcome, output: &Path) -> anyhow::Result<()> {
    let heaps = outcome.processes.iter_mut().filter_map(|process| process.heap.as_mut());
    let Some(heap) = heaps.max_by_key(|heap| heap.peak_bytes) else {
        let output = output.display();
        anyhow::bail!(
            "no heap was recorded, so there is no {output}: a statically linked program cannot be recorded"
        );
    };
    put(&heap.path, output).with_context(|| output.display().to_string())?;
    output.clone_into(&mut heap.path);
    Ok(())
}

/// A second name for `capture`, or a copy in its place where there can be none (another disk, a pipe).
fn put(capture: &Path, output: &Path) -> io::Result<()> {
    if link_output(capture, output)? {
        return Ok(());
    }
    let mut copy = Output::create(output, Existing::Replace)?;
    io::copy(&mut stormlog_files::open_regular(capture)?, &mut copy)?;
    copy.finish()?;
    match output.is_file() {
        // The copy is what was asked for; two would take the room twice.
        true => fs::remove_file(capture).or(Ok(())),
        false => Ok(()),
    }
}

/// What the heap of the program's own process says.
pub(super) fn say(out: &mut impl Write, process: &ProcessOutcome) -> io::Result<()> {
    let Some(heap) = &process.heap else { return Ok(()) };
    let live = format_bytes(heap.live_bytes);
    writeln!(out, "  heap      peak {} · at the end {live}", format_bytes(heap.peak_bytes))?;
    if let Some(failed) = &heap.failed {
        writeln!(out, "  failed    {failed}")?;
    }
    if process.cause.is_some() {
        for (index, (bytes, place)) in heap.held.iter().enumerate() {
            let word = if index == 0 { "held by" } else { "" };
            let when = if index == 0 && heap.is_held_at_failure { heap.held_when() } else { "" };
            let line = format!("  {word:<9} {:>11}  {place}   {when}", format_bytes(*bytes));
            writeln!(out, "{}", line.trim_end())?;
        }
    }
    if heap.lost_events > 0 {
        writeln!(out, "  lost      {} allocations and frees could not be written", heap.lost_events)?;
    }
    Ok(())
}

/// Where to look further.
pub(super) fn say_more(out: &mut impl Write, outcome: &RunOutcome) -> io::Result<()> {
    let heaps = outcome.processes.iter().filter_map(|process| process.heap.as_ref());
    match heaps.max_by_key(|heap: &&HeapDigest| heap.peak_bytes) {
        Some(heap) => writeln!(out, "            stormlog flamegraph {}", heap.path.display()),
        None => Ok(()),
    }
}
