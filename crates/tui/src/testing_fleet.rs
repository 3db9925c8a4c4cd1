//! A machine with runs and a job with ranks, for tests.

use std::path::Path;
use std::sync::Arc;

use stormlog_catalog::run::RunStatus;
use stormlog_collect::pressure::{Pressure, Stall};
use stormlog_node::{
    EndedRow, GpuProcess, GpuRow, History, HostRow, Item, JobRank, JobRow, Overview, RankMemory, RunRow,
};

const GIB: u64 = 1 << 30;
pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const NOW: u64 = 1_700_000_000 * SECOND;

pub(crate) fn run(program: &str, resident: u64, growth: Option<f64>, time_to_limit: Option<f64>) -> Item {
    Item::Run(Arc::new(RunRow {
        path: Arc::from(Path::new("/runs").join(program)),
        id: program.to_owned(),
        job: "4711".into(),
        has_job_id: true,
        command: vec!["python3".into(), program.into()],
        program: program.to_owned(),
        host: Some("node-a".into()),
        version: None,
        pid: Some(4000),
        started_at_ns: Some(i64::try_from(NOW - 754 * SECOND).unwrap_or(0)),
        is_whole: true,
        cgroup: None,
        limit: None,
        resident: Some(resident),
        device: Some(2 * resident),
        peak: Some(resident + GIB),
        growth,
        time_to_limit,
        last_sample_ns: Some(NOW),
        is_stale: false,
        processes: 3,
    }))
}

pub(crate) fn ended(program: &str, ago: u64, status: RunStatus, verdict: Option<&str>) -> Item {
    Item::Ended(Arc::new(EndedRow {
        path: Path::new("/runs").join(format!("{program}-{ago}")),
        status,
        program: program.to_owned(),
        host: Some("node-a".into()),
        pid: Some(5000),
        started_at_ns: Some(i64::try_from(NOW - (ago + 60) * SECOND).unwrap_or(0)),
        ended_at_ns: Some(i64::try_from(NOW - ago * SECOND).unwrap_or(0)),
        verdict: verdict.map(str::to_owned),
        cause: None,
        peak_rss_bytes: Some(3 * GIB),
        launch: None,
    }))
}

/// Three living runs and three that have ended, two GPUs.
pub(crate) fn overview() -> Overview {
    let stall = |avg10| Some(Stall { avg10: Some(avg10), ..Stall::default() });
    let process = |pid, used, user: Option<&str>| GpuProcess {
        pid,
        used: Some(used),
        user: user.map(str::to_owned),
        command: vec!["python3".into(), "train.py".into()],
    };
    let gpu = |index, used, processes| GpuRow {
        index,
        name: Some("NVIDIA H200".into()),
        uuid: Some(format!("GPU-{index}")),
        used: Some(used),
        total: Some(140 * GIB),
        busy_percent: Some(97),
        is_unified: false,
        processes: Some(processes),
    };
    Overview {
        at_ns: NOW,
        host: HostRow {
            total: Some(64 * GIB),
            available: Some(40 * GIB),
            swap_total: Some(8 * GIB),
            swap_used: Some(GIB),
            pressure: Some(Pressure { some: stall(1.5), full: stall(0.2) }),
        },
        gpus: Some(vec![
            gpu(0, 133 * GIB, vec![process(4000, 100 * GIB, Some("alice")), process(4001, 33 * GIB, None)]),
            gpu(1, GIB, Vec::new()),
        ]),
        living: vec![
            run("train.py", 4 * GIB, Some(f64::from(2 << 20)), Some(432.0)),
            run("serve.py", 9 * GIB, Some(4096.0), None),
            run("eval.py", GIB, None, None),
        ],
        ended: vec![
            ended("train.py", 60, RunStatus::Failed, Some("killed by the kernel's OOM killer at 3.00 GiB")),
            ended("prepare.py", 4000, RunStatus::Completed, None),
            ended("old.py", 90_000, RunStatus::Interrupted, Some("killed by SIGKILL from another process")),
        ],
        ..Overview::default()
    }
}

pub(crate) fn rank(number: i64, peak: u64) -> JobRank {
    let mut history = History::default();
    for second in 0..120 {
        history.push(NOW - (120 - second) * SECOND, peak * second / 120);
    }
    JobRank {
        rank: number,
        host: Some(if number < 4 { "node-a".into() } else { "node-b".into() }),
        run: Arc::from(Path::new("/runs/train")),
        pid: Some(7000 + u32::try_from(number).unwrap_or(0)),
        state: "running",
        verdict: None,
        attempt: Some(0),
        attempts: 1,
        host_memory: RankMemory {
            now: Some(peak - (64 << 20)),
            peak: Some(peak),
            growth: Some(1_048_576.0),
            time_to_limit: (number == 2).then_some(95.0),
            history: Some(Arc::new(history)),
        },
        device_memory: RankMemory::default(),
        is_outlier: false,
    }
}

/// A living job of eight ranks, one of them missing, one odd and one dead; and one that has ended.
pub(crate) fn jobs() -> Vec<JobRow> {
    let mut ranks: Vec<JobRank> = (0..7).map(|number| rank(number, 4 * GIB)).collect();
    ranks[5] = JobRank { is_outlier: true, ..rank(5, 9 * GIB) };
    ranks[6].state = "failed";
    ranks[6].attempts = 3;
    let living = JobRow {
        key: "4711".into(),
        name: "4711".into(),
        world_size: 8,
        is_living: true,
        runs: 2,
        missing: vec![7],
        typical_peak: Some(4 * GIB),
        ranks,
        ..JobRow::default()
    };
    let ended = JobRow {
        key: "/runs/old".into(),
        name: "old.py".into(),
        world_size: 1,
        runs: 1,
        ranks: vec![rank(0, GIB)],
        ..JobRow::default()
    };
    vec![living, ended]
}
