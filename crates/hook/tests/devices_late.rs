//! The memory of devices where recording begins in a running program: tables are patched, and put back.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use common::stand_in::{build, devices, printed_counts, python};
use common::{captures, directory, hook};

/// A program that gets the library under test and the options of a recording as arguments.
fn run(script: &str, place: &std::path::Path, options: &str) -> Option<Vec<u8>> {
    let mut command = python(place, &format!("import sys\n{script}"))?;
    command.arg(hook()).arg(format!("path={}/heap-%n.bin{options}", place.display()));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{options}: {}", String::from_utf8_lossy(&output.stderr));
    Some(output.stdout)
}

const START: &str = "
def start():
    global recorder
    recorder = hook(sys.argv[1])
    assert recorder.stormlog_heap_start(1, sys.argv[2].encode()) == 0
def stop():
    assert recorder.stormlog_heap_stop() == 0
def tag_1(size): return allocate(0, size, 1)
def tag_2(size): return allocate(0, size, 2)
";

#[test]
fn blocks_from_before_the_recording_are_known_by_their_total() {
    for options in ["", ";host=0"] {
        let place = directory();
        build(place.path());
        let script = format!(
            "{START}
cuda, c10, allocate, free = load()
old = [tag_1(1 << 20) for _ in range(10)]
start()
new = [tag_2(4096) for _ in range(100)]
free(0, old[0], 1 << 20, 1)
for block in new[:30]: free(0, block, 4096, 2)
tell()
stop()
tag_2(512); free(0, old[1], 1 << 20, 1)
tell()
start()
free(0, old[2], 1 << 20, 1)
tell()
stop()
"
        );
        let Some(output) = run(&script, place.path(), options) else { return };
        let counted = printed_counts(&output);
        let all = captures(place.path());
        let [first, second] = &all[..] else { panic!("two recordings, not {}", all.len()) };
        let (first, second) = (&devices(first)[&[1, 0, 0]], &devices(second)[&[1, 0, 0]]);
        assert_eq!((first.before, first.older), (Some(10 << 20), 9 << 20), "{options}");
        assert_eq!((first.counts.allocations, first.counts.frees, first.unknown_frees), (100, 31, 1));
        assert_eq!(first.counts.live[2], counted[0].live[2]);
        assert_eq!(first.older + first.counts.allocated, counted[0].allocated);
        assert_eq!(first.counts.peak, counted[0].peak);
        // What was allocated while nothing was recorded is from before, too.
        assert_eq!(second.before, Some(counted[1].allocated), "{options}");
        assert_eq!(second.older, counted[2].allocated);
        assert_eq!((second.counts.allocations, second.counts.frees), (0, 1));
    }
}

#[test]
fn libraries_that_are_loaded_while_recording_are_recorded() {
    for options in ["", ";host=0", ";sample=524288"] {
        let place = directory();
        build(place.path());
        let script = format!(
            "{START}
start()
cuda, c10, allocate, free = load()
kept = [tag_1(1 << 20) for _ in range(10)]
free(0, kept[0], 1 << 20, 1)
tell()
stop()
tag_1(1 << 20)
tell()
"
        );
        let Some(output) = run(&script, place.path(), options) else { return };
        let counted = printed_counts(&output);
        let all = captures(place.path());
        let device = &devices(&all[0])[&[1, 0, 0]];
        assert_eq!((device.before, &device.counts), (Some(0), &counted[0]), "{options}");
        assert_eq!(counted[1].allocations, 11, "the allocator still works");
    }
}
