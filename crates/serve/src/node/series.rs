//! What was read, as series. Nothing is read here but the lines of captures, where those are asked for.
//!
//! A run that was not read whole has no samples in this answer; a rank whose samples have stopped has its identity and the time of its last sample, by
//! which an alert knows. Must never show a command line, a path or a holder to everyone.

use std::collections::BTreeMap;

use stormlog_catalog::run::RunStatus;
use stormlog_metrics::{Exemplar, Exposition, Family, Labels, Value, families};
use stormlog_model::text::inert_text as inert;
use stormlog_postmortem::Cause;
use stormlog_store::wall_ns;

use super::device_now::DeviceNow;
use super::holders::capture_of;
use super::living::{LivingRun, Role, run_id};
use super::look::{ERROR_REASONS, Node};
use super::session::Session;
use super::{slots, window};
use crate::pyroscope::LiveCapture;

/// Samples are shown for so long after they were taken, or for so many intervals.
const STALE_NS: u64 = 30_000_000_000;
const STALE_INTERVALS: u64 = 20;

/// Who will see the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    /// Every user of the machine: no command lines, no lines of code.
    Everyone,
    /// The owner.
    Owner,
}

impl Node {
    /// The series of the last look.
    pub fn exposition(&mut self, exposure: Exposure) -> Exposition {
        let mut all = Exposition::new();
        let version = Labels::new().with("version", env!("CARGO_PKG_VERSION"));
        all.add(&families::BUILD_INFO, version, 1);
        self.add_runs(&mut all);
        self.add_host(&mut all);
        self.add_living(&mut all, exposure);
        self.add_deaths(&mut all);
        all.add(&families::SCRAPE_DURATION, Labels::new(), self.took.as_secs_f64());
        all.add(&families::SCRAPE_UNREAD, Labels::new(), self.unread);
        for (reason, count) in ERROR_REASONS.into_iter().zip(self.errors) {
            all.add(&families::SCRAPE_ERRORS, Labels::new().with("reason", reason), count);
        }
        all
    }

    /// The heap captures of the main processes of living ranks.
    pub fn live_captures(&mut self) -> Vec<LiveCapture> {
        let mut captures = Vec::new();
        for run in self.living.values() {
            let job = run.job();
            for rank in run.ranks.keys().copied() {
                let slot = slots::label(self.slots.of(&job, rank, &run.path));
                let view = RankView { run, rank, labels: &Labels::new(), host_total: None };
                let Some(path) = view.main_pid().and_then(|pid| capture_of(&run.path, pid)) else { continue };
                let host = inert(run.record().host.as_deref().unwrap_or_default()).into_owned();
                let job = inert(&job).into_owned();
                captures.push(LiveCapture { path, job, rank, slot, host });
            }
        }
        captures
    }

    fn add_runs(&self, all: &mut Exposition) {
        let count = |status| self.ended.values().filter(|ended| ended.status == status).count() as u64;
        let states = [
            ("running", self.living.len() as u64),
            ("completed", count(RunStatus::Completed)),
            ("deliberate", count(RunStatus::Deliberate)),
            ("failed", count(RunStatus::Failed)),
            ("interrupted", count(RunStatus::Interrupted)),
            ("unknown", count(RunStatus::Unknown)),
        ];
        for (state, count) in states {
            all.add(&families::RUNS, Labels::new().with("state", state), count);
        }
    }

    fn add_host(&self, all: &mut Exposition) {
        let host = &self.host;
        known(all, &families::HOST_TOTAL, Labels::new(), host.total);
        known(all, &families::HOST_AVAILABLE, Labels::new(), host.available);
        add_pressure(all, host.pressure.as_ref(), &Labels::new().with("scope", "host"), "");
    }

    fn add_deaths(&self, all: &mut Exposition) {
        let total = self.ledger.total();
        for cause in Cause::ALL {
            let labels = Labels::new().with("cause", cause.as_str());
            let Some(count) = total.get(&cause) else {
                all.add(&families::DEATHS, labels, 0);
                continue;
            };
            let at = count.last_at_ns as f64 / 1e9;
            let exemplar = count.bundle.as_deref().map(|bundle| Exemplar {
                labels: Labels::new().with("bundle", bundle),
                value: 1.0,
                timestamp: Some(at),
            });
            all.add_with(&families::DEATHS, labels.clone(), count.count.into(), exemplar);
            all.add(&families::LAST_DEATH, labels, at);
        }
    }

