//! The reader against files other programs wrote: torch's own, Python's picklers, a C++-like one, JSON.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "in a test a panic is the report"
)]

mod support;

use std::io::Write as _;
use std::process::{Command, Stdio};

use stormlog_torch::{Action, BlockState, read};
use support::{all, counted, counter, counters, data, snapshot, spelled_out};

/// Runs Python over a fixture; what it writes to standard output comes back.
fn python(code: &str, input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("python3")
        .args(["-c", code])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is needed for this test");
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    output.stdout
}

fn plain(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(data().join(format!("{name}.pickle.gz"))).unwrap();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file), &mut bytes).unwrap();
    bytes
}

#[test]
fn totals_are_what_the_allocator_counted() {
    for name in counted() {
        let (snapshot, counters) = (snapshot(&name), counters(&name));
        let reserved: u64 = snapshot.segments.iter().map(|segment| segment.total_size).sum();
        assert_eq!(reserved, counter(&counters, "reserved_bytes.all.current"), "{name}");
        let sum = |state: &[BlockState]| -> u64 {
            let blocks = snapshot.segments.iter().flat_map(|segment| snapshot.blocks_of(segment));
            blocks.filter(|block| state.contains(&block.state)).map(|block| block.size).sum()
        };
        let active = sum(&[BlockState::Allocated, BlockState::PendingFree]);
        assert_eq!(active, counter(&counters, "active_bytes.all.current"), "{name}");
        assert_eq!(
            sum(&[BlockState::Allocated]),
            counter(&counters, "allocated_bytes.all.current"),
            "{name}"
        );
        for segment in &snapshot.segments {
            let blocks: u64 = snapshot.blocks_of(segment).iter().map(|block| block.size).sum();
            assert_eq!(blocks, segment.total_size, "{name}: blocks tile their segment");
        }
    }
}

#[test]
fn python_reads_the_same_out_of_every_recording() {
    let code = r#"
import pickle, sys, json
d = pickle.load(sys.stdin.buffer)
for t in d["device_traces"]:
    for e in t:
        frames = ";".join(f"{f['filename']}:{f['line']} {f['name']}" for f in e.get("frames", []))
        print(e["action"], e.get("addr", e.get("device_free")), e["size"], e["stream"], e["time_us"], frames)
"#;
    for name in all() {
        let snapshot = snapshot(&name);
        let mut ours = String::new();
        for event in snapshot.trace(0) {
            use std::fmt::Write as _;
            let frames: Vec<String> = snapshot
                .tables
                .stack(event.stack)
                .map(|id| {
                    let frame = snapshot.tables.frame(id);
                    let (file, name) =
                        (snapshot.tables.text(frame.filename), snapshot.tables.text(frame.name));
                    format!("{file}:{} {name}", frame.line)
                })
                .collect();
            writeln!(
                ours,
                "{} {} {} {} {} {}",
                snapshot.action_text(&event),
                event.device_free.unwrap_or(event.addr),
                event.size,
                snapshot.context(&event).stream,
                event.time_us.unwrap(),
                frames.join(";"),
            )
            .unwrap();
        }
        assert!(String::from_utf8(python(code, &plain(&name))).unwrap() == ours, "{name} differs");
    }
}

#[test]
fn every_protocol_wrapping_and_json_give_the_same_snapshot() {
    for name in ["gpt-oom", "streams-s11-expandable", "graph-s11-default"] {
        let expected = spelled_out(&snapshot(name));
        let bytes = plain(name);
        for protocol in 2..=5 {
            let code = format!(
                "import pickle,sys; o=sys.stdout.buffer; pickle.dump(pickle.load(sys.stdin.buffer), o, {protocol})"
            );
            assert!(
                spelled_out(&read(&python(&code, &bytes)[..]).unwrap()) == expected,
                "{name}, protocol {protocol}"
            );
        }
        let optimized = "import pickle,pickletools,sys; sys.stdout.buffer.write(pickletools.optimize(sys.stdin.buffer.read()))";
        assert!(spelled_out(&read(&python(optimized, &bytes)[..]).unwrap()) == expected, "{name}, optimised");
        let pure =
            "import pickle,sys; pickle._Pickler(sys.stdout.buffer, 2).dump(pickle.load(sys.stdin.buffer))";
        assert!(spelled_out(&read(&python(pure, &bytes)[..]).unwrap()) == expected, "{name}, pure Python");
        let json = "import pickle,sys,json; json.dump(pickle.load(sys.stdin.buffer), sys.stdout)";
        assert!(spelled_out(&read(&python(json, &bytes)[..]).unwrap()) == expected, "{name}, JSON");
        let zstd = ruzstd::encoding::compress_to_vec(&bytes[..], ruzstd::encoding::CompressionLevel::Fastest);
        assert!(spelled_out(&read(&zstd[..]).unwrap()) == expected, "{name}, zstd");
        assert!(spelled_out(&read(&bytes[..]).unwrap()) == expected, "{name}, plain");
    }
}

