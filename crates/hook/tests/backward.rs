//! Blocks that the threads of an autograd engine ask for: they run no Python, and are put below the stack of the thread that called the engine.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::collections::BTreeMap;

use common::stand_in::{build, devices, python};
use common::{capture, captures, directory, preloaded};

/// Live bytes by stack of a program in which `engine(bytes)` allocates once in a thread of its own.
fn live(script: &str, options: &str) -> Option<BTreeMap<Vec<String>, u64>> {
    let place = directory();
    build(place.path());
    let script = format!(
        "
import sys, threading
cuda, c10, allocate, free = load()
recorder = hook(None)
def engine(size): assert cuda.stand_in_engine(0, size, 3, 0) == 0
def backward(size):
    token = recorder.enter()
    assert token > 0
    engine(size)
    recorder.leave(token)
{script}
tell()
"
    );
    let output = preloaded(&mut python(place.path(), &script)?, place.path(), options);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut all = devices(&capture(place.path()));
    Some(all.remove(&[1, 0, 0]).unwrap().live)
}

fn stack(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn an_engine_thread_has_the_stack_of_the_caller_and_the_mark() {
    for options in ["", ";sample=524288", ";host=0", ";native=1"] {
        let script = "
def train(): backward(1000)
def validate(): backward(2000)
engine(512)
train(); validate(); train()
engine(512)
allocate(0, 700, 0)
";
        let Some(live) = live(script, options) else { return };
        let expected = BTreeMap::from([
            (stack(&[]), 6 * 512),
            (stack(&["<module>"]), 700),
            (stack(&["<backward>", "backward", "train", "<module>"]), 6000),
            (stack(&["<backward>", "backward", "validate", "<module>"]), 6000),
        ]);
        assert_eq!(live, expected, "{options}");
    }
}

#[test]
fn with_several_callers_inside_the_stack_is_ambiguous() {
    let script = "
def first():
    token = recorder.enter()
    thread = threading.Thread(target=second)
    thread.start(); thread.join()
    engine(1000)
    recorder.leave(token)
def second():
    token = recorder.enter()
    engine(2000)
    recorder.leave(token)
    recorder.leave(token)
first()
inside, done = threading.Barrier(13), threading.Event()
def many():
    token = recorder.enter()
    inside.wait(); done.wait()
    recorder.leave(token)
threads = [threading.Thread(target=many) for _ in range(12)]
for thread in threads: thread.start()
inside.wait()
engine(4000)
done.set()
for thread in threads: thread.join()
engine(8000)
";
    let Some(live) = live(script, "") else { return };
    let expected = BTreeMap::from([
        (stack(&["<ambiguous>"]), 3 * 2000 + 3 * 4000),
        (stack(&["<backward>", "first", "<module>"]), 3000),
        (stack(&[]), 3 * 8000),
    ]);
    assert_eq!(live, expected);
}

/// What `torch.compile` makes of a backward pass, and the functions of a program, run in the engine's own thread, with Python frames.
#[test]
fn python_that_an_engine_thread_runs_is_below_the_caller() {
    let script = r#"
import ctypes
def named(name, work):
    def run():
        assert ctypes.CDLL(None).prctl(15, name, 0, 0, 0) == 0
        work()
    thread = threading.Thread(target=run)
    thread.start(); thread.join()
def compiled(): allocate(0, 1000, 0)
def other(): allocate(0, 500, 0)
def train():
    token = recorder.enter()
    named(b"pt_autograd_0", compiled)
    named(b"loader", other)
    recorder.leave(token)
train()
named(b"pt_autograd_0", compiled)
"#;
    let Some(live) = live(script, "") else { return };
    let bytes = |last: &[&str]| {
        let ends = |names: &&Vec<String>| names.ends_with(&stack(last)) && names[0] != "other";
        live.iter().filter(|(names, _)| ends(names)).map(|(_, bytes)| *bytes).sum::<u64>()
    };
    assert_eq!(bytes(&["<backward>", "train", "<module>"]), 1000, "{live:?}");
    let first = live.keys().find(|names| names.contains(&"<backward>".to_owned())).unwrap();
    assert_eq!(first[..2], stack(&["compiled", "named.<locals>.run"]), "its own frames come first");
    let alone = |names: &&Vec<String>| !names.contains(&"<backward>".to_owned());
    assert_eq!(live.iter().filter(|(names, _)| alone(names)).map(|(_, bytes)| bytes).sum::<u64>(), 1500);
}

/// A token may be lost to an exception that comes between the call and the assignment.
#[test]
fn a_second_call_of_a_thread_replaces_its_first() {
    let script = "
def lost(): recorder.enter()
def found(): backward(1000)
lost(); found()
engine(2000)
";
    let Some(live) = live(script, "") else { return };
    let expected =
        BTreeMap::from([(stack(&["<backward>", "backward", "found", "<module>"]), 3000), (stack(&[]), 6000)]);
    assert_eq!(live, expected);
}

#[test]
fn a_deep_stack_keeps_its_innermost_frames() {
    let script = "
sys.setrecursionlimit(2000)
def deep(left): backward(1000) if left == 0 else deep(left - 1)
deep(400)
";
    let Some(live) = live(script, "") else { return };
    let names = live.keys().next().unwrap();
    assert_eq!((names.len(), names[1].as_str()), (257, "backward"), "frames and the mark");
}

#[test]
fn a_forked_child_and_a_later_recording_know_no_caller_of_before() {
    let place = directory();
    build(place.path());
    let script = "
import sys
cuda, c10, allocate, free = load()
recorder = hook(sys.argv[1])
def engine(): assert cuda.stand_in_engine(0, 1000, 1, 0) == 0
def start(): assert recorder.stormlog_heap_start(1, sys.argv[2].encode()) == 0
assert recorder.enter() == 0
start()
token = recorder.enter()
child = os.fork()
if child == 0:
    engine(); recorder.leave(token); engine()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert recorder.stormlog_heap_stop() == 0
recorder.leave(recorder.enter())
start()
recorder.leave(token)
engine()
inner = recorder.enter()
recorder.leave(token)
engine()
assert recorder.stormlog_heap_stop() == 0
";
    let Some(mut command) = python(place.path(), script) else { return };
    command.arg(common::hook()).arg(format!("path={}/heap-%p-%n.bin", place.path().display()));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let parent = captures(place.path())[0].process;
    let mut seen = 0;
    for capture in captures(place.path()) {
        let Some(device) = devices(&capture).remove(&[1, 0, 0]) else { continue };
        let expected = if capture.process == parent {
            BTreeMap::from([(stack(&[]), 1000), (stack(&["<backward>", "<module>"]), 1000)])
        } else {
            BTreeMap::from([(stack(&[]), 2000)])
        };
        assert_eq!(device.live, expected);
        seen += 1;
    }
    assert_eq!(seen, 2);
}
