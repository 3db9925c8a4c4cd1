//! One process that is looked at again and again: its memory, its heap when somebody wants it, and how it ended.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use stormlog_collect::process::ProcessReader;
use stormlog_heap::{Follow, HeapError, Mode};
use stormlog_model::memory::{Memory, Selection};
use stormlog_model::stacks::{Entry, Frame, Weight};
use stormlog_model::{SessionStatus, SessionSummary};
use stormlog_pidfd::Pidfd;
use stormlog_store::recording::read_session;

use crate::read::ending;
use crate::read::names::KnownNames;
use crate::read::pace::Pace;
use crate::read::place::{Found, run_record, short_command};
use crate::read::telemetry::Told;
use crate::state::reading::{Heap, Line, MemoryRow, Process, ProcessRow, Thread, Wish};
use crate::state::series::Series;

/// Lines of the heap that are handed on: more than anybody scrolls through.
const MOST_LINES: usize = 5000;

/// A process and what is known of it.
pub(super) struct Watched {
    found: Found,
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
    told: Told,
    trouble: Option<String>,
}

impl Watched {
    pub(super) fn new(found: Found, host: &str) -> Self {
        let session = found.session.as_deref().and_then(|session| read_session(session).ok());
        let reader = living(&found, session.as_ref(), host);
        let pidfd = reader.as_ref().and_then(|reader| Pidfd::open(reader.pid()).ok());
        let started_ns = session.as_ref().and_then(|session| u64::try_from(session.started_at_ns).ok());
        let started_ns = started_ns.or_else(|| reader.as_ref().and_then(start_of));
        let gone_ns = session.and_then(|session| u64::try_from(session.ended_at_ns?).ok());
        let mut watched = Watched {
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
            told: Told::default(),
            trouble: None,
            found,
        };
        watched.learn_name();
        watched
    }

    pub(super) fn pid(&self) -> u32 {
        self.found.pid
    }

    /// Takes in where its recordings are now; a capture moves when its process has ended.
    pub(super) fn refound(&mut self, found: Found) {
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
        // Seen as a zombie it tells its status to whoever may look; its parent may be faster.
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

    /// How it ended, from whoever knows most: its capture or its run, which know the cause; our own eyes; its session.
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
            .unwrap_or_else(|| "nobody saw how".to_owned())
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
        (self.follow, self.names, self.told) = Default::default();
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
        if let Some(session) = &self.found.session {
            self.told.look(session);
        }
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
        let mut rss = if self.told.rss.points().is_empty() { recorded } else { self.told.rss.clone() };
        self.rss.points().iter().for_each(|(at, bytes)| rss.push(*at, *bytes));
        self.last_rss = self.last_rss.or(rss.points().last().map(|(_, bytes)| *bytes));
        self.peak_rss = self.peak_rss.max(rss.max());
        let until = if self.reader.is_some() {
            Some(now_ns)
        } else {
            self.gone_ns.or(rss.points().last().map(|(at, _)| *at))
        };
        let lasted = self.started_ns.zip(until).map(|(from, to)| to.saturating_sub(from) as f64 / 1e9);
        Process {
            pid: self.found.pid,
            ended: self.reader.is_none().then(|| self.ended()),
            seconds: lasted,
            rss,
            rss_peak: self.peak_rss,
            heap,
            phase: self.told.phase().filter(|_| self.reader.is_some()),
            notes: self.told.notes.clone(),
            trouble: self.trouble.clone(),
        }
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
        let live = heap.live();
        curve.push(if is_over || is_behind { at(heap.duration_us()) } else { now_ns }, live.bytes);
        let mut threads = heap.by_thread(Mode::Leaks);
        threads.retain(|share| share.weight.count > 0);
        let entries = heap.named_lines(Mode::Leaks, thread, Some(self.names.begin(wish.waits_for_names)));
        let whole = match thread {
            Some(thread) => threads.iter().find(|share| share.thread == thread).map(|share| share.weight),
            None => Some(live),
        };
        let rest = without_stack(&entries, whole.unwrap_or_default());
        let mut lines: Vec<Line> = entries.into_iter().take(MOST_LINES).map(line).collect();
        lines.extend(rest);
        let memory = heap.memory();
        let device = heap.devices().into_iter().find(|device| device.memory == memory);
        Ok(Some(Heap {
            memory,
            memories,
            reserved: device.and_then(|device| device.reserved_bytes),
            curve,
            bytes: live.bytes,
            count: live.count,
            peak: heap.peak_bytes(),
            is_sampled: heap.header.sample_bytes > 0 && memory == Memory::Host,
            behind_seconds: is_behind.then(|| (now_us - until_us) as f64 / 1e6),
            threads: threads
                .into_iter()
                .map(|share| Thread {
                    id: share.thread,
                    name: share.name,
                    bytes: share.weight.bytes,
                    count: share.weight.count,
                })
                .collect(),
            thread,
            lines,
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
fn living(found: &Found, session: Option<&SessionSummary>, host: &str) -> Option<ProcessReader> {
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

/// What the lines do not explain, so that they add up to the whole.
fn without_stack(entries: &[Entry], whole: Weight) -> Option<Line> {
    let known = |part: fn(&Weight) -> u64| entries.iter().map(|entry| part(&entry.own)).sum::<u64>();
    let bytes = whole.bytes.saturating_sub(known(|own| own.bytes));
    let count = whole.count.saturating_sub(known(|own| own.count));
    let frame = Frame::remark("(no stack)");
    (bytes > 0).then_some(Line { frame, own_bytes: bytes, total_bytes: bytes, count })
}

fn line(entry: Entry) -> Line {
    Line {
        frame: entry.frame,
        own_bytes: entry.own.bytes,
        total_bytes: entry.total.bytes,
        count: entry.total.count,
    }
}
