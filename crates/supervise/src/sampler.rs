//! The sampler: at steady intervals, one event for every process of the program's tree, into files of its own; and at the
//! end of each process, at once, how it ended.
//!
//! Reads `/proc` from outside, so it works for any program and needs nothing of it. Must keep its pace whatever the
//! processes do, and count what it cannot record instead of failing.

use std::collections::BTreeMap;
use std::io::PipeReader;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use stormlog_alert::alerts::AlertEvent;
use stormlog_catalog::run::{exceptions, memory_map};
use stormlog_collect::process::ProcessReader;
use stormlog_collect::{ProcessTree, TreeMember};
use stormlog_model::memory::Memory;
use stormlog_model::worker::{DASK_PARENT_VARIABLE, Pool, WORKER_VARIABLE, Worker, is_spawned};
use stormlog_model::{SessionStatus, SessionSummary, new_session_id};
use stormlog_pidfd::OwnCode;
use stormlog_postmortem::bundle::HeldBy;
use stormlog_postmortem::verdict::Growth;
use stormlog_store::recording::{Recorder, RecorderConfig};
use stormlog_store::wall_ns;
use stormlog_story::Holder;
use stormlog_track::{GpuSamples, LimitWatch, ProcessSession, TreePids};

use crate::circumstances::{Circumstances, held_by, holder, kinds_or_process};
use crate::environ::Environ;
use crate::evidence::RunEvidence;
use crate::exits::Exit;
use crate::maps::{MapLooks, Subject};
use crate::naming::command_of;
use crate::orphans::Orphans;
use crate::termination::{MessageSchedule, Picture, TerminationLog};
use crate::tracked_process::{FirstCommand, TrackedProcess, about};

/// A process's ring keeps its last thousands of events; its history grows in small steps, for there may be many.
const RING_SLOTS: u64 = 4096;
const SEGMENT_BYTES: u64 = 1 << 20;
const FIRST_SEGMENT_BYTES: u64 = 64 << 10;
/// More processes than this at once are followed but not recorded, which is counted.
const MAX_RECORDED: usize = 512;
/// Looking for new children more often than this costs more than it is worth.
const TREE_INTERVAL: Duration = Duration::from_millis(20);
/// The kernel's own high-water mark is a longer read; once in a while is enough, since it only rises.
const PEAK_INTERVAL: Duration = Duration::from_millis(500);
/// Between two searches for files of processes that have ended.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);
/// The machine's count of OOM kills is a long read too.
const HOST_INTERVAL: Duration = Duration::from_secs(1);
/// How long the end of children is waited for, which often end with the program.
const SETTLE: Duration = Duration::from_millis(50);
/// A program may end before its first sample is due, and is largest then: this is the time of the first look, and each next one comes after twice the time.
const EARLY_LOOK: Duration = Duration::from_millis(2);
/// Code of the supervisor that stays in memory, at most: its cgroup is the program's.
const LOCKED_CODE: usize = 4 << 20;
/// How long after its birth a process may still change its identity: a launcher forks and then executes a rank's program.
const SETTLED: Duration = Duration::from_secs(1);
/// Deaths within this time of each other are one event.
const MOMENT: Duration = Duration::from_secs(1);

/// What the sampler hands over when it stops.
pub(crate) struct SamplerOutput {
    /// What was gathered while the program ran.
    pub(crate) evidence: RunEvidence,
    /// The circumstances when the program ended, the processes included that ended with it.
    pub(crate) at_end: Circumstances,
    /// The processes that are still there, the program itself among them.
    pub(crate) alive: Vec<TrackedProcess>,
    pub(crate) peak_total_rss: u64,
    pub(crate) lost_records: u64,
    pub(crate) limit_bytes: Option<u64>,
    /// The termination message, as it was last written.
    pub(crate) termination: Option<TerminationLog>,
}

