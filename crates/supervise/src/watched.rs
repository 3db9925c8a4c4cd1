//! One watched process: its session, its recording, and what was last seen of it.
//!
//! Every event goes straight into crash-safe files. Must never fail for what it cannot record; that is counted.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stormlog_alert::alerts::AlertEvent;
use stormlog_catalog::run::{PROGRAM, START_TICKS};
pub(crate) use stormlog_collect::PROCESS_COLLECTOR as COLLECTOR;
use stormlog_collect::process::ProcessReader;
use stormlog_collect::{DeviceCapabilities, TreeMember};
use stormlog_model::{
    Counter, Counters, Env, Event, Head, Identity, IdentityInputs, Metadata, Record, SessionSummary,
    resolve_identity,
};
use stormlog_store::recording::Recorder;
use stormlog_store::wall_ns;
use stormlog_track::{GpuSample, HOST_DEVICE, Heads, host_metadata, host_sample};

use crate::exits::Exit;
use crate::groups::GroupId;
use crate::maps::Mapped;
use crate::naming::program_of;

/// By this name `analyze` knows a start.
const FILE_BACKED: &str = "file_backed_bytes";

/// A process that is or was watched.
pub(crate) struct Watched {
    pub(crate) pid: u32,
    /// The name of the process when last looked at.
    pub(crate) comm: String,
    /// What its user would call it, by its own command line.
    program: Option<String>,
    /// What the user would call the program of the run.
    run_program: String,
    /// That command line was its parent's: it had not executed a program of its own yet.
    is_named_as_copy: bool,
    pub(crate) start_time: u64,
    pub(crate) summary: SessionSummary,
    pub(crate) identity: Identity,
    pub(crate) directory: PathBuf,
    pub(crate) since: Instant,
    pub(crate) peak_rss: Option<u64>,
    pub(crate) last_rss: Option<u64>,
    pub(crate) last_vms: Option<u64>,
    /// Most address space seen in use.
    pub(crate) peak_vms: Option<u64>,
    pub(crate) samples: u64,
    pub(crate) last_event_ns: u64,
    pub(crate) recorder: Option<Recorder>,
    /// `None` when it had ended before anything of it could be read.
    pub(crate) reader: Option<ProcessReader>,
    pub(crate) exit: Exit,
    /// The memory cgroup it was last seen in.
    pub(crate) group: GroupId,
    pub(crate) mapped: Mapped,
    metadata: Arc<Metadata>,
    shortage: Shortage,
    /// As it was told last, and how often it was.
    file_backed: (u64, u32),
    heads: Heads,
}

/// How short of memory a process and its surroundings are; 0 is not at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Shortage {
    /// Bytes of it that are swapped out.
    swap: u64,
    /// Percent of the time that some, and that all tasks waited for memory.
    stalls: [u64; 2],
}

impl Shortage {
    /// By the names `analyze` judges pressure by. What was told once is told until the end, as 0 when it is over.
    fn write(self, map: &mut Record) {
        let [some, full] = self.stalls;
        for (key, value) in
            [("process_swap_bytes", self.swap), ("psi_some_avg10", some), ("psi_full_avg10", full)]
        {
            if value > 0 || map.contains_key(key) {
                map.insert(key.to_owned(), value.into());
            }
        }
    }
}

/// What one look saw.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    pub(crate) rss: Option<u64>,
    pub(crate) limit: Option<u64>,
    pub(crate) free: Option<u64>,
}

impl Watched {
    pub(crate) fn new(
        member: &TreeMember,
        run_program: &str,
        summary: SessionSummary,
        identity: Identity,
        interval: Duration,
        directory: PathBuf,
        recorder: Option<Recorder>,
    ) -> Self {
        let mut reader = ProcessReader::open_frugal(member.pid).ok();
        let mut watched = Watched {
            pid: member.pid,
            comm: member.comm.clone(),
            program: None,
            run_program: run_program.to_owned(),
            is_named_as_copy: false,
            start_time: member.start_time,
            directory,
            since: Instant::now(),
            peak_rss: None,
            last_rss: None,
            last_vms: None,
            peak_vms: None,
            samples: 0,
            last_event_ns: wall_ns(),
            recorder,
            exit: Exit::of(member.pid, reader.as_mut()),
            reader,
            group: GroupId::default(),
            mapped: Mapped::default(),
            metadata: Arc::new(metadata(member)),
            shortage: Shortage::default(),
            file_backed: (0, 0),
            heads: Heads::new(&summary, &identity, COLLECTOR, interval),
            summary,
            identity,
        };
        watched.refresh_name();
        watched
    }

