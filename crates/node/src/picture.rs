//! The picture of a node after a look: values only, unknown is `None`. What a metric, a screen and a script show of living runs is taken from here, so that
//! they agree. Must never read a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use stormlog_catalog::run::deaths::Deaths;
use stormlog_catalog::run::{RunRecord, RunStatus};
use stormlog_collect::pressure::Pressure;
use stormlog_model::Launch;
use stormlog_model::naming::ProgramName;
use stormlog_postmortem::Cause;
use stormlog_store::wall_ns;

use crate::device_now::DeviceNow;
use crate::forecast::Growth;
use crate::history::History;
use crate::living::{HostLimit, LivingRun, Role, run_id};
use crate::look::Node;
use crate::objects::Cgroup;
use crate::session::Session;

/// How old a sample may be to be shown: this time, or this number of intervals.
const STALE_NS: u64 = 30_000_000_000;
const STALE_INTERVALS: u64 = 20;

/// Everything that a look found.
#[derive(Debug, Clone, Default)]
pub struct NodePicture {
    /// When it was made, nanoseconds since 1970.
    pub at_ns: u64,
    /// The machine.
    pub host: HostRow,
    /// The cgroups that limit living runs, by path; the root is the machine and not among them.
    pub cgroups: Vec<Cgroup>,
    /// Devices as living runs recorded them.
    pub devices: Vec<DeviceRow>,
    /// Living runs, in the order of their paths.
    pub runs: Vec<RunRow>,
    /// Their ranks, in the order of runs and ranks.
    pub ranks: Vec<RankRow>,
    /// The number of runs that have ended, by how.
    pub ended_counts: Vec<(RunStatus, u64)>,
    /// Runs that have ended, where [`NodeOptions::keeps_ended`](crate::NodeOptions) asks for them, in the order of their paths.
    pub ended: Vec<Arc<EndedRow>>,
    /// Deaths that were ever seen, by cause.
    pub deaths: Deaths,
    /// Runs that were not read, or not whole, for lack of time.
    pub unread: u64,
    /// Failures by [`ERROR_REASONS`](crate::ERROR_REASONS), since the reader began.
    pub errors: [u64; 3],
    /// What the look took.
    pub took: Duration,
}

/// The machine.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HostRow {
    /// Bytes of memory.
    pub total: Option<u64>,
    /// Bytes that programs can still get.
    pub available: Option<u64>,
    /// Bytes of swap space.
    pub swap_total: Option<u64>,
    /// Bytes of it in use.
    pub swap_used: Option<u64>,
    /// Time that tasks waited for memory.
    pub pressure: Option<Pressure>,
}

/// A device.
#[derive(Debug, Clone, Default)]
pub struct DeviceRow {
    /// The driver's number.
    pub index: i64,
    /// Its newest numbers.
    pub now: DeviceNow,
}

/// A living run.
#[derive(Debug, Clone)]
pub struct RunRow {
    /// Its directory.
    pub path: Arc<Path>,
    /// The name of the directory.
    pub id: String,
    /// The job: its id, else the program's name.
    pub job: Arc<str>,
    /// Whether a launcher named the job.
    pub has_job_id: bool,
    /// The command, without secrets.
    pub command: Vec<String>,
    /// What the user would call the program.
    pub program: String,
    /// Its machine.
    pub host: Option<Arc<str>>,
    /// The version that records it.
    pub version: Option<String>,
    /// The program's process.
    pub pid: Option<u32>,
    /// Nanoseconds since 1970.
    pub started_at_ns: Option<i64>,
    /// Whether all there was has been read.
    pub is_whole: bool,
    /// The cgroup that limits it, where that is not the whole machine.
    pub cgroup: Option<String>,
    /// What limits its host memory.
    pub limit: Option<HostLimit>,
    /// Bytes resident in its processes together.
    pub resident: Option<u64>,
    /// Bytes its processes hold on devices.
    pub device: Option<u64>,
    /// Highest sum of its ranks' peaks, as far as that was read.
    pub peak: Option<u64>,
    /// Growth of what is resident, in bytes a second.
    pub growth: Option<f64>,
    /// Seconds until the first limit of any of its memories is reached.
    pub time_to_limit: Option<f64>,
    /// The time of its newest sample, nanoseconds since 1970.
    pub last_sample_ns: Option<u64>,
    /// Whether its samples have stopped.
    pub is_stale: bool,
    /// Living processes.
    pub processes: u64,
}

