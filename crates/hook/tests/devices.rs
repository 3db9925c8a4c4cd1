//! The memory of devices, reported by a stand-in for PyTorch's allocator: against what the allocator counted itself, preloaded.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a panic is the report")]

mod common;

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::stand_in::{Counts, Device, Name, build, build_with, devices, printed_counts, python};
use common::{Capture, capture, captures, directory, preloaded, prepare};
use stormlog_capture::record::{definition, kind};

const CUDA_0: Name = [1, 0, 0];
const CUDA_1: Name = [1, 1, 0];

/// Four threads that allocate and free on two devices, each from lines of its own; what one leaves the next may free.
const WORK: &str = "
import random, threading
cuda, c10, allocate, free = load()
def tag_1(device, size): return allocate(device, size, 1)
def tag_2(device, size): return allocate(device, size, 2)
def tag_3(device, size): return allocate(device, size, 3)
def tag_4(device, size): return allocate(device, size, 4)
shared, guard = [], threading.Lock()
def work(tag, allocate_here):
    choose, mine = random.Random(tag), []
    for turn in range(1500):
        device, size = choose.randrange(2), choose.choice([512, 1000, 70_000, 3_000_001])
        mine.append((device, allocate_here(device, size), size, tag))
        if choose.random() < 0.9 and mine:
            free(*mine.pop(choose.randrange(len(mine))))
        if choose.random() < 0.05:
            with guard:
                shared.append(mine.pop()) if mine else shared and free(*shared.pop())
threads = [threading.Thread(target=work, args=(tag, f)) for tag, f in enumerate([tag_1, tag_2, tag_3, tag_4], 1)]
for thread in threads: thread.start()
for thread in threads: thread.join()
";

fn run(mut command: Command, place: &std::path::Path, options: &str) -> Vec<Counts> {
    let output = preloaded(&mut command, place, options);
    assert!(output.status.success(), "{options}: {}", String::from_utf8_lossy(&output.stderr));
    printed_counts(&output.stdout)
}

fn reports_of(capture: &Capture) -> Vec<u64> {
    let all = capture.definitions.iter().filter(|(sort, ..)| *sort == definition::DEVICE_REPORTS);
    all.map(|(_, id, _)| *id).collect()
}

#[test]
fn every_block_of_every_device_is_recorded_by_line_and_passed_on() {
    for options in ["", ";sample=524288", ";native=1", ";pyalloc=1", ";host=0"] {
        let place = directory();
        build(place.path());
        let Some(command) = python(place.path(), &format!("{WORK}\ntell(2)")) else { return };
        let counted = run(command, place.path(), options);
        let capture = capture(place.path());
        let all = devices(&capture);
        assert_eq!(all.keys().collect::<Vec<_>>(), [&CUDA_0, &CUDA_1], "{options}");
        for (name, counts) in [CUDA_0, CUDA_1].iter().zip(&counted) {
            let Device { counts: ours, before, unknown_frees, .. } = &all[name];
            assert_eq!(ours, counts, "{options}");
            assert!(counts.allocations > 2000, "{counts:?}");
            assert_eq!((*before, *unknown_frees), (Some(0), 0));
        }
        assert_eq!((capture.lost, reports_of(&capture)), (0, vec![1]), "{options}");
        let on_host = capture.allocations().filter(|event| event.kind != kind::DEVICE_ALLOCATION).count();
        assert_eq!(on_host == 0, options == ";host=0", "{on_host}");
    }
}

#[test]
fn a_native_stack_leads_to_the_allocator_that_reports() {
    let place = directory();
    build(place.path());
    let Some(command) =
        python(place.path(), "cuda, c10, allocate, free = load(); allocate(0, 4096, 1); tell()")
    else {
        return;
    };
    run(command, place.path(), ";native=1");
    let capture = capture(place.path());
    let event = capture.events().find(|event| event.kind == kind::DEVICE_ALLOCATION).unwrap();
    let stack = capture.native_stack(event.native);
    let modules = capture.modules();
    let module_of = |address: &u64| {
        let found = modules.iter().find(|(start, end, _)| (start..end).contains(&address));
        found.map_or("", |(.., path)| path.rsplit('/').next().unwrap())
    };
    assert_eq!(module_of(&stack[0]), "libc10_cuda.so", "the innermost frame");
    assert!(stack.len() > 8, "{} frames", stack.len());
}

