//! The picture of a node as series. Nothing is read here but the lines of captures, where those are requested.
//!
//! A run that was not read whole has no samples in this answer; a rank whose samples have stopped has its identity and the time of its last sample, by
//! which an alert knows. Must never show a command line, a path or a holder to everyone.

use std::collections::BTreeMap;
use std::path::Path;

use stormlog_metrics::{Exemplar, Exposition, Family, Labels, Value, families};
use stormlog_model::text::inert_text as inert;
use stormlog_node::{
    ERROR_REASONS, Node, NodePicture, RankDevice, RankRow, RunRow, WINDOW_LABEL, capture_of, slot_label,
};
use stormlog_postmortem::Cause;

use crate::pyroscope::LiveCapture;

/// Which users see the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    /// Every user of the machine: no command lines, no lines of code.
    Everyone,
    /// The owner.
    Owner,
}

/// The series of the last look.
pub fn exposition(node: &mut Node, exposure: Exposure) -> Exposition {
    let picture = node.picture();
    let mut all = Exposition::new();
    let version = Labels::new().with("version", env!("CARGO_PKG_VERSION"));
    all.add(&families::BUILD_INFO, version, 1);
    add_runs(&mut all, &picture);
    add_host(&mut all, &picture);
    add_living(&mut all, &picture, exposure);
    if exposure == Exposure::Owner {
        add_holders(&mut all, &picture, node);
    }
    add_devices(&mut all, &picture);
    add_cgroups(&mut all, &picture);
    add_deaths(&mut all, &picture);
    all.add(&families::SCRAPE_DURATION, Labels::new(), picture.took.as_secs_f64());
    all.add(&families::SCRAPE_UNREAD, Labels::new(), picture.unread);
    for (reason, count) in ERROR_REASONS.into_iter().zip(picture.errors) {
        all.add(&families::SCRAPE_ERRORS, Labels::new().with("reason", reason), count);
    }
    all
}

/// The heap captures of the main processes of living ranks.
pub(crate) fn live_captures(node: &mut Node) -> Vec<LiveCapture> {
    let picture = node.picture();
    let capture = |rank: &RankRow| {
        Some(LiveCapture {
            path: capture_of(&rank.run, rank.pid?)?,
            job: inert(&rank.job).into_owned(),
            rank: rank.rank,
            slot: slot_label(rank.slot),
            host: inert(rank.host.as_deref().unwrap_or_default()).into_owned(),
        })
    };
    picture.ranks.iter().filter_map(capture).collect()
}

fn add_runs(all: &mut Exposition, picture: &NodePicture) {
    let ended = picture.ended_counts.iter().map(|(status, count)| (status.as_str(), *count));
    for (state, count) in std::iter::once(("running", picture.runs.len() as u64)).chain(ended) {
        all.add(&families::RUNS, Labels::new().with("state", state), count);
    }
}

fn add_host(all: &mut Exposition, picture: &NodePicture) {
    let host = &picture.host;
    known(all, &families::HOST_TOTAL, Labels::new(), host.total);
    known(all, &families::HOST_AVAILABLE, Labels::new(), host.available);
    add_pressure(all, host.pressure.as_ref(), &Labels::new().with("scope", "host"), "");
}

