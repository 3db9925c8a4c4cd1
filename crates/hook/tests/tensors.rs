//! The memory of CPU tensors in the host's heap, asked for by a stand-in for PyTorch's library.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use common::stand_in::{build, python};
use common::{capture, directory, hook, preloaded};
use stormlog_capture::record::kind;

const SCRIPT: &str = "
import sys
tensors = [c10.stand_in_tensor(1_000_000 + number) for number in range(5)]
others = [c10.stand_in_aligned(2_000_000 + number) for number in range(5)]
";

fn check(place: &std::path::Path) {
    let capture = capture(place);
    for (from, kind) in [(1_000_000, kind::TENSOR), (2_000_000, kind::POSIX_MEMALIGN)] {
        let found = capture.allocations().filter(|event| (from..from + 5).contains(&event.bytes));
        let kinds: Vec<u8> = found.map(|event| event.kind).collect();
        assert_eq!(kinds, [kind; 5]);
    }
}

#[test]
fn memory_of_cpu_tensors_is_marked_as_such() {
    let place = directory();
    build(place.path());
    let script = format!("cuda, c10, allocate, free = load()\n{SCRIPT}");
    let Some(mut command) = python(place.path(), &script) else { return };
    let output = preloaded(&mut command, place.path(), "");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    check(place.path());
}

#[test]
fn memory_of_cpu_tensors_is_marked_where_recording_begins_late() {
    let place = directory();
    build(place.path());
    let script = format!(
        "
import sys
cuda, c10, allocate, free = load()
recorder = hook(sys.argv[1])
assert recorder.stormlog_heap_start(1, sys.argv[2].encode()) == 0
{SCRIPT}
assert recorder.stormlog_heap_stop() == 0
"
    );
    let Some(mut command) = python(place.path(), &script) else { return };
    command.arg(hook()).arg(format!("path={}/heap-%n.bin", place.path().display()));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    check(place.path());
}
