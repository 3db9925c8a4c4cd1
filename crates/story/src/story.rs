//! The story of everything at some paths: one story for each process, and the answer.

use std::path::PathBuf;

use serde_json::{Value, json};
use stormlog_catalog::run::{Process, processes};
use stormlog_heap_report::HeapDigest;
use stormlog_model::Finding;
use stormlog_postmortem::{Cause, Ended};

use crate::answer::answer;
use crate::holder::{self, Holder};
use crate::process::ProcessStory;

/// Processes whose captures are read, the program itself first.
const CAPTURES: usize = 32;

/// What happened at some paths.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Story {
    /// The answer, at most eight lines.
    pub headline: Vec<String>,
    /// The processes, the program itself first.
    pub processes: Vec<ProcessStory>,
}

impl Story {
    /// Of everything at these paths, with what the rules found in it. What cannot be read is left out.
    #[must_use]
    pub fn of(paths: &[PathBuf], findings: &[Finding]) -> Self {
        let mut stories = Vec::new();
        for path in paths {
            let found = processes(path, &|| true).map(|found| found.processes).unwrap_or_default();
            stories.extend(found.iter().enumerate().map(|(at, process)| of_process(process, at < CAPTURES)));
        }
        for finding in findings {
            let owner = stories.iter_mut().find(|story| is_of(finding, story));
            if let Some(story) = owner {
                story.findings.push(finding.clone());
            }
        }
        Story::from(stories)
    }

    /// `headline` and `processes`, for the JSON of every view.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let processes: Vec<Value> = self.processes.iter().map(ProcessStory::to_value).collect();
        json!({"headline": self.headline, "processes": processes})
    }
}

impl From<Vec<ProcessStory>> for Story {
    fn from(processes: Vec<ProcessStory>) -> Self {
        Story { headline: answer(&processes), processes }
    }
}

fn is_of(finding: &Finding, story: &ProcessStory) -> bool {
    finding.process.is_some() && finding.process == story.pid.map(i64::from)
}

fn of_process(process: &Process, reads_capture: bool) -> ProcessStory {
    let identity = process.identity();
    let facts = process.end.facts();
    let (ended, cause) = (process.end.ended(), facts.and_then(|facts| facts.cause));
    let sentence = facts.and_then(|facts| facts.verdict.clone());
    let mut story = ProcessStory::new(ended, String::new());
    story.pid = process.pid;
    story.program.clone_from(&process.program);
    story.rank = identity.and_then(|summary| u64::try_from(summary.rank).ok());
    story.is_root = process.is_root;
    story.cause = cause;
    story.confidence = facts.and_then(|facts| facts.confidence);
    story.started_at_ns = process.started_at_ns();
    story.ended_at_ns = process.ended_at_ns();
    story.peak_rss_bytes = process.peak_rss_bytes;
    story.what_happened = sentence.unwrap_or_else(|| format!("{} {}.", story.name(), plainly(ended)));
    let of_failure = matches!(cause, Some(Cause::MemoryError | Cause::OomException));
    let digest =
        reads_capture.then(|| process.captures.iter().find_map(|path| HeapDigest::read(path, of_failure)));
    if let Some(digest) = digest.flatten() {
        take_digest(&mut story, &digest);
    }
    story
}

fn take_digest(story: &mut ProcessStory, digest: &HeapDigest) {
    story.failed_memory = digest.failed_memory();
    story.held = digest.holders.iter().map(Holder::from).collect();
    for holder in &mut story.held {
        holder.is_estimate = digest.is_sampled(holder.memory);
    }
    holder::sort(&mut story.held, story.failed_memory);
    let of_devices = digest.devices.iter().filter_map(|device| device.failed_request.clone());
    story.failed_requests = of_devices.chain(digest.failed.clone()).collect();
}

fn plainly(ended: Ended) -> &'static str {
    match ended {
        Ended::Running => "is running",
        Ended::Completed => "exited 0",
        Ended::Deliberate => "was stopped",
        Ended::Failed => "failed",
        Ended::Unknown => "ended; how is not known",
    }
}