    fn add_living(&mut self, all: &mut Exposition, exposure: Exposure) {
        let now_ns = wall_ns();
        let deadline = self.deadline();
        let host_total = self.host.total;
        let shows_holders = self.reads_holders() && exposure == Exposure::Owner;
        let mut devices: BTreeMap<(i64, String), DeviceNow> = BTreeMap::new();
        let mut cgroups = BTreeMap::new();
        for run in self.living.values_mut() {
            let job = run.job();
            let stale_ns = STALE_NS
                .max(run.record().interval_ms.unwrap_or(100).saturating_mul(STALE_INTERVALS * 1_000_000));
            if let Some(cgroup) = run.cgroup.as_ref().filter(|cgroup| !cgroup.is_root()) {
                cgroups.entry(cgroup.path.clone()).or_insert_with(|| cgroup.clone());
            }
            let ranks: Vec<i64> = run.ranks.keys().copied().collect();
            for rank in ranks {
                let slot = slots::label(self.slots.of(&job, rank, &run.path));
                let of_rank = Labels::new()
                    .with("job_id", &inert(&job))
                    .with("rank", &rank.to_string())
                    .with("slot", &slot);
                let view = RankView { run, rank, labels: &of_rank, host_total };
                view.add_identity(all, exposure);
                let last_ns = view.last_sample_ns();
                if !run.is_whole || last_ns.is_none_or(|last| now_ns.saturating_sub(last) > stale_ns) {
                    continue;
                }
                for (index, device) in view.add_samples(all) {
                    let uuid = device.uuid.clone().unwrap_or_default();
                    let newest = devices.entry((index, uuid)).or_default();
                    if device.at_ns >= newest.at_ns {
                        *newest = device;
                    }
                }
                let main = view.main_pid();
                add_windows(all, run, rank, &of_rank, now_ns);
                if shows_holders && let Some(pid) = main {
                    for (bytes, line) in self.holders.of(&run.path, pid, deadline) {
                        all.add(&families::HEAP_LINE, of_rank.clone().with("line", &inert(&line)), bytes);
                    }
                }
            }
        }
        self.holders.sweep();
        for ((index, uuid), device) in devices {
            let labels = Labels::new().with("device", &index.to_string()).with("uuid", &inert(&uuid));
            known(all, &families::DEVICE_USED, labels.clone(), device.used);
            known(all, &families::DEVICE_FREE, labels.clone(), device.free);
            known(all, &families::DEVICE_TOTAL, labels, device.total);
        }
        for cgroup in cgroups.values() {
            let labels = Labels::new().with("cgroup", &cgroup.path);
            known(all, &families::CGROUP_USAGE, labels.clone(), cgroup.usage);
            known(all, &families::CGROUP_WORKING_SET, labels.clone(), cgroup.working_set);
            known(all, &families::CGROUP_LIMIT, labels.clone(), cgroup.limit);
            known(all, &families::CGROUP_PEAK, labels.clone(), cgroup.peak);
            for (event, count) in cgroup.counts() {
                known(all, &families::CGROUP_EVENTS, labels.clone().with("event", event), count);
            }
            add_pressure(all, cgroup.pressure.as_ref(), &Labels::new().with("scope", "cgroup"), &cgroup.path);
        }
    }
}

/// One rank while its series are written.
struct RankView<'a> {
    run: &'a LivingRun,
    rank: i64,
    labels: &'a Labels,
    host_total: Option<u64>,
}

