//! A living run: its sessions, and the ranks they make up.
//!
//! Sessions that have ended are remembered by name only. Must never hold more sessions than [`MOST_SESSIONS`].

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use stormlog_catalog::run::deaths::Deaths;
use stormlog_catalog::run::layout::Viewpoint;
use stormlog_catalog::run::{FileVersion, ObservedRun, RunRecord, session_directories};
use stormlog_collect::cgroup::MemoryCgroup;
use stormlog_model::SessionStatus;
use stormlog_model::naming::ProgramName;

use crate::device_now::DeviceNow;
use crate::forecast::Growth;
use crate::objects::Cgroup;
use crate::rank::{FreeMemory, Rank};
use crate::session::{Sample, SampleSubject, Session};

/// Sessions of one run that are read; a supervisor records at most half as many at once.
const MOST_SESSIONS: usize = 1024;
/// Sessions that have ended, remembered so that they are not read again.
const MOST_ENDED: usize = 16_384;

/// A program is moved to another cgroup rarely, and where it is takes several files to find out.
const GROUP_AGE: Duration = Duration::from_secs(60);

/// What a process is in its rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The process of the rank itself.
    Main,
    /// A process of the same program below it.
    Worker,
    /// Any other program.
    Other,
}

impl Role {
    /// The label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Main => "main",
            Role::Worker => "worker",
            Role::Other => "other",
        }
    }
}

/// What limits the memory of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostLimit {
    /// `cgroup` or `host`.
    pub kind: &'static str,
    /// Its size.
    pub bytes: u64,
    /// What is used of it, by the processes of the run and others.
    pub used: Option<u64>,
}

/// A run that is being recorded.
pub(crate) struct LivingRun {
    pub(crate) path: PathBuf,
    /// Its record in the version that was read last.
    pub(crate) version: FileVersion,
    pub(crate) observed: ObservedRun,
    pub(crate) sessions: BTreeMap<PathBuf, Session>,
    ended: BTreeSet<OsString>,
    /// Processes that the supervisor recorded at some time.
    outside: BTreeSet<u32>,
    pub(crate) ranks: BTreeMap<i64, Rank>,
    /// All ranks together: what the limit of their cgroup is held against.
    pub(crate) growth: Growth,
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) deaths: Deaths,
    /// Whether the last look read all there was.
    pub(crate) is_whole: bool,
    group: Option<(Instant, MemoryCgroup)>,
}

impl LivingRun {
    /// Nothing read yet.
    pub(crate) fn new(path: PathBuf, version: FileVersion, observed: ObservedRun) -> Self {
        LivingRun {
            path,
            version,
            sessions: BTreeMap::new(),
            ended: BTreeSet::new(),
            outside: BTreeSet::new(),
            ranks: BTreeMap::new(),
            growth: Growth::every(observed.record.interval_ms.unwrap_or(100)),
            cgroup: None,
            deaths: Deaths::new(),
            is_whole: false,
            group: None,
            observed,
        }
    }

    /// What it recorded about itself.
    pub(crate) fn record(&self) -> &RunRecord {
        &self.observed.record
    }

    /// Reads what is new. `cgroups`: those that were read in this look.
    pub(crate) fn look(
        &mut self,
        host_total: Option<u64>,
        cgroups: &mut BTreeMap<PathBuf, Cgroup>,
        deadline: Instant,
    ) {
        if self.group.as_ref().is_none_or(|(at, _)| at.elapsed() >= GROUP_AGE) {
            let group = self.observed.local_pid.and_then(|pid| MemoryCgroup::of(pid).ok());
            self.group = group.map(|group| (Instant::now(), group));
        }
        self.cgroup = self.group.as_ref().map(|(_, group)| {
            cgroups.entry(group.directory.clone()).or_insert_with(|| Cgroup::read(group)).clone()
        });
        self.is_whole = self.find_sessions();
        let mut samples: Vec<Sample> = Vec::new();
        let ranks = self.ranks_of_sessions();
        let mut first = Vec::with_capacity(self.sessions.len());
        for (session, rank) in self.sessions.values_mut().zip(ranks) {
            first.push(samples.len());
            self.is_whole &= session.look(deadline, rank, &mut samples);
        }
        // Known once all are read.
        let indices = self.device_indices();
        for (at, session) in self.sessions.values().enumerate() {
            let end = first.get(at + 1).copied().unwrap_or(samples.len());
            translate(&mut samples[first[at]..end], session, &indices);
        }
        samples.sort_by_key(|sample| sample.at_ns);
        let room = self.room(host_total);
        self.grow(&samples, &room);
        self.settle_ended();
    }

    /// What limits its memory, by the newest sample of any of its processes.
    pub(crate) fn limit(&self, host_total: Option<u64>) -> Option<HostLimit> {
        let newest = self.sessions.values().filter(|session| session.host.limit.is_some());
        let newest = newest.max_by_key(|session| session.host.at_ns)?;
        let (bytes, left) = (newest.host.limit?, newest.host.left);
        if let Some(group) = self.cgroup.as_ref().filter(|group| group.limit == Some(bytes)) {
            return Some(HostLimit { kind: "cgroup", bytes, used: group.working_set.or(group.usage) });
        }
        let kind = match host_total {
            Some(total) if bytes < total - total / 64 => "cgroup",
            _ => "host",
        };
        Some(HostLimit { kind, bytes, used: left.map(|left| bytes.saturating_sub(left)) })
    }

