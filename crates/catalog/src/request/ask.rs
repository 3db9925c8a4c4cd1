//! Leaving requests: for one process, or for every recorded process at a path.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use stormlog_files::Directory;
use stormlog_store::{StoreError, wall_ns};

use super::{Answer, Kind, MAX_ANSWERS, MAX_PENDING, Request, RequestError, listener_of, names};
use crate::run::layout::{
    REQUESTS_DIRECTORY, SHIPMENT_FILE, is_answer, listener_pid, request_name, request_parts,
};
use crate::run::{Run, RunStatus, find_runs};

/// A process that can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The directory of its run.
    pub run: PathBuf,
    /// Its number.
    pub pid: u32,
    /// When it started, where that is known.
    pub start_ticks: Option<u64>,
    /// Its rank.
    pub rank: u64,
    /// Ranks of its job, where that is known.
    pub world_size: Option<u64>,
    /// Its machine, where that is known.
    pub host: Option<String>,
    /// Whether it takes requests itself. Its supervisor answers otherwise, and knows nothing of steps.
    pub listens: bool,
}

/// A request that was written for a process and can still be withdrawn.
#[derive(Debug, Clone)]
pub struct PendingRequest {
    /// The process that is to answer it.
    pub target: Target,
    /// The request.
    pub request: Request,
}

impl PendingRequest {
    /// What is answered so far.
    #[must_use]
    pub fn answer(&self) -> Option<Answer> {
        Answer::read(&self.target.run, self.target.pid, &self.request.id)
    }

    /// Whether the process has ended, or takes no more requests: an answer that is not there now never comes. Where its supervisor answers for it, false.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.target.listens && listener_of(&self.target.run, self.target.pid).is_none()
    }

    /// Takes the request back: a process that did not take it by now never will.
    pub fn withdraw(&self) {
        let directory = self.target.run.join(REQUESTS_DIRECTORY);
        // Taken meanwhile, or the process's user removed it.
        let _ = Directory::open(&directory)
            .and_then(|open| open.remove(request_name(self.target.pid, &self.request.id)));
    }
}

/// A request of `kind`, for [`ask`].
#[must_use]
pub fn asked_of(target: &Target, kind: Kind, asked_by: &str) -> Request {
    let id = uuid::Uuid::new_v4().simple().to_string();
    Request {
        id: id.get(..16).unwrap_or(&id).to_owned(),
        pid: target.pid,
        start_ticks: target.start_ticks,
        kind,
        at_step: None,
        heap_seconds: None,
        asked_by: asked_by.to_owned(),
        asked_at_ns: wall_ns() as i64,
        expires_at_ns: None,
    }
}

/// Leaves a request for a process, and does nothing else to it.
pub fn ask(target: Target, request: Request) -> Result<PendingRequest, RequestError> {
    let run = Directory::open(&target.run).map_err(|error| RequestError::io(&target.run, error))?;
    ask_in(&run, target, request)
}

/// The same, in a directory that is open: what its path leads to may have changed since it was checked.
pub fn ask_in(run: &Directory, target: Target, request: Request) -> Result<PendingRequest, RequestError> {
    let owner = run.owner().map_err(|error| RequestError::io(&target.run, error))?;
    if owner != geteuid().as_raw() && !geteuid().is_root() {
        return Err(RequestError::NotYours(target.run));
    }
    let path = target.run.join(REQUESTS_DIRECTORY);
    let directory = run.directory(REQUESTS_DIRECTORY).map_err(|error| RequestError::io(&path, error))?;
    let there = names(&path);
    let is_for_it = |name: &String| request_parts(name).is_some_and(|(pid, _)| pid == target.pid);
    if there.iter().filter(|name| is_for_it(name)).count() >= MAX_PENDING {
        return Err(RequestError::Busy(path));
    }
    forget_old_answers(&directory, &path, target.pid, &there);
    let text = serde_json::to_vec_pretty(&request).map_err(|error| RequestError::io(&path, error))?;
    directory
        .replace(request_name(target.pid, &request.id), &text)
        .map_err(|error| RequestError::io(&path, error))?;
    Ok(PendingRequest { target, request })
}

/// The newest answers of a process stay.
fn forget_old_answers(directory: &Directory, path: &Path, pid: u32, there: &[String]) {
    let prefix = format!("{pid}-");
    let answers = there.iter().filter(|name| is_answer(name) && name.starts_with(&prefix));
    let written =
        |name: &&String| std::fs::symlink_metadata(path.join(name)).and_then(|there| there.modified()).ok();
    let mut answers: Vec<&String> = answers.collect();
    if answers.len() <= MAX_ANSWERS {
        return;
    }
    answers.sort_by_key(written);
    for name in &answers[..answers.len() - MAX_ANSWERS] {
        // Left behind, it is looked at again with the next request.
        let _ = directory.remove(name);
    }
}

/// Every process at a path that can be asked: those that take requests themselves, and the programs of living runs that have none of these. A copy of a run has
/// no processes: what is left in it reaches no one.
pub fn targets(path: &Path) -> Result<Vec<Target>, StoreError> {
    let found = find_runs(path)?;
    let mut targets = Vec::new();
    for directory in found.directories.iter().filter(|run| !run.path().join(SHIPMENT_FILE).exists()) {
        let listening = listeners_in(directory.path());
        if !listening.is_empty() {
            targets.extend(listening);
            continue;
        }
        let Ok(Some(run)) = Run::load(directory) else { continue };
        if run.status != RunStatus::Running {
            continue;
        }
        let Some(root) = run.processes.iter().find(|process| process.is_root) else { continue };
        let identity = root.identity();
        targets.extend(root.pid.map(|pid| Target {
            run: directory.path().to_owned(),
            pid,
            start_ticks: root.start_ticks,
            rank: identity.and_then(|one| u64::try_from(one.rank).ok()).unwrap_or(0),
            world_size: None,
            host: identity.map(|one| one.host.clone()),
            listens: false,
        }));
    }
    // Programs that record themselves have sessions without a run.
    let mut above: Vec<&Path> = found.sessions.iter().filter_map(|session| session.parent()).collect();
    above.sort_unstable();
    above.dedup();
    targets.extend(above.into_iter().flat_map(listeners_in));
    targets.sort_by(|a, b| (a.rank, &a.run, a.pid).cmp(&(b.rank, &b.run, b.pid)));
    Ok(targets)
}

/// Those of the targets that can have training steps. A launcher takes requests too and runs no step: it would never answer one that waits for a step. It is
/// known by its world, which is smaller than that of the ranks beside it in its run: 1, or the number of machines.
#[must_use]
pub fn that_may_step(targets: Vec<Target>) -> Vec<Target> {
    let mut worlds: BTreeMap<PathBuf, u64> = BTreeMap::new();
    for target in &targets {
        let most = worlds.entry(target.run.clone()).or_default();
        *most = (*most).max(target.world_size.unwrap_or(0));
    }
    let is_rank = |target: &Target| {
        target.world_size.is_none_or(|own| worlds.get(&target.run).is_none_or(|most| own == *most))
    };
    targets.into_iter().filter(is_rank).collect()
}

fn listeners_in(run: &Path) -> Vec<Target> {
    let pids = names(&run.join(REQUESTS_DIRECTORY)).into_iter().filter_map(|name| listener_pid(&name));
    let target = |pid| {
        let listener = listener_of(run, pid)?;
        Some(Target {
            run: run.to_owned(),
            pid,
            start_ticks: listener.start_ticks,
            rank: listener.rank,
            world_size: listener.world_size,
            host: Some(listener.host),
            listens: true,
        })
    };
    pids.filter_map(target).collect()
}
