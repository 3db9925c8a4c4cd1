//! Everything the rules need of some recordings, taken from their events in one pass.
//!
//! Events come in any mix of sessions, ranks, devices and processes and are sorted into streams here. What is kept of a long
//! stream is bounded, except the samples (four words each) that gap and rank rules look at twice. Must never judge: that is the
//! rules' part.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use stormlog_model::CAPABILITIES_KEY;
use stormlog_model::memory::Memory;
use stormlog_model::{Capabilities, Counter, DerivedFields, DerivedInputs, Event, Head, Metadata, Support};

use crate::phases::PhaseRecord;
use crate::rules::collective::MarkerSearch;
use crate::rules::gap::{FragmentationSeen, is_usable};
use crate::rules::{Observed, Rule, Rules, hidden, limit, oom, resident, shared_pages, start};
use crate::sample::Sample;
use crate::series::Envelope;
use crate::timeline;

/// Some recordings.
#[derive(Debug, Default)]
pub struct Recording {
    /// In the order they were met.
    pub sessions: Vec<SessionRecord>,
    /// All events.
    pub event_count: u64,
    /// Events left out because another source had that part of their stream already (a bundle beside its log).
    pub overlapping: u64,
    /// Events older than the one before them in the same source.
    pub disordered: u64,
    rules: Rules,
    source: u32,
    processes: usize,
    by_id: FxHashMap<String, usize>,
    ranks: FxHashMap<(usize, u64), usize>,
    streams: FxHashMap<(usize, usize, StreamKey), usize>,
    last: Option<StreamSlot>,
    markers: MarkerSearch,
    marked: Option<(Arc<Metadata>, bool)>,
}

/// Device, process and machine.
type StreamKey = (i64, i64, String);

/// Where the events of a head go: found once, used until the head changes.
#[derive(Debug, Clone)]
struct StreamSlot {
    head: Arc<Head>,
    session: usize,
    rank: usize,
    stream: usize,
}

/// One session.
#[derive(Debug)]
pub struct SessionRecord {
    /// Its id.
    pub session_id: String,
    /// Its first and last event.
    pub span_ns: (u64, u64),
    /// All its events.
    pub event_count: u64,
    /// Those that are samples.
    pub sample_count: u64,
    /// Which of the processes with several sessions it is of, counted from 0; `None` where it is the only one of its process.
    pub process: Option<usize>,
    /// By rank, in the order they were met.
    pub ranks: Vec<RankRecord>,
}

/// One rank of a session.
#[derive(Debug)]
pub struct RankRecord {
    /// Who it is.
    pub head: Arc<Head>,
    /// Its phases.
    pub phases: PhaseRecord,
    /// The moments that name a collective.
    pub markers: Vec<u64>,
    /// One a device and process.
    pub streams: Vec<Stream>,
}

/// One device (or the host) as one process saw it.
#[derive(Debug)]
pub struct Stream {
    /// The head of its first event.
    pub head: Arc<Head>,
    /// The driver's id of the device, where its first event has it.
    pub device_uuid: Option<String>,
    /// Which memory it is, as PyTorch names devices; `None` where the backend has no such name.
    pub memory: Option<Memory>,
    /// What the user would call the program, where its first event has it.
    pub program: Option<String>,
    /// All its events.
    pub event_count: u64,
    source: u32,
    last_ns: u64,
    /// Allocator bytes handed out.
    pub allocated: Envelope,
    /// Allocator bytes held.
    pub reserved: Envelope,
    /// Bytes used on the device; RSS on the host.
    pub used: Envelope,
    /// Allocated and used were never different: one counter under two names.
    pub is_one_counter: bool,
    /// Every `sample` event.
    pub samples: Vec<Sample>,
    /// Samples that have allocated, reserved and used.
    pub allocator_samples: u64,
    /// Those of them whose collector can judge fragmentation.
    pub fragmentation_samples: u64,
    /// Fragmentation of the samples with a gap.
    pub gap_fragmentation: FragmentationSeen,
    /// What more than one rule or picture needs.
    pub facts: StreamFacts,
    /// The rules, with what each has seen.
    pub rules: Vec<Box<dyn Rule>>,
}

