//! The story of a run that has just ended: what its supervisor knows, what its captures show, and what the rules find in a recording that is read in a moment.

use std::ops::Deref;
use std::path::Path;

use stormlog_analyze::Analysis;
use stormlog_catalog::recording::{self, Reader};
use stormlog_catalog::run::Process;
use stormlog_heap_report::HeapDigest;
use stormlog_model::Finding;
use stormlog_postmortem::Ended;
use stormlog_postmortem::elastic::{ERROR_FILE_VARIABLE, write_error_file};
use stormlog_story::Story;
use stormlog_story::captures::CaptureReader;
use stormlog_supervise::{RunOutcome, TerminationLog};

use crate::cmd::telemetry::analyze::judge;

/// Bytes of recordings that are judged before the summary: a run of hours is judged by `stormlog analyze`.
const MOST_BYTES: u64 = 32 << 20;
/// Files looked at for that.
const MOST_FILES: usize = 512;

/// What happened, by the rule of every view.
pub(crate) fn of(outcome: &RunOutcome) -> Story {
    let paths = [outcome.directory.clone()];
    let digest = |process: &Process| -> Option<HeapDigest> {
        let own = |known: &&stormlog_supervise::ProcessOutcome| Some(known.pid) == process.pid;
        outcome.processes.iter().find(own).and_then(|known| known.heap.clone())
    };
    let judged = judged(&outcome.directory);
    let known = judged.as_ref().map(|analysis| (analysis.findings.as_slice(), analysis.layers.as_slice()));
    Story::with(&paths, known.unwrap_or_default(), &mut { digest })
}

/// Leaves the answer where the launcher of the program looks for it. A good or an intended end leaves nothing.
pub(crate) fn tell_launcher(outcome: &RunOutcome, story: &impl Deref<Target = Story>) {
    let is_failure = outcome.processes.first().is_some_and(|main| main.judged == Ended::Failed);
    let path = std::env::var_os(ERROR_FILE_VARIABLE).filter(|path| is_failure && !path.is_empty());
    if let Some(path) = path {
        let root = story.processes.iter().find(|process| process.is_root);
        let ended_ns = root.and_then(|root| u64::try_from(root.ended_at_ns?).ok());
        let ended_ns = ended_ns.unwrap_or_else(stormlog_store::wall_ns);
        // Where it cannot be written, the launcher prints what it printed before; the exit status stays the program's.
        let _ = write_error_file(path.as_ref(), &story.headline, ended_ns);
    }
}

/// Writes the answer as the termination message of the container, where the end was not clean: a clean one leaves none.
pub(crate) fn leave_message(
    log: Option<TerminationLog>,
    outcome: &RunOutcome,
    story: &impl Deref<Target = Story>,
) {
    if let Some(mut log) = log.filter(|_| outcome.ended != stormlog_supervise::Ended::Code(0)) {
        log.end(&stormlog_story::message(&story.processes, outcome.limit_bytes, &outcome.directory));
    }
}

/// What the rules find in a run, where it is small.
pub(crate) fn findings(run: &Path) -> Vec<Finding> {
    judged(run).map(|analysis| analysis.findings).unwrap_or_default()
}

fn judged(run: &Path) -> Option<Analysis> {
    let captures = CaptureReader::default();
    let mut reader = Reader { captures: &|path: &Path| captures.at(path), goes_on: &mut || true };
    let loaded = is_small(run).then(|| recording::load(&[run.to_owned()], &mut reader).ok());
    loaded.flatten().map(judge)
}

/// Whether all files of a run together are small.
fn is_small(run: &Path) -> bool {
    let (mut bytes, mut files, mut pending) = (0_u64, 0, vec![run.to_owned()]);
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            files += 1;
            match metadata.is_dir() {
                true => pending.push(entry.path()),
                // Files that are mapped have holes.
                false => bytes += std::os::unix::fs::MetadataExt::blocks(&metadata) * 512,
            }
            if bytes > MOST_BYTES || files > MOST_FILES {
                return false;
            }
        }
    }
    true
}