    /// The program itself, where it is recorded.
    pub(crate) fn root(&self) -> Option<&Session> {
        let outside = self.sessions.values().filter(|session| is_outside(session));
        let mut outside = outside.filter(|session| Some(session.name.pid) == self.record().pid);
        outside.next()
    }

    /// The label of the job: its id, else the program's name; and whether it is the id.
    pub(crate) fn job(&self) -> (String, bool) {
        let of_root = self.root().and_then(|root| root.summary.job_id.clone());
        let of_any = || self.sessions.values().find_map(|session| session.summary.job_id.clone());
        let name = || ProgramName::of(&self.record().command).word;
        let id = of_root.or_else(of_any).filter(|job| !job.trim().is_empty());
        let has_id = id.is_some();
        (id.unwrap_or_else(name), has_id)
    }

    /// The processes of each rank with their roles.
    pub(crate) fn members(&self) -> BTreeMap<i64, Vec<(Role, &Session)>> {
        let mut by_rank: BTreeMap<i64, Vec<&Session>> = BTreeMap::new();
        for (session, rank) in self.sessions.values().zip(self.ranks_of_sessions()) {
            if session.is_running() && is_outside(session) {
                by_rank.entry(rank).or_default().push(session);
            }
        }
        by_rank.into_iter().map(|(rank, members)| (rank, with_roles(members))).collect()
    }

    /// The devices of each rank: the driver's number, and what all its processes hold together.
    pub(crate) fn devices(&self) -> BTreeMap<i64, BTreeMap<i64, DeviceNow>> {
        let indices = self.device_indices();
        let mut by_process: BTreeMap<(i64, i64, u32), DeviceNow> = BTreeMap::new();
        for (session, rank) in self.sessions.values().zip(self.ranks_of_sessions()) {
            if !session.is_running() {
                continue;
            }
            for (index, device) in &session.devices {
                let index = index_of(*index, device, &indices);
                let of_process = by_process.entry((rank, index, session.name.pid)).or_default();
                // From outside and from inside: each knows its own half, and neither counts twice.
                of_process.merge(device);
            }
        }
        let mut devices: BTreeMap<i64, BTreeMap<i64, DeviceNow>> = BTreeMap::new();
        for ((rank, index, _), device) in by_process {
            devices.entry(rank).or_default().entry(index).or_default().add(&device);
        }
        devices
    }

    fn find_sessions(&mut self) -> bool {
        let mut is_whole = true;
        for found in session_directories(&self.path) {
            let name = found.path.file_name().unwrap_or_default();
            if self.ended.contains(name) || self.sessions.contains_key(&found.path) {
                continue;
            }
            if self.sessions.len() >= MOST_SESSIONS {
                is_whole = false;
                break;
            }
            // Half made: next time.
            let Some(session) = Session::open(&found) else { continue };
            if is_outside(&session) && self.outside.len() < MOST_ENDED {
                self.outside.insert(session.name.pid);
            }
            // One that ended well, or whose end is unknown, adds no samples and no death.
            if matches!(session.summary.status, SessionStatus::Completed | SessionStatus::Incomplete) {
                self.remember_ended(name.to_owned());
                continue;
            }
            self.sessions.insert(found.path, session);
        }
        is_whole
    }

    fn remember_ended(&mut self, name: OsString) {
        if self.ended.len() < MOST_ENDED {
            self.ended.insert(name);
        }
    }

    /// The rank of each session, in their order: a launcher without one counts with the first.
    fn ranks_of_sessions(&self) -> Vec<i64> {
        let ranked = self.sessions.values().filter(|session| session.summary.world_size > 1);
        let first = ranked.map(|session| session.summary.rank).min();
        let rank = |session: &Session| match first {
            Some(first) if session.summary.world_size <= 1 => first,
            _ => session.summary.rank,
        };
        self.sessions.values().map(rank).collect()
    }

    /// The driver's number of each device that is known by its UUID.
    fn device_indices(&self) -> BTreeMap<String, i64> {
        let outside = self.sessions.values().filter(|session| is_outside(session));
        let devices = outside.flat_map(|session| &session.devices);
        devices.filter_map(|(index, device)| Some((device.uuid.clone()?, *index))).collect()
    }

    fn room(&self, host_total: Option<u64>) -> FreeMemory {
        let limit = self.limit(host_total);
        let host = limit.and_then(|limit| Some(limit.bytes.saturating_sub(limit.used?)));
        let mut devices = BTreeMap::new();
        for session in self.sessions.values().filter(|session| is_outside(session)) {
            let free = session.devices.iter().filter_map(|(index, device)| Some((*index, device.free?)));
            devices.extend(free);
        }
        FreeMemory { host, devices }
    }