    /// Whether it is still a copy of its parent, command line, environment and all.
    pub(crate) fn is_copy(&mut self) -> bool {
        self.reader.as_mut().and_then(|reader| reader.stat().ok()).is_some_and(|stat| stat.is_copy)
    }

    /// Resident bytes now; `None` when it has none any more.
    pub(crate) fn read_memory(&mut self) -> Option<u64> {
        let memory = self.reader.as_mut()?.memory().ok().filter(|memory| memory.rss > 0)?;
        self.last_vms = Some(memory.vms);
        self.peak_vms = self.peak_vms.max(self.last_vms);
        self.note_file_backed(memory.shared);
        Some(memory.rss)
    }

    /// Tells how much of it files stand behind: by that `analyze` knows a start, in which libraries are mapped, from work.
    fn note_file_backed(&mut self, bytes: u64) {
        /// Less is not worth metadata of its own.
        const LEAST: u64 = 512 << 10;
        /// No start takes longer.
        const WHILE: Duration = Duration::from_secs(60);
        /// Imports of PyTorch are told in 35. Who reads mapped files would have metadata for each sample, for which a ring has no room.
        const MOST: u32 = 100;
        let (known, times) = self.file_backed;
        if bytes.abs_diff(known) >= LEAST && times < MOST && self.since.elapsed() < WHILE {
            self.file_backed = (bytes, times + 1);
            let mut metadata = (*self.metadata).clone();
            metadata.map.insert(FILE_BACKED.to_owned(), bytes.into());
            self.metadata = Arc::new(metadata);
        }
    }

    /// Records an event; the number of records lost, 0 or 1.
    pub(crate) fn record(&mut self, event_type: &'static str, seen: Seen, context: Option<&str>) -> u64 {
        let Seen { rss, limit, free } = seen;
        let counters = host_sample(rss, limit, free).counters();
        if rss.is_some() {
            self.last_rss = rss;
            self.peak_rss = self.peak_rss.max(rss);
            // The start is written with the first sample, at the same moment.
            self.samples += u64::from(event_type == "sample");
        }
        let head = self.heads.get(event_type, HOST_DEVICE);
        let metadata = Arc::clone(&self.metadata);
        self.append(counters, context, head, metadata)
    }

    /// Records how it ended, as of when that was noticed: to judge it takes time, and a busy machine takes more.
    pub(crate) fn record_end(&mut self, event_type: &'static str, at_ns: u64, context: Option<&str>) -> u64 {
        let head = self.heads.get(event_type, HOST_DEVICE);
        let metadata = Arc::clone(&self.metadata);
        // A clock that was set back must not put the end before what came before it.
        self.append_at(at_ns.max(self.last_event_ns), Counters::UNKNOWN, context, head, metadata)
    }

    /// Records the beginning or the end of a warning.
    pub(crate) fn record_alert(&mut self, alert: &AlertEvent) -> u64 {
        let head = self.heads.get(alert.event_type, HOST_DEVICE);
        let mut metadata = (*self.metadata).clone();
        metadata.map.extend(alert.metadata.clone());
        let mut counters = Counters::UNKNOWN;
        counters.set(Counter::Used, self.last_rss);
        self.append(counters, Some(&alert.context), head, Arc::new(metadata))
    }

    /// Records a sample of a GPU.
    pub(crate) fn record_gpu(&mut self, sample: &GpuSample) -> u64 {
        let Some(metadata) = sample.metadata(self.pid) else { return 1 };
        let head = self.heads.get_by("sample", sample.gpu.identity.device_id, &sample.gpu.collector);
        self.append(sample.counters, None, head, Arc::new(metadata))
    }

    fn append(
        &mut self,
        counters: Counters,
        context: Option<&str>,
        head: Arc<Head>,
        metadata: Arc<Metadata>,
    ) -> u64 {
        self.append_at(wall_ns(), counters, context, head, metadata)
    }

    fn append_at(
        &mut self,
        at_ns: u64,
        counters: Counters,
        context: Option<&str>,
        head: Arc<Head>,
        metadata: Arc<Metadata>,
    ) -> u64 {
        self.last_event_ns = at_ns;
        let context = context.map(Into::into);
        let event = Event { timestamp_ns: self.last_event_ns, counters, context, head, metadata };
        match &mut self.recorder {
            Some(recorder) => u64::from(!recorder.append(&event)),
            None => 1,
        }
    }