/// Processes of a rank that have one role, together.
#[derive(Debug, Clone, Copy)]
pub struct RoleRow {
    /// What they are.
    pub role: Role,
    /// Their number.
    pub processes: u64,
    /// Bytes resident.
    pub resident: Option<u64>,
    /// Bytes of it that belong to no file.
    pub anonymous: Option<u64>,
    /// Bytes swapped out.
    pub swap: Option<u64>,
}

/// A device of a rank.
#[derive(Debug, Clone)]
pub struct RankDevice {
    /// The driver's number.
    pub index: i64,
    /// What the processes of the rank hold together.
    pub now: DeviceNow,
    /// Growth of what they hold, in bytes a second.
    pub growth: Option<f64>,
    /// Seconds until the device is full.
    pub time_to_limit: Option<f64>,
}

/// A rank of a living run.
#[derive(Debug, Clone)]
pub struct RankRow {
    /// The directory of its run.
    pub run: Arc<Path>,
    /// The job: its id, else the program's name.
    pub job: Arc<str>,
    /// Its number.
    pub rank: i64,
    /// Tells runs of the same job and rank apart.
    pub slot: u64,
    /// Its machine.
    pub host: Option<Arc<str>>,
    /// Its number on its machine.
    pub local_rank: Option<i64>,
    /// Ranks that the launcher states.
    pub world_size: Option<i64>,
    /// How often the launcher had restarted the job.
    pub attempt: Option<u64>,
    /// The main process.
    pub pid: Option<u32>,
    /// The time of its newest sample, nanoseconds since 1970.
    pub last_sample_ns: Option<u64>,
    /// Whether its numbers are missing or old: a look that was not whole, or samples that have stopped.
    pub is_stale: bool,
    /// Whether its samples have stopped.
    pub is_silent: bool,
    /// Samples that were lost.
    pub dropped: u64,
    /// Its processes by what they are.
    pub roles: Vec<RoleRow>,
    /// Bytes resident in all of them.
    pub resident: Option<u64>,
    /// Highest of it, as far as that was read.
    pub peak: Option<u64>,
    /// The same over time, where [`NodeOptions::keeps_history`](crate::NodeOptions) asks for it.
    pub history: Option<Arc<History>>,
    /// What its processes hold on devices over time, likewise; empty where the driver does not report it.
    pub device_history: Option<Arc<History>>,
    /// What limits its host memory, which all ranks of a run share.
    pub limit: Option<HostLimit>,
    /// Growth of what is resident, in bytes a second.
    pub growth: Option<f64>,
    /// Seconds until the host's limit is reached.
    pub time_to_limit: Option<f64>,
    /// Its devices.
    pub devices: Vec<RankDevice>,
    /// Highest sum of the last minute, by memory: `resident`, or a counter of a device.
    pub windows: Vec<(&'static str, Option<i64>, u64)>,
}

/// A run that has ended.
#[derive(Debug, Clone)]
pub struct EndedRow {
    /// Its directory.
    pub path: PathBuf,
    /// How it ended.
    pub status: RunStatus,
    /// What the user would call the program.
    pub program: String,
    /// Its machine.
    pub host: Option<String>,
    /// The program's process.
    pub pid: Option<u32>,
    /// Nanoseconds since 1970.
    pub started_at_ns: Option<i64>,
    /// Nanoseconds since 1970.
    pub ended_at_ns: Option<i64>,
    /// What ended the program, as a sentence.
    pub verdict: Option<String>,
    /// The same as a word.
    pub cause: Option<Cause>,
    /// Most bytes resident in one process.
    pub peak_rss_bytes: Option<u64>,
    /// Job, step, rank and attempt, where a launcher started it.
    pub launch: Option<Launch>,
}

impl EndedRow {
    pub(crate) fn of(path: &Path, status: RunStatus, record: RunRecord) -> Self {
        EndedRow {
            path: path.to_owned(),
            status,
            program: ProgramName::of(&record.command).word,
            host: record.host,
            pid: record.pid,
            started_at_ns: record.started_at_ns,
            ended_at_ns: record.ended_at_ns,
            verdict: record.verdict,
            cause: record.cause.as_deref().and_then(Cause::of_word),
            peak_rss_bytes: record.peak_rss_bytes,
            launch: record.launch,
        }
    }
}

impl Node {
    /// The picture of the last look.
    pub fn picture(&mut self) -> NodePicture {
        let now_ns = wall_ns();
        let host_total = self.host.now.total;
        let keeps_history = self.keeps_history();
        let mut picture = NodePicture {
            at_ns: now_ns,
            host: self.host.now,
            ended_counts: self.ended_counts(),
            ended: self.ended.values().filter_map(|ended| ended.row.clone()).collect(),
            deaths: self.ledger.total(),
            unread: self.unread,
            errors: self.errors,
            took: self.took,
            ..NodePicture::default()
        };
        let mut cgroups = BTreeMap::new();
        let mut devices: BTreeMap<(i64, String), DeviceNow> = BTreeMap::new();
        for run in self.living.values_mut() {
            if let Some(cgroup) = run.cgroup.as_ref().filter(|cgroup| !cgroup.is_root()) {
                cgroups.entry(cgroup.path.clone()).or_insert_with(|| cgroup.clone());
            }
            let (mut row, ranks) = run.rows(host_total, now_ns, keeps_history);
            for mut rank in ranks {
                rank.slot = self.slots.of(&row.job, rank.rank, &run.path);
                for device in rank.devices.iter().filter(|_| !rank.is_stale) {
                    let uuid = device.now.uuid.clone().unwrap_or_default();
                    let newest = devices.entry((device.index, uuid)).or_default();
                    if device.now.at_ns >= newest.at_ns {
                        *newest = device.now.clone();
                    }
                }
                row.take(&rank);
                picture.ranks.push(rank);
            }
            picture.runs.push(row);
        }
        picture.cgroups = cgroups.into_values().collect();
        picture.devices = devices.into_iter().map(|((index, _), now)| DeviceRow { index, now }).collect();
        picture
    }

