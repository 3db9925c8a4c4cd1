//! One process read by the kernel's files, and the recording of its session: samples, alerts, GPUs, its end.
//!
//! For callers that keep a rhythm of their own and decide what is read when (the supervisor of `run`, the recorder of the
//! Python package). Every event goes straight into crash-safe files. Must never fail for what it cannot record: the
//! caller counts it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use stormlog_alert::alerts::AlertEvent;
use stormlog_collect::process::ProcessReader;
use stormlog_collect::{DeviceCapabilities, DeviceSample, PROCESS_COLLECTOR};
use stormlog_model::{Counters, Event, Identity, Record, SessionStatus, SessionSummary};
use stormlog_store::recording::Recorder;
use stormlog_store::wall_ns;

use crate::process_facts::ProcessFacts;
use crate::{GpuSample, HOST_DEVICE, Heads, MemoryLimits, SessionEvents, host_metadata, host_sample};

/// The memory of a process as it was seen. `None` is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemorySeen {
    /// Resident bytes when last looked at.
    pub last_rss: Option<u64>,
    /// The most resident bytes, by the kernel's own count where that was read.
    pub peak_rss: Option<u64>,
    /// Address space when last looked at.
    pub last_vms: Option<u64>,
    /// The most address space.
    pub peak_vms: Option<u64>,
}

/// The session of one process.
pub struct ProcessSession {
    events: SessionEvents,
    facts: ProcessFacts,
    recorder: Option<Recorder>,
    seen: MemorySeen,
    /// The host's numbers of the last event that had any.
    last: DeviceSample,
    samples: u64,
    last_event_ns: u64,
}

impl ProcessSession {
    /// Of a process; `about` is what every event says of it. Without a recorder no event is kept.
    pub fn new(
        session: &SessionSummary,
        identity: &Identity,
        interval: Duration,
        about: Record,
        recorder: Option<Recorder>,
    ) -> Self {
        let stated = DeviceCapabilities::of_process();
        let mut base = about;
        base.extend(host_metadata(&stated));
        let heads = Heads::new(session, identity, PROCESS_COLLECTOR, interval);
        ProcessSession {
            events: SessionEvents::stated(heads, base, stated.supports),
            facts: ProcessFacts::new(),
            recorder,
            seen: MemorySeen::default(),
            last: host_sample(None, None, None),
            samples: 0,
            last_event_ns: wall_ns(),
        }
    }

    /// What was seen of its memory.
    pub fn seen(&self) -> MemorySeen {
        self.seen
    }

    /// Samples with numbers so far.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// When the last event was.
    pub fn last_event_ns(&self) -> u64 {
        self.last_event_ns
    }

    /// Its recording, while it is open.
    pub fn recorder(&mut self) -> Option<&mut Recorder> {
        self.recorder.as_mut()
    }

    /// Hands its recording over: to a session of a forked child, or to end it.
    pub fn take_recorder(&mut self) -> Option<Recorder> {
        self.recorder.take()
    }

    /// Whether it has a recording.
    pub fn is_recorded(&self) -> bool {
        self.recorder.is_some()
    }

    /// A peak that another count knows of.
    pub fn raise_peak(&mut self, rss: Option<u64>) {
        self.seen.peak_rss = self.seen.peak_rss.max(rss);
    }

    /// A fact about the process, for the metadata of the events that follow.
    pub fn set_fact(&mut self, key: &str, value: Value) {
        self.facts.set(key, value);
    }

    /// Resident bytes now; `None` when it has none any more.
    pub fn read_memory(&mut self, reader: &mut ProcessReader) -> Option<u64> {
        let memory = reader.memory().ok().filter(|memory| memory.rss > 0)?;
        self.seen.last_vms = Some(memory.vms);
        self.seen.peak_vms = self.seen.peak_vms.max(self.seen.last_vms);
        self.facts.note_file_backed(memory.shared);
        Some(memory.rss)
    }

