//! One look at all runs: what is new is read, what has gone is forgotten, and its deaths are not.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stormlog_catalog::run::{FileVersion, ObservedRun, ObservedState, RunDirectory, RunStatus, find_runs};
use stormlog_store::StoreError;

use crate::holders::Holders;
use crate::ledger::Ledger;
use crate::living::LivingRun;
use crate::objects::{Cgroup, Host};
use crate::picture::EndedRow;
use crate::slots::Slots;
use crate::state::{StateError, StateFile};

/// Time for one look: a scraper gives up after ten seconds, and asks again after fifteen.
const BUDGET: Duration = Duration::from_secs(3);
/// Looking for runs again takes at most this part of the time, where [`NodeOptions::keeps_history`] asks for looks every second.
const SEARCH_SHARE: u32 = 30;
/// For this long the runs that were found are read to their end before runs are searched again.
const SEARCH_AGE: Duration = Duration::from_secs(5);
/// Threads that read the records of runs that are new.
const MOST_THREADS: usize = 4;
/// Fewer new runs are read by one thread.
const LEAST_SHARED: usize = 64;
/// Runs that are remembered; the names of that many take 20 MB.
const MOST_RUNS: usize = 100_000;
/// Living runs that are read.
const MOST_LIVING: usize = 1024;

/// What is read.
#[derive(Debug, Default)]
pub struct NodeOptions {
    /// Run directories, or directories of them.
    pub roots: Vec<PathBuf>,
    /// Where deaths are kept over a restart.
    pub state: Option<StateFile>,
    /// Whether the lines that hold most of the heap are read.
    pub reads_holders: bool,
    /// Whether [`NodePicture::ended`](crate::NodePicture) lists the runs that have ended.
    pub keeps_ended: bool,
    /// Whether the memory of living ranks over time is in the picture.
    pub keeps_history: bool,
    /// Time for one look, where it is not the usual.
    pub budget: Option<Duration>,
}

/// A run that has ended, or cannot be read.
pub(crate) struct Ended {
    version: FileVersion,
    pub(crate) status: RunStatus,
    pub(crate) row: Option<Arc<EndedRow>>,
}

/// The reader.
pub struct Node {
    options: NodeOptions,
    pub(crate) ended: BTreeMap<PathBuf, Ended>,
    pub(crate) living: BTreeMap<PathBuf, LivingRun>,
    pub(crate) ledger: Ledger,
    pub(crate) slots: Slots,
    pub(crate) host: Host,
    pub(crate) holders: Holders,
    /// Recordings without a run.
    sessions: Vec<PathBuf>,
    pub(crate) errors: [u64; 3],
    pub(crate) unread: u64,
    pub(crate) took: Duration,
    turn: usize,
    /// When the runs were looked for last, and what that took.
    searched: Option<(Instant, Duration)>,
    /// What was found, while not all of it is read.
    found: Vec<(PathBuf, FileVersion)>,
}

/// What could not be read, as the label has it.
pub const ERROR_REASONS: [&str; 3] = ["directory", "run", "state"];
const OF_DIRECTORY: usize = 0;
const OF_RUN: usize = 1;
const OF_STATE: usize = 2;

impl Node {
    /// A reader that has not looked yet.
    pub fn new(options: NodeOptions) -> Result<Self, StateError> {
        let (ledger, slots) = options.state.as_ref().map(StateFile::read).transpose()?.unwrap_or_default();
        if let Some(state) = &options.state {
            // A state that cannot be kept is an error now, not at the first death.
            state.write(&ledger, &slots)?;
        }
        Ok(Node { ledger, slots, ..Node::without_state(options) })
    }

    /// A reader that keeps nothing over a restart, whatever the options name.
    #[must_use]
    pub fn without_state(options: NodeOptions) -> Self {
        raise_descriptors();
        Node {
            options,
            ended: BTreeMap::new(),
            living: BTreeMap::new(),
            ledger: Ledger::default(),
            slots: Slots::default(),
            sessions: Vec::new(),
            host: Host::default(),
            holders: Holders::default(),
            errors: [0; 3],
            unread: 0,
            took: Duration::ZERO,
            turn: 0,
            searched: None,
            found: Vec::new(),
        }
    }

    /// Reads what is new, until the time for it is over.
    pub fn look(&mut self) {
        self.look_for(self.options.budget.unwrap_or(BUDGET));
    }