impl RankView<'_> {
    fn labels(&self, name: &'static str, value: &str) -> Labels {
        self.labels.clone().with(name, value)
    }

    fn last_sample_ns(&self) -> Option<u64> {
        let members = self.run.members(self.rank);
        members.iter().map(|(_, session)| session.host.at_ns).max().filter(|at| *at > 0)
    }

    fn main_pid(&self) -> Option<u32> {
        let members = self.run.members(self.rank);
        members.iter().find(|(role, _)| *role == Role::Main).map(|(_, session)| session.name.pid)
    }

    fn add_identity(&self, all: &mut Exposition, exposure: Exposure) {
        let members = self.run.members(self.rank);
        let main = members.iter().find(|(role, _)| *role == Role::Main).or(members.first());
        let record = self.run.record();
        let mut labels = self.labels("run_id", &inert(&run_id(&self.run.path)));
        if let Some((_, session)) = main {
            let summary = &session.summary;
            labels = labels
                .with("local_rank", &summary.local_rank.to_string())
                .with("world_size", &summary.world_size.to_string())
                .with("attempt", &summary.attempt.map(|attempt| attempt.to_string()).unwrap_or_default());
        }
        labels = labels.with("host", &inert(record.host.as_deref().unwrap_or_default()));
        if let Some(cgroup) = self.run.cgroup.as_ref().filter(|cgroup| !cgroup.is_root()) {
            labels = labels.with("cgroup", &cgroup.path);
        }
        if exposure == Exposure::Owner {
            labels = labels.with("command", &inert(&record.command.join(" ")));
        }
        labels = labels.with("version", &inert(record.version.as_deref().unwrap_or_default()));
        all.add(&families::RUN_INFO, labels, 1);
        if let Some(at_ns) = self.last_sample_ns() {
            all.add(&families::LAST_SAMPLE, self.labels.clone(), at_ns as f64 / 1e9);
        }
        let dropped: u64 = members.iter().map(|(_, session)| session.dropped).sum();
        all.add(&families::DROPPED, self.labels.clone(), dropped);
    }

    /// The newest numbers; gives the devices, which have series of their own.
    fn add_samples(&self, all: &mut Exposition) -> Vec<(i64, DeviceNow)> {
        let mut roles: BTreeMap<Role, Vec<&Session>> = BTreeMap::new();
        for (role, session) in self.run.members(self.rank) {
            roles.entry(role).or_default().push(session);
        }
        for (role, sessions) in &roles {
            let labels = || self.labels("role", role.as_str());
            let sum = |of: &dyn Fn(&Session) -> Option<u64>| {
                let known: Vec<u64> = sessions.iter().filter_map(|session| of(session)).collect();
                (!known.is_empty()).then(|| known.into_iter().fold(0u64, u64::saturating_add))
            };
            all.add(&families::PROCESSES, labels(), sessions.len() as u64);
            known(all, &families::RESIDENT, labels(), sum(&|session| session.host.rss));
            let anonymous =
                |session: &Session| Some(session.host.rss?.saturating_sub(session.host.file_backed?));
            known(all, &families::ANONYMOUS, labels(), sum(&anonymous));
            known(all, &families::SWAP, labels(), sum(&|session| session.host.swap));
        }
        self.add_limit(all);
        let devices = self.run.devices(self.rank);
        for (index, device) in &devices {
            self.add_device(all, *index, device);
        }
        devices.into_iter().collect()
    }

    fn add_limit(&self, all: &mut Exposition) {
        let Some(limit) = self.run.limit(self.host_total) else { return };
        let labels = || self.labels("limit", limit.kind);
        all.add(&families::LIMIT_BYTES, labels(), limit.bytes);
        known(all, &families::LIMIT_USED, labels(), limit.used);
        let Some(rank) = self.run.ranks.get(&self.rank) else { return };
        // The limit is common to all ranks of a run: what reaches it is their sum.
        let growth = if self.run.ranks.len() > 1 { &self.run.growth } else { &rank.resident_growth };
        if let Some(found) = growth.forecast() {
            all.add(&families::TIME_TO_LIMIT, labels(), found.seconds_left);
        }
        if let Some(rate) = rank.resident_growth.rate() {
            all.add(&families::GROWTH, self.labels("what", "resident"), rate);
        }
    }

    fn add_device(&self, all: &mut Exposition, index: i64, device: &DeviceNow) {
        let labels = || self.labels("device", &index.to_string());
        known(all, &families::DEVICE_PROCESS, labels(), device.of_process);
        known(all, &families::ALLOCATED, labels(), device.allocated);
        known(all, &families::RESERVED, labels(), device.reserved);
        known(all, &families::ACTIVE, labels(), device.active);
        known(all, &families::INACTIVE_SPLIT, labels(), device.inactive);
        known(all, &families::RETRIES, labels(), device.retries);
        known(all, &families::OOMS, labels(), device.ooms);
        let outside =
            device.of_process.zip(device.reserved).map(|(held, reserved)| held.saturating_sub(reserved));
        known(all, &families::HIDDEN, labels().with("part", "process"), outside);
        let others = device.used.zip(device.held()).map(|(used, held)| used.saturating_sub(held));
        known(all, &families::HIDDEN, labels().with("part", "others"), others);
        let limit = || self.labels("limit", "device").with("device", &index.to_string());
        known(all, &families::LIMIT_BYTES, limit(), device.total);
        known(all, &families::LIMIT_USED, limit(), device.used);
        let growth = self.run.ranks.get(&self.rank).and_then(|rank| rank.device_growth.get(&index));
        if let Some(growth) = growth {
            let what = self.labels("what", "device_process").with("device", &index.to_string());
            if let Some(rate) = growth.rate() {
                all.add(&families::GROWTH, what, rate);
            }
            if let Some(found) = growth.forecast() {
                all.add(&families::TIME_TO_LIMIT, limit(), found.seconds_left);
            }
        }
    }
}

fn add_windows(all: &mut Exposition, run: &mut LivingRun, rank: i64, labels: &Labels, now_ns: u64) {
    let Some(rank) = run.ranks.get_mut(&rank) else { return };
    let most = rank.resident_window.most(now_ns);
    let of = |what: &str| labels.clone().with("what", what);
    known(all, &families::WINDOW_MAX, of("resident").with("window", window::LABEL), most);
    for ((what, device), window) in &mut rank.device_windows {
        let labels = of(what).with("device", &device.to_string()).with("window", window::LABEL);
        known(all, &families::WINDOW_MAX, labels, window.most(now_ns));
    }
}

fn add_pressure(
    all: &mut Exposition,
    pressure: Option<&stormlog_collect::pressure::Pressure>,
    scope: &Labels,
    cgroup: &str,
) {
    let Some(pressure) = pressure else { return };
    for (kind, stall) in [("some", pressure.some), ("full", pressure.full)] {
        if let Some(total_us) = stall.and_then(|stall| stall.total_us) {
            let labels = scope.clone().with("kind", kind).with("cgroup", cgroup);
            all.add(&families::PRESSURE, labels, total_us as f64 / 1e6);
        }
    }
}

fn known(all: &mut Exposition, family: &Family, labels: Labels, value: Option<u64>) {
    if let Some(value) = value {
        all.add(family, labels, Value::Whole(value));
    }
}