    /// What takes longer to read and changes slowly: the kernel's record of its peak, which no interval misses, and how
    /// short of memory it is, `stalls` being the percent of the time that some, and that all tasks waited.
    pub fn read_slow(&mut self, reader: &mut ProcessReader, stalls: [Option<f64>; 2]) {
        let status = reader.status().ok();
        self.raise_peak(status.as_ref().and_then(|status| status.peak_rss));
        self.facts.note_shared_memory(status.as_ref().and_then(|status| status.rss_shared_memory));
        self.facts.note_shortage(status.and_then(|status| status.swap), stalls);
        self.read_pages(reader);
    }

    /// The pages that it shares and those of its own, where that is due. The first reading of a fork is what later ones are compared with: it is wanted
    /// before the fork has copied much.
    pub fn read_pages(&mut self, reader: &mut ProcessReader) {
        self.facts.read_pss(reader, self.seen.last_rss);
    }

    /// A look between two samples, for the peak of a process that may be gone at the next; whether it lives.
    pub fn look_early(&mut self, reader: &mut ProcessReader) -> bool {
        let Some(rss) = self.read_memory(reader) else { return false };
        let peak = reader.status().ok().and_then(|status| status.peak_rss);
        self.seen.last_rss = Some(rss);
        self.raise_peak(Some(rss).max(peak));
        true
    }

    /// Records a sample, or another kind of event with the numbers of one; whether it was kept.
    pub fn record(
        &mut self,
        event_type: &str,
        rss: Option<u64>,
        limits: &MemoryLimits,
        context: Option<&str>,
    ) -> bool {
        self.record_at(event_type, wall_ns(), rss, limits, context)
    }

    /// The same, as of a moment: the samples that are taken of several processes in one turn have one time, so that what they held together is known
    /// even where it was their last.
    pub fn record_at(
        &mut self,
        event_type: &str,
        at_ns: u64,
        rss: Option<u64>,
        limits: &MemoryLimits,
        context: Option<&str>,
    ) -> bool {
        let sample = host_sample(rss, limits.total(), limits.free());
        if rss.is_some() {
            self.last = sample;
            self.seen.last_rss = rss;
            self.raise_peak(rss);
            // The start is written with the first sample, at the same moment.
            self.samples += u64::from(event_type == "sample");
        }
        self.append_own(event_type, at_ns, &sample, context, Record::new())
    }

    /// Records the beginning or the end of a warning, with the numbers of the last sample.
    pub fn record_alert(&mut self, alert: &AlertEvent) -> bool {
        let last = self.last;
        self.append_own(alert.event_type, wall_ns(), &last, Some(&alert.context), alert.metadata.clone())
    }

    /// Records a sample of a GPU.
    pub fn record_gpu(&mut self, sample: &GpuSample) -> bool {
        let event = self.events.gpu_sample(sample, wall_ns());
        self.append(event)
    }

    /// Records how it ended, as of when that was noticed: to judge it takes time, and a busy machine takes more.
    pub fn record_end(&mut self, event_type: &str, at_ns: u64, context: Option<&str>) -> bool {
        // A clock that was set back must not put the end before what came before it.
        let at_ns = at_ns.max(self.last_event_ns);
        self.append_own(event_type, at_ns, &host_sample(None, None, None), context, Record::new())
    }

    /// Ends the recording. Its events are safe in their files whatever comes of this; readers correct the state.
    pub fn close(&mut self, status: SessionStatus, ended_at_ns: i64) {
        if let Some(recorder) = self.recorder.take() {
            let _ = recorder.close(status, ended_at_ns);
        }
    }

    fn append_own(
        &mut self,
        event_type: &str,
        at_ns: u64,
        sample: &DeviceSample,
        context: Option<&str>,
        own: Record,
    ) -> bool {
        if let Some(facts) = self.facts.changed() {
            self.events.set_facts(facts);
        }
        let counters: Counters = self.events.counters(sample);
        let context = context.map(Arc::from);
        let event = self.events.event(event_type, at_ns, HOST_DEVICE, counters, context, own);
        self.append(Some(event))
    }

    fn append(&mut self, event: Option<Event>) -> bool {
        if let Some(event) = &event {
            self.last_event_ns = event.timestamp_ns;
        }
        event.zip(self.recorder.as_mut()).is_some_and(|(event, recorder)| recorder.append(&event))
    }
}