#[test]
fn failed_requests_are_recorded_with_their_stack() {
    let place = directory();
    build(place.path());
    let script = "
cuda, c10, allocate, free = load()
cuda.stand_in_capacity(1 << 20)
def wants_too_much(): return allocate(1, 1 << 30, 1)
allocate(1, 4096, 2)
assert wants_too_much() == 0 and wants_too_much() == 0
tell(2)
";
    let Some(command) = python(place.path(), script) else { return };
    let counted = run(command, place.path(), "");
    let capture = capture(place.path());
    let device = &devices(&capture)[&CUDA_1];
    assert_eq!((device.counts.failures, counted[1].failures), (2, 2));
    let failed: Vec<_> = capture
        .definitions
        .iter()
        .zip(&capture.places)
        .filter(|((sort, ..), _)| *sort == definition::DEVICE_FAILED)
        .collect();
    for ((_, _, payload), (stream, ..)) in failed {
        let numbers: Vec<u64> =
            payload[..24].chunks(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap())).collect();
        assert_eq!(numbers, [1 << 30, 4096, 4096]);
        let node = u32::from_le_bytes(payload[24..28].try_into().unwrap());
        assert_eq!(capture.python_stack(*stream, node), ["wants_too_much", "<module>"]);
    }
}

#[test]
fn reports_about_cpu_tensors_are_passed_on_and_not_recorded() {
    let place = directory();
    build(place.path());
    let script = "
cuda, c10, allocate, free = load()
cuda.stand_in_cpu_report(0x5000, 4096)
cuda.stand_in_cpu_report(0x5000, -4096)
allocate(0, 512, 1)
tell()
sums = Sums()
c10.stand_in_sums(ctypes.byref(sums))
assert sums.cpu_reports == 2
";
    let Some(command) = python(place.path(), script) else { return };
    run(command, place.path(), "");
    let capture = capture(place.path());
    assert_eq!(devices(&capture).keys().collect::<Vec<_>>(), [&CUDA_0]);
    assert_eq!(devices(&capture)[&CUDA_0].counts.allocations, 1);
}

#[test]
fn nothing_is_recorded_of_devices_where_that_is_declined() {
    let place = directory();
    build(place.path());
    let script = "
cuda, c10, allocate, free = load(); allocate(0, 512, 1)
recorder = hook(None)
assert recorder.enter() == 0
recorder.stormlog_gpu_report(4096, 512, 0, 0, 1, 0, 1, 0)
tell()
";
    let Some(command) = python(place.path(), script) else { return };
    run(command, place.path(), ";gpu=0");
    let capture = capture(place.path());
    assert!(devices(&capture).is_empty());
    assert!(reports_of(&capture).is_empty());
    assert!(capture.allocations().count() > 1000, "the host is");
}

#[test]
fn a_pytorch_without_these_functions_is_recognised() {
    let place = directory();
    let flags = ["-DWITHOUT_REPORTS"];
    build_with(place.path(), &flags);
    let script = "
ctypes.CDLL(PLACE + '/libc10.so')
bytearray(100_000)
";
    let Some(mut command) = python(place.path(), script) else { return };
    let output = preloaded(&mut command, place.path(), "");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let capture = capture(place.path());
    assert_eq!((reports_of(&capture), capture.lost), (vec![2], 0));
    assert!(devices(&capture).is_empty());
}

#[test]
fn the_blocks_of_a_forked_child_are_its_own() {
    for options in ["", ";host=0"] {
        let place = directory();
        build(place.path());
        let script = "
cuda, c10, allocate, free = load()
def tag_1(): return allocate(0, 4096, 1)
def tag_2(): return allocate(1, 8192, 2)
tag_1()
child = os.fork()
if child == 0:
    tag_2(); tag_2()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
tag_1()
tell()
";
        let Some(command) = python(place.path(), script) else { return };
        run(command, place.path(), options);
        let all = captures(place.path());
        let [parent, child] = &all[..] else { panic!("two captures, not {}", all.len()) };
        let (parents, childs) = (devices(parent), devices(child));
        assert_eq!(parents.keys().collect::<Vec<_>>(), [&CUDA_0], "{options}");
        assert_eq!(childs.keys().collect::<Vec<_>>(), [&CUDA_1], "{options}");
        assert_eq!(parents[&CUDA_0].counts.live[1], 8192);
        assert_eq!(childs[&CUDA_1].counts.live[2], 16_384);
        // The child has the libraries of its parent.
        assert_eq!(reports_of(parent), [1], "{options}");
    }
}