fn add_deaths(all: &mut Exposition, picture: &NodePicture) {
    for cause in Cause::ALL {
        let labels = Labels::new().with("cause", cause.as_str());
        let Some(count) = picture.deaths.get(&cause) else {
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

fn add_living(all: &mut Exposition, picture: &NodePicture, exposure: Exposure) {
    let runs: BTreeMap<&Path, &RunRow> = picture.runs.iter().map(|run| (&*run.path, run)).collect();
    for row in &picture.ranks {
        let Some(run) = runs.get(&*row.run) else { continue };
        let labels = labels_of(row);
        let view = RankView { run, row, labels: &labels };
        view.add_identity(all, exposure);
        if !row.is_stale {
            view.add_samples(all);
        }
    }
}

fn add_holders(all: &mut Exposition, picture: &NodePicture, node: &mut Node) {
    let shown: Vec<(&RankRow, u32)> =
        picture.ranks.iter().filter(|row| !row.is_stale).filter_map(|row| Some((row, row.pid?))).collect();
    let processes: Vec<(&Path, u32)> = shown.iter().map(|(row, pid)| (&*row.run, *pid)).collect();
    for ((row, _), lines) in shown.iter().zip(node.holders(&processes)) {
        for (bytes, line) in lines {
            all.add(&families::HEAP_LINE, labels_of(row).with("line", &inert(&line)), bytes);
        }
    }
}

fn add_devices(all: &mut Exposition, picture: &NodePicture) {
    for device in &picture.devices {
        let uuid = device.now.uuid.as_deref().unwrap_or_default();
        let labels = Labels::new().with("device", &device.index.to_string()).with("uuid", &inert(uuid));
        known(all, &families::DEVICE_USED, labels.clone(), device.now.used);
        known(all, &families::DEVICE_FREE, labels.clone(), device.now.free);
        known(all, &families::DEVICE_TOTAL, labels, device.now.total);
    }
}

fn add_cgroups(all: &mut Exposition, picture: &NodePicture) {
    for cgroup in &picture.cgroups {
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

fn labels_of(row: &RankRow) -> Labels {
    Labels::new()
        .with("job_id", &inert(&row.job))
        .with("rank", &row.rank.to_string())
        .with("slot", &slot_label(row.slot))
}

/// One rank while its series are written.
struct RankView<'a> {
    run: &'a RunRow,
    row: &'a RankRow,
    labels: &'a Labels,
}

impl RankView<'_> {
    fn labels(&self, name: &'static str, value: &str) -> Labels {
        self.labels.clone().with(name, value)
    }

    fn add_identity(&self, all: &mut Exposition, exposure: Exposure) {
        let (run, row) = (self.run, self.row);
        let mut labels = self.labels("run_id", &inert(&run.id));
        if let Some((local_rank, world_size)) = row.local_rank.zip(row.world_size) {
            labels = labels
                .with("local_rank", &local_rank.to_string())
                .with("world_size", &world_size.to_string())
                .with("attempt", &row.attempt.map(|attempt| attempt.to_string()).unwrap_or_default());
        }
        labels = labels.with("host", &inert(row.host.as_deref().unwrap_or_default()));
        if let Some(cgroup) = &run.cgroup {
            labels = labels.with("cgroup", cgroup);
        }
        if exposure == Exposure::Owner {
            labels = labels.with("command", &inert(&run.command.join(" ")));
        }
        labels = labels.with("version", &inert(run.version.as_deref().unwrap_or_default()));
        all.add(&families::RUN_INFO, labels, 1);
        if let Some(at_ns) = row.last_sample_ns {
            all.add(&families::LAST_SAMPLE, self.labels.clone(), at_ns as f64 / 1e9);
        }
        all.add(&families::DROPPED, self.labels.clone(), row.dropped);
    }

    /// The newest numbers.
    fn add_samples(&self, all: &mut Exposition) {
        for role in &self.row.roles {
            let labels = || self.labels("role", role.role.as_str());
            all.add(&families::PROCESSES, labels(), role.processes);
            known(all, &families::RESIDENT, labels(), role.resident);
            known(all, &families::ANONYMOUS, labels(), role.anonymous);
            known(all, &families::SWAP, labels(), role.swap);
        }
        self.add_limit(all);
        for device in &self.row.devices {
            self.add_device(all, device);
        }
        for (what, device, most) in &self.row.windows {
            let mut labels = self.labels("what", what);
            if let Some(device) = device {
                labels = labels.with("device", &device.to_string());
            }
            all.add(&families::WINDOW_MAX, labels.with("window", WINDOW_LABEL), *most);
        }
    }

    fn add_limit(&self, all: &mut Exposition) {
        let Some(limit) = self.row.limit else { return };
        let labels = || self.labels("limit", limit.kind);
        all.add(&families::LIMIT_BYTES, labels(), limit.bytes);
        known(all, &families::LIMIT_USED, labels(), limit.used);
        if let Some(seconds) = self.row.time_to_limit {
            all.add(&families::TIME_TO_LIMIT, labels(), seconds);
        }
        if let Some(rate) = self.row.growth {
            all.add(&families::GROWTH, self.labels("what", "resident"), rate);
        }
    }

    fn add_device(&self, all: &mut Exposition, device: &RankDevice) {
        let number = device.index.to_string();
        let now = &device.now;
        let labels = || self.labels("device", &number);
        known(all, &families::DEVICE_PROCESS, labels(), now.of_process);
        known(all, &families::ALLOCATED, labels(), now.allocated);
        known(all, &families::RESERVED, labels(), now.reserved);
        known(all, &families::ACTIVE, labels(), now.active);
        known(all, &families::INACTIVE_SPLIT, labels(), now.inactive);
        known(all, &families::RETRIES, labels(), now.retries);
        known(all, &families::OOMS, labels(), now.ooms);
        let outside = now.of_process.zip(now.reserved).map(|(held, reserved)| held.saturating_sub(reserved));
        known(all, &families::HIDDEN, labels().with("part", "process"), outside);
        let others = now.used.zip(now.held()).map(|(used, held)| used.saturating_sub(held));
        known(all, &families::HIDDEN, labels().with("part", "others"), others);
        let limit = || self.labels("limit", "device").with("device", &number);
        known(all, &families::LIMIT_BYTES, limit(), now.total);
        known(all, &families::LIMIT_USED, limit(), now.used);
        if let Some(rate) = device.growth {
            let what = self.labels("what", "device_process").with("device", &number);
            all.add(&families::GROWTH, what, rate);
        }
        if let Some(seconds) = device.time_to_limit {
            all.add(&families::TIME_TO_LIMIT, limit(), seconds);
        }
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
