//! One process that is looked at again and again: its memory, its heap on demand, and how it ended.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use stormlog_catalog::run::ListedProcess;
use stormlog_collect::process::ProcessReader;
use stormlog_heap::{Follow, HeapError, Mode, Point, ThreadShare};
use stormlog_model::memory::{Memory, Selection};
use stormlog_model::stacks::{Entry, Frame, StackProfile, Weight};
use stormlog_model::{SessionStatus, SessionSummary};
use stormlog_pidfd::Pidfd;
use stormlog_store::recording::read_session;
use stormlog_story::lanes::ProcessLanes;

use crate::read::ending;
use crate::read::names::KnownNames;
use crate::read::pace::Pace;
use crate::read::past_heap::PastHeapReader;
use crate::read::plain::PlainLook;
use crate::read::process_source::{run_record, short_command};
use crate::read::telemetry::Telemetry;
use crate::state::reading::{Heap, Line, MemoryRow, Process, ProcessRow, Thread, Wish};
use crate::state::series::Series;

/// Lines of the heap that are handed on: more than a user scrolls through.
pub(super) const MOST_LINES: usize = 5000;

/// A process and what is known of it.
pub(super) struct FollowedProcess {
    found: ListedProcess,
    reader: Option<ProcessReader>,
    pidfd: Option<Pidfd>,
    name: String,
    rss: Series,
    last_rss: Option<u64>,
    peak_rss: Option<u64>,
    /// Wall clock at its start, where known.
    started_ns: Option<u64>,
    /// When it was seen to be gone.
    gone_ns: Option<u64>,
    /// How it ended, as far as we saw ourselves.
    seen_end: Option<String>,
    follow: Option<Follow>,
    names: KnownNames,
    pace: Pace,
    telemetry: Telemetry,
    past: PastHeapReader,
    plain: PlainLook,
    trouble: Option<String>,
}

impl FollowedProcess {
    pub(super) fn new(found: ListedProcess, host: &str) -> Self {
        let session = found.session.as_deref().and_then(|session| read_session(session).ok());
        let reader = living(&found, session.as_ref(), host);
        let pidfd = reader.as_ref().and_then(|reader| Pidfd::open(reader.pid()).ok());
        let started_ns = session.as_ref().and_then(|session| u64::try_from(session.started_at_ns).ok());
        let started_ns = started_ns.or_else(|| reader.as_ref().and_then(start_of));
        let gone_ns = session.and_then(|session| u64::try_from(session.ended_at_ns?).ok());
        let mut followed = FollowedProcess {
            name: String::new(),
            reader,
            pidfd,
            rss: Series::default(),
            last_rss: None,
            peak_rss: None,
            started_ns,
            gone_ns: gone_ns.filter(|ended| *ended > 0),
            seen_end: None,
            follow: None,
            names: KnownNames::default(),
            pace: Pace::default(),
            telemetry: Telemetry::default(),
            past: PastHeapReader::default(),
            plain: PlainLook::default(),
            trouble: None,
            found,
        };
        followed.learn_name();
        followed
    }

    pub(super) fn pid(&self) -> u32 {
        self.found.pid
    }

    /// Takes in where its recordings are now; a capture moves when its process has ended.
    pub(super) fn refound(&mut self, found: ListedProcess) {
        let before = std::mem::replace(&mut self.found, found);
        if self.found.command.is_empty() {
            self.found.command = before.command;
        }
        self.learn_name();
    }

    /// Reads its memory, and finds out whether it has ended.
    pub(super) fn sample(&mut self, now_ns: u64) {
        let Some(reader) = &mut self.reader else { return };
        if let Ok(memory) = reader.memory() {
            self.rss.push(now_ns, memory.rss);
            self.last_rss = Some(memory.rss);
            self.peak_rss = self.peak_rss.max(self.last_rss);
            return;
        }
        // As a zombie its status can be read; its parent may reap it first.
        let status = match reader.stat() {
            Ok(stat) if stat.has_exited() => stat.exit_code.map(ExitStatus::from_raw),
            Ok(_) => return,
            Err(_) => None,
        };
        let status = self.pidfd.as_ref().and_then(Pidfd::exit_status).or(status);
        self.seen_end = status.map(ending::of_status);
        self.gone_ns.get_or_insert(now_ns);
        self.reader = None;
    }

