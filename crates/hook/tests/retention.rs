//! The pass over retained objects in each Python that is installed: a program with nothing of ours but the preloaded library.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a panic is the report")]

mod common;

use std::path::Path;
use std::process::Command;

use common::{directory, preloaded, pythons};

const LOOK: &str = "
import ctypes, os, sys
look = ctypes.PyDLL(None).stormlog_why
look.argtypes = [ctypes.c_uint, ctypes.c_char_p, ctypes.c_void_p]
def why(path):
    number = look(1, os.fsencode('path=' + path), None)
    assert number == 0, number
";

fn report(python: &Path, script: &str) -> String {
    let place = directory();
    let path = place.path().join("retained.json");
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs");
    let mut command = Command::new(python);
    command.args(["-c", &format!("{LOOK}{script}")]).arg(&path).env("PYTHONPATH", programs);
    let output = preloaded(command.env("STORMLOG_WHY", "30000"), place.path(), "");
    assert!(output.status.success(), "{}: {output:?}", python.display());
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn every_way_to_keep_memory_is_named_in_every_python() {
    for python in pythons() {
        let text = report(&python, "import retains\nretains.hold_everything()\nwhy(sys.argv[1])\n");
        for kept_by in [
            "`CACHE`, a dict of 12 bytearrays, global of retains",
            "`Registry.seen`, a list of 12 bytearrays, class attribute in retains",
            "`Model.predict`, an lru_cache, class attribute in retains",
            "`session.history`, a list of 12 bytearrays, global of retains",
            "`config['limits']['rows']`, a list of 12 bytearrays, global of retains",
            "`activations`, a list of 12 bytearrays, closure of hook() at retains.py:",
            "`table`, a bytearray, local of load() at retains.py:",
            "whose frame is kept by the traceback of ValueError, in `ERRORS`, a list of 1 ValueError, global of retains",
            "`window`, a list of 12 bytearrays, local of the suspended generator stream() at retains.py:",
            "cycle Node → Node → Node",
        ] {
            assert!(text.contains(kept_by), "{}: {kept_by}\n{text}", python.display());
        }
        assert!(text.contains("\"complete\":true"), "{}: {text}", python.display());
    }
}

#[test]
fn locals_slots_and_untracked_values_are_named_in_every_python() {
    let script = "
class Row:
    __slots__ = ('cells',)
def work(path):
    row = Row()
    row.cells = [bytes(1 << 20) for _ in range(10)]
    words = {number: 'x' * 100_000 + str(number) for number in range(100)}
    blob = bytearray(10 << 20)
    why(path)
work(sys.argv[1])
";
    for python in pythons() {
        let text = report(&python, script);
        for kept_by in [
            "`row.cells`, a list of 10 `bytes` objects, local of work() at <string>:",
            "`words`, a dict of 100 strings, local of work() at <string>:",
            "`blob`, a bytearray, local of work() at <string>:",
        ] {
            assert!(text.contains(kept_by), "{}: {kept_by}\n{text}", python.display());
        }
    }
}

/// `repr`, comparison, hashing, properties and attribute hooks of the program's classes all end the program here.
#[test]
fn no_code_of_the_program_runs() {
    let script = "
class Armed:
    def __init__(self): self.data = bytearray(4 << 20)
    def _fire(self, *_): os._exit(9)
    __repr__ = __str__ = __bool__ = __len__ = __iter__ = _fire
    __dict__ = property(_fire)
class Key:
    def __hash__(self): return 7
    def __eq__(self, other):
        if armed: os._exit(9)
        return self is other
armed = False
kept = [Armed() for _ in range(4)]
table = {Key(): bytearray(1 << 20) for _ in range(4)}
for one in kept: type.__setattr__(Armed, '__getattribute__', Armed._fire)
armed = True
why(sys.argv[1])
os._exit(0)
";
    for python in pythons() {
        let text = report(&python, script);
        assert!(text.contains("`kept`, a list of 4 Armed objects, global of __main__"), "{text}");
        assert!(text.contains("`table`, a dict of 4 bytearrays, global of __main__"), "{text}");
    }
}

/// What is not recorded in a pass is nothing, and what it took is given back.
#[test]
fn a_pass_keeps_no_reference_and_no_memory() {
    let script = "
import gc
big = [bytearray(1 << 20) for _ in range(8)]
why(sys.argv[1])
def mapped(): return sum(1 for _ in open('/proc/self/maps'))
before = [sys.getrefcount(one) for one in big], len(gc.get_objects()), mapped()
for _ in range(20): why(sys.argv[1])
after = [sys.getrefcount(one) for one in big], len(gc.get_objects()), mapped()
assert before[0] == after[0], (before, after)
assert abs(before[1] - after[1]) <= 4 and abs(before[2] - after[2]) <= 4, (before, after)
";
    for python in pythons() {
        report(&python, script);
    }
}
