//! The reader behind the overview and the ranks: a [`Node`], the GPUs of this machine, recordings without a run, and the ranks of runs that have ended.
//!
//! What is asked for is read within a budget; the answer says whether there is more. Must never write: a reader leaves no trace in a run.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stormlog_collect::cgroup::MemoryCgroup;

use crate::ended_ranks::EndedRanks;
use crate::gpus::{GpuRow, Gpus};
use crate::jobs::{JobRow, jobs, key_of};
use crate::look::{Node, NodeOptions};
use crate::objects::Cgroup;
use crate::overview::{Item, Overview, sorted};
use crate::picture::NodePicture;
use crate::unattached::Unattached;

/// Drivers are asked no more often: each answer costs them a lock.
const GPU_INTERVAL: Duration = Duration::from_secs(2);

/// The reader.
pub struct Fleet {
    roots: Vec<PathBuf>,
    node: Node,
    gpus: Gpus,
    gpu_rows: Option<(Instant, Vec<GpuRow>)>,
    own: Option<MemoryCgroup>,
    unattached: Unattached,
    ended: EndedRanks,
    looks: u64,
}

impl Fleet {
    /// A reader of these run directories, or directories of them.
    #[must_use]
    pub fn new(roots: Vec<PathBuf>) -> Self {
        let options = NodeOptions {
            roots: roots.clone(),
            keeps_ended: true,
            keeps_history: true,
            ..NodeOptions::default()
        };
        Fleet {
            roots,
            node: Node::without_state(options),
            gpus: Gpus::default(),
            gpu_rows: None,
            own: MemoryCgroup::of(std::process::id()).ok(),
            unattached: Unattached::default(),
            ended: EndedRanks::default(),
            looks: 0,
        }
    }

    /// The machine and everything recorded on it, and whether there is more to read at once.
    pub fn overview(&mut self, budget: Duration) -> (Overview, bool) {
        let deadline = Instant::now() + budget;
        let picture = self.look(budget);
        let is_whole = self.unattached.look(self.node.sessions(), deadline);
        // The first picture does not wait for a driver.
        let is_first = self.looks == 1;
        if !is_first && self.gpu_rows.as_ref().is_none_or(|(at, _)| at.elapsed() >= GPU_INTERVAL) {
            self.gpu_rows = Some((Instant::now(), self.gpus.look()));
        }
        let own = self.own.as_ref().map(Cgroup::read);
        let problems = self.roots.iter().filter(|root| !root.exists());
        let problems = problems.map(|root| format!("{}: no such directory", root.display())).collect();
        let is_behind = is_first || picture.unread > 0 || !is_whole;
        let runs = picture.runs.into_iter().map(|run| Item::Run(Arc::new(run)));
        let sessions = self.unattached.rows().into_iter().map(|row| Item::Session(Arc::new(row)));
        let (living, ended) = sorted(runs.chain(sessions).chain(picture.ended.into_iter().map(Item::Ended)));
        let overview = Overview {
            at_ns: picture.at_ns,
            host: picture.host,
            own_cgroup: own.filter(|cgroup| cgroup.limit.is_some() || !cgroup.is_root()),
            cgroups: picture.cgroups,
            gpus: self.gpu_rows.as_ref().map(|(_, rows)| rows.clone()),
            living,
            ended,
            unread: picture.unread,
            problems,
        };
        (overview, is_behind)
    }

    /// The jobs, with the memory over time of one of them (the first where none is named), and whether there is more to read at once.
    pub fn jobs(&mut self, job: Option<&str>, budget: Duration) -> (Vec<JobRow>, bool) {
        let deadline = Instant::now() + budget;
        let picture = self.look(budget);
        let mut is_whole = picture.unread == 0 && self.ended.look(&picture.ended, deadline);
        let found = jobs(&picture, &self.ended);
        let chosen = job.map(str::to_owned).or_else(|| found.first().map(|job| job.key.clone()));
        let Some(chosen) = chosen else { return (found, !is_whole) };
        let has_more = found.iter().any(|job| job.key == chosen && job.lacks_history());
        if !has_more {
            return (found, !is_whole);
        }
        is_whole &= self.ended.read_memory(&|run| key_of(run) == chosen, deadline);
        (jobs(&picture, &self.ended), !is_whole)
    }

    /// Everything there is, the memory over time of all jobs included, as far as it can be read within `timeout`.
    pub fn whole(&mut self, timeout: Duration) -> (Overview, Vec<JobRow>) {
        let deadline = Instant::now() + timeout;
        let left = || deadline.saturating_duration_since(Instant::now());
        let (mut overview, mut is_behind) = self.overview(left());
        while is_behind && !left().is_zero() {
            (overview, is_behind) = self.overview(left());
        }
        let picture = self.node.picture();
        if self.ended.look(&picture.ended, deadline) {
            // What could not be read in time has the peak of its largest process.
            let _ = self.ended.read_memory(&|_| true, deadline);
        }
        (overview, jobs(&picture, &self.ended))
    }

    fn look(&mut self, budget: Duration) -> NodePicture {
        self.looks += 1;
        self.node.look_for(budget);
        self.node.picture()
    }
}

impl JobRow {
    fn lacks_history(&self) -> bool {
        !self.is_living && self.ranks.iter().any(|rank| rank.host_memory.history.is_none())
    }
}
