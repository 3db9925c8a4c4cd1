//! Makes the run directories of a fleet with the writers that `stormlog run` uses, without running anything: `bench/fleet/run` measures on them.
//!
//! ```text
//! make_fleet OUT --ranks 1024 --samples 10000 --ranks-a-host 8 [--jobs 1] [--seed 1]
//! ```
//!
//! One run directory a machine, as torchrun makes it: each rank has a session seen from outside (host memory) and one from inside (its device), which share
//! the samples evenly. Everything follows from the seed. In each job one rank peaks 12 GiB above the others, one died of a CUDA out-of-memory error, one
//! is missing, and machines' clocks differ by up to 5 s. What is expected is written to `OUT/expected.json`.
#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a generator for benches and tests: an error ends it"
)]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use stormlog_catalog::run::{RunDirectory, RunStart};
use stormlog_model::layout::{LOG_DIRECTORY, SessionName, Viewpoint};
use stormlog_model::{
    Counter, Counters, Event, Head, Identity, Metadata, SessionStatus, SessionSummary, new_session_id,
};
use stormlog_ring::LogConfig;
use stormlog_store::recording::{EventLog, write_session};

const GIB: u64 = 1 << 30;
const START_NS: i64 = 1_794_000_000_000_000_000;
const INTERVAL_NS: u64 = 1_000_000_000;
/// One segment holds a session: nothing is taken from the disk that is not used.
const SEGMENT_BYTES: u64 = 1 << 20;

/// What is made.
pub struct Options {
    /// Where.
    pub out: PathBuf,
    /// Ranks of a job.
    pub ranks: u64,
    /// Samples of a rank.
    pub samples: u64,
    /// Ranks of a machine.
    pub ranks_a_host: u64,
    /// Jobs.
    pub jobs: u64,
    /// Everything follows from it.
    pub seed: u64,
}

fn options() -> Options {
    let mut words = std::env::args().skip(1);
    let out =
        words.next().expect("usage: make_fleet OUT [--ranks N] [--samples N] [--ranks-a-host N] [--jobs N]");
    let mut options =
        Options { out: out.into(), ranks: 1024, samples: 10_000, ranks_a_host: 8, jobs: 1, seed: 1 };
    while let Some(word) = words.next() {
        let value = words.next().and_then(|value| value.parse().ok()).expect("a number after an option");
        match word.as_str() {
            "--ranks" => options.ranks = value,
            "--samples" => options.samples = value,
            "--ranks-a-host" => options.ranks_a_host = value,
            "--jobs" => options.jobs = value,
            "--seed" => options.seed = value,
            other => panic!("unknown option {other}"),
        }
    }
    options
}

/// A small generator of numbers (splitmix64): the same on every machine.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most.max(1)
    }
}

fn main() {
    let options = options();
    make(&options);
    println!("{} jobs of {} ranks with {} samples each", options.jobs, options.ranks, options.samples);
}

/// Makes the run directories; what a report must find is in `expected.json`.
pub fn make(options: &Options) {
    std::fs::create_dir_all(&options.out).expect("the directory can be made");
    let mut numbers = Numbers(options.seed);
    let expected: Vec<Value> = (0..options.jobs).map(|job| make_job(options, job, &mut numbers)).collect();
    let text = serde_json::to_string_pretty(&json!({"jobs": expected})).expect("JSON");
    stormlog_files::write_output(
        &options.out.join("expected.json"),
        text.as_bytes(),
        stormlog_files::Existing::Replace,
    )
    .expect("expected.json can be written");
}

fn make_job(options: &Options, number: u64, numbers: &mut Numbers) -> Value {
    let job = Job {
        id: format!("job-{number:04}"),
        version: format!("v{number}"),
        world: options.ranks + 1,
        odd: 77 % options.ranks,
        dead: 200 % options.ranks,
        started_ns: START_NS + number as i64 * 86_400_000_000_000,
    };
    let mut peaks = Vec::new();
    for host in 0..options.ranks.div_ceil(options.ranks_a_host) {
        let skew_ns = numbers.below(10_000_000_000) as i64 - 5_000_000_000;
        let first = host * options.ranks_a_host;
        let ranks = first..options.ranks.min(first + options.ranks_a_host);
        peaks.extend(make_run(options, &job, host, skew_ns, ranks, numbers));
    }
    json!({
        "job_id": job.id, "missing": [options.ranks], "odd": job.odd, "dead": job.dead,
        "samples": options.ranks * options.samples, "device_peaks": peaks,
    })
}

struct Job {
    id: String,
    version: String,
    world: u64,
    odd: u64,
    dead: u64,
    started_ns: i64,
}

