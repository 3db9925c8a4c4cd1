//! `stormlog convert` into a trace: everything at a path over time, as Perfetto, Chrome or TensorBoard show it.

use std::io::{self, Write};
use std::path::Path;

use stormlog_export::TraceFormat;
use stormlog_store::StoreError;
use stormlog_story::captures::CaptureReader;

use super::convert::Options;
use super::recordings;
use crate::cmd::atomic_write;
use crate::exit::{CtrlC, Exit, MissingInput, UsageError};

/// The trace format that was requested, by `--to` or by the name of the output.
pub(crate) fn format(options: &Options) -> anyhow::Result<Option<TraceFormat>> {
    let name = options.output.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let format = match &options.to {
        Some(word) => TraceFormat::of_name(word),
        None => TraceFormat::of_file(&name),
    };
    if format == Some(TraceFormat::TensorBoard) && !name.contains("tfevents") {
        let example = "events.out.tfevents.stormlog";
        let why = "TensorBoard opens only files with \"tfevents\" in their name";
        return Err(UsageError(format!("{}: {why}; name it {example}", options.output.display())).into());
    }
    Ok(format)
}

pub(crate) fn run(options: &Options, format: TraceFormat) -> anyhow::Result<Exit> {
    let ctrl_c = CtrlC::watch();
    let paths = [options.input.clone()];
    let mut loaded = recordings::load_with(&paths, &CaptureReader::default(), &ctrl_c)?;
    if let Some(session) = options.session_id.as_ref().filter(|id| !loaded.keep(id)) {
        return Err(StoreError::NoSuchSession(session.clone()).into());
    }
    let timeline = stormlog_story::trace(&loaded);
    let mut problems: Vec<String> = loaded.problems().cloned().collect();
    // What could not be read is why there is nothing.
    let reason = if timeline.is_empty() { problems.pop() } else { None };
    for problem in problems {
        writeln!(io::stderr(), "Error: {problem}")?;
    }
    if timeline.is_empty() {
        let nothing = || format!("{}: nothing was recorded over time", options.input.display());
        return Err(MissingInput(reason.unwrap_or_else(nothing)).into());
    }
    let bytes = format.write(&timeline);
    if options.output == Path::new("-") {
        io::stdout().lock().write_all(&bytes)?;
        return Ok(Exit::Ok);
    }
    atomic_write::write(&options.output, bytes)?;
    let counters = match timeline.processes.iter().map(|process| process.counters.len()).sum() {
        1 => "1 counter".to_owned(),
        many => format!("{many} counters"),
    };
    let of = match timeline.processes.len() {
        1 => "1 process".to_owned(),
        many => format!("{many} processes"),
    };
    writeln!(io::stderr(), "{counters} of {of} written to {}", options.output.display())?;
    Ok(Exit::Ok)
}
