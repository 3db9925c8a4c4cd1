//! `stormlog captures`: the captures of a run.

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::json;
use stormlog_heap_report::{CaptureFile, captures};
use stormlog_model::format_bytes;

use crate::exit::Exit;
use crate::table::Table;

pub(crate) struct Options {
    pub(crate) run: PathBuf,
    pub(crate) json: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let list = captures(&options.run)?;
    let mut out = io::stdout().lock();
    if options.json {
        let rows: Vec<_> = list.iter().map(object).collect();
        writeln!(out, "{:#}", json!(rows))?;
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(&["PID", "PROGRAM", "PEAK", "SIZE", "", "CAPTURE"], &[0, 2, 3]);
    for capture in &list {
        let unknown = || "-".to_owned();
        table.row([
            capture.pid.map_or_else(unknown, |pid| pid.to_string()),
            capture.program.clone(),
            capture.peak_bytes.map_or_else(unknown, format_bytes),
            format_bytes(capture.bytes),
            if capture.main { "main".to_owned() } else { String::new() },
            stormlog_model::text::short_name(&capture.path.display().to_string()),
        ]);
    }
    for line in table.lines() {
        writeln!(out, "{line}")?;
    }
    Ok(Exit::Ok)
}

/// The keys are a promise to scripts.
fn object(capture: &CaptureFile) -> serde_json::Value {
    json!({
        "path": capture.path.display().to_string(), "pid": capture.pid, "program": capture.program,
        "peak_bytes": capture.peak_bytes, "bytes": capture.bytes, "main": capture.main,
    })
}
