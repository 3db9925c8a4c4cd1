//! Real programs under the hooks, and a plain reader of what they leave: every record of every chunk, nothing clever.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "each test program uses its part; a panic is the report"
)]

pub mod stand_in;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use stormlog_capture::layout::{
    DIRECTORY, LIVE_MAGIC, SLOT_HEADER, SLOT_MAGIC, SLOT_SIZE, SLOTS, header, slot, slot_state,
};
use stormlog_capture::record::{definition, kind, mark, split_first, unzigzag};

/// The library under test.
pub fn hook() -> PathBuf {
    let executable = std::env::current_exe().unwrap();
    let deps = executable.parent().unwrap();
    let library = deps.join("libstormlog_hook.so");
    assert!(library.exists(), "{} is not there", library.display());
    library
}

/// A directory that goes away with the test.
pub fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/heap").join(name)
}

/// Compiles a C program (or, named `lib….so`, a library) from `tests/programs/heap`.
pub fn compile(directory: &Path, name: &str, from: &str, flags: &[&str]) -> PathBuf {
    let target = directory.join(name);
    let shared: &[&str] = if name.ends_with(".so") { &["-shared", "-fPIC"] } else { &[] };
    let status = Command::new("gcc")
        .args(["-O1", "-g", "-Wall", "-fno-builtin", "-o"])
        .arg(&target)
        .args(shared)
        .arg(source(from))
        .args(flags)
        .args(["-lpthread", "-ldl"])
        .status()
        .unwrap();
    assert!(status.success(), "{from} does not compile");
    target
}

/// A CPython that the hooks know.
pub fn python() -> Option<PathBuf> {
    let script = "import sys; print(sys.executable if sys.version_info >= (3, 11) else '')";
    let found = Command::new("python3").args(["-c", script]).output().ok()?;
    let path = String::from_utf8(found.stdout).ok()?.trim().to_owned();
    (!path.is_empty()).then(|| path.into())
}

/// `command` recorded from its first allocation, with more options than the path (each beginning with `;`).
pub fn preloaded(command: &mut Command, directory: &Path, options: &str) -> Output {
    preloaded_with(command, directory, options, &[])
}

pub fn preloaded_with(command: &mut Command, directory: &Path, options: &str, after: &[&Path]) -> Output {
    prepare(command, directory, options, after);
    command.output().unwrap()
}

pub fn prepare(command: &mut Command, directory: &Path, options: &str, after: &[&Path]) {
    let mut preload = hook().into_os_string();
    for library in after {
        preload.push(" ");
        preload.push(library);
    }
    command
        .env("LD_PRELOAD", preload)
        .env("STORMLOG_HEAP", format!("path={}/heap-%p.bin{options}", directory.display()))
        .env("STORMLOG_HEAP_VERBOSE", "1");
}

/// The live files in a directory, oldest process first.
pub fn captures(directory: &Path) -> Vec<Capture> {
    let mut paths: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "live"))
        .collect();
    paths.sort_by_key(|path| (path.metadata().unwrap().created().ok(), path.clone()));
    paths.iter().map(|path| Capture::read(path)).collect()
}

/// The only live file there.
pub fn capture(directory: &Path) -> Capture {
    let mut all = captures(directory);
    assert_eq!(all.len(), 1, "one capture");
    all.remove(0)
}

#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub kind: u8,
    pub address: u64,
    pub bytes: u64,
    pub python: u32,
    pub native: u32,
    pub microseconds: u64,
    pub thread: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    Python { parent: u32, code: u64, instruction: u64 },
    Native { parent: u32, address: u64 },
    Truncated { parent: u32 },
    Mark { parent: u32, what: u64 },
}

pub struct Capture {
    pub path: PathBuf,
    pub process: u32,
    pub state: u32,
    pub ended: bool,
    pub lost: u64,
    pub flags: u32,
    pub metadata: String,
    pub slots: u32,
    /// Slots that a thread holds.
    pub taken: usize,
    /// By stream, in order.
    pub streams: BTreeMap<u32, Vec<Event>>,
    pub nodes: BTreeMap<(u32, u32), Node>,
    pub definitions: Vec<(u64, u64, Vec<u8>)>,
    /// Of each definition: its stream, its microsecond, and how many events of the stream are before it.
    pub places: Vec<(u32, u64, usize)>,
}

