//! A bundle as one row of a list: what died, of what, how much memory there was and what held it. By the bundle and what was recorded beside it in its
//! run; captures and telemetry are not read, so that a list of hundreds of bundles is quick.

use std::path::PathBuf;

use stormlog_catalog::run::Process;
use stormlog_model::memory::Memory;
use stormlog_postmortem::Cause;
use stormlog_postmortem::bundle::Bundle;

use crate::evidence;
use crate::holder::Holder;

/// A crash in a list. `None` is not known.
#[derive(Debug, Clone, PartialEq)]
pub struct Crash {
    /// The bundle.
    pub path: PathBuf,
    /// The directory of its run.
    pub run: Option<PathBuf>,
    /// `2026-11-15T04:00:37Z`.
    pub created_at_utc: Option<String>,
    /// What the user would call the program.
    pub program: Option<String>,
    /// Its process.
    pub pid: Option<u32>,
    /// Its rank, where it is one of several.
    pub rank: Option<u64>,
    /// What ended it.
    pub cause: Cause,
    /// The same as a sentence.
    pub what_happened: String,
    /// The memory that was short, or the host's.
    pub memory: Memory,
    /// How much of that memory was used.
    pub bytes: Option<u64>,
    /// What held most of it.
    pub holder: Option<Holder>,
}

impl Crash {
    /// The row of a bundle.
    #[must_use]
    pub fn of(bundle: &Bundle) -> Self {
        let process = Process::of_part(&bundle.path);
        let story = match &process {
            Some(process) => evidence::of_process(process, Some(bundle), None, Vec::new()),
            None => evidence::of_bundle(bundle),
        };
        let memory = story.failed_memory.unwrap_or_default();
        let layers = story.residuals.iter().find(|residual| residual.memory == memory);
        let resident = story.peak_rss_bytes.filter(|_| memory == Memory::Host);
        Crash {
            path: bundle.path.clone(),
            run: process.and_then(|process| process.run),
            created_at_utc: bundle.created_at_utc.clone(),
            rank: story.rank.filter(|_| story.is_of_several()),
            pid: story.pid,
            cause: bundle.cause,
            memory,
            bytes: resident.or(layers.map(|layers| layers.total_bytes)),
            holder: story.held.into_iter().find(|holder| holder.memory == memory),
            program: story.program,
            what_happened: story.what_happened,
        }
    }
}