/// The JIT pickler: protocol 2, no batches, memo numbers given after a container is complete.
#[test]
fn a_pickle_as_the_cpp_service_writes_it() {
    let code = r#"
import pickle, sys, struct
d = pickle.load(sys.stdin.buffer)
out, memo = bytearray(b"\x80\x02"), {}
def put(key):
    memo[key] = len(memo)
    n = memo[key]
    out.extend(b"q" + bytes([n]) if n < 256 else b"r" + struct.pack("<I", n))
def get(key):
    n = memo[key]
    out.extend(b"h" + bytes([n]) if n < 256 else b"j" + struct.pack("<I", n))
def w(v):
    key = v if isinstance(v, str) else id(v)
    if isinstance(v, bool): out.extend(b"\x88" if v else b"\x89")
    elif isinstance(v, int):
        if 0 <= v < 256: out.extend(b"K" + bytes([v]))
        elif -2**31 <= v < 2**31: out.extend(b"J" + struct.pack("<i", v))
        else: out.extend(b"\x8a\x08" + struct.pack("<q", v))
    elif isinstance(v, float): out.extend(b"G" + struct.pack(">d", v))
    elif key in memo: get(key)
    elif isinstance(v, str):
        b = v.encode(); out.extend(b"X" + struct.pack("<I", len(b)) + b); put(key)
    elif isinstance(v, tuple):
        for x in v: w(x)
        out.extend(b"\x86"); put(key)
    elif isinstance(v, list):
        out.extend(b"](")
        for x in v: w(x)
        out.extend(b"e"); put(key)
    elif isinstance(v, dict):
        out.extend(b"}(")
        for k, x in v.items(): w(k); w(x)
        out.extend(b"u"); put(key)
    else: raise TypeError(v)
w(d)
out.extend(b".")
assert pickle.loads(bytes(out)) == d
sys.stdout.buffer.write(out)
"#;
    for name in ["gpt-train", "kvcache-s11-oomretry"] {
        let theirs = read(&python(code, &plain(name))[..]).unwrap();
        assert!(spelled_out(&theirs) == spelled_out(&snapshot(name)), "{name}");
    }
}

#[test]
fn legacy_and_bare_shapes_and_keys_of_the_future() {
    let json = r#"[{"address": 4096, "total_size": 3072, "stream": 0, "segment_type": "large", "device": 1,
        "blocks": [{"size": 1024, "state": "active_allocated",
                    "history": [{"addr": 4096, "real_size": 1000, "frames": [{"name": "f", "filename": "a.py", "line": 3}]}]},
                   {"size": 2048, "state": "inactive"}]}]"#;
    let legacy = read(json.as_bytes()).unwrap();
    let blocks = legacy.blocks_of(&legacy.segments[0]);
    assert_eq!((blocks[0].address, blocks[1].address), (4096, 5120));
    assert_eq!(blocks[0].requested, 1000);
    assert_eq!(legacy.tables.stack(blocks[0].stack).len(), 1);
    assert_eq!(legacy.device_count(), 2);

    let json = r#"{"segments": [], "device_traces": [[], [
        {"action": "teleport", "addr": 1, "size": 2, "stream": 3, "colour": {"deep": [1, 2.5, null]}, "pool_id": [0, 7],
         "user_metadata": {"step": 4}}, {"action": "alloc", "addr": 18446744073709551615, "size": 9000000000, "stream": -1}]],
        "allocator_settings": {"expandable_segments": true}, "from_the_future": [true]}"#;
    let future = read(json.as_bytes()).unwrap();
    assert_eq!((future.event_count(0), future.event_count(1)), (0, 2));
    let event = future.event(1, 0).unwrap();
    assert_eq!((event.action, future.action_text(&event)), (Action::Other, "teleport"));
    let context = future.context(&event);
    assert_eq!(context.pool, Some((0, 7)));
    assert_eq!(future.tables.text(context.extra), r#"{"colour":{"deep":[1,2.5,null]}}"#);
    assert_eq!(future.tables.text(context.user_metadata), r#"{"step":4}"#);
    let alloc = future.event(1, 1).unwrap();
    assert_eq!((alloc.addr, alloc.size, alloc.time_us), (u64::MAX, 9_000_000_000, None));
    assert_eq!(future.extra["from_the_future"], serde_json::json!([true]));
    assert_eq!(future.settings["expandable_segments"], serde_json::json!(true));
}