impl Capture {
    pub fn read(path: &Path) -> Self {
        let file = std::fs::read(path).unwrap();
        let u32_at = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        let u64_at = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
        assert_eq!(file[..8], LIVE_MAGIC);
        let metadata_length = u32_at(header::METADATA_LEN) as usize;
        let mut capture = Self {
            path: path.to_owned(),
            process: u32_at(header::PID),
            state: u32_at(header::STATE),
            ended: u64_at(header::END_MONOTONIC_NS) != 0,
            lost: u64_at(header::LOST_EVENTS),
            flags: u32_at(header::FLAGS),
            metadata: String::from_utf8(file[header::METADATA..header::METADATA + metadata_length].to_vec())
                .unwrap(),
            slots: u32_at(header::SLOT_COUNT),
            taken: 0,
            streams: BTreeMap::new(),
            nodes: BTreeMap::new(),
            definitions: Vec::new(),
            places: Vec::new(),
        };
        let mut chunks = BTreeMap::new();
        for index in 0..capture.slots as usize {
            let at = SLOTS + index * SLOT_SIZE;
            capture.taken += usize::from(file[DIRECTORY + index] == slot_state::TAKEN);
            if file[DIRECTORY + index] == slot_state::FREE || u32_at(at + slot::MAGIC) != SLOT_MAGIC {
                continue;
            }
            let known = chunks.insert((u32_at(at + slot::STREAM), u64_at(at + slot::SEQUENCE)), at);
            assert!(known.is_none(), "each chunk once");
        }
        let mut sequences: BTreeMap<u32, u64> = BTreeMap::new();
        for ((stream, sequence), at) in chunks {
            let expected = sequences.entry(stream).or_default();
            assert_eq!(sequence, *expected, "no chunk of stream {stream} is missing");
            *expected += 1;
            let length = u64_at(at + slot::COMMITTED) as usize;
            let records = &file[at + SLOT_HEADER..at + SLOT_HEADER + length];
            capture.chunk(stream, u64_at(at + slot::THREAD), u32_at(at + slot::FIRST_NODE), records);
        }
        capture
    }