/// Samples until it is stopped.
pub(crate) struct Sampler {
    evidence: RunEvidence,
    host: String,
    interval: Duration,
    root: u32,
    tree: Option<ProcessTree>,
    orphans: Orphans,
    processes: BTreeMap<u32, TrackedProcess>,
    /// Processes first seen as copies of their parents, and when.
    newborn: Vec<(TreeMember, Instant)>,
    /// Workers that each pool has started.
    births: BTreeMap<u32, u32>,
    /// How near its limits the program is, and when it will reach them.
    limits: LimitWatch,
    map_looks: Option<MapLooks>,
    /// The processes, for the thread that samples GPUs.
    pids: TreePids,
    gpus: Option<GpuSamples>,
    warn: Option<fn(&str)>,
    /// The termination message, where there is one.
    message_schedule: Option<MessageSchedule>,
    /// What processes held that were killed a moment ago.
    just_dead: Vec<(Instant, HeldBy)>,
    /// The holders when the program ended, including processes that ended with it.
    last_holders: Option<Vec<HeldBy>>,
    peak_total_rss: u64,
    lost_records: u64,
    next_tree_look: Instant,
    next_peak_look: Instant,
    next_host_look: Instant,
    next_sweep: Instant,
}

impl Sampler {
    /// A sampler of `root` and its descendants. `root` has a session from here on, even if it has ended already.
    pub(crate) fn new(
        evidence: RunEvidence,
        host: String,
        interval: Duration,
        root: u32,
        orphans: Orphans,
        warn: Option<fn(&str)>,
    ) -> Self {
        let mut evidence = evidence;
        let captures = evidence.captures.as_ref().map(|captures| captures.directory().to_owned());
        let log = evidence.termination.take();
        let message_schedule = log.map(|log| MessageSchedule::new(log, evidence.run.path(), captures));
        let tree = ProcessTree::of(root).ok();
        let limits = LimitWatch::of(root, evidence.limit_as, interval);
        let pids = TreePids::default();
        pids.set(vec![root]);
        let first = root_member(root, &evidence.program);
        let others: Vec<TreeMember> = tree.iter().flat_map(ProcessTree::members).cloned().collect();
        let mut sampler = Sampler {
            evidence,
            host,
            interval,
            root,
            tree,
            orphans,
            processes: BTreeMap::new(),
            newborn: Vec::new(),
            births: BTreeMap::new(),
            limits,
            map_looks: MapLooks::start(),
            gpus: GpuSamples::start(interval, pids.clone()),
            pids,
            warn,
            message_schedule,
            just_dead: Vec::new(),
            last_holders: None,
            peak_total_rss: 0,
            lost_records: 0,
            next_tree_look: Instant::now(),
            next_peak_look: Instant::now(),
            next_host_look: Instant::now(),
            next_sweep: Instant::now() + SWEEP_INTERVAL,
        };
        sampler.evidence.root = root;
        sampler.add(&first);
        for member in others.iter().filter(|member| member.pid != root) {
            sampler.add(member);
        }
        sampler
    }

    /// Samples at once and then at each interval, until the other end of `stop` is closed.
    pub(crate) fn run(mut self, stop: &PipeReader) -> SamplerOutput {
        let begun = Instant::now();
        let (mut next, mut early) = (begun, begun + EARLY_LOOK);
        let mut is_stopped = false;
        let mut code = OwnCode::of_now();
        while !is_stopped {
            self.tick();
            // After a stall there is nothing to catch up with: the past cannot be sampled.
            next = (next + self.interval).max(Instant::now());
            while !is_stopped && Instant::now() < next {
                is_stopped = self.wait(Some(stop), next.min(early).min(self.next_birth_look(next)));
                if !is_stopped && self.next_birth_look(next) <= Instant::now() {
                    self.look_for_children();
                }
                if !is_stopped && Instant::now() >= early {
                    self.look_early();
                    if begun.elapsed() >= SETTLED {
                        code.lock_used(LOCKED_CODE);
                    }
                    early = begun + begun.elapsed() * 2;
                }
            }
        }
        let mut at_end = self.circumstances();
        if let Some(holders) = self.last_holders.take() {
            at_end.held_by = holders;
        }
        let settled = Instant::now() + SETTLE;
        while self.processes.len() > 1 && Instant::now() < settled {
            self.wait(None, settled);
        }
        SamplerOutput {
            termination: self.message_schedule.map(MessageSchedule::into_log),
            evidence: self.evidence,
            at_end,
            alive: self.processes.into_values().collect(),
            peak_total_rss: self.peak_total_rss,
            lost_records: self.lost_records,
            limit_bytes: self.limits.limits().total(),
        }
    }