    /// A look between two samples, for the peak of a process that may be gone at the next; whether it lives.
    pub(crate) fn look_early(&mut self) -> bool {
        let Some(rss) = self.read_memory() else { return false };
        let peak = self.reader.as_mut().and_then(|reader| reader.status().ok()?.peak_rss);
        self.last_rss = Some(rss);
        self.peak_rss = self.peak_rss.max(Some(rss)).max(peak);
        true
    }

    /// Notes the cgroup it was found in; whether that is another one. To be asked while it is known to live: the dead are in none.
    pub(crate) fn is_moved_to(&mut self, found: Option<GroupId>) -> bool {
        let before = self.group;
        self.group = found.unwrap_or(before);
        self.group != before
    }

    /// The names it has now, which an exec changes. One that waits to be reaped has its short name, and no command line any more.
    pub(crate) fn refresh_name(&mut self) {
        let Some(stat) = self.reader.as_mut().and_then(|reader| reader.stat().ok()) else { return };
        self.comm = stat.comm;
        match program_of(self.pid, &self.run_program) {
            Some(name) => {
                self.is_named_as_copy = stat.is_copy;
                self.set_program(name.word);
            }
            // It executed something else after it was last looked at.
            None if self.is_named_as_copy && !stat.is_copy => self.set_program(self.comm.clone()),
            None => {}
        }
    }

    fn set_program(&mut self, name: String) {
        if self.program.as_ref() == Some(&name) {
            return;
        }
        let mut metadata = (*self.metadata).clone();
        metadata.map.insert(PROGRAM.to_owned(), name.as_str().into());
        self.metadata = Arc::new(metadata);
        self.program = Some(name);
    }

    /// What its user would call it.
    pub(crate) fn name(&self) -> &str {
        self.program.as_deref().unwrap_or(&self.comm)
    }

    /// The process's own record of its highest resident memory, which no interval misses; and its name, which an exec
    /// changes. And how short of memory it is, `stalls` being how much tasks wait for it, some and all of them, in percent.
    pub(crate) fn refresh_slow(&mut self, stalls: [Option<f64>; 2]) {
        self.refresh_name();
        let Some(reader) = &mut self.reader else { return };
        let status = reader.status().ok();
        self.peak_rss = self.peak_rss.max(status.as_ref().and_then(|status| status.peak_rss));
        let swap = status.and_then(|status| status.swap).unwrap_or(0);
        // Whole percents: a figure that trembles would make every sample's metadata another one.
        let shortage =
            Shortage { swap, stalls: stalls.map(|share| share.map_or(0, |share| share.round() as u64)) };
        if shortage != self.shortage {
            self.shortage = shortage;
            let mut metadata = (*self.metadata).clone();
            shortage.write(&mut metadata.map);
            self.metadata = Arc::new(metadata);
        }
    }
}

fn metadata(member: &TreeMember) -> Metadata {
    let mut map: Record = [
        ("comm".to_owned(), member.comm.as_str().into()),
        ("ppid".to_owned(), member.ppid.into()),
        (START_TICKS.to_owned(), member.start_time.into()),
    ]
    .into_iter()
    .collect();
    map.extend(host_metadata(&DeviceCapabilities::of_process()));
    // The statement is complete; were it not, the capabilities would only be empty.
    Metadata::read(map, COLLECTOR, &Counters::UNKNOWN).unwrap_or(Metadata {
        map: Record::new(),
        capabilities: Default::default(),
        inferred: true,
    })
}

/// Rank and job from the process's own environment, as its launcher set it; from ours, which it started with, when it
/// ended before it could be read.
pub(crate) fn identity_of(pid: u32) -> Identity {
    const MOST: usize = 1 << 20;
    let text = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let text = &text[..text.len().min(MOST)];
    let lookup: &Env<'_> = &|name: &str| {
        if text.is_empty() {
            return std::env::var(name).ok();
        }
        let entries = text.split(|byte| *byte == 0);
        let mut found = entries.filter_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        found.next().map(|value| String::from_utf8_lossy(value).into_owned())
    };
    resolve_identity(&IdentityInputs { env: Some(lookup), ..Default::default() }).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_is_told_from_then_on_and_calm_is_not_told() {
        let mut map = Record::new();
        Shortage::default().write(&mut map);
        assert!(map.is_empty());
        Shortage { swap: 1 << 30, stalls: [30, 0] }.write(&mut map);
        assert_eq!(
            (map["process_swap_bytes"].as_u64(), map["psi_some_avg10"].as_u64()),
            (Some(1 << 30), Some(30))
        );
        assert!(!map.contains_key("psi_full_avg10"));
        Shortage::default().write(&mut map);
        assert_eq!(map["psi_some_avg10"], 0);
    }
}
