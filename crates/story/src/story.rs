//! The story of everything at some paths: one story for each process, and the answer.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stormlog_analyze::Layers;
use stormlog_catalog::recording::{Reader, load};
use stormlog_catalog::run::layout::Viewpoint;
use stormlog_catalog::run::{Process, processes};
use stormlog_heap_report::HeapDigest;
use stormlog_model::Finding;
use stormlog_model::memory::Memory;
use stormlog_postmortem::Ended;
use stormlog_postmortem::bundle::Bundle;

use crate::answer::answer;
use crate::captures::CaptureReader;
use crate::choice::main_process;
use crate::evidence;
use crate::holder::Holder;
use crate::judged::judge;
use crate::process::ProcessStory;
use crate::residual;

/// Processes whose captures and bundles are read: workers are alike, and there may be thousands.
const MOST_READ: usize = 32;

/// Processes whose layers are shown in a text.
const MOST_LAYERED: usize = 3;

/// What happened at some paths.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Story {
    /// The answer, at most eight lines.
    pub headline: Vec<String>,
    /// The processes, the program itself first.
    pub processes: Vec<ProcessStory>,
}

impl Story {
    /// Of everything at these paths, with what the rules found in it.
    #[must_use]
    pub fn of(paths: &[PathBuf], findings: &[Finding]) -> Self {
        Story::with(paths, (findings, &[]), &mut read_digest)
    }

    /// The same, with the layers of memories. `digest` gives what is shown of the capture of a process, where that matters. What
    /// cannot be read is left out.
    #[must_use]
    pub fn with(
        paths: &[PathBuf],
        (findings, layers): (&[Finding], &[Layers]),
        digest: &mut dyn FnMut(&Process) -> Option<HeapDigest>,
    ) -> Self {
        let mut all: Vec<Process> = Vec::new();
        for path in paths {
            let found = processes(path, &|| true).map(|found| found.processes).unwrap_or_default();
            match found.is_empty() && path.is_file() {
                true => all.extend(Process::of_capture(path)),
                false => all.extend(found),
            }
        }
        let owned: Vec<Vec<Finding>> =
            all.iter().map(|process| findings_of(process, findings, &all)).collect();
        let read = worth_reading(&all, &owned);
        let mut stories = Vec::new();
        for (at, (process, own)) in all.iter().zip(owned).enumerate() {
            let is_read = read.contains(&at);
            let bundle = bundle_of(process).filter(|_| is_read).and_then(|path| Bundle::read(path).ok());
            let found = if is_read { digest(process) } else { None };
            let mut story = evidence::of_process(process, bundle.as_ref(), found.as_ref(), own);
            if let Some(found) = found.filter(|found| found.has_host) {
                split_heap(&mut story, &found);
            }
            add_layers(&mut story, process, layers);
            stories.push(story);
        }
        let others: Vec<Finding> = findings
            .iter()
            .filter(|finding| !all.iter().any(|process| is_of(finding, process, &all)))
            .cloned()
            .collect();
        Story { headline: answer(&stories, &others), processes: stories }
    }

    /// Of one process, with what the rules find in its own recordings: not in those of the other processes of its run, which may be many.
    #[must_use]
    pub fn of_process(process: &Process) -> Self {
        let captures = CaptureReader::default();
        let sessions = process.sessions.iter().map(|session| session.path.clone());
        let mut paths: Vec<PathBuf> = sessions.chain(process.bundles.iter().cloned()).collect();
        // A session of a run has its captures beside it; those that are still written are elsewhere.
        let is_inside = |part: &&PathBuf| !paths.iter().any(|path| part.starts_with(path));
        let others: Vec<PathBuf> = process.captures.iter().filter(is_inside).cloned().collect();
        paths.extend(others);
        let mut reader = Reader { captures: &|path: &Path| captures.at(path), keep_reading: &mut || true };
        let analysis = load(&paths, &mut reader).map(judge).ok();
        let findings = analysis.as_ref().map(|analysis| analysis.findings.clone()).unwrap_or_default();
        let layers = analysis.map(|analysis| analysis.layers).unwrap_or_default();
        let bundle = bundle_of(process).and_then(|path| Bundle::read(path).ok());
        let found = captures.digest(process);
        let own = findings_of(process, &findings, std::slice::from_ref(process));
        let mut story = evidence::of_process(process, bundle.as_ref(), found.as_ref(), own);
        if let Some(found) = found.filter(|found| found.has_host) {
            split_heap(&mut story, &found);
        }
        add_layers(&mut story, process, &layers);
        Story { headline: answer(std::slice::from_ref(&story), &[]), processes: vec![story] }
    }

    /// Of the process that left a bundle. `findings` gives what the rules find in the run in a directory.
    #[must_use]
    pub fn of_bundle(bundle: &Bundle, findings: &dyn Fn(&Path) -> Vec<Finding>) -> Self {
        let story = match Process::of_part(&bundle.path) {
            Some(process) => {
                let mut own = process.run.as_deref().map(findings).unwrap_or_default();
                own.retain(|finding| is_of(finding, &process, &[]));
                let has_heap =
                    bundle.metadata.get("custom_metadata").is_some_and(|own| own.get("heap").is_some());
                let found = if has_heap { None } else { read_digest(&process) };
                evidence::of_process(&process, Some(bundle), found.as_ref(), own)
            }
            None => evidence::of_bundle(bundle),
        };
        Story { headline: answer(std::slice::from_ref(&story), &[]), processes: vec![story] }
    }

