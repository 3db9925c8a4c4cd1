//! Small trees and readings for tests.

use stormlog_model::memory::Memory;
use stormlog_model::stacks::{Frame, FrameKind, Holding, StackProfile, StackTree};
use stormlog_model::{Evidence, Finding, Holder, Severity};
use stormlog_postmortem::Cause;
use stormlog_postmortem::bundle::BundleRow;
use stormlog_story::lanes::{LIMIT, ProcessLanes};
use stormlog_story::{Crash, FindingRow, Lane, Line as LaneLine, LineKind, Mark, Rule, Stretch};

use crate::state::actions::{JobRow, JobState};
use crate::state::crashes::{CrashRow, CrashesLook};
use crate::state::findings::{FindingsLook, JudgedRecording};
use crate::state::reading::{Heap, Level, Line, MemoryRow, Note, Process, ProcessRow, Reading, Thread};

pub(crate) fn frame(function: &str, file: &str, line: u32) -> Frame {
    Frame { function: function.into(), file: file.into(), line, kind: FrameKind::Python }
}

/// `main` calls `load`, which decodes JSON; and imports a module that builds a table.
pub(crate) fn stack_profile() -> StackProfile {
    let mut tree = StackTree::new();
    tree.frames = vec![
        frame("main", "/home/me/train.py", 12),
        frame("load", "/home/me/data.py", 61),
        frame("decode", "/usr/lib/python3.11/json/decoder.py", 353),
        frame("read", "/usr/lib/python3.11/json/scanner.py", 20),
        frame("<module>", "<frozen importlib._bootstrap>", 241),
        frame("helper", "/home/me/helper.py", 3),
    ];
    let main = tree.push(0, 0);
    let load = tree.push(main, 1);
    let decode = tree.push(load, 2);
    let read = tree.push(decode, 3);
    let import = tree.push(main, 4);
    let helper = tree.push(import, 5);
    let unused = tree.push(main, 5);
    let row = |node, thread, bytes, count| Holding { node, thread, bytes, count };
    StackProfile {
        rows: vec![
            row(read, 0, 600, 6),
            row(decode, 0, 400, 1),
            row(helper, 1, 300, 30),
            row(unused, 0, 0, 0),
        ],
        tree,
        threads: vec!["MainThread".into(), "loader".into()],
    }
}

pub(crate) fn line(function: &str, file: &str, at: u32, own: u64, total: u64, count: u64) -> Line {
    Line { frame: frame(function, file, at), own_bytes: own, total_bytes: total, count }
}

/// Two processes, of which the first has two threads and four lines.
pub(crate) fn reading() -> Reading {
    const SECOND: u64 = 1_000_000_000;
    let start = 1_700_000_000 * SECOND;
    let lines = vec![
        line("main", "/home/me/train.py", 12, 0, 1600 << 20, 900),
        line("read_all", "/home/me/loader.py", 61, 1024 << 20, 1024 << 20, 40),
        line("build", "/home/me/model.py", 31, 512 << 20, 512 << 20, 12),
        line("put", "/venv/lib/python3.12/site-packages/cache/store.py", 88, 64 << 20, 64 << 20, 800),
    ];
    let thread =
        |id, name: Option<&str>, bytes| Thread { id, name: name.map(str::to_owned), bytes, count: 3 };
    let row = |pid, rank, rss_bytes| ProcessRow {
        pid,
        name: "python train.py".into(),
        rank: Some(rank),
        rss_bytes: Some(rss_bytes),
        is_running: true,
        has_heap: true,
    };
    let note =
        |ago: u64, level, text: &str| Note { at_ns: start + (60 - ago) * SECOND, level, text: text.into() };
    Reading {
        title: "2026-11-15T10-22-31Z-train-4f2a".into(),
        path: None,
        at_ns: start + 60 * SECOND,
        processes: vec![row(4711, 0, 1800 << 20), row(4712, 1, 90 << 20)],
        output: None,
        chosen: Some(Process {
            pid: 4711,
            ended: None,
            seconds: Some(60.0),
            rss: (0..60).map(|at| (start + at * SECOND, (200 + at * 27) << 20)).collect(),
            rss_peak: Some(1801 << 20),
            heap: Some(Heap {
                memory: Memory::Host,
                memories: vec![MemoryRow { memory: Memory::Host, bytes: 1600 << 20, peak_bytes: 1700 << 20 }],
                reserved: None,
                curve: (0..60).map(|at| (start + at * SECOND, (at * 27) << 20)).collect(),
                bytes: 1600 << 20,
                count: 12_852,
                peak: 1700 << 20,
                is_sampled: false,
                behind_seconds: None,
                threads: vec![thread(100, Some("MainThread"), 1500 << 20), thread(101, None, 100 << 20)],
                thread: None,
                lines,
                ..Heap::default()
            }),
            notes: vec![
                note(30, Level::Info, "phase forward entered"),
                note(12, Level::Warning, "memory reaches its limit in 4 min"),
            ],
            phase: Some("train / forward".into()),
            is_recorded: true,
            ..Process::default()
        }),
    }
}

