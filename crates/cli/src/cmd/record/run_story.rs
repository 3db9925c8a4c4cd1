//! The story of a run that has just ended: what its supervisor knows, what its captures show, and what the rules find in a recording that is read in a moment.

use std::ops::Deref;

use stormlog_catalog::run::Process;
use stormlog_heap_report::HeapDigest;
use stormlog_postmortem::Ended;
use stormlog_postmortem::elastic::{ERROR_FILE_VARIABLE, write_error_file};
use stormlog_story::{Story, judge_if_small};
use stormlog_supervise::{RunOutcome, TerminationLog};

/// What happened, by the rule of every view.
pub(crate) fn of(outcome: &RunOutcome) -> Story {
    let paths = [outcome.directory.clone()];
    let digest = |process: &Process| -> Option<HeapDigest> {
        let own = |known: &&stormlog_supervise::ProcessOutcome| Some(known.pid) == process.pid;
        outcome.processes.iter().find(own).and_then(|known| known.heap.clone())
    };
    let judged = judge_if_small(&outcome.directory);
    let known = judged.as_ref().map(|analysis| (analysis.findings.as_slice(), analysis.layers.as_slice()));
    Story::with(&paths, known.unwrap_or_default(), &mut { digest })
}

/// Leaves the answer where the launcher of the program looks for it. A good or an intended end leaves nothing.
pub(crate) fn report_to_launcher(outcome: &RunOutcome, story: &impl Deref<Target = Story>) {
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
