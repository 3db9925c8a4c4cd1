//! What is known of a run once it is over: deaths with their signature, what held the memory, findings. The judgement is that of `story`, whose
//! sentences every view has; this file only makes rows of it.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use stormlog_catalog::run::{Process, Run};
use stormlog_model::fingerprint::{Fingerprint, normalize_text};
use stormlog_model::memory::Memory;
use stormlog_postmortem::{Cause, Ended};
use stormlog_story::{Holder, Judged, ProcessStory, Story, held_at_peak};

use crate::end_rows::{DeathRow, FindingRow, HolderRow, Peaks};
use crate::row::ProcessFacts;

/// Rows of holders kept of each process and memory.
const HOLDERS: usize = 50;

pub(crate) struct Judgement<'a> {
    run: &'a Run,
    all: &'a [Arc<ProcessFacts>],
    judged: Option<Judged>,
    /// Of the processes that failed, where the run as a whole is not judged.
    deaths: Vec<(usize, ProcessStory)>,
}

impl<'a> Judgement<'a> {
    /// `is_whole`: findings and holders are wanted. `wanted`: the processes whose deaths are.
    pub(crate) fn of(
        run: &'a Run,
        all: &'a [Arc<ProcessFacts>],
        is_whole: bool,
        wanted: impl Iterator<Item = usize>,
    ) -> Self {
        let judged = is_whole.then(|| Judged::of_path(&run.path, &mut || true).ok()).flatten();
        let mut deaths = Vec::new();
        if judged.is_none() {
            for at in wanted.filter(|at| is_death(&run.processes[*at])) {
                let story = Story::of_process(&run.processes[at]).processes.into_iter().next();
                deaths.extend(story.map(|story| (at, story)));
            }
        }
        Judgement { run, all, judged, deaths }
    }

    fn story(&self, at: usize) -> Option<&ProcessStory> {
        let process = &self.run.processes[at];
        let is_it = |story: &&ProcessStory| {
            story.pid == process.pid && story.started_at_ns == process.started_at_ns()
        };
        let whole = self.judged.as_ref().and_then(|judged| judged.story.processes.iter().find(is_it));
        whole.or_else(|| self.deaths.iter().find(|(known, _)| *known == at).map(|(_, story)| story))
    }

    /// The death of a process, where its end was one.
    pub(crate) fn death(
        &self,
        at: usize,
        peaks: &Peaks,
        (phase, step): (Option<Arc<str>>, Option<i64>),
    ) -> Option<DeathRow> {
        let process = &self.run.processes[at];
        if !is_death(process) {
            return None;
        }
        let (facts, story) = (process.end.facts(), self.story(at));
        let cause = facts.and_then(|facts| facts.cause).or(story.and_then(|story| story.cause));
        let cause = cause.unwrap_or(Cause::Unknown);
        let memory = story.and_then(|story| story.failed_memory);
        let held = story.map(|story| story.held.as_slice()).unwrap_or_default();
        let holder = held.iter().find(|holder| memory.is_none_or(|memory| holder.memory == memory)).cloned();
        let raised = story.and_then(|story| story.raised.clone());
        let verdict = facts.and_then(|facts| facts.verdict.clone());
        let own = &self.all[at];
        let program = own.program.as_deref().unwrap_or("");
        Some(DeathRow {
            process: Arc::clone(own),
            at_ns: self.end_ns(process),
            cause,
            ended: process.end.ended(),
            signature: signature(cause, program, raised.as_deref(), holder.as_ref()),
            what_happened: story.map(|story| story.what_happened.clone()).or(verdict).unwrap_or_default(),
            reason: story.and_then(|story| story.reason.clone()),
            raised,
            confidence: facts.and_then(|facts| facts.confidence).or(story.and_then(|story| story.confidence)),
            exit_code: facts.and_then(|facts| facts.exit_code).map(i64::from),
            signal: facts.and_then(|facts| facts.signal).map(i64::from),
            memory_name: memory.map(|memory| memory.to_string()),
            memory,
            peak_host_bytes: process.peak_rss_bytes.max(peaks.host.map(|(bytes, _)| bytes)),
            holder,
            advice: story.and_then(|story| story.advice.first().cloned()),
            phase,
            step,
        })
    }

    fn end_ns(&self, process: &Process) -> i64 {
        let ended = process.ended_at_ns().or(self.run.record.ended_at_ns);
        ended.or(process.started_at_ns()).or(self.run.record.started_at_ns).unwrap_or(0)
    }