    fn ended_counts(&self) -> Vec<(RunStatus, u64)> {
        const ALL: [RunStatus; 5] = [
            RunStatus::Completed,
            RunStatus::Deliberate,
            RunStatus::Failed,
            RunStatus::Interrupted,
            RunStatus::Unknown,
        ];
        let count = |status| self.ended.values().filter(|ended| ended.status == status).count() as u64;
        ALL.map(|status| (status, count(status))).to_vec()
    }
}

impl RunRow {
    /// Adds one of its ranks to its sums.
    fn take(&mut self, rank: &RankRow) {
        self.is_stale &= rank.is_stale;
        self.last_sample_ns = self.last_sample_ns.max(rank.last_sample_ns);
        self.processes += rank.roles.iter().map(|role| role.processes).sum::<u64>();
        add(&mut self.resident, rank.resident);
        add(&mut self.peak, rank.peak);
        let device = rank.devices.iter().filter_map(|device| device.now.held());
        add(&mut self.device, device.reduce(u64::saturating_add));
        if rank.is_stale {
            return;
        }
        let of_devices = rank.devices.iter().filter_map(|device| device.time_to_limit);
        let times = of_devices.chain(rank.time_to_limit).chain(self.time_to_limit);
        self.time_to_limit = times.min_by(f64::total_cmp);
        if let Some(rate) = rank.growth {
            self.growth = Some(self.growth.unwrap_or(0.0) + rate);
        }
    }
}

fn add(sum: &mut Option<u64>, value: Option<u64>) {
    if let Some(value) = value {
        *sum = Some(sum.unwrap_or(0).saturating_add(value));
    }
}

impl LivingRun {
    /// The run without the sums over its ranks, and the ranks without their slots.
    fn rows(&mut self, host_total: Option<u64>, now_ns: u64, keeps_history: bool) -> (RunRow, Vec<RankRow>) {
        let record = self.record();
        let interval_ms = record.interval_ms.unwrap_or(100);
        let stale_ns = STALE_NS.max(interval_ms.saturating_mul(STALE_INTERVALS * 1_000_000));
        let (job, has_job_id) = self.job();
        let cgroup = self.cgroup.as_ref().filter(|cgroup| !cgroup.is_root());
        let row = RunRow {
            path: Arc::from(self.path.as_path()),
            id: run_id(&self.path),
            job: job.into(),
            has_job_id,
            program: ProgramName::of(&record.command).word,
            command: record.command.clone(),
            host: record.host.as_deref().map(Arc::from),
            version: record.version.clone(),
            pid: record.pid,
            started_at_ns: record.started_at_ns,
            is_whole: self.is_whole,
            cgroup: cgroup.map(|cgroup| cgroup.path.clone()),
            limit: self.limit(host_total),
            resident: None,
            device: None,
            peak: None,
            growth: None,
            time_to_limit: None,
            last_sample_ns: None,
            is_stale: true,
            processes: 0,
        };
        let mut members = self.members();
        let mut devices = self.devices();
        // The limit is common to all ranks of a run: what reaches it is their sum.
        let common = (self.ranks.len() > 1).then(|| seconds_left(&self.growth));
        let mut ranks = Vec::with_capacity(self.ranks.len());
        for (number, rank) in &self.ranks {
            let members = members.remove(number).unwrap_or_default();
            let main = members.iter().find(|(role, _)| *role == Role::Main).map(|(_, session)| *session);
            let summary =
                main.or(members.first().map(|(_, session)| *session)).map(|session| &session.summary);
            let last_sample_ns =
                members.iter().map(|(_, session)| session.host.at_ns).max().filter(|at| *at > 0);
            let is_old = last_sample_ns.is_none_or(|last| now_ns.saturating_sub(last) > stale_ns);
            let roles = role_rows(&members);
            let own = devices.remove(number).unwrap_or_default().into_iter().map(|(index, now)| {
                let growth = rank.device_growth.get(&index);
                RankDevice {
                    index,
                    now,
                    growth: growth.and_then(Growth::rate),
                    time_to_limit: growth.and_then(seconds_left),
                }
            });
            ranks.push(RankRow {
                run: Arc::clone(&row.path),
                job: Arc::clone(&row.job),
                rank: *number,
                slot: 0,
                host: row.host.clone(),
                local_rank: summary.map(|summary| summary.local_rank),
                world_size: summary.map(|summary| summary.world_size),
                attempt: summary.and_then(|summary| summary.attempt),
                pid: main.map(|session| session.name.pid),
                last_sample_ns,
                is_stale: !self.is_whole || is_old,
                is_silent: self.is_whole && is_old,
                dropped: members.iter().map(|(_, session)| session.dropped).sum(),
                resident: sum(roles.iter().map(|role| role.resident)),
                peak: rank.resident_history.peak(),
                history: keeps_history.then(|| Arc::new(rank.resident_history.clone())),
                device_history: keeps_history.then(|| Arc::new(rank.device_history.clone())),
                roles,
                limit: row.limit,
                growth: rank.resident_growth.rate(),
                time_to_limit: common.unwrap_or_else(|| seconds_left(&rank.resident_growth)),
                devices: own.collect(),
                windows: Vec::new(),
            });
        }
        for (row, rank) in ranks.iter_mut().zip(self.ranks.values_mut()) {
            row.windows = rank.windows(now_ns);
        }
        (row, ranks)
    }
}

fn seconds_left(growth: &Growth) -> Option<f64> {
    growth.forecast().map(|found| found.seconds_left)
}

fn role_rows(members: &[(Role, &Session)]) -> Vec<RoleRow> {
    let mut roles: BTreeMap<Role, Vec<&Session>> = BTreeMap::new();
    for (role, session) in members {
        roles.entry(*role).or_default().push(session);
    }
    let row = |(role, sessions): (Role, Vec<&Session>)| RoleRow {
        role,
        processes: sessions.len() as u64,
        resident: sum(sessions.iter().map(|session| session.host.rss)),
        anonymous: sum(sessions
            .iter()
            .map(|session| Some(session.host.rss?.saturating_sub(session.host.file_backed?)))),
        swap: sum(sessions.iter().map(|session| session.host.swap)),
    };
    roles.into_iter().map(row).collect()
}

/// Of those that are known; `None` where none is.
fn sum(values: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    values.flatten().reduce(u64::saturating_add)
}