    /// How it ended, from the best source: its capture or its run, which know the cause; our own eyes; its session.
    fn ended(&self) -> String {
        let session = self.found.session.as_deref();
        let recorded = self.follow.as_ref().and_then(|follow| follow.heap().ending.as_ref());
        // The run's end is that of the program itself; of its children only their sessions are known.
        let of_run = || {
            let run = run_record(session?)?;
            let is_it = run.get("pid").and_then(Value::as_u64) == Some(self.found.pid.into());
            is_it.then(|| ending::of_record(&run)).flatten()
        };
        let of_session = || ending::of_session(read_session(session?).ok()?.status);
        let known = recorded.and_then(ending::of_record).or_else(of_run);
        known
            .or_else(|| self.seen_end.clone())
            .or_else(of_session)
            .unwrap_or_else(|| "cause unknown".to_owned())
    }

    pub(super) fn row(&self) -> ProcessRow {
        ProcessRow {
            pid: self.found.pid,
            name: self.name.clone(),
            rank: self.found.rank,
            rss_bytes: self.last_rss,
            is_running: self.reader.is_some(),
            has_heap: self.found.capture.is_some(),
        }
    }

    /// Lets go of what is only needed while it is looked at closely.
    pub(super) fn let_go(&mut self) {
        (self.follow, self.names, self.telemetry, self.past) = Default::default();
    }

    pub(super) fn is_running(&self) -> bool {
        self.reader.is_some()
    }

    /// Size of its capture.
    pub(super) fn recorded_bytes(&self) -> u64 {
        self.found.capture.as_deref().and_then(|path| path.metadata().ok()).map_or(0, |file| file.len())
    }

    pub(super) fn last_rss(&self) -> Option<u64> {
        self.last_rss
    }

    /// Everything about it; of its heap the lines of one thread or of all.
    pub(super) fn detail(&mut self, now_ns: u64, wish: Wish) -> Process {
        // A file of several processes has the number of each; a session is of one.
        let pid = Some(self.found.pid).filter(|pid| *pid > 0 && self.is_file());
        self.telemetry.look(&self.found.sessions, pid);
        let heap = match self.heap(now_ns, wish) {
            Ok(heap) => {
                self.trouble = None;
                heap
            }
            Err(error) => {
                // A capture that is just being moved is there again at the next look.
                self.follow = None;
                self.trouble =
                    self.found.capture.as_ref().filter(|path| path.exists()).map(|_| error.to_string());
                None
            }
        };
        let recorded = self.follow.as_ref().map(recorded_rss).unwrap_or_default();
        let mut rss =
            if self.telemetry.rss.points().is_empty() { recorded } else { self.telemetry.rss.clone() };
        self.rss.points().iter().for_each(|(at, bytes)| rss.push(*at, *bytes));
        self.last_rss = self.last_rss.or(rss.points().last().map(|(_, bytes)| *bytes));
        self.peak_rss = self.peak_rss.max(rss.max());
        let until = if self.reader.is_some() {
            Some(now_ns)
        } else {
            self.gone_ns.or(rss.points().last().map(|(at, _)| *at))
        };
        let lasted = self.started_ns.zip(until).map(|(from, to)| to.saturating_sub(from) as f64 / 1e9);
        let is_recorded = self.found.capture.is_some() || !self.found.sessions.is_empty();
        let lanes = wish.has_lanes.then(|| self.lanes(pid, &rss, now_ns, is_recorded));
        Process {
            is_recorded,
            lanes,
            pid: self.found.pid,
            ended: self.reader.is_none().then(|| self.ended()),
            seconds: lasted,
            rss,
            rss_peak: self.peak_rss,
            heap,
            phase: self.telemetry.phase().filter(|_| self.reader.is_some()),
            notes: self.telemetry.notes.clone(),
            trouble: self.trouble.clone(),
        }
    }

    /// Whether all that is known of it is in a telemetry file.
    fn is_file(&self) -> bool {
        self.found.session.is_none() && !self.found.sessions.is_empty()
    }

    /// What was sampled, the curves of its capture, and of a process that is not recorded what was seen since the first look.
    fn lanes(&mut self, pid: Option<u32>, rss: &Series, now_ns: u64, is_recorded: bool) -> ProcessLanes {
        let mut lanes = self.telemetry.lanes(pid);
        lanes.add_curve("host", "RSS", rss.points().to_vec());
        if let Some(follow) = &mut self.follow {
            add_capture(&mut lanes, follow);
        }
        if let Some(reader) = self.reader.as_ref().filter(|_| !is_recorded) {
            self.plain.look(reader, now_ns);
        }
        self.plain.add_to(&mut lanes);
        lanes
    }