#[test]
fn driver_events_are_a_source_of_their_own() {
    let place = directory();
    build(place.path());
    let script = "
cuda, c10, allocate, free = load()
recorder = hook(None)
caller = ctypes.cast(cuda.stand_in_pairs, ctypes.c_void_p).value
def tag_5():
    recorder.stormlog_gpu_report(0x7f4200000000, 1 << 20, 0, 0, 1, 0, 1, caller)
    recorder.stormlog_gpu_report(0x7f4200100000, 4096, 0, 0, 1, 0, 1, 12345)
    recorder.stormlog_gpu_report(0x7f4200100000, -4096, 0, 0, 1, 0, 1, 0)
tag_5()
allocate(0, 1 << 20, 1)
tell()
";
    let Some(command) = python(place.path(), script) else { return };
    run(command, place.path(), "");
    let capture = capture(place.path());
    let all = devices(&capture);
    let (driver, allocator) = (&all[&[1, 0, 1]], &all[&CUDA_0]);
    assert_eq!((driver.counts.live[5], driver.counts.allocations, driver.counts.frees), (1 << 20, 2, 1));
    assert_eq!((driver.counts.reserved, driver.before), (0, Some(0)), "no totals are known");
    assert_eq!(allocator.counts.allocations, 1, "the same address");
    let natives: Vec<Vec<u64>> = capture
        .events()
        .filter(|event| event.kind == kind::DEVICE_ALLOCATION)
        .map(|event| capture.native_stack(event.native))
        .collect();
    let modules = capture.modules();
    let (start, end, _) = modules.iter().find(|(.., path)| path.ends_with("/libc10_cuda.so")).unwrap();
    assert!((start..end).contains(&&natives[0][0]), "the caller's library is named");
    assert_eq!((natives[0].len(), natives[1].len()), (1, 0), "an address in no library is none");
}

/// What the allocator had counted when it was killed, but for the reports in flight: one a thread.
#[test]
fn after_a_kill_at_any_moment_the_live_bytes_by_line_are_those_last_counted() {
    const THREADS: u64 = 4;
    const LARGEST: u64 = 3_000_001;
    let place = directory();
    build(place.path());
    let script = WORK
        .replace("= load()", "= load()\nassert cuda.stand_in_count_into(os.environ['COUNTS'].encode()) == 0")
        .replace("for turn in range(1500)", "while True")
        // It ends with this test, whatever happens to that.
        .replace("import random", "ctypes.CDLL(None).prctl(1, 9)\nimport random")
        .replace("threads = [", "print(flush=True)\ninput()\nthreads = [");
    let (mut tried, mut allocations) = (0, 0);
    for round in 0..26_u64 {
        let options = if round % 2 == 0 { "" } else { ";sample=524288" };
        let mut children = Vec::new();
        for _ in 0..4 {
            let own = directory();
            let Some(mut command) = python(place.path(), &script) else { return };
            command.env("COUNTS", own.path().join("counts")).stdout(Stdio::piped()).stdin(Stdio::piped());
            prepare(&mut command, own.path(), options, &[]);
            children.push((command.spawn().unwrap(), own));
        }
        for (child, _) in &mut children {
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        }
        for (number, (child, _)) in (0..).zip(&mut children) {
            child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
            // Between its first allocations and some thousands.
            std::thread::sleep(Duration::from_micros((round * 4 + number) * 7919 % 30_000));
            child.kill().unwrap();
        }
        for (mut child, own) in children {
            child.wait().unwrap();
            let counts = std::fs::read(own.path().join("counts")).unwrap();
            let numbers: Vec<u64> =
                counts.chunks(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap())).collect();
            let all = devices(&capture(own.path()));
            for (device, numbers) in [CUDA_0, CUDA_1].iter().zip(numbers.chunks(16)) {
                let counted = Counts::new(numbers);
                let ours = all.get(device).map(|device| device.counts.clone()).unwrap_or_default();
                for (ours, counted) in ours.live.iter().zip(&counted.live) {
                    assert!(ours.abs_diff(*counted) <= LARGEST, "{ours} of {counted}");
                }
                assert!(ours.allocations.abs_diff(counted.allocations) <= THREADS, "{ours:?} {counted:?}");
                assert!(ours.frees.abs_diff(counted.frees) <= THREADS);
                allocations += counted.allocations;
            }
            tried += 1;
        }
    }
    assert!(tried >= 100 && allocations > 10_000, "{tried}, {allocations}");
}