/// Facts about a stream that more than one rule or picture needs.
#[derive(Debug, Default)]
pub struct StreamFacts {
    /// Out-of-memory marks.
    pub oom: oom::OomMarks,
    /// Nearness to the limit.
    pub limit: limit::LimitShare,
    /// When file-backed memory rose.
    pub start: start::LibraryRises,
    /// Anonymous and shared memory.
    pub resident: resident::ResidentParts,
    /// What the process shares with others and what is its own.
    pub pages: shared_pages::SharedPages,
    /// What other processes hold on the device.
    pub others: hidden::OtherProcesses,
    /// Alerts, for pictures.
    pub moments: timeline::AlertMarks,
}

impl Recording {
    /// A recording that is judged by other rules than the standard ones.
    pub fn judged_by(rules: Rules) -> Self {
        Recording { rules, ..Recording::default() }
    }

    /// Says that what follows comes from another artifact. Hand in the fuller ones first.
    pub fn next_source(&mut self) {
        self.source += 1;
        self.last = None;
    }

    /// Takes one event.
    pub fn observe(&mut self, event: &Event) {
        let slot = match &self.last {
            Some(slot) if Arc::ptr_eq(&slot.head, &event.head) => slot.clone(),
            _ => self.find(&event.head, event.timestamp_ns),
        };
        let stream = &mut self.sessions[slot.session].ranks[slot.rank].streams[slot.stream];
        let is_old = stream.event_count > 0 && event.timestamp_ns <= stream.last_ns;
        if is_old && stream.source != self.source {
            // The bundle of a death knows that it was one; the log beside it may not.
            stream.facts.oom.observe(event);
            self.overlapping += 1;
            self.last = Some(slot);
            return;
        }
        self.disordered += u64::from(is_old && event.timestamp_ns < stream.last_ns);
        self.event_count += 1;
        stream.source = self.source;
        stream.last_ns = stream.last_ns.max(event.timestamp_ns);
        let is_marker = self.names_a_collective(event);
        let session = &mut self.sessions[slot.session];
        session.span_ns.0 = session.span_ns.0.min(event.timestamp_ns);
        session.span_ns.1 = session.span_ns.1.max(event.timestamp_ns);
        session.event_count += 1;
        let rank = &mut session.ranks[slot.rank];
        rank.phases.observe(event);
        if is_marker {
            rank.markers.push(event.timestamp_ns);
        }
        session.sample_count += u64::from(rank.streams[slot.stream].observe(event));
        self.last = Some(slot);
    }

    /// States that these sessions are of one process: seen from outside, from inside, or by another collector.
    pub fn join<'a>(&mut self, session_ids: impl Iterator<Item = &'a str>) {
        let known: Vec<usize> = session_ids.filter_map(|id| self.by_id.get(id).copied()).collect();
        if known.len() > 1 {
            known.iter().for_each(|index| self.sessions[*index].process = Some(self.processes));
            self.processes += 1;
        }
    }

    fn find(&mut self, head: &Arc<Head>, at_ns: u64) -> StreamSlot {
        let session = match self.by_id.get(&head.session_id) {
            Some(index) => *index,
            None => {
                self.by_id.insert(head.session_id.clone(), self.sessions.len());
                self.sessions.push(SessionRecord {
                    session_id: head.session_id.clone(),
                    span_ns: (at_ns, at_ns),
                    event_count: 0,
                    sample_count: 0,
                    process: None,
                    ranks: Vec::new(),
                });
                self.sessions.len() - 1
            }
        };
        let ranks = &mut self.sessions[session].ranks;
        let rank = *self.ranks.entry((session, head.identity.rank)).or_insert_with(|| {
            ranks.push(RankRecord {
                head: Arc::clone(head),
                phases: PhaseRecord::default(),
                markers: Vec::new(),
                streams: Vec::new(),
            });
            ranks.len() - 1
        });
        let streams = &mut ranks[rank].streams;
        let rules = &self.rules;
        // A bundle's events name no process: they are those of the stream that is known already.
        let known = streams.iter().position(|known| known.head.device_id == head.device_id);
        if let Some(stream) = known.filter(|_| head.pid < 0) {
            return StreamSlot { head: Arc::clone(head), session, rank, stream };
        }
        let key = (head.device_id, head.pid, head.host.clone());
        let stream = *self.streams.entry((session, rank, key)).or_insert_with(|| {
            streams.push(Stream::new(Arc::clone(head), rules));
            streams.len() - 1
        });
        StreamSlot { head: Arc::clone(head), session, rank, stream }
    }

    fn names_a_collective(&mut self, event: &Event) -> bool {
        let in_metadata = match &self.marked {
            Some((metadata, found)) if Arc::ptr_eq(metadata, &event.metadata) => *found,
            _ => {
                let found = event.metadata.map.values().any(|value| self.markers.value(value));
                self.marked = Some((Arc::clone(&event.metadata), found));
                found
            }
        };
        in_metadata
            || self.markers.text(&event.head.event_type)
            || event.context.as_deref().is_some_and(|context| self.markers.text(context))
    }
}