    fn heap(&mut self, now_ns: u64, wish: Wish) -> Result<Option<Heap>, HeapError> {
        let thread = wish.thread;
        let Some(path) = &self.found.capture else { return Ok(None) };
        if self.follow.as_ref().is_none_or(|follow| follow.path() != path) {
            (self.follow, self.pace) = (Some(Follow::open(path)?), Pace::default());
        }
        let Some(follow) = &mut self.follow else { return Ok(None) };
        let header = &follow.heap().header;
        let (realtime, monotonic) = (header.start_realtime_ns, header.start_monotonic_ns);
        let is_over = self.reader.is_none() || header.ended();
        let now_us = monotonic_ns().saturating_sub(monotonic) / 1000;
        let until_us = if is_over { u64::MAX } else { self.pace.next(now_us) };
        let began = Instant::now();
        follow.look(until_us)?;
        self.pace.took(until_us, began.elapsed());
        let is_behind = until_us < now_us;
        self.started_ns.get_or_insert(realtime);
        let memories = select(follow, wish.memory);
        let heap = follow.heap();
        // Without the host heap, and before the first record of a device.
        if memories.is_empty() {
            return Ok(None);
        }
        let at = |time_us: u64| realtime.saturating_add(time_us.saturating_mul(1000));
        let mut curve: Series =
            heap.curve().iter().map(|point| (at(point.time_us), point.max_bytes)).collect();
        let last = if is_over || is_behind { at(heap.duration_us()) } else { now_ns };
        curve.push(last, heap.live().bytes);
        // What an interpreter frees while it shuts down is not informative: the lines are those before it, and so is their sum.
        let live = heap.leaked();
        let memory = heap.memory();
        let device = heap.devices().into_iter().find(|device| device.memory == memory);
        let mut shown = Heap {
            memory,
            memories,
            reserved: device.and_then(|device| device.reserved_bytes),
            curve,
            peak: heap.peak_bytes(),
            is_sampled: heap.header.sample_bytes > 0 && memory == Memory::Host,
            behind_seconds: is_behind.then(|| (now_us - until_us) as f64 / 1e6),
            thread,
            at_ns: wish.at_ns,
            ..Heap::default()
        };
        if let Some(at_ns) = wish.at_ns {
            self.past.fill(&mut shown, path, (realtime, at_ns), heap.duration_us(), wish.has_stacks);
            return Ok(Some(shown));
        }
        let mut threads = heap.by_thread(Mode::Leaks);
        threads.retain(|share| share.weight.count > 0);
        let entries = heap.named_lines(Mode::Leaks, thread, Some(self.names.begin(wish.waits_for_names)));
        let whole = match thread {
            Some(thread) => threads.iter().find(|share| share.thread == thread).map(|share| share.weight),
            None => Some(live),
        };
        let rest = without_stack(&entries, whole.unwrap_or_default());
        let mut lines: Vec<Line> = entries.into_iter().take(MOST_LINES).map(Line::from).collect();
        lines.extend(rest);
        shown.stacks = wish
            .has_stacks
            .then(|| heap.profile(Mode::Leaks, Some(self.names.begin(wish.waits_for_names))).held)
            .map(|held| of_thread(held, threads.iter().find(|share| Some(share.thread) == thread)));
        let thread = |share: ThreadShare| Thread {
            id: share.thread,
            name: share.name,
            bytes: share.weight.bytes,
            count: share.weight.count,
        };
        Ok(Some(Heap {
            bytes: live.bytes,
            count: live.count,
            threads: threads.into_iter().map(thread).collect(),
            lines,
            ..shown
        }))
    }

    fn learn_name(&mut self) {
        if !self.found.command.is_empty() {
            self.name = short_command(&self.found.command);
        } else if let Some(reader) = &mut self.reader {
            let words = reader.command_line().map(|line| line.arguments).unwrap_or_default();
            self.name = if words.is_empty() {
                reader.stat().map(|stat| stat.comm).unwrap_or_default()
            } else {
                short_command(&words)
            };
        }
        if self.name.is_empty() {
            "process".clone_into(&mut self.name);
        }
    }
}

