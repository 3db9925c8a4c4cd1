//! `stormlog timeline`: the whole trace of a snapshot as one page, or as a file for other tools.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use stormlog_files::{Existing, Output};
use stormlog_model::format_bytes;
use stormlog_render::timeline::{TimelinePage, page};
use stormlog_torch::{ExportFormat, Recording, ReportOptions, Snapshot, TimelineLimits};

use crate::cmd::snapshot::report::load;
use crate::exit::{Exit, UsageError};

/// How the trace is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Html,
    Other(ExportFormat),
}

pub(crate) struct Options {
    pub(crate) file: PathBuf,
    pub(crate) output: PathBuf,
    pub(crate) format: Format,
    pub(crate) force: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    if options.output.is_file() && !options.force {
        return Err(UsageError(format!(
            "{} exists; overwrite it with --force, or choose another file with --output",
            options.output.display()
        ))
        .into());
    }
    let snapshot = load(&options.file)?;
    let recordings: Vec<Recording<'_>> =
        (0..snapshot.device_count()).map(|device| Recording::new(&snapshot, device)).collect();
    write_whole(&options.output, |out| match options.format {
        Format::Html => out.write_all(html(&options.file, &snapshot, &recordings).as_bytes()),
        Format::Other(format) => stormlog_torch::export(&recordings, format, out),
    })?;
    writeln!(io::stdout(), "{}", options.output.display())?;
    Ok(Exit::Ok)
}

fn html(file: &Path, snapshot: &Snapshot, recordings: &[Recording<'_>]) -> String {
    let report =
        stormlog_torch::report(snapshot, &ReportOptions { advise: false, ..ReportOptions::default() });
    let shown: Vec<&Recording<'_>> = recordings
        .iter()
        .filter(|recording| report.devices.iter().any(|device| device.device == recording.device))
        .collect();
    let limits = TimelineLimits::default();
    let limits = TimelineLimits {
        moments: limits.moments / shown.len().max(1),
        blocks: limits.blocks / shown.len().max(1),
        ..limits
    };
    let devices: Vec<_> =
        shown.iter().map(|recording| stormlog_torch::timeline(recording, &limits)).collect();
    let mut facts = Vec::new();
    for device in &report.devices {
        if report.devices.len() > 1 {
            facts.push(("device", device.device.to_string()));
        }
        facts.push(("events", device.events.to_string()));
        facts.push(("peak in use", format_bytes(device.peak_active_bytes)));
        facts.push(("peak held", format_bytes(device.peak_reserved_bytes)));
    }
    let settings = if report.settings.is_empty() { "defaults" } else { &report.settings };
    facts.push(("settings", settings.to_owned()));
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    page(&TimelinePage {
        title: &format!("{name}: GPU memory over the trace"),
        subtitle: &file.display().to_string(),
        facts: &facts,
        notes: &[report.verdict.sentence],
        devices: &devices,
    })
}

fn write_whole(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    let written = Output::create(path, Existing::Replace).and_then(|output| {
        let mut out = BufWriter::new(output);
        write(&mut out)?;
        out.into_inner()?.finish()
    });
    written.with_context(|| format!("cannot write {}", path.display()))
}