    /// As [`look`](Self::look), within `budget`.
    pub fn look_for(&mut self, budget: Duration) {
        let begun = Instant::now();
        let deadline = begun + budget;
        self.host.look();
        let is_behind = self.unread > 0;
        self.unread = 0;
        let slots_before = self.slots.clone();
        let found = self.found_now(is_behind);
        let mut observed = observe_new(&self.unknown(&found), deadline);
        // Whatever took too long last time comes first this time.
        let first = if found.is_empty() { 0 } else { self.turn % found.len() };
        let order = found[first..].iter().chain(&found[..first]);
        let (mut is_changed, mut next_turn) = (false, None);
        let mut cgroups = BTreeMap::new();
        for (number, (path, version)) in order.enumerate() {
            if self.ended.get(path).is_some_and(|ended| ended.version == *version) {
                continue;
            }
            let seen = observed.remove(path);
            if seen.is_none() && Instant::now() >= deadline {
                next_turn.get_or_insert(first + number);
                self.unread += 1;
                if let Some(living) = self.living.get_mut(path) {
                    living.is_whole = false;
                }
                continue;
            }
            is_changed |= self.read(path, *version, seen, &mut cgroups, deadline);
        }
        self.turn = next_turn.unwrap_or(0);
        self.found = if self.unread > 0 { found } else { Vec::new() };
        self.assign_slots();
        is_changed |= slots_before != self.slots;
        if let Some(state) = self.options.state.as_ref().filter(|_| is_changed)
            && state.write(&self.ledger, &self.slots).is_err()
        {
            self.errors[OF_STATE] += 1;
        }
        self.took = begun.elapsed();
    }

    /// The directory of a run that was seen, by its id.
    #[must_use]
    pub fn run_directory(&self, id: &str) -> Option<PathBuf> {
        let is_it = |path: &&PathBuf| path.file_name().is_some_and(|name| name == id);
        self.ended.keys().chain(self.living.keys()).find(is_it).cloned()
    }

    /// The directories of all runs that were seen.
    #[must_use]
    pub fn run_directories(&self) -> Vec<PathBuf> {
        self.ended.keys().chain(self.living.keys()).cloned().collect()
    }

    /// Directories of recordings without a run, in order.
    pub(crate) fn sessions(&self) -> &[PathBuf] {
        &self.sessions
    }

    pub(crate) fn keeps_history(&self) -> bool {
        self.options.keeps_history
    }

    /// The lines that hold most of the heap of these processes, where [`NodeOptions::reads_holders`] asks for them. Reads captures, until the time of a
    /// look is over.
    pub fn holders(&mut self, processes: &[(&Path, u32)]) -> Vec<Vec<(u64, String)>> {
        let deadline = Instant::now() + self.options.budget.unwrap_or(BUDGET);
        if !self.options.reads_holders {
            return vec![Vec::new(); processes.len()];
        }
        let holders = &mut self.holders;
        let lines = processes.iter().map(|(run, pid)| holders.of(run, *pid, deadline)).collect();
        holders.sweep();
        lines
    }

    /// The runs that there are; those that live only, where all were looked for a short time ago.
    fn found_now(&mut self, is_behind: bool) -> Vec<(PathBuf, FileVersion)> {
        let is_fresh = |(at, took): &(Instant, Duration)| at.elapsed() < took.saturating_mul(SEARCH_SHARE);
        if self.options.keeps_history && !is_behind && self.searched.as_ref().is_some_and(is_fresh) {
            let version = |path: &PathBuf| Some((path.clone(), RunDirectory::open(path)?.version().ok()?));
            return self.living.keys().filter_map(version).collect();
        }
        let is_recent = |(at, _): &(Instant, Duration)| at.elapsed() < SEARCH_AGE;
        if self.options.keeps_history && is_behind && self.searched.as_ref().is_some_and(is_recent) {
            return std::mem::take(&mut self.found);
        }
        let begun = Instant::now();
        let found = self.find();
        self.forget_removed(&found);
        self.searched = Some((Instant::now(), begun.elapsed()));
        found
    }

    /// Those that were not read yet.
    fn unknown(&self, found: &[(PathBuf, FileVersion)]) -> Vec<PathBuf> {
        let is_new = |path: &PathBuf| !self.ended.contains_key(path) && !self.living.contains_key(path);
        found.iter().map(|(path, _)| path).filter(|path| is_new(path)).cloned().collect()
    }

    fn find(&mut self) -> Vec<(PathBuf, FileVersion)> {
        let mut found = Vec::new();
        self.sessions.clear();
        for root in &self.options.roots {
            let Ok(runs) = find_runs(root) else {
                self.errors[OF_DIRECTORY] += 1;
                continue;
            };
            self.sessions.extend(runs.sessions);
            for run in &runs.directories {
                // A link in the place of a record is none.
                if let Ok(version) = run.version() {
                    let path = std::path::absolute(run.path()).unwrap_or_else(|_| run.path().to_owned());
                    found.push((path, version));
                }
            }
        }
        self.sessions.sort();
        self.sessions.dedup();
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        found.dedup_by(|(a, _), (b, _)| a == b);
        self.unread += found.len().saturating_sub(MOST_RUNS) as u64;
        // The newest, by their names.
        found.drain(..found.len().saturating_sub(MOST_RUNS));
        found
    }