/// Findings of two runs.
pub(crate) fn findings_look() -> FindingsLook {
    let row = |finding: Finding, program: &str, rank| FindingRow {
        pid: finding.process.and_then(|pid| u32::try_from(pid).ok()),
        program: Some(program.to_owned()),
        rank,
        memory: finding.memory,
        bytes: finding.size_bytes(),
        held_by: finding.holder.as_ref().map(|holder| format!("{}:{}", holder.file, holder.line)),
        at_ns: Some(1_700_000_000_000_000_000),
        finding,
    };
    let recording = |name: &str, rows| {
        std::sync::Arc::new(JudgedRecording {
            path: format!("/runs/{name}").into(),
            name: name.to_owned(),
            headline: vec!["The answer.".to_owned()],
            rows,
            problems: Vec::new(),
        })
    };
    let mut leak = Finding::new(
        "growth.host",
        "leak",
        Severity::Warning,
        "host memory grew by 1.27 GiB in 12 min".to_owned(),
    );
    (leak.process, leak.memory, leak.confidence) = (Some(4711), Some(Memory::Host), 0.97);
    leak.metrics.insert("growth_bytes".to_owned(), (1300_u64 << 20).into());
    leak.holder = Some(Holder { file: "/home/me/train.py".into(), line: 31, function: "step".into() });
    leak.evidence = vec![Evidence {
        kind: "telemetry".into(),
        start_ns: Some(1_699_999_000_000_000_000),
        end_ns: Some(1_700_000_000_000_000_000),
        ..Evidence::default()
    }];
    leak.advice =
        vec!["release `losses`, a list of 812 tensors, after each step: about 37 MiB a minute".to_owned()];
    let mut oom = Finding::new("oom.killed", "oom", Severity::Critical, "killed: out of memory".to_owned());
    (oom.process, oom.memory) = (Some(815), Some(Memory::Host));
    oom.metrics.insert("peak_bytes".to_owned(), (15_u64 << 30).into());
    let odd = Finding::new(
        "ranks.outlier",
        "rank_outlier",
        Severity::Info,
        "rank 3 holds more than the others".to_owned(),
    );
    FindingsLook {
        subject: None,
        found: 41,
        wanted: 3,
        judged: vec![
            recording("2026-11-15T10-22-31Z-train-4f2a", vec![row(leak, "train.py", None)]),
            recording(
                "2026-11-14T09-00-00Z-serve-11aa",
                vec![row(oom, "serve\x1b[2J.py", None), row(odd, "serve.py", Some(3))],
            ),
        ],
        is_behind: true,
    }
}

/// Three bundles, of which the last was not read yet.
pub(crate) fn crashes_look() -> CrashesLook {
    let row = |run: &str, name: &str, at: &str, cause, backend: &str| BundleRow {
        path: format!("/runs/{run}/{name}").into(),
        created_at_utc: Some(at.to_owned()),
        cause,
        backend: Some(backend.to_owned()),
        session_id: None,
    };
    let crash = |bundle: &BundleRow, program: &str, memory, bytes: u64, holder| {
        std::sync::Arc::new(Crash {
            path: bundle.path.clone(),
            run: bundle.path.parent().map(Into::into),
            created_at_utc: bundle.created_at_utc.clone(),
            program: Some(program.to_owned()),
            pid: Some(815),
            rank: (memory != Memory::Host).then_some(3),
            cause: bundle.cause,
            what_happened: format!("{program} (pid 815) ran out of memory."),
            memory,
            bytes: Some(bytes),
            holder: Some(holder),
        })
    };
    let first =
        row("a", "oom_dump_20261115T040037Z_77_cpu_1", "2026-11-15T04:00:37Z", Cause::MemoryError, "cpu");
    let second =
        row("b", "oom_dump_20261114T090000Z_815_cuda_1", "2026-11-14T09:00:00Z", Cause::OomException, "cuda");
    let third = row("c", "oom_dump_20261113T080000Z_9_cpu_1", "2026-11-13T08:00:00Z", Cause::Unknown, "cpu");
    let gpu = "cuda:0".parse().unwrap_or_default();
    let of_host = stormlog_story::Holder::of_place(Memory::Host, 7 << 30, "data.py:61 load\x1b[2J");
    let of_gpu = stormlog_story::Holder::of_place(gpu, 60 << 30, "kv.py:57 append");
    CrashesLook {
        rows: vec![
            CrashRow {
                crash: Some(crash(&first, "train.py", Memory::Host, 8 << 30, of_host)),
                bundle: first,
            },
            CrashRow { crash: Some(crash(&second, "serve.py", gpu, 79 << 30, of_gpu)), bundle: second },
            CrashRow { crash: None, bundle: third },
        ],
        problems: Vec::new(),
        page: None,
    }
}

