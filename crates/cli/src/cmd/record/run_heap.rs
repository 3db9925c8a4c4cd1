//! What `stormlog run` says about the heap it recorded, and where the capture goes.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use stormlog_files::{Existing, Output, link_output};
use stormlog_heap_report::{Chosen, HeapDigest, captures, find};
use stormlog_model::format_bytes;
use stormlog_supervise::{ProcessOutcome, RunOutcome};

use crate::exit::UsageError;

/// What is printed of a run that was to record a heap and has no capture.
pub(crate) fn not_recorded(outcome: &RunOutcome) -> String {
    match &outcome.unrecordable {
        Some(reason) => format!("no heap was recorded: {reason}"),
        None => "no heap was recorded: a program that is statically linked, set-user-ID or built with AddressSanitizer cannot be recorded"
            .to_owned(),
    }
}

/// A file that is there already is found out before the program runs for a day; `force` says that it may be written over. A directory takes the
/// captures of all processes.
pub(crate) fn check_output(output: &Path, force: bool) -> anyhow::Result<()> {
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if output.is_file() && !force {
        return Err(
            UsageError(format!("{} exists; choose another --output, or --force", output.display())).into()
        );
    }
    if !folder.is_dir() {
        return Err(UsageError(format!("{}: no such directory for --output", folder.display())).into());
    }
    Ok(())
}

fn is_directory(output: &Path) -> bool {
    output.is_dir() || output.as_os_str().as_encoded_bytes().ends_with(b"/")
}

/// The capture that the report is about, by the rule of every view; `None` when nothing was recorded.
pub(crate) fn chosen(outcome: &RunOutcome) -> Option<Chosen> {
    find(&outcome.directory, None).ok()
}

/// Puts the main process's capture where the user wants it, or all of them into a directory. The sessions keep theirs too where that costs nothing.
pub(crate) fn hand_over(
    outcome: &mut RunOutcome,
    chosen: &mut Option<Chosen>,
    output: &Path,
) -> anyhow::Result<()> {
    let Some(chosen) = chosen else {
        let output = output.display();
        anyhow::bail!("{output} was not written: {}", not_recorded(outcome));
    };
    let mut moved = Vec::new();
    if is_directory(output) {
        fs::create_dir_all(output).with_context(|| output.display().to_string())?;
        for capture in captures(&outcome.directory)? {
            let target = name_in(output, capture.pid, &moved);
            put(&capture.path, &target).with_context(|| target.display().to_string())?;
            moved.push((capture.path, target));
        }
    } else {
        put(&chosen.path, output).with_context(|| output.display().to_string())?;
        moved.push((chosen.path.clone(), output.to_owned()));
    }
    for (from, to) in &moved {
        let heaps = outcome.processes.iter_mut().filter_map(|process| process.heap.as_mut());
        heaps.filter(|heap| heap.path == *from).for_each(|heap| heap.path.clone_from(to));
    }
    if let Some((_, to)) = moved.iter().find(|(from, _)| *from == chosen.path) {
        chosen.path.clone_from(to);
    }
    Ok(())
}

/// `heap-12.bin`, with a number behind it for the other programs that the process was.
fn name_in(directory: &Path, pid: Option<u32>, taken: &[(PathBuf, PathBuf)]) -> PathBuf {
    let name = directory.join(format!("heap-{}.bin", pid.unwrap_or(0)));
    let with_number = |number: usize| match number {
        0 => name.clone(),
        number => PathBuf::from(format!("{}.{number}", name.display())),
    };
    let is_free = |name: &PathBuf| !taken.iter().any(|(_, target)| target == name);
    (0..).map(with_number).find(is_free).unwrap_or(name.clone())
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
        // The copy is what was requested; two would take the room twice.
        true => fs::remove_file(capture).or(Ok(())),
        false => Ok(()),
    }
}

/// What the heap of the main process says, and which one that is.
pub(crate) fn say(out: &mut impl Write, outcome: &RunOutcome, chosen: Option<&Chosen>) -> io::Result<()> {
    let Some(chosen) = chosen else { return Ok(()) };
    let is_chosen =
        |process: &&ProcessOutcome| process.heap.as_ref().is_some_and(|heap| heap.path == chosen.path);
    let Some(process) = outcome.processes.iter().find(is_chosen) else { return Ok(()) };
    let Some(heap) = &process.heap else { return Ok(()) };
    if heap.is_empty() {
        return Ok(());
    }
    let about = heap.about();
    let live = format_bytes(heap.live_bytes);
    let which = match chosen.others {
        0 => String::new(),
        others => format!(" · pid {}, {} of {} captures", process.pid, chosen.reason, others + 1),
    };
    if heap.has_host {
        let peak = format_bytes(heap.peak_bytes);
        writeln!(out, "  heap      peak {about}{peak} · at the end {about}{live}{which}")?;
    }
    for device in &heap.devices {
        let reserved = device.peak_reserved_bytes.map(|bytes| format!(" · reserved {}", format_bytes(bytes)));
        let (peak, live) = (format_bytes(device.peak_bytes), format_bytes(device.live_bytes));
        let name = device.memory.to_string();
        writeln!(out, "  {name:<9} peak {peak} · at the end {live}{}", reserved.unwrap_or_default())?;
    }
    if heap.lost_events > 0 {
        writeln!(out, "  lost      {} allocations and frees could not be written", heap.lost_events)?;
    }
    Ok(())
}

/// Where to look further.
pub(crate) fn say_more(
    out: &mut impl Write,
    outcome: &RunOutcome,
    chosen: Option<&Chosen>,
) -> io::Result<()> {
    let Some(chosen) = chosen else { return Ok(()) };
    let heaps = outcome.processes.iter().filter_map(|process| process.heap.as_ref());
    if heaps.filter(|heap| heap.path == chosen.path).any(HeapDigest::is_empty) {
        return Ok(());
    }
    writeln!(out, "            stormlog flamegraph {}", chosen.path.display())?;
    match chosen.others {
        0 => Ok(()),
        _ => writeln!(out, "            stormlog captures {}", outcome.directory.display()),
    }
}