fn make_run(
    options: &Options,
    job: &Job,
    host: u64,
    skew_ns: i64,
    ranks: std::ops::Range<u64>,
    numbers: &mut Numbers,
) -> Vec<u64> {
    let name = format!("node-{host:04}");
    let command: Vec<OsString> = ["torchrun", "train.py"].map(OsString::from).to_vec();
    let started_at_ns = job.started_ns + skew_ns;
    let run = RunDirectory::create(&options.out, &command, started_at_ns, false).expect("a run directory");
    let start = RunStart {
        command: &command,
        host: &name,
        started_at_ns,
        interval_ms: INTERVAL_NS / 1_000_000,
        records_environment: false,
    };
    let ended_at_ns = started_at_ns + (options.samples / 2 * INTERVAL_NS) as i64;
    let mut processes = Vec::new();
    let mut peaks = Vec::new();
    for rank in ranks.clone() {
        let pid = 1000 + rank as u32;
        let process = Process { options, job, host: &name, rank, pid, started_at_ns, ended_at_ns };
        let (peak, session_id) = process.record(run.path(), numbers);
        peaks.push(peak);
        let is_dead = rank == job.dead;
        processes.push(json!({
            "pid": pid, "program": "train.py", "session_id": session_id, "ended": if is_dead { "failed" } else { "completed" },
            "cause": is_dead.then_some("oom_exception"), "confidence": is_dead.then_some(1.0),
            "verdict": is_dead.then_some("train.py raised torch.OutOfMemoryError"),
        }));
    }
    let mut record = start.to_record();
    let is_failed = ranks.contains(&job.dead);
    record.insert("status".into(), if is_failed { "interrupted" } else { "completed" }.into());
    record.insert("pid".into(), (1000 + ranks.start).into());
    record.insert("ended_at_ns".into(), ended_at_ns.into());
    record.insert("exit_code".into(), i32::from(is_failed).into());
    record.insert("processes".into(), processes.into());
    record.insert("container".into(), Value::Null);
    let launch = json!({"job_id": job.id, "job_name": "train", "job_version": job.version, "attempt": 0});
    record.insert("launch".into(), launch);
    run.write(&record).expect("run.json");
    run.forget_ends();
    peaks
}

struct Process<'a> {
    options: &'a Options,
    job: &'a Job,
    host: &'a str,
    rank: u64,
    pid: u32,
    started_at_ns: i64,
    ended_at_ns: i64,
}

impl Process<'_> {
    /// Writes both sessions; gives the peak of the device and the id of the first session.
    fn record(&self, run: &Path, numbers: &mut Numbers) -> (u64, String) {
        let count = self.options.samples / 2;
        let level = 40 * GIB + numbers.below(GIB / 8) + if self.rank == self.job.odd { 12 * GIB } else { 0 };
        let mut peak = 0;
        let mut first = String::new();
        let device = (self.rank % self.options.ranks_a_host) as u32;
        for viewpoint in [Viewpoint::Outside, Viewpoint::Cuda(device)] {
            let session_id = new_session_id();
            let (mut log, head, metadata) = self.open(run, viewpoint, &session_id);
            let is_host = viewpoint == Viewpoint::Outside;
            for at in 0..count {
                let noise = numbers.below(GIB / 4);
                let mut counters = Counters::default();
                if is_host {
                    counters.set(Counter::Used, Some(6 * GIB + noise));
                    counters.set(Counter::Total, Some(2048 * GIB));
                } else {
                    let reserved = level + noise;
                    peak = peak.max(reserved);
                    counters.set(Counter::Reserved, Some(reserved));
                    counters.set(Counter::Allocated, Some(reserved - 2 * GIB));
                    counters.set(Counter::Used, Some(reserved + GIB));
                    counters.set(Counter::Total, Some(80 * GIB));
                }
                let event = Event {
                    timestamp_ns: self.started_at_ns as u64
                        + at * INTERVAL_NS
                        + numbers.below(INTERVAL_NS / 10),
                    counters,
                    context: None,
                    head: Arc::clone(&head),
                    metadata: Arc::clone(&metadata),
                };
                assert!(log.append(&event), "the event was written");
            }
            if is_host {
                first = session_id;
            }
        }
        (peak, first)
    }

    fn open(
        &self,
        run: &Path,
        viewpoint: Viewpoint,
        session_id: &str,
    ) -> (EventLog, Arc<Head>, Arc<Metadata>) {
        let name = SessionName { rank: self.rank, pid: self.pid, start_ticks: None, viewpoint };
        let directory = run.join(name.to_string());
        stormlog_files::create_directory(&directory).expect("a session's directory");
        let collector = if viewpoint == Viewpoint::Outside {
            "stormlog.process_tracker"
        } else {
            "stormlog.cuda_tracker"
        };
        let local_rank = self.rank % self.options.ranks_a_host;
        let summary = SessionSummary {
            session_id: session_id.to_owned(),
            status: SessionStatus::Completed,
            started_at_ns: self.started_at_ns,
            ended_at_ns: Some(self.ended_at_ns),
            host: self.host.to_owned(),
            pid: self.pid.into(),
            job_id: Some(self.job.id.clone()),
            rank: self.rank as i64,
            local_rank: local_rank as i64,
            world_size: self.job.world as i64,
            attempt: Some(0),
            source: collector.to_owned(),
        };
        write_session(&directory, &summary).expect("session.json");
        let config =
            LogConfig { segment_bytes: SEGMENT_BYTES, first_segment_bytes: None, ..LogConfig::default() };
        let log = EventLog::create(&directory.join(LOG_DIRECTORY), config).expect("a log");
        let head = Head {
            session_id: session_id.to_owned(),
            event_type: "sample".to_owned(),
            collector: collector.to_owned(),
            sampling_interval_ms: INTERVAL_NS / 1_000_000,
            pid: self.pid.into(),
            host: self.host.to_owned(),
            identity: Identity {
                job_id: Some(self.job.id.clone()),
                rank: self.rank,
                local_rank,
                world_size: self.job.world,
            },
            device_id: if viewpoint == Viewpoint::Outside { -1 } else { local_rank as i64 },
        };
        let mut known = Counters::default();
        let all = [Counter::Used, Counter::Total];
        let inside = [Counter::Reserved, Counter::Allocated];
        all.into_iter().for_each(|counter| known.set(counter, Some(1)));
        if viewpoint != Viewpoint::Outside {
            inside.into_iter().for_each(|counter| known.set(counter, Some(1)));
        }
        let map = json!({"program": "train.py"}).as_object().cloned().unwrap_or_default();
        let metadata = Metadata::read(map, collector, &known).expect("metadata");
        (log, Arc::new(head), Arc::new(metadata))
    }
}