/// One job that runs and one that ended.
pub(crate) fn jobs() -> Vec<JobRow> {
    let job = |id, line: &str, state, output: &str| JobRow {
        id,
        line: line.to_owned(),
        state,
        seconds: 12,
        output: output.to_owned(),
    };
    vec![
        job(2, "stormlog run --dir runs -- python3 train.py", JobState::Running, "step 1\nstep 2 \x1b[2J\n"),
        job(1, "stormlog report -o a.html runs/a", JobState::Exited(0), "a.html written\n"),
    ]
}

/// The same with lanes: the host with its heap, the limit of all processes, a GPU with hidden memory; phases, steps, an alert and a forecast.
pub(crate) fn process_reading() -> Reading {
    let start = 1_700_000_000_000;
    let gpu: Memory = "cuda:0".parse().unwrap_or_default();
    let time: Vec<u64> = (0..60).map(|at| start + at * 1000).collect();
    let line = |name: &str, kind, mib: &dyn Fn(u64) -> u64| LaneLine {
        name: name.into(),
        kind,
        time: time.clone(),
        bytes: (0..60).map(|at| mib(at) << 20).collect(),
    };
    let main = LineKind::Main;
    let lane = |memory: &str, lines, limit: Option<u64>| Lane {
        memory: memory.into(),
        lines,
        limit: limit.map(|bytes| Rule { name: "limit".into(), bytes }),
        ..Lane::default()
    };
    let mark = |at: u64, name: &str, severity: &str, text: &str, limit_at: Option<u64>| Mark {
        at: start + at * 1000,
        name: name.into(),
        severity: severity.into(),
        text: text.into(),
        limit_at: limit_at.map(|at| start + at * 1000),
        ..Mark::default()
    };
    let stretch = |name: &str, is_step, from: u64, to: u64| Stretch {
        name: name.into(),
        is_step,
        from: start + from * 1000,
        to: start + to * 1000,
        ..Stretch::default()
    };
    let mut reading = reading();
    let Some(process) = &mut reading.chosen else { return reading };
    process.lanes = Some(ProcessLanes {
        lanes: vec![
            lane(
                "host",
                vec![line("RSS", main, &|at| 200 + at * 27), line("heap", main, &|at| at * 27)],
                None,
            ),
            lane(LIMIT, vec![line("in use", main, &|at| 1097 + at * 30)], Some(4 << 30)),
            lane(
                "cuda:0",
                vec![
                    line("allocated", main, &|at| 1000 + at % 10 * 200),
                    line("reserved", main, &|at| 1500 + at / 10 * 400),
                    line("device used", main, &|at| 2000 + at / 10 * 400),
                    line("outside the allocator", LineKind::Hidden, &|_| 500),
                ],
                Some(24 << 30),
            ),
        ],
        marks: vec![
            mark(20, "warning", "warning", "Memory usage at 80 %", None),
            mark(48, "forecast", "warning", "memory reaches its limit in 4 min", Some(300)),
        ],
        stretches: [stretch("load", false, 0, 8), stretch("train", false, 8, 58)]
            .into_iter()
            .chain((0..6).map(|at| stretch("step", true, 8 + at * 8, 15 + at * 8)))
            .collect(),
    });
    if let Some(heap) = &mut process.heap {
        let host = heap.memories[0];
        heap.memories = vec![host, MemoryRow { memory: gpu, bytes: 5 << 30, peak_bytes: 6 << 30 }];
    }
    reading
}
