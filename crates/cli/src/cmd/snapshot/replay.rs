//! `stormlog replay`: what a snapshot's requests would have taken under other allocator settings.

use std::io::{self, Write};
use std::path::PathBuf;

use stormlog_torch::AllocatorSettings;

use crate::cmd::snapshot::report::load;
use crate::exit::{Exit, UsageError};

pub(crate) struct Options {
    pub(crate) file: PathBuf,
    pub(crate) settings: Vec<AllocatorSettings>,
    pub(crate) search: bool,
    pub(crate) limit: Option<u64>,
    pub(crate) device: usize,
    pub(crate) json: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let snapshot = load(&options.file)?;
    if let Some(problem) = snapshot.replay_problem(options.device) {
        return Err(UsageError(format!("{}: {problem}", options.file.display())).into());
    }
    let report = stormlog_torch::replay_report(
        &snapshot,
        options.device,
        &options.settings,
        options.limit,
        options.search,
    );
    let mut out = io::stdout().lock();
    if options.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        stormlog_torch::write_replay_page(&mut out, &report)?;
    }
    Ok(Exit::Ok)
}