    fn chunk(&mut self, stream: u32, thread: u64, first_node: u32, mut bytes: &[u8]) {
        let (mut address, mut python, mut native, mut native_address, mut time) =
            (0_u64, 0_u32, 0_u32, 0_u64, 0);
        let mut next_node = first_node;
        if first_node > 1 {
            assert!(self.nodes.contains_key(&(stream, first_node - 1)), "nodes run on");
        }
        let mut parts: BTreeMap<(u64, u64), Vec<u8>> = BTreeMap::new();
        while !bytes.is_empty() {
            let (record, rest) = split_first(bytes).expect("a whole record");
            bytes = rest;
            let difference = unzigzag(record.a);
            let mut event = Event {
                kind: record.kind,
                address: 0,
                bytes: record.b,
                python: 0,
                native: 0,
                microseconds: time,
                thread,
            };
            let has_nodes = record.kind <= kind::LAST_ALLOCATION
                || matches!(record.kind, kind::FAILED | kind::DEVICE_ALLOCATION);
            if has_nodes {
                python = python.wrapping_add(unzigzag(u64::from(record.c)) as u32);
                native = native.wrapping_add(unzigzag(u64::from(record.d)) as u32);
                (event.python, event.native) = (python, native);
                for node in [python, native] {
                    assert!(node < next_node, "node {node} is defined before it is used");
                }
            }
            match record.kind {
                1..=kind::LAST_ALLOCATION
                | kind::FREE..=kind::REALLOC_UNDO
                | kind::DEVICE_ALLOCATION
                | kind::DEVICE_FREE => {
                    address = if record.flag {
                        record.a
                    } else {
                        (address >> 3).wrapping_add(difference as u64) << 3
                    };
                    event.address = address;
                }
                kind::FAILED => event.address = record.a,
                kind::TIME => {
                    time += record.a;
                    continue;
                }
                kind::NODE_PYTHON | kind::NODE_NATIVE | kind::NODE_TRUNCATED | kind::NODE_MARK => {
                    let parent = next_node - record.c;
                    let node = match record.kind {
                        kind::NODE_PYTHON => Node::Python { parent, code: record.a, instruction: record.b },
                        kind::NODE_NATIVE => {
                            native_address = native_address.wrapping_add(difference as u64);
                            Node::Native { parent, address: native_address }
                        }
                        kind::NODE_MARK => Node::Mark { parent, what: record.a },
                        _ => Node::Truncated { parent },
                    };
                    assert!(self.nodes.insert((stream, next_node), node).is_none(), "a node is defined once");
                    next_node += 1;
                    continue;
                }
                kind::DEFINITION => {
                    let (payload, rest) = bytes.split_at(record.c as usize);
                    bytes = rest;
                    let whole = parts.entry((record.a, record.b)).or_default();
                    whole.extend(payload);
                    if record.d == 0 {
                        let whole = parts.remove(&(record.a, record.b)).unwrap();
                        self.definitions.push((record.a, record.b, whole));
                        self.places.push((stream, time, self.streams.get(&stream).map_or(0, Vec::len)));
                    }
                    continue;
                }
                other => panic!("kind {other}"),
            }
            self.streams.entry(stream).or_default().push(event);
        }
    }

    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.streams.values().flatten()
    }

    pub fn allocations(&self) -> impl Iterator<Item = &Event> {
        self.events().filter(|event| event.kind <= kind::LAST_ALLOCATION)
    }

    /// The allocations of this many bytes.
    pub fn of_size(&self, bytes: u64) -> Vec<&Event> {
        self.allocations().filter(|event| event.bytes == bytes).collect()
    }

    pub fn names(&self) -> Vec<String> {
        self.definitions
            .iter()
            .filter(|(sort, _, _)| *sort == definition::THREAD_NAME)
            .map(|(_, _, name)| String::from_utf8(name.clone()).unwrap())
            .collect()
    }

    /// (allocations, bytes, frees) between the two marked requests: what `counting.c` counts. Streams of other threads count whole.
    pub fn between_marks(&self) -> (u64, u64, u64) {
        let mut total = (0, 0, 0);
        for events in self.streams.values() {
            let begin = events.iter().position(|event| event.bytes == 7_777_001).map_or(0, |at| at + 1);
            let end = events.iter().position(|event| event.bytes == 7_777_002).unwrap_or(events.len());
            for event in &events[begin..end] {
                match event.kind {
                    kind::FREE | kind::REALLOC_TAKE => total.2 += 1,
                    kind::REALLOC_UNDO => total.2 -= 1,
                    kind::MMAP | kind::MREMAP | kind::BRK => {}
                    1..=kind::LAST_ALLOCATION => {
                        total.0 += 1;
                        total.1 += event.bytes;
                    }
                    _ => {}
                }
            }
        }
        total
    }

    /// Names of the Python functions of a stack, innermost first.
    pub fn python_stack(&self, stream: u32, mut node: u32) -> Vec<String> {
        let mut names = Vec::new();
        loop {
            node = match self.nodes.get(&(stream, node)) {
                Some(Node::Python { parent, code, .. }) => {
                    names.push(self.code_name(*code));
                    *parent
                }
                Some(Node::Mark { parent, what }) => {
                    names.push(if *what == mark::BACKWARD { "<backward>" } else { "<ambiguous>" }.to_owned());
                    *parent
                }
                _ => return names,
            }
        }
    }

    pub fn code_name(&self, id: u64) -> String {
        let payload =
            self.definitions.iter().find(|(sort, known, _)| *sort == definition::CODE && *known == id);
        let payload = &payload.expect("the code object is defined").2;
        let length = u32::from_le_bytes(payload[4..8].try_into().unwrap()) as usize;
        assert_eq!(payload[8], 1, "names here are plain");
        String::from_utf8(payload[9..9 + length].to_vec()).unwrap()
    }

    /// Modules of the capture: start, end, path.
    pub fn modules(&self) -> Vec<(u64, u64, String)> {
        let modules = self.definitions.iter().filter(|(sort, _, _)| *sort == definition::MODULE);
        modules
            .map(|(_, _, payload)| {
                let number = |at: usize| u64::from_le_bytes(payload[at..at + 8].try_into().unwrap());
                let path = 21 + usize::from(payload[20]);
                (number(4), number(12), String::from_utf8(payload[path..].to_vec()).unwrap())
            })
            .collect()
    }

    /// Return addresses of a native stack of stream 0, innermost first.
    pub fn native_stack(&self, mut node: u32) -> Vec<u64> {
        let mut addresses = Vec::new();
        while let Some(Node::Native { parent, address }) = self.nodes.get(&(0, node)) {
            addresses.push(*address);
            node = *parent;
        }
        addresses
    }
}

/// The Pythons the hooks know: those of pyenv, else the one in use.
pub fn pythons() -> Vec<std::path::PathBuf> {
    let versions = std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv/versions"));
    let installed =
        versions.into_iter().flat_map(|versions| std::fs::read_dir(versions).into_iter().flatten().flatten());
    let others = installed.flat_map(|version| {
        ["3.11", "3.12", "3.13", "3.14"].map(|minor| version.path().join(format!("bin/python{minor}")))
    });
    let others: Vec<_> = others.filter(|path| path.exists()).collect();
    if others.is_empty() { python().into_iter().collect() } else { others }
}