    /// What held the memory of each process: of one that died when it died, of others at their peak, which is what they are compared by.
    pub(crate) fn holders(&self) -> impl Iterator<Item = HolderRow> {
        let of_process = |at: usize| {
            let process = &self.run.processes[at];
            let held = self.story(at).map(|story| held(story, process)).unwrap_or_default();
            let at_ns = self.end_ns(process);
            let mut rows: Vec<HolderRow> = Vec::new();
            for holder in &held {
                let before = rows.iter().filter(|row| row.holder.memory == holder.memory).count();
                if before < HOLDERS {
                    rows.push(HolderRow {
                        process: Arc::clone(&self.all[at]),
                        at_ns,
                        memory_name: holder.memory.to_string(),
                        holder: holder.clone(),
                        position: before as i64 + 1,
                    });
                }
            }
            rows
        };
        (0..self.all.len()).flat_map(of_process)
    }

    /// What the rules found.
    pub(crate) fn findings(&self) -> impl Iterator<Item = FindingRow> {
        let rows = self.judged.as_ref().map(Judged::finding_rows).unwrap_or_default();
        rows.into_iter().filter_map(|row| {
            let by_evidence = |facts: &&Arc<ProcessFacts>| {
                let ids = row.finding.evidence.iter().filter_map(|evidence| evidence.session_id.as_deref());
                let process =
                    self.run.processes.iter().find(|process| process.pid.map(i64::from) == facts.pid);
                ids.into_iter().any(|id| process.is_some_and(|process| process.has_session(id)))
            };
            let by_pid =
                |facts: &&Arc<ProcessFacts>| row.pid.is_some() && facts.pid == row.pid.map(i64::from);
            let process = self.all.iter().find(by_pid).or_else(|| self.all.iter().find(by_evidence));
            let process = process.or(self.all.first())?;
            let at_ns = row.at_ns.and_then(|at_ns| i64::try_from(at_ns).ok());
            let ended_at_ns = self.run.record.ended_at_ns.or(self.run.record.started_at_ns);
            let advice = row.finding.advice.join("\n");
            let memory: Option<Memory> = row.memory;
            let metrics = (!row.finding.metrics.is_empty())
                .then(|| serde_json::to_string(&row.finding.metrics).ok())
                .flatten();
            Some(FindingRow {
                process: Arc::clone(process),
                at_ns: at_ns.or(ended_at_ns).unwrap_or(0),
                memory_name: memory.map(|memory| memory.to_string()),
                bytes: row.bytes,
                advice: (!advice.is_empty()).then_some(advice),
                metrics,
                finding: row.finding,
            })
        })
    }
}

/// The holders of a process that are published; what keeps a line is known of the end.
fn held(story: &ProcessStory, process: &Process) -> Vec<Holder> {
    if is_death(process) {
        return story.held.clone();
    }
    // The judgement reads the captures of a few processes; a comparison wants those of all ranks.
    let at_peak = match story.held_at_peak.is_empty() {
        true => held_at_peak(process),
        false => story.held_at_peak.clone(),
    };
    if at_peak.is_empty() {
        return story.held.clone();
    }
    let is_same = |one: &Holder, other: &Holder| {
        (one.memory, &one.file, one.line) == (other.memory, &other.file, other.line)
    };
    let with_keeper = |holder: &Holder| {
        let at_end = story.held.iter().find(|other| is_same(holder, other));
        Holder { kept_by: at_end.and_then(|other| other.kept_by.clone()), ..holder.clone() }
    };
    at_peak.iter().map(with_keeper).collect()
}

fn is_death(process: &Process) -> bool {
    let facts = process.end.facts();
    let cause = facts.and_then(|facts| facts.cause).unwrap_or(Cause::Unknown);
    // A tool that exits with 1 is its caller's business.
    let is_tool = !process.is_root && process.worker.is_none();
    process.end.ended() == Ended::Failed
        && stormlog_catalog::run::deaths::is_death(Ended::Failed, cause, is_tool)
}

/// What a death has in common with those of other jobs: cause, program, the exception without its numbers, and the line that held the memory without
/// the directory it was installed in.
fn signature(cause: Cause, program: &str, raised: Option<&str>, holder: Option<&Holder>) -> String {
    let line = holder.filter(|holder| holder.is_line()).map(|holder| {
        let file = Path::new(&holder.file).file_name().map(|name| name.to_string_lossy().into_owned());
        format!("{} {}", file.unwrap_or_default(), holder.function)
    });
    let dimensions = json!({
        "cause": cause.as_str(), "program": program, "raised": raised.map(normalize_text), "holder": line,
    });
    let dimensions = match dimensions {
        Value::Object(dimensions) => dimensions,
        _ => stormlog_model::Record::new(),
    };
    Fingerprint::new("oom", &dimensions).map(|fingerprint| fingerprint.id()).unwrap_or_default()
}