    fn grow(&mut self, samples: &[Sample], room: &FreeMemory) {
        let interval_ms = self.record().interval_ms.unwrap_or(100);
        let mut by_rank: BTreeMap<i64, Vec<Sample>> = BTreeMap::new();
        for sample in samples {
            by_rank.entry(sample.rank).or_default().push(*sample);
        }
        for (rank, samples) in &by_rank {
            self.ranks.entry(*rank).or_insert_with(|| Rank::new(interval_ms)).take(samples, room);
        }
        if let Some(last) = samples.last() {
            let sum = self.ranks.values().map(Rank::resident_sum).sum();
            self.growth.observe(last.at_ns, sum, room.host);
        }
    }

    /// Counts the deaths of sessions that have ended, and drops them.
    fn settle_ended(&mut self) {
        let is_over = |(_, session): &(&PathBuf, &Session)| !session.is_running();
        let over: Vec<PathBuf> = self.sessions.iter().filter(is_over).map(|(path, _)| path.clone()).collect();
        for path in over {
            let Some(session) = self.sessions.remove(&path) else { continue };
            if is_outside(&session) {
                self.ranks.values_mut().for_each(|rank| rank.forget(session.name.pid));
            }
            if let Some((cause, at_ns)) = session.death {
                let at_ns = i64::try_from(at_ns).unwrap_or(i64::MAX);
                self.deaths.entry(cause).or_default().add(at_ns, session.bundle());
            }
            self.remember_ended(path.file_name().unwrap_or_default().to_owned());
        }
        self.forget_killed();
        let ranks: BTreeSet<i64> = self.ranks_of_sessions().into_iter().collect();
        self.ranks.retain(|rank, _| ranks.contains(rank));
    }
}

impl LivingRun {
    /// A process that was killed cannot end the session that it recorded of itself: that ends with the one that its supervisor recorded.
    fn forget_killed(&mut self) {
        let living = self.sessions.values().filter(|session| is_outside(session));
        let living: BTreeSet<u32> = living.map(|session| session.name.pid).collect();
        let is_killed = |session: &Session| {
            let pid = session.name.pid;
            !is_outside(session) && self.outside.contains(&pid) && !living.contains(&pid)
        };
        let killed: Vec<PathBuf> = self
            .sessions
            .iter()
            .filter(|(_, session)| is_killed(session))
            .map(|(path, _)| path.clone())
            .collect();
        for path in killed {
            self.sessions.remove(&path);
            self.remember_ended(path.file_name().unwrap_or_default().to_owned());
        }
    }
}

/// The id of a run: the name of its directory.
pub(crate) fn run_id(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn is_outside(session: &Session) -> bool {
    session.name.viewpoint == Viewpoint::Outside
}

/// The main process of a rank is the first of its program; workers run the same program.
fn with_roles(members: Vec<&Session>) -> Vec<(Role, &Session)> {
    let world = members.iter().map(|session| session.summary.world_size).max().unwrap_or(1);
    let in_world = |session: &&&Session| session.summary.world_size == world;
    let pids: BTreeSet<u32> = members.iter().filter(in_world).map(|session| session.name.pid).collect();
    let is_top = |session: &&&Session| session.facts.ppid.is_none_or(|parent| !pids.contains(&parent));
    let top = members.iter().filter(in_world).filter(is_top);
    let main = top.min_by_key(|session| (session.summary.started_at_ns, session.name.pid)).copied();
    let role = |session: &Session| match main {
        Some(main) if main.name == session.name => Role::Main,
        Some(main) if session.summary.world_size == world && is_like(session, main) => Role::Worker,
        _ => Role::Other,
    };
    members.into_iter().map(|session| (role(session), session)).collect()
}

/// Whether a process runs the same program as the main one, so that it is a worker of it and not a tool.
fn is_like(session: &Session, main: &Session) -> bool {
    let facts = &session.facts;
    let is_python = |comm: &str| comm.starts_with("python") || comm.starts_with("pt_");
    facts.comm == main.facts.comm
        || (is_python(&facts.comm) && is_python(&main.facts.comm))
        || (!facts.program.is_empty() && facts.program == main.facts.program)
}

fn index_of(index: i64, device: &DeviceNow, indices: &BTreeMap<String, i64>) -> i64 {
    device.uuid.as_ref().and_then(|uuid| indices.get(uuid)).copied().unwrap_or(index)
}

/// A process numbers the devices that it can see; the driver numbers all.
fn translate(samples: &mut [Sample], session: &Session, indices: &BTreeMap<String, i64>) {
    for sample in samples {
        let translated = |index: i64| match session.devices.get(&index) {
            Some(device) => index_of(index, device, indices),
            None => index,
        };
        sample.what = match sample.what {
            other @ (SampleSubject::Resident | SampleSubject::Gone) => other,
            SampleSubject::Allocated(index) => SampleSubject::Allocated(translated(index)),
            SampleSubject::Reserved(index) => SampleSubject::Reserved(translated(index)),
            SampleSubject::DeviceProcess(index) => SampleSubject::DeviceProcess(translated(index)),
        };
    }
}
