//! Captures of real programs, against an independent count of every block; killed programs, and compactors killed in the middle.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a panic is the report")]
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;
use stormlog_capture::{Compactor, Options};
use stormlog_heap::{Aggregate, Capture, HeapReadOptions, Stats};

const COMPACT: &str = "STORMLOG_TEST_COMPACT";

fn compile(place: &Path, name: &str, source: &str) -> PathBuf {
    let target = place.join(name);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let shared: &[&str] = if name.ends_with(".so") { &["-shared", "-fPIC"] } else { &[] };
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-fno-builtin", "-o"]).arg(&target).args(shared).arg(sources.join(source));
    assert!(compiler.args(["-lpthread", "-ldl"]).status().unwrap().success(), "{source} does not compile");
    target
}

/// A program recorded to `place/heap.bin` and counted behind the hooks.
fn recorded(place: &Path, program: &Path, options: &str) -> Command {
    let hook = stormlog_hook_image::install_or(place).unwrap();
    let count = compile(place, "libcount.so", "count.c");
    let mut command = Command::new(program);
    command
        .env("LD_PRELOAD", format!("{} {}", hook.display(), count.display()))
        .env("STORMLOG_HEAP", format!("path={}/heap.bin{options}", place.display()))
        .env("COUNT_TO", place.join("counted"));
    command
}

fn python() -> Option<PathBuf> {
    let script = "import sys; print(sys.executable if sys.version_info >= (3, 11) else '')";
    let found = Command::new("python3").args(["-c", script]).output().ok()?;
    let path = String::from_utf8(found.stdout).ok()?.trim().to_owned();
    (!path.is_empty()).then(|| path.into())
}

