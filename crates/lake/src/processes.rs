//! Whose rows they are: job, rank and role of each process of a run. Must never guess a rank: a launcher that has none is not rank 0.

use std::sync::Arc;

use stormlog_catalog::run::{Process, Run};
use stormlog_model::naming::ProgramName;
use stormlog_model::{Head, SessionSummary};

use crate::row::{ProcessFacts, Role};

/// The processes of a run, in its order.
pub(crate) fn of_run(run: &Run) -> Vec<Arc<ProcessFacts>> {
    let launch = run.record.launch.as_ref();
    let stated = |summary: &SessionSummary| summary.job_id.clone().filter(|job| !job.trim().is_empty());
    let of_processes = || run.processes.iter().filter_map(Process::identity).find_map(stated);
    let job = launch.and_then(|launch| launch.job_id.clone()).or_else(of_processes);
    // A shipped copy has another directory name, and is the same run.
    let run_id: Arc<str> = Arc::from(run.recorded_name());
    let job: Arc<str> = job.map_or_else(|| Arc::clone(&run_id), Arc::from);
    let program = (!run.record.command.is_empty()).then(|| ProgramName::of(&run.record.command).word);
    let job_name = launch.and_then(|launch| launch.job_name.clone()).or(program).map(Arc::from);
    let job_version = launch.and_then(|launch| launch.job_version.clone()).map(Arc::from);
    let has_ranks = run.processes.iter().filter_map(Process::identity).any(|summary| summary.world_size > 1);
    let mains = mains(run, has_ranks);
    let facts = |(at, process): (usize, &Process)| {
        let summary = process.identity();
        let is_ranked = !has_ranks || summary.is_some_and(|summary| summary.world_size > 1);
        let of = |value: fn(&SessionSummary) -> i64| summary.filter(|_| is_ranked).map(value);
        let role = match () {
            () if mains.contains(&at) => {
                if has_ranks {
                    Role::Rank
                } else {
                    Role::Root
                }
            }
            () if process.is_root => Role::Launcher,
            () if process.worker.is_some() => Role::Worker,
            () => Role::Child,
        };
        let host = summary.map(|summary| summary.host.clone()).or_else(|| run.record.host.clone());
        let id = summary.map(|summary| summary.session_id.clone());
        Arc::new(ProcessFacts {
            job_id: summary.and_then(stated).map_or_else(|| Arc::clone(&job), Arc::from),
            job_name: job_name.clone(),
            job_version: job_version.clone(),
            rank: of(|summary| summary.rank),
            local_rank: of(|summary| summary.local_rank),
            world_size: of(|summary| summary.world_size),
            attempt: attempt(summary, run),
            host: Arc::from(host.unwrap_or_default()),
            run_id: Arc::clone(&run_id),
            session_id: Arc::from(id.unwrap_or_else(|| format!("{run_id}/{}", process.pid.unwrap_or(0)))),
            pid: process.pid.map(i64::from),
            program: process.program.as_deref().map(Arc::from),
            role,
        })
    };
    run.processes.iter().enumerate().map(facts).collect()
}

fn attempt(summary: Option<&SessionSummary>, run: &Run) -> Option<i64> {
    let of_run = run.record.launch.as_ref().and_then(|launch| launch.attempt);
    summary.and_then(|summary| summary.attempt).or(of_run).and_then(|attempt| i64::try_from(attempt).ok())
}

/// The main process of each rank and attempt: the run's own where it is one, else the first that started.
fn mains(run: &Run, has_ranks: bool) -> Vec<usize> {
    let mut first: rustc_hash::FxHashMap<(i64, Option<u64>), usize> = rustc_hash::FxHashMap::default();
    let key = |process: &Process| (!process.is_root, process.started_at_ns(), process.pid);
    for (at, process) in run.processes.iter().enumerate() {
        let summary = process.identity();
        let of = summary.map_or((0, None), |summary| (summary.rank, summary.attempt));
        if has_ranks && summary.is_none_or(|summary| summary.world_size <= 1) {
            continue;
        }
        let of = if has_ranks { of } else { (0, None) };
        let known = first.entry(of).or_insert(at);
        if key(process) < key(&run.processes[*known]) {
            *known = at;
        }
    }
    first.into_values().collect()
}

/// A process that is in no run, by the head of one of its events.
pub(crate) fn of_head(head: &Head) -> ProcessFacts {
    let integer = |value: u64| i64::try_from(value).ok();
    let identity = &head.identity;
    let job = identity.job_id.clone().filter(|job| !job.trim().is_empty());
    ProcessFacts {
        job_id: Arc::from(job.unwrap_or_else(|| head.session_id.clone())),
        rank: integer(identity.rank),
        local_rank: integer(identity.local_rank),
        world_size: integer(identity.world_size),
        host: Arc::from(head.host.as_str()),
        run_id: Arc::from(head.session_id.as_str()),
        session_id: Arc::from(head.session_id.as_str()),
        pid: Some(head.pid).filter(|pid| *pid >= 0),
        role: if identity.world_size > 1 { Role::Rank } else { Role::Root },
        ..ProcessFacts::default()
    }
}