/// Has the wanted memory asked, where it is recorded, and gives all of them.
fn select(follow: &mut Follow, wanted: Option<Memory>) -> Vec<MemoryRow> {
    let heap = follow.heap_mut();
    let memories = heap.memories();
    let devices = heap.devices();
    let mut rows = Vec::with_capacity(memories.len());
    for memory in &memories {
        let device = devices.iter().find(|device| device.memory == *memory);
        let (bytes, peak_bytes) = match device {
            Some(device) => (device.live.bytes, device.peak_bytes),
            // It is in the list, so it can be asked.
            None => match heap.select(Selection::One(*memory)) {
                Ok(()) => (heap.live().bytes, heap.peak_bytes()),
                Err(_) => continue,
            },
        };
        rows.push(MemoryRow { memory: *memory, bytes, peak_bytes });
    }
    let chosen = wanted.filter(|memory| memories.contains(memory)).or(memories.first().copied());
    if let Some(memory) = chosen {
        let _ = heap.select(Selection::One(memory));
    }
    rows
}

/// The process of that number, when it is still the same one and on this machine.
fn living(found: &ListedProcess, session: Option<&SessionSummary>, host: &str) -> Option<ProcessReader> {
    // The number in a file of another machine or day may be that of any process by now.
    if found.session.is_none() && !found.sessions.is_empty() {
        return None;
    }
    if session.is_some_and(|session| session.host != host || session.status != SessionStatus::Running) {
        return None;
    }
    let mut reader = ProcessReader::open(found.pid).ok()?;
    reader.stat().ok().filter(|stat| !stat.has_exited())?;
    let source = found.capture.as_deref().and_then(|path| stormlog_capture::source::Source::open(path).ok());
    let header = source.and_then(|source| source.header().ok());
    let is_same = header.is_none_or(|header| header.process_start_ticks == reader.start_time());
    is_same.then_some(reader)
}

/// Wall clock at the start of a process.
fn start_of(reader: &ProcessReader) -> Option<u64> {
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let after_boot = reader.start_time().checked_mul(1_000_000_000 / ticks)?;
    let age = nanoseconds(clock_gettime(ClockId::Boottime)).checked_sub(after_boot)?;
    place_in_time(age)
}

fn place_in_time(age_ns: u64) -> Option<u64> {
    stormlog_store::wall_ns().checked_sub(age_ns)
}

fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::MonotonicCoarse))
}

fn nanoseconds(time: rustix::time::Timespec) -> u64 {
    let whole = u64::try_from(time.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000);
    whole.saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

fn recorded_rss(follow: &Follow) -> Series {
    let heap = follow.heap();
    let at = |time_us: u64| heap.header.start_realtime_ns.saturating_add(time_us.saturating_mul(1000));
    heap.samples.iter().map(|sample| (at(sample.time_us), sample.rss)).collect()
}

/// The curves of every memory of a capture; the selection stays.
fn add_capture(lanes: &mut ProcessLanes, follow: &mut Follow) {
    let heap = follow.heap_mut();
    let (selection, realtime) = (heap.selection(), heap.header.start_realtime_ns);
    let at = |time_us: u64| realtime.saturating_add(time_us.saturating_mul(1000));
    for memory in heap.memories() {
        if heap.select(Selection::One(memory)).is_err() {
            continue;
        }
        let points = |curve: &[Point]| -> Vec<(u64, u64)> {
            curve.iter().map(|point| (at(point.time_us), point.max_bytes)).collect()
        };
        let mut curve = points(heap.curve());
        curve.push((at(heap.duration_us()), heap.live().bytes));
        let name = if memory == Memory::Host { "heap" } else { "allocated" };
        lanes.add_curve(&memory.to_string(), name, curve);
        lanes.add_curve(&memory.to_string(), "reserved", points(heap.reserved_curve()));
    }
    let _ = heap.select(selection);
}

/// The stacks of one thread, or of all.
fn of_thread(mut held: StackProfile, thread: Option<&ThreadShare>) -> StackProfile {
    if let Some(thread) = thread {
        let label = thread.label();
        let place = held.threads.iter().position(|name| *name == label);
        held.rows.retain(|row| Some(row.thread as usize) == place);
    }
    held
}

/// What the lines do not explain, so that they add up to the whole.
pub(super) fn without_stack(entries: &[Entry], whole: Weight) -> Option<Line> {
    let known = |part: fn(&Weight) -> u64| entries.iter().map(|entry| part(&entry.own)).sum::<u64>();
    let bytes = whole.bytes.saturating_sub(known(|own| own.bytes));
    let count = whole.count.saturating_sub(known(|own| own.count));
    let frame = Frame::remark("(no stack)");
    (bytes > 0).then_some(Line { frame, own_bytes: bytes, total_bytes: bytes, count })
}

impl From<Entry> for Line {
    fn from(entry: Entry) -> Line {
        Line {
            frame: entry.frame,
            own_bytes: entry.own.bytes,
            total_bytes: entry.total.bytes,
            count: entry.total.count,
        }
    }
}