impl Stream {
    fn new(head: Arc<Head>, rules: &Rules) -> Self {
        Stream {
            memory: None,
            head,
            device_uuid: None,
            program: None,
            event_count: 0,
            source: 0,
            last_ns: 0,
            allocated: Envelope::default(),
            reserved: Envelope::default(),
            used: Envelope::default(),
            is_one_counter: true,
            samples: Vec::new(),
            allocator_samples: 0,
            fragmentation_samples: 0,
            gap_fragmentation: FragmentationSeen::default(),
            facts: StreamFacts::default(),
            rules: rules.make(),
        }
    }

    /// Takes one event; true when it is a sample.
    fn observe(&mut self, event: &Event) -> bool {
        if self.event_count == 0 {
            let uuid = event.metadata.map.get("device_uuid").and_then(|uuid| uuid.as_str());
            self.device_uuid = uuid.map(str::to_owned);
            let program = event.metadata.map.get("program").and_then(|program| program.as_str());
            self.program = program.map(str::to_owned);
            self.memory = memory_of(event);
        }
        self.event_count += 1;
        let sample = Sample::of(event);
        let at_ns = event.timestamp_ns;
        let counter = |counter| event.counter(counter);
        let (allocated, used) = (counter(Counter::Allocated), counter(Counter::Used));
        for (envelope, value) in [
            (&mut self.allocated, allocated),
            (&mut self.reserved, counter(Counter::Reserved)),
            (&mut self.used, used),
        ] {
            // Marks made outside a sample (start, phases) carry zeros for what was not read.
            if let Some(value) = value.filter(|value| sample.is_some() || *value > 0) {
                envelope.observe(at_ns, value);
            }
        }
        self.is_one_counter &= allocated.is_none() || used.is_none() || allocated == used;
        let derived = derived_of(event);
        if let Some(sample) = sample {
            self.samples.push(sample);
            let has_allocator = allocated.is_some() && sample.gap().is_some();
            self.allocator_samples += u64::from(has_allocator);
            let can_judge = event.metadata.capabilities.supports(Support::FragmentationAnalysis);
            self.fragmentation_samples += u64::from(has_allocator && can_judge);
            if let Some(ratio) = derived.fragmentation_ratio.filter(|_| is_usable(&sample)) {
                self.gap_fragmentation.observe(at_ns, ratio);
            }
        }
        let facts = &mut self.facts;
        facts.oom.observe(event);
        facts.start.observe(event);
        facts.resident.observe(event);
        facts.pages.observe(event);
        facts.limit.observe(event);
        facts.others.observe(event);
        facts.moments.observe(event);
        let observed = Observed { event, derived: &derived };
        self.rules.iter_mut().for_each(|rule| rule.observe(&observed));
        sample.is_some()
    }