    fn forget_removed(&mut self, found: &[(PathBuf, FileVersion)]) {
        let is_there = |path: &Path| found.binary_search_by(|(there, _)| there.as_path().cmp(path)).is_ok();
        self.ended.retain(|path, _| is_there(path));
        self.living.retain(|path, _| is_there(path));
    }

    /// Reads one run; true where a death is new.
    fn read(
        &mut self,
        path: &Path,
        version: FileVersion,
        seen: Option<Observed>,
        cgroups: &mut BTreeMap<PathBuf, Cgroup>,
        deadline: Instant,
    ) -> bool {
        let known = self.living.get_mut(path).filter(|living| living.version == version);
        if let Some(living) = known
            && living.observed.is_supervised_still()
        {
            return self.read_living(path, cgroups, deadline);
        }
        let observed = match seen.unwrap_or_else(|| observe(path)) {
            Some(Ok(Some(observed))) => observed,
            Some(Err(_) | Ok(None)) | None => {
                self.errors[OF_RUN] += 1;
                self.living.remove(path);
                self.ended.insert(path.to_owned(), Ended { version, status: RunStatus::Unknown, row: None });
                return false;
            }
        };
        match observed.state {
            ObservedState::Ended(status) => {
                let living = self.living.remove(path).map(|living| living.deaths).unwrap_or_default();
                let status = status.refined(observed.record.ended());
                let deaths = observed.record.deaths();
                let row =
                    self.options.keeps_ended.then(|| Arc::new(EndedRow::of(path, status, observed.record)));
                self.ended.insert(path.to_owned(), Ended { version, status, row });
                let is_new = self.ledger.raise(path, &living);
                self.ledger.raise(path, &deaths) || is_new
            }
            ObservedState::Living => {
                if let Some(living) = self.living.get_mut(path) {
                    (living.version, living.observed) = (version, observed);
                } else if self.living.len() < MOST_LIVING {
                    let living = LivingRun::new(path.to_owned(), version, observed);
                    self.living.insert(path.to_owned(), living);
                }
                self.read_living(path, cgroups, deadline)
            }
        }
    }

    fn read_living(
        &mut self,
        path: &Path,
        cgroups: &mut BTreeMap<PathBuf, Cgroup>,
        deadline: Instant,
    ) -> bool {
        let Some(living) = self.living.get_mut(path) else {
            self.unread += 1;
            return false;
        };
        living.look(self.host.now.total, cgroups, deadline);
        self.unread += u64::from(!living.is_whole);
        self.ledger.raise(path, &living.deaths)
    }

    fn assign_slots(&mut self) {
        let living = &self.living;
        self.slots.keep(|run| living.contains_key(run));
        let mut order: Vec<&LivingRun> = living.values().collect();
        order.sort_by_key(|run| (run.record().started_at_ns, run.path.clone()));
        for run in order {
            let (job, _) = run.job();
            for rank in run.ranks.keys() {
                self.slots.of(&job, *rank, &run.path);
            }
        }
    }
}

/// A run as it was found; `None` where it is not there any more.
type Observed = Option<Result<Option<ObservedRun>, StoreError>>;

fn observe(path: &Path) -> Observed {
    RunDirectory::open(path).map(|run| run.observe())
}

/// Reads the records of many runs by several threads, until the deadline; few are left to the caller.
fn observe_new(paths: &[PathBuf], deadline: Instant) -> BTreeMap<PathBuf, Observed> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    if threads < 2 || paths.len() < LEAST_SHARED {
        return BTreeMap::new();
    }
    let read = |part: &[PathBuf]| -> Vec<(PathBuf, Observed)> {
        let in_time = part.iter().take_while(|_| Instant::now() < deadline);
        in_time.map(|path| (path.clone(), observe(path))).collect()
    };
    std::thread::scope(|scope| {
        let parts = paths.chunks(paths.len().div_ceil(threads));
        let working: Vec<_> = parts.map(|part| scope.spawn(move || read(part))).collect();
        // What a thread that panicked did not read is read by the caller.
        working.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    })
}

/// A living process has its log open: as many as the system lets us.
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const ENOUGH: u64 = 65_536;
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(ENOUGH).min(ENOUGH);
    if limit.current.is_some_and(|current| current < most) {
        // Fewer are enough for fewer processes.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum });
    }
}