    /// The layers of the memories of the process that the answer is about, then of those with the largest memories.
    #[must_use]
    pub fn layer_lines(&self) -> Vec<String> {
        let main = main_process(&self.processes);
        let mut shown: Vec<(bool, &ProcessStory)> =
            self.processes.iter().enumerate().map(|(at, one)| (Some(at) == main, one)).collect();
        shown.retain(|(_, process)| !process.residuals.is_empty());
        let most = |process: &ProcessStory| process.residuals.iter().map(|one| one.total_bytes).max();
        shown.sort_by_key(|(is_main, process)| (!is_main, std::cmp::Reverse(most(process))));
        let is_one = shown.len() == 1;
        let line = |(_, process): &(bool, &ProcessStory)| -> Vec<String> {
            let name = if is_one { String::new() } else { format!("{}: ", process.number()) };
            process
                .residuals
                .iter()
                .map(|residual| format!("  layers    {name}{}", residual.words()))
                .collect()
        };
        shown.iter().take(MOST_LAYERED).flat_map(line).collect()
    }

    /// `headline` and `processes`, for the JSON of every view.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let processes: Vec<Value> = self.processes.iter().map(ProcessStory::to_value).collect();
        json!({"headline": self.headline, "processes": processes})
    }
}

/// The bundle of its end: the supervisor's, which is in the directory of the process as seen from outside, else the last. One of an error that the process
/// survived does not tell how it ended.
fn bundle_of(process: &Process) -> Option<&PathBuf> {
    if !matches!(process.end.ended(), Ended::Failed | Ended::Unknown) {
        return None;
    }
    let outside = process.sessions.iter().filter(|session| session.viewpoint == Some(Viewpoint::Outside));
    let outside: Vec<&PathBuf> = outside.map(|session| &session.path).collect();
    let is_outside = |bundle: &&PathBuf| outside.iter().any(|path| bundle.starts_with(path));
    process.bundles.iter().rfind(is_outside).or(process.bundles.last())
}

/// The heap at its end beside the last look at the memory map: the same moment only where the process was killed.
fn split_heap(story: &mut ProcessStory, digest: &HeapDigest) {
    let is_host = |residual: &&mut residual::Residual| residual.memory == Memory::Host;
    if let Some(residual) = story.residuals.iter_mut().find(is_host) {
        residual::split_heap(residual, digest.live_bytes);
    }
}

/// What the samples show of the layers, where a bundle did not keep more of them.
fn add_layers(story: &mut ProcessStory, process: &Process, layers: &[Layers]) {
    for layers in layers.iter().filter(|layers| process.has_session(&layers.session_id)) {
        if !story.residuals.iter().any(|known| known.memory == layers.memory) {
            story.residuals.push(residual::of_layers(layers));
        }
    }
}

fn read_digest(process: &Process) -> Option<HeapDigest> {
    let of_failure = evidence::is_of_failure(process.end.facts().and_then(|facts| facts.cause));
    process.captures.iter().find_map(|path| HeapDigest::read(path, of_failure))
}

/// The lines that held most when each memory of a process was fullest, as its capture shows them: for processes that a story does not read.
#[must_use]
pub fn held_at_peak(process: &Process) -> Vec<Holder> {
    read_digest(process)
        .map(|digest| Holder::of_digest(&digest, &digest.peak_holders).collect())
        .unwrap_or_default()
}

/// The processes whose captures and bundles are read: those that failed, the program itself, then those with the worst findings.
fn worth_reading(all: &[Process], findings: &[Vec<Finding>]) -> BTreeSet<usize> {
    let is_failed = |at: usize| all[at].end.ended() == Ended::Failed;
    let mut places: Vec<usize> =
        (0..all.len()).filter(|at| is_failed(*at) || all[*at].is_root || !findings[*at].is_empty()).collect();
    let worst = |at: usize| findings[at].iter().map(|found| (found.severity, found.size_bytes())).max();
    places.sort_by_key(|at| (!is_failed(*at), !all[*at].is_root, std::cmp::Reverse(worst(*at))));
    places.into_iter().take(MOST_READ).collect()
}

/// What was found about a process, the worst first. A condition of many processes is reported once, with the sessions of all of them as evidence: it is
/// theirs too, without the numbers of the one that is named.
fn findings_of(process: &Process, findings: &[Finding], all: &[Process]) -> Vec<Finding> {
    let of = |finding: &Finding| match is_of(finding, process, all) {
        true => Some(finding.clone()),
        false if finding.metrics.contains_key("stream_count") && has_evidence(finding, process) => {
            let shared = Finding { process: process.pid.map(i64::from), ..finding.clone() };
            Some(shared.without_measurements())
        }
        false => None,
    };
    findings.iter().filter_map(of).collect()
}

fn has_evidence(finding: &Finding, process: &Process) -> bool {
    let is_session = |evidence: &stormlog_model::Evidence| {
        evidence.session_id.as_deref().is_some_and(|id| process.has_session(id))
    };
    finding.evidence.iter().any(is_session)
}

/// Whether a finding is about a process, by its number; ranks on several machines may have the same one, then by its sessions.
fn is_of(finding: &Finding, process: &Process, all: &[Process]) -> bool {
    let Some(pid) = finding.process else { return has_evidence(finding, process) };
    let is_it = |process: &Process| Some(pid) == process.pid.map(i64::from);
    let is_shared = || all.iter().filter(|other| is_it(other)).nth(1).is_some();
    is_it(process) && (!is_shared() || has_evidence(finding, process))
}