    /// Whether both are of one device and one process number: the same memory, seen by two collectors. Where both have the driver's id of the
    /// device, that decides: a process numbers only the devices that `CUDA_VISIBLE_DEVICES` leaves it.
    #[must_use]
    pub fn is_same_memory(&self, other: &Stream) -> bool {
        let (a, b) = (&self.head, &other.head);
        let is_one_device = match (&self.device_uuid, &other.device_uuid) {
            (Some(a), Some(b)) => a == b,
            _ => a.device_id == b.device_id,
        };
        a.pid == b.pid && is_one_device
    }

    /// Whether JAX's allocator was sampled, whose pool and settings are its own.
    pub fn is_of_jax(&self) -> bool {
        self.head.collector.contains("jax")
    }

    /// Whether this is host memory.
    pub fn is_host(&self) -> bool {
        self.head.device_id < 0
    }
}

/// The memory that an event is about, by the name that PyTorch has for its device: ROCm's are `cuda` too.
fn memory_of(event: &Event) -> Option<Memory> {
    let Ok(index) = u8::try_from(event.head.device_id) else { return Some(Memory::Host) };
    let map = &event.metadata.map;
    let of_collector = map.get(CAPABILITIES_KEY).and_then(|object| object.get("backend"));
    let backend = map.get("backend").or(of_collector)?.as_str()?.to_lowercase();
    let name = if matches!(backend.as_str(), "rocm" | "hip" | "gpu") { "cuda" } else { backend.as_str() };
    format!("{name}:{index}").parse().ok()
}

/// What follows from an event's counters and what its collector can tell.
pub fn derived_of(event: &Event) -> DerivedFields {
    let capabilities: Capabilities = event.metadata.capabilities;
    let wide = |counter| event.counter(counter).map(i128::from);
    let allocated = wide(Counter::Allocated);
    DerivedFields::of(&DerivedInputs {
        allocated,
        reserved: wide(Counter::Reserved),
        inactive: wide(Counter::Inactive).filter(|_| capabilities.supports(Support::AllocatorInactive)),
        in_use: allocated.or_else(|| wide(Counter::Used)),
        total: wide(Counter::Total),
        fragmentation_enabled: capabilities.supports(Support::FragmentationAnalysis),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{finish, sample, with};

    #[test]
    fn a_bundle_beside_its_log_adds_its_mark_and_nothing_twice() {
        let mut recording = finish((0..100).map(|at| sample(at, 1000 + at)));
        recording.next_source();
        (80..100).for_each(|at| recording.observe(&sample(at, 1000 + at)));
        recording.observe(&with(sample(99, 1099), "error", "OOM detected (x)"));
        recording.observe(&sample(120, 1120));
        let stream = &recording.sessions[0].ranks[0].streams[0];
        assert_eq!((recording.event_count, recording.overlapping, recording.disordered), (101, 21, 0));
        assert_eq!((stream.samples.len(), stream.facts.oom.count), (101, 1));
    }

    #[test]
    fn bundle_without_a_process_adds_no_second_stream() {
        let nameless = |event: Event| Event {
            head: Arc::new(Head { pid: -1, host: "unknown".into(), ..(*event.head).clone() }),
            ..event
        };
        let mut recording = finish((0..100).map(|at| sample(at, 1000 + at)));
        recording.next_source();
        (80..100).for_each(|at| recording.observe(&nameless(sample(at, 1000 + at))));
        assert_eq!((recording.sessions[0].ranks[0].streams.len(), recording.overlapping), (1, 20));
    }

    #[test]
    fn streams_are_split_by_device_and_process() {
        let other =
            |event: Event, pid| Event { head: Arc::new(Head { pid, ..(*event.head).clone() }), ..event };
        let recording = finish([sample(0, 1), other(sample(1, 1), 9), sample(2, 1)]);
        let streams = &recording.sessions[0].ranks[0].streams;
        assert_eq!(streams.iter().map(|stream| stream.event_count).collect::<Vec<_>>(), [2, 1]);
    }
}
