//! `stormlog snapshot`: a PyTorch allocator snapshot on one page, judged at its peak or at the failed request.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use stormlog_catalog::cuda_oom::snapshot_at;
use stormlog_heap_report::snapshot::MemorySnapshot;
use stormlog_torch::ReportOptions;

use crate::cmd::snapshot::live;
use crate::exit::{Exit, MissingInput, UsageError};

pub(crate) struct Options {
    pub(crate) file: PathBuf,
    pub(crate) oom: bool,
    pub(crate) json: bool,
    pub(crate) report: ReportOptions,
}

/// Reads a snapshot: a file, or the newest one of a bundle or a run. What is wrong with the file is the user's to know, with the file's name.
pub(crate) fn load(path: &Path) -> anyhow::Result<stormlog_torch::Snapshot> {
    let file = snapshot_at(path).map_err(|error| MissingInput(error.to_string()))?;
    stormlog_torch::load(&file).map_err(|error| match error {
        // Says the file's name itself.
        stormlog_torch::SnapshotError::Open { .. } => MissingInput(error.to_string()).into(),
        error => MissingInput(format!("{}: {error}", file.display())).into(),
    })
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    // What a process answered: a look at it, with the allocator's state beside it.
    if let Some(found) = options.file.is_dir().then(|| MemorySnapshot::read(&options.file)).flatten() {
        return live::show(&found, &options.file, options.json);
    }
    let snapshot = load(&options.file)?;
    let report = stormlog_torch::report(&snapshot, &options.report);
    let mut out = io::stdout().lock();
    if options.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
        return Ok(Exit::Ok);
    }
    if options.oom {
        let Some(oom) = &report.oom else {
            return Err(UsageError(format!(
                "{}: no request failed in this recording; leave out --oom to see what held the memory",
                options.file.display()
            ))
            .into());
        };
        stormlog_torch::write_oom(&mut out, oom)?;
        return Ok(Exit::Ok);
    }
    stormlog_torch::write_snapshot_page(&mut out, &options.file, &report)?;
    Ok(Exit::Ok)
}