/// Allocations, bytes, peak and what lives at the end, by the independent count.
fn counted(place: &Path) -> [u64; 4] {
    let text = std::fs::read_to_string(place.join("counted")).unwrap();
    let numbers: Vec<u64> = text.split_whitespace().map(|number| number.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

fn read(place: &Path) -> Stats {
    Capture::open(&place.join("heap.bin")).unwrap().read(HeapReadOptions::default()).unwrap().stats(10, None)
}

fn figures(stats: &Stats) -> [u64; 4] {
    [stats.total_allocations, stats.total_allocated_bytes, stats.peak_bytes, stats.live_at_end_bytes]
}

#[test]
fn a_c_program_is_recorded_to_the_byte() {
    let place = tempfile::tempdir().unwrap();
    let program = compile(place.path(), "steady", "steady.c");
    let status = recorded(place.path(), &program, "").args(["200000", "1"]).status().unwrap();
    assert!(status.success());
    let stats = read(place.path());
    assert_eq!(figures(&stats), counted(place.path()));
    assert!(stats.complete && stats.live_at_end_bytes > 0);
    assert_eq!((stats.unknown_frees, stats.forced_events, stats.lost_events), (0, 0, 0));
    Compactor::open(&place.path().join("heap.bin"), Options::default())
        .unwrap()
        .finish(json!({"exit_code": 0}))
        .unwrap();
    let finished = read(place.path());
    assert_eq!(figures(&finished), figures(&stats));
    assert_eq!((finished.peak_time_ns, finished.size_histogram), (stats.peak_time_ns, stats.size_histogram));
}

#[test]
fn threads_that_hand_blocks_to_each_other_add_up() {
    let place = tempfile::tempdir().unwrap();
    let program = compile(place.path(), "steady", "steady.c");
    let status = recorded(place.path(), &program, "").args(["60000", "6"]).status().unwrap();
    assert!(status.success());
    let stats = read(place.path());
    let [allocations, bytes, peak, live] = counted(place.path());
    assert_eq!((stats.total_allocations, stats.total_allocated_bytes), (allocations, bytes));
    assert_eq!(stats.lost_events, 0);
    // The search for an order within a tick is bounded. With six times as much to do as the machine can, it found none for some 170 records in one of 240 runs.
    assert!(stats.forced_events < allocations / 500, "{} of {allocations}", stats.forced_events);
    if stats.forced_events == 0 {
        assert_eq!((stats.unknown_frees, stats.live_at_end_bytes), (0, live));
    }
    // Within a tick of the clock threads are put in an order that could have been, not always the one that was. On a busy machine, where a thread waits with what
    // it was handed, that was 4 % of the peak; with six times as much to do, up to 26 %.
    assert!(stats.peak_bytes.abs_diff(peak) < peak / 2, "{} for {peak}", stats.peak_bytes);
}

/// Blocks change hands thousands of times within a tick of the clock, always with the GIL: by its turns their order is known.
#[test]
fn python_threads_that_hand_blocks_to_each_other_add_up() {
    let Some(python) = python() else { return };
    let script = "
import queue, random, threading
passed, kept = queue.Queue(50), []
def make(seed):
    chance = random.Random(seed)
    for _ in range(3000):
        passed.put(bytearray(chance.choice([600, 700, 5000])))
        kept.append(bytearray(chance.randrange(600, 4000)))
        if len(kept) > 300: del kept[:chance.randrange(1, 200)]
    passed.put(None)
def take():
    while (block := passed.get()) is not None:
        block.extend(b'x' * 900)
threads = [threading.Thread(target=make, args=(seed,)) for seed in range(3)] + [threading.Thread(target=take) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
";
    let place = tempfile::tempdir().unwrap();
    let mut command = recorded(place.path(), &python, "");
    // Without arenas, so that the count knows every block.
    command.args(["-I", "-S", "-c", script]).env("PYTHONMALLOC", "malloc");
    assert!(command.env_remove("PYTHONPATH").status().unwrap().success());
    let stats = read(place.path());
    assert!(stats.total_allocations > 20_000, "{}", stats.total_allocations);
    assert_eq!((stats.unknown_frees, stats.forced_events, stats.lost_events), (0, 0, 0));
}

/// What a program did that makes and keeps `rounds` times the same, by us and by the independent count.
fn python_rounds(python: &Path, rounds: u32) -> ([u64; 3], [u64; 3]) {
    let place = tempfile::tempdir().unwrap();
    let script = format!(
        "import json\nkept = []\nfor _ in range({rounds}):\n    kept += [json.loads('[1, 2, {{\"a\": [3.5]}}]') for _ in range(500)][::2]\n\
         \x20   for size in range(1, 3000, 7): bytearray(size * 50)\n"
    );
    // Without arenas, which are mappings, every object is a request of its own to `malloc`.
    let mut command = recorded(place.path(), python, "");
    command.args(["-S", "-c", &script]).env("PYTHONMALLOC", "malloc").env("PYTHONHASHSEED", "0");
    assert!(command.status().unwrap().success());
    let stats = read(place.path());
    assert_eq!((stats.forced_events, stats.lost_events), (0, 0));
    let mapped = |name: &str| ["mmap", "mremap", "brk"].contains(&name);
    let heap = stats.by_allocator.iter().filter(|allocator| !mapped(&allocator.allocator));
    let ours = heap.fold([0; 3], |[count, bytes, live], allocator| {
        [count + allocator.count, bytes + allocator.bytes, live + allocator.live_bytes]
    });
    let [allocations, bytes, _, live] = counted(place.path());
    (ours, [allocations, bytes, live])
}

#[test]
fn a_python_program_is_recorded_to_the_byte() {
    let Some(python) = python() else { return };
    // What the loader asks for before the hooks are there is the same in both runs, and cancels out.
    let (some, counted_some) = python_rounds(&python, 1);
    let (more, counted_more) = python_rounds(&python, 9);
    let difference = |more: [u64; 3], some: [u64; 3]| [0, 1, 2].map(|at| more[at].wrapping_sub(some[at]));
    assert_eq!(difference(more, some), difference(counted_more, counted_some));
    assert!(difference(more, some)[0] > 8 * 500 * 3);
}

#[test]
fn every_python_object_is_recorded() {
    let Some(python) = python() else { return };
    let place = tempfile::tempdir().unwrap();
    let script = "def make():\n    return [bytes(100 + i) for i in range(1000)]\nkept = make()\nimport os\nos._exit(7)\n";
    let file = place.path().join("program.py");
    std::fs::write(&file, script).unwrap();
    let status = recorded(place.path(), &python, ";pyalloc=1").arg(&file).status().unwrap();
    assert_eq!(status.code(), Some(7));
    let heap =
        Capture::open(&place.path().join("heap.bin")).unwrap().read(HeapReadOptions::default()).unwrap();
    let lines = heap.profile(stormlog_heap::Mode::Leaks, None).held.by_line();
    let line =
        lines.iter().find(|entry| entry.frame.line == 2 && entry.frame.file.ends_with("program.py")).unwrap();
    // A `bytes` of n takes n + 33 bytes; the list grows on the same line.
    let exact: u64 = (0..1000).map(|i| 100 + i + 33).sum();
    assert!(line.total.bytes >= exact && line.total.bytes < exact + 64 * 1024, "{line:?}, {exact}");
    assert!(line.total.count >= 1000);
}

#[test]
fn a_sample_stands_for_all_within_three_percent() {
    let place = tempfile::tempdir().unwrap();
    let program = compile(place.path(), "steady", "steady.c");
    // Eighteen gigabytes at a sample each 512 KiB: about 0.7 % of standard error.
    let status =
        recorded(place.path(), &program, ";sample=524288").args(["1200000", "1", "60000"]).status().unwrap();
    assert!(status.success());
    let stats = read(place.path());
    let [allocations, bytes, ..] = counted(place.path());
    let error = stats.standard_error_bytes.unwrap();
    let off = stats.total_allocated_bytes.abs_diff(bytes);
    assert!(error < bytes / 100, "standard error {error} of {bytes}");
    assert!(off < bytes / 33 && off < 5 * error, "{} for {bytes}, ± {error}", stats.total_allocated_bytes);
    assert!(stats.total_allocations.abs_diff(allocations) < allocations / 4);
}

#[test]
fn sigkill_loses_nothing_that_returned() {
    let place = tempfile::tempdir().unwrap();
    let source = "../../../../tests/programs/heap/killed.c";
    let program = compile(place.path(), "killed", source);
    let mut child = recorded(place.path(), &program, "").stdout(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut said = vec![0; 4 * 50_000];
    out.read_exact(&mut said).unwrap();
    child.kill().unwrap();
    out.read_to_end(&mut said).unwrap();
    child.wait().unwrap();
    let stats = read(place.path());
    assert!(
        stats.total_allocations >= said.len() as u64 / 4,
        "{} of {}",
        stats.total_allocations,
        said.len() / 4
    );
    assert!(!stats.complete);
    Compactor::open(&place.path().join("heap.bin"), Options::default())
        .unwrap()
        .finish(json!({"signal": 9}))
        .unwrap();
    let finished = read(place.path());
    assert_eq!(figures(&finished), figures(&stats));
    assert!(!finished.complete);
}

#[test]
fn compactors_killed_at_any_moment_lose_nothing() {
    for mode in ["records", "aggregate"] {
        let place = tempfile::tempdir().unwrap();
        let program = compile(place.path(), "steady", "steady.c");
        let mut child = recorded(place.path(), &program, "").args(["400000", "3"]).spawn().unwrap();
        let path = place.path().join("heap.bin");
        let start = || {
            let mut compactor = Command::new(std::env::current_exe().unwrap());
            compactor.args(["--exact", "compacts_until_killed", "--ignored"]).stdout(Stdio::null());
            compactor.env(COMPACT, &path).env("STORMLOG_TEST_MODE", mode).spawn().unwrap()
        };
        let mut killed = 0;
        while child.try_wait().unwrap().is_none() || killed < 3 {
            let mut compactor = start();
            std::thread::sleep(Duration::from_millis(60 + 37 * (killed % 5)));
            compactor.kill().unwrap();
            compactor.wait().unwrap();
            killed += 1;
        }
        assert!(child.wait().unwrap().success());
        let [allocations, bytes, _, live] = counted(place.path());
        for is_finished in [false, true] {
            if is_finished {
                Compactor::open(&path, options(mode)).unwrap().finish(json!({"exit_code": 0})).unwrap();
            }
            let stats = read(place.path());
            assert_eq!(
                (stats.total_allocations, stats.total_allocated_bytes),
                (allocations, bytes),
                "{mode}"
            );
            assert_eq!((stats.live_at_end_bytes, stats.lost_events), (live, 0), "{mode}");
        }
    }
}

fn options(mode: &str) -> Options {
    match mode {
        "aggregate" => {
            Options { aggregate: true, fold: Some(Box::new(Aggregate::default())), ..Options::default() }
        }
        _ => Options::default(),
    }
}

#[test]
#[ignore = "a compactor for the test above, which kills it"]
fn compacts_until_killed() {
    let Some(path) = std::env::var_os(COMPACT) else { return };
    let mode = std::env::var("STORMLOG_TEST_MODE").unwrap();
    let path = PathBuf::from(path);
    loop {
        if let Ok(mut compactor) = Compactor::open(&path, options(&mode)) {
            while compactor.step().is_ok() {
                std::thread::sleep(Duration::from_millis(3));
            }
        }
        std::thread::sleep(Duration::from_millis(3));
    }
}