    /// Waits for the moment, or until a process ends; true when stopped or when the program itself ended.
    fn wait(&mut self, stop: Option<&PipeReader>, until: Instant) -> bool {
        let mut descriptors = Vec::with_capacity(self.processes.len() + 1);
        let mut pids = Vec::with_capacity(self.processes.len());
        for tracked in self.processes.values() {
            if let Some(descriptor) = tracked.exit.descriptor() {
                descriptors.push(PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
                pids.push(tracked.pid);
            }
        }
        descriptors.extend(stop.map(|stop| PollFd::new(stop, PollFlags::IN)));
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        if poll(&mut descriptors, Some(&timeout)).is_err() {
            // A signal for the program interrupted the wait; the loop reads the clock again.
            return false;
        }
        let is_stopped = stop.is_some() && descriptors.last().is_some_and(|last| !last.revents().is_empty());
        let is_ready = |(_, descriptor): &(&u32, &PollFd<'_>)| !descriptor.revents().is_empty();
        let ended: Vec<u32> = pids.iter().zip(&descriptors).filter(is_ready).map(|(pid, _)| *pid).collect();
        let is_over = ended.contains(&self.root);
        if is_over {
            self.last_holders = Some(self.holders());
        }
        for pid in ended {
            self.has_ended(pid);
            if let Some(tracked) = self.processes.get_mut(&pid) {
                // The program itself is our child and waited for elsewhere; a descriptor stays readable for ever.
                tracked.exit.forget();
            }
        }
        is_stopped || is_over
    }

    /// A process was reported to have ended.
    fn has_ended(&mut self, pid: u32) {
        let Some(tracked) = self.processes.get_mut(&pid).filter(|tracked| tracked.pid != self.root) else {
            return;
        };
        tracked.refresh_name();
        let Some(ended) = tracked.exit.look(tracked.reader.as_mut()) else { return };
        let dead = holder(tracked).filter(|_| !ended.is_clean());
        let circumstances = if ended.is_clean() { Circumstances::default() } else { self.circumstances() };
        self.just_dead.extend(dead.map(|row| (Instant::now(), row)));
        if let Some(tracked) = self.processes.remove(&pid) {
            self.evidence.child_ended(tracked, ended, &circumstances);
        }
    }

    /// The holders now, and those of a moment ago: the processes of a group are killed in any order.
    fn holders(&mut self) -> Vec<HeldBy> {
        self.just_dead.retain(|(at, _)| at.elapsed() < MOMENT);
        let dead = self.just_dead.iter().map(|(_, row)| row.clone());
        held_by(self.processes.values().filter_map(holder).chain(dead).collect())
    }

    /// The facts of this moment that a verdict needs.
    fn circumstances(&mut self) -> Circumstances {
        self.hear_maps();
        let growth = self.limits.growth(wall_ns()).map(|found| Growth {
            bytes_per_second: found.bytes_per_second,
            confidence: found.confidence,
            since_ns: found.since_ns,
        });
        let gpus = self.gpus.as_ref().map(|gpus| gpus.latest.clone()).unwrap_or_default();
        Circumstances { held_by: self.holders(), growth, gpus }
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if now >= self.next_tree_look {
            self.look_for_children();
        }
        let vms = self.processes.get(&self.root).and_then(|root| root.session.seen().last_vms);
        let held = self.processes.values().filter_map(|tracked| tracked.session.seen().last_rss).sum();
        let alerts = self.limits.look(now, held, vms, wall_ns());
        let mut total = 0;
        let stalls = self.limits.limits().stalls();
        let refresh_peaks = now >= self.next_peak_look;
        if refresh_peaks {
            self.next_peak_look = now + PEAK_INTERVAL;
        }
        if now >= self.next_host_look {
            self.next_host_look = now + HOST_INTERVAL;
            self.evidence.host_kills.look();
        }
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP_INTERVAL;
            self.sweep();
        }
        let mut is_moved = false;
        let at_ns = wall_ns();
        for tracked in self.processes.values_mut() {
            let group = if refresh_peaks { self.evidence.groups.find(tracked.pid) } else { None };
            // One that has just ended is reported by its descriptor, not by a failed reading.
            let Some(rss) = tracked.read_memory() else { continue };
            total += rss;
            if refresh_peaks {
                tracked.refresh_slow(stalls);
                is_moved |= tracked.is_moved_to(group) && tracked.pid == self.root;
            }
            let is_kept = tracked.session.record_at("sample", at_ns, Some(rss), self.limits.limits(), None);
            self.lost_records += u64::from(!is_kept);
        }
        self.peak_total_rss = self.peak_total_rss.max(total);
        self.forecast_again(is_moved);
        self.hear_maps();
        self.ask_for_a_map();
        self.record_gpus();
        self.write_ahead(now, held, !alerts.is_empty());
        self.evidence.answerer.look(now, self.evidence.run.path());
        if alerts.iter().any(AlertEvent::is_start) {
            self.ask_what_is_kept(now);
        }
        for alert in alerts {
            if let Some(root) = self.processes.get_mut(&self.root) {
                self.lost_records += u64::from(!root.session.record_alert(&alert));
            }
            if let (Some(notices), Some(root)) = (&self.evidence.notices, self.processes.get(&self.root)) {
                notices.alert(&alert, root.pid, &root.identity);
            }
            if let Some(warn) = self.warn {
                warn(&alert.context);
            }
            self.evidence.warned(alert.context);
        }
    }

    /// Asks the largest process what keeps its memory, while it is there to answer.
    fn ask_what_is_kept(&mut self, now: Instant) {
        let largest = self.processes.values().max_by_key(|tracked| tracked.session.seen().last_rss);
        let Some(pid) = largest.map(|tracked| tracked.pid) else { return };
        if let Some(captures) = &self.evidence.captures {
            self.evidence.retention_requests.ask(now, captures.directory(), pid);
        }
    }

    /// Keeps the termination message up to date, in case the container is killed now.
    fn write_ahead(&mut self, now: Instant, held: u64, has_alert: bool) {
        let Some(schedule) = &mut self.message_schedule else { return };
        let reading = self.limits.limits().memory_reading(held).unwrap_or_default();
        let forecast = self.limits.warning().filter(|found| Some(found.limit_bytes) == reading.limit);
        let picture = Picture {
            used: reading.used,
            limit: reading.limit,
            reclaimable: reading.reclaimable.unwrap_or(0),
            limit_source: reading.source.map(|source| source.to_string()),
            forecast: forecast.map(|found| (found.bytes_per_second, found.seconds_left)),
            has_alert,
            at_ns: wall_ns(),
        };
        let largest = self.processes.values().max_by_key(|tracked| tracked.session.seen().last_rss);
        let largest = largest.map(|tracked| tracked.pid);
        if !schedule.is_due(now, &picture, largest) {
            return;
        }
        let name = format!("{} (pid {})", self.evidence.program, self.root);
        let held = self.holders();
        let only = largest.filter(|_| held.is_empty()).and_then(|pid| self.processes.get(&pid));
        let kinds = only.map(kinds_or_process).unwrap_or(held);
        let holder = |row: HeldBy| Holder::named(Memory::Host, row.bytes, row.place);
        let others = kinds.into_iter().map(holder).collect();
        if let Some(schedule) = &mut self.message_schedule {
            schedule.write(now, &picture, name, others);
        }
    }

    /// Removes files of processes that have ended: a program may start them continuously.
    fn sweep(&self) {
        exceptions::bound(&self.evidence.run.exceptions(), |pid| self.processes.contains_key(&pid));
        self.evidence.run.sweep_locks(false);
    }

    /// Between two samples: processes that may be gone at the next, and where they were put.
    fn look_early(&mut self) {
        let mut is_moved = false;
        for tracked in self.processes.values_mut() {
            let group = self.evidence.groups.find(tracked.pid);
            if tracked.look_early() {
                is_moved |= tracked.is_moved_to(group) && tracked.pid == self.root;
            }
        }
        self.forecast_again(is_moved);
    }

    /// A program in another cgroup has another limit.
    fn forecast_again(&mut self, is_moved: bool) {
        if is_moved {
            self.limits = LimitWatch::of(self.root, self.evidence.limit_as, self.interval);
            let source = self.limits.limits().source();
            self.processes.values_mut().for_each(|tracked| tracked.set_limit_source(source));
        }
    }

    /// Looks into the process that has changed most since its last look, if it is time for one.
    fn ask_for_a_map(&mut self) {
        let Some(looks) = self.map_looks.as_mut().filter(|looks| looks.is_free()) else { return };
        let is_pressed = self.limits.limits().is_pressed();
        let worth =
            |tracked: &&TrackedProcess| tracked.mapped.worth(tracked.session.seen().last_rss?, is_pressed);
        let most = self.processes.values().filter(|tracked| worth(tracked).is_some()).max_by_key(worth);
        if let Some(tracked) = most {
            let TrackedProcess { pid, start_time, .. } = *tracked;
            looks.ask(Subject { pid, start_time, rss: tracked.session.seen().last_rss.unwrap_or(0) });
        }
    }

    fn hear_maps(&mut self) {
        let Some((subject, mapped)) = self.map_looks.as_mut().and_then(MapLooks::hear) else { return };
        if let Some(tracked) = self.processes.get_mut(&subject.pid)
            && tracked.start_time == subject.start_time
            && !mapped.rows.is_empty()
        {
            if tracked.session.is_recorded() {
                memory_map::write(&tracked.directory, &mapped.rows);
            }
            tracked.mapped = mapped;
        }
    }

    /// Every device goes into the program's own recording, and into those of the processes that hold something there.
    fn record_gpus(&mut self) {
        let Some(gpus) = &mut self.gpus else { return };
        if !gpus.receive() {
            return;
        }
        self.pids.set(self.processes.keys().copied().collect());
        for sample in &gpus.latest {
            for tracked in self.processes.values_mut() {
                if tracked.pid == self.root || sample.held_by(tracked.pid).is_some() {
                    self.lost_records += u64::from(!tracked.session.record_gpu(sample));
                }
            }
        }
    }

    /// Where heaps are recorded, children are looked for between two samples too: a capture belongs to a process whose end was seen.
    fn next_birth_look(&self, next_sample: Instant) -> Instant {
        if self.evidence.captures.is_some() { self.next_tree_look } else { next_sample }
    }

    fn look_for_children(&mut self) {
        self.next_tree_look = Instant::now() + TREE_INTERVAL;
        self.look_at_newborn();
        // Ends are reported by descriptors; without them, or with births, the tree must be looked at.
        let has_descriptor = |tracked: &TrackedProcess| tracked.exit.descriptor().is_some();
        if !self.orphans.are_possible() && self.processes.values().all(has_descriptor) {
            return;
        }
        let Some(tree) = &mut self.tree else { return };
        let mut change = tree.refresh();
        for pid in self.orphans.look(|pid| pid == self.root || self.processes.contains_key(&pid)) {
            change.added.extend(tree.take_in(pid));
        }
        for member in change.gone {
            self.has_ended(member.pid);
        }
        for member in change.added {
            self.add(&member);
        }
    }

    /// A process that was first seen between fork and exec was recorded under its parent's identity; where its own is another, its session begins again.
    fn look_at_newborn(&mut self) {
        for (member, since) in std::mem::take(&mut self.newborn) {
            let Some(tracked) = self.processes.get_mut(&member.pid) else { continue };
            let is_copy = tracked.start_time != member.start_time || tracked.is_copy();
            if is_copy {
                // Not at the first look: most copies execute another program at once, and the reading takes milliseconds of a large process.
                tracked.read_pages();
                self.find_pool(member.pid, true);
                if since.elapsed() < SETTLED {
                    self.newborn.push((member, since));
                }
                continue;
            }
            let environ = Environ::of(member.pid, true);
            if environ.is_unread() && since.elapsed() < SETTLED {
                self.newborn.push((member, since));
                continue;
            }
            tracked.refresh_name();
            self.evidence.lineage.set_group(tracked.pid, tracked.process_group);
            if tracked.identity != environ.identity([None; 4]).unwrap_or_default() {
                let before = tracked.directory.clone();
                self.processes.remove(&member.pid);
                // Its first session has only one or two samples.
                let _ = std::fs::remove_dir_all(before);
                self.add(&member);
            }
            self.find_pool(member.pid, false);
        }
    }

    fn add(&mut self, member: &TreeMember) {
        if self.processes.contains_key(&member.pid) {
            return;
        }
        // Before its directory is there: a parent that waits for the directory may kill the process at once, and only a reader that held it before knows how it ended.
        let mut reader = ProcessReader::open_frugal(member.pid).ok();
        let exit = Exit::of(member.pid, reader.as_mut());
        let first = FirstCommand::read(member.pid, reader.as_mut());
        let environ = Environ::of(member.pid, true);
        let identity = environ.identity([None; 4]).unwrap_or_default();
        let summary = SessionSummary {
            session_id: new_session_id(),
            status: SessionStatus::Running,
            started_at_ns: i64::try_from(wall_ns()).unwrap_or(i64::MAX),
            ended_at_ns: None,
            host: self.host.clone(),
            pid: member.pid.into(),
            job_id: identity.job_id.clone(),
            rank: identity.rank as i64,
            local_rank: identity.local_rank as i64,
            world_size: identity.world_size as i64,
            attempt: environ.attempt(),
            source: "stormlog.run".to_owned(),
        };
        let directory = self.evidence.run.new_process(identity.rank, member.pid, member.start_time);
        let config = RecorderConfig {
            ring_slots: RING_SLOTS,
            keep_log: true,
            segment_bytes: SEGMENT_BYTES,
            first_segment_bytes: Some(FIRST_SEGMENT_BYTES),
            thins_with_age: true,
        };
        let recorder = if self.processes.len() < MAX_RECORDED {
            Recorder::create(&directory, summary.clone(), &config).ok()
        } else {
            None
        };
        let session = ProcessSession::new(&summary, &identity, self.interval, about(member), recorder);
        let program = &self.evidence.program;
        let mut tracked = TrackedProcess::new(
            member,
            program,
            summary,
            identity,
            directory,
            session,
            (reader, exit, first),
        );
        tracked.worker = environ.get(WORKER_VARIABLE).as_deref().and_then(Worker::named);
        tracked.refresh_name();
        let above = self.processes.get(&tracked.ppid).and_then(|parent| parent.error_file.clone());
        tracked.error_file = environ.error_file();
        // A rank's own children inherit its file. That of the program is written by the caller, at the end of the run.
        tracked.is_rank = tracked.pid != self.root && tracked.error_file != above;
        // Also one that seems to have executed its program: it may have done so after its environment was read, and has none for a moment.
        if tracked.pid != self.root {
            self.newborn.push((member.clone(), Instant::now()));
        }
        let parent = self.processes.get_mut(&tracked.ppid);
        tracked.note_fork(parent);
        tracked.set_limit_source(self.limits.limits().source());
        self.evidence.lineage.add(tracked.pid, tracked.ppid);
        self.evidence.lineage.set_group(tracked.pid, tracked.process_group);
        let group = self.evidence.groups.find(tracked.pid);
        let rss = tracked.read_memory();
        if rss.is_some() {
            tracked.is_moved_to(group);
        }
        let is_kept = tracked.session.record("start", rss, self.limits.limits(), None);
        self.lost_records += u64::from(!is_kept);
        if let Some(captures) = &self.evidence.captures {
            captures.claim(tracked.pid);
        }
        self.processes.insert(tracked.pid, tracked);
    }
}

impl Sampler {
    /// Finds out whether a process is a worker of a pool, and which. One that is about to execute another program is a copy of its parent for a moment,
    /// so a copy is checked at its second look.
    fn find_pool(&mut self, pid: u32, is_copy: bool) {
        let Some(tracked) = self.processes.get_mut(&pid) else { return };
        if tracked.pool.is_some() || (is_copy && tracked.is_pool_sought) {
            return;
        }
        tracked.is_pool_sought |= is_copy;
        let ppid = tracked.ppid;
        let Some(parent) = self.processes.get_mut(&ppid).filter(|parent| parent.worker.is_none()) else {
            return;
        };
        // It may have taken its title a moment ago.
        parent.refresh_name();
        let is_of_dask = || {
            Environ::of(pid, false).get(DASK_PARENT_VARIABLE) == Some(ppid.to_string())
                && command_of(pid).is_some_and(|command| is_spawned(&command))
        };
        let pool = match is_copy {
            true => Pool::of_parent(parent.name()),
            false => is_of_dask().then_some(Pool::Dask),
        };
        let Some(pool) = pool else { return };
        let number = self.births.entry(ppid).or_insert(0);
        *number += 1;
        if let Some(tracked) = self.processes.get_mut(&pid) {
            tracked.pool = Some((pool, *number));
            tracked.refresh_name();
        }
    }
}

/// The program itself, whatever can still be read of it.
fn root_member(pid: u32, program: &str) -> TreeMember {
    let stat = ProcessReader::open(pid).and_then(|mut reader| reader.stat()).ok();
    TreeMember {
        pid,
        ppid: std::process::id(),
        start_time: stat.as_ref().map_or(0, |stat| stat.start_time),
        comm: stat.map_or_else(|| program.to_owned(), |stat| stat.comm),
        depth: 0,
        is_orphan: false,
    }
}
