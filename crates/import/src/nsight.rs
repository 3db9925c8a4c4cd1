//! Nsight Systems, exported as SQLite (`nsys export --type sqlite`): each block of device and pinned memory as CUPTI saw it come and go, with the CUDA call
//! that asked for it and, where backtraces were recorded, its stack.

use rustc_hash::{FxHashMap, FxHashSet};
use stormlog_model::memory::{Device, Memory, Source};
use stormlog_model::stacks::FrameKind;

use crate::error::{ImportError, Position};
use crate::input::{File, Kept};
use crate::sink::{About, Node, ROOT, Sink, Site, Step};
use crate::sqlite::{Database, SqliteError};
use crate::sqlite_record::Value;

const EVENTS: &str = "CUDA_GPU_MEMORY_USAGE_EVENTS";
const CALLS: [&str; 2] = ["CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER"];
const CHAINS: &str = "CUDA_CALLCHAINS";
const STRINGS: &str = "StringIds";
/// Frames of all stacks together.
const MOST_FRAMES: usize = 4 << 20;
const FRAMES_OF_ONE: usize = 1024;
/// `globalPid` and `globalTid` hold the process above this bit, the thread below.
const PROCESS_BIT: u32 = 24;
const PROCESS_MASK: i64 = 0xFF_FFFF;

/// Whether Nsight Systems wrote a database: by tables that every export has.
pub(crate) fn is_export(database: &Database) -> bool {
    let has = |name: &str| database.table(name).is_some();
    has(STRINGS) && (has("META_DATA_EXPORT") || has("TARGET_INFO_SESSION_START_TIME") || has(EVENTS))
}

/// A block comes or goes.
struct Event {
    start: i64,
    process: i64,
    device: u8,
    address: u64,
    bytes: u64,
    kind: i64,
    is_free: bool,
    call: Option<i64>,
}

/// A call of CUDA.
struct Call {
    name: i64,
    chain: Option<i64>,
    thread: u64,
}

pub(crate) fn read(file: &File<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
    let failed = |error| sqlite_error(file, error);
    let database = Database::open(file.path).map_err(failed)?;
    if !is_export(&database) {
        return Err(other_database(file));
    }
    let none = || {
        file.nothing(
            "without memory events: record with `nsys profile --cuda-memory-usage=true`, then `nsys export --type sqlite`",
        )
    };
    let (mut events, others) = read_events(file, &database)?.ok_or_else(none)?;
    if events.is_empty() {
        return Err(none());
    }
    events.sort_by_key(|event| event.start);
    let process = events[0].process;
    let calls = read_calls(&database, &events, process).map_err(failed)?;
    let chains = read_chains(&database, &calls).map_err(failed)?;
    let strings = read_strings(&database, &calls, &chains).map_err(failed)?;
    let start = events[0].start;
    let began = began_ns(&database).map_err(failed)?;
    let started_ns = began.and_then(|began| u64::try_from(began.saturating_add(start)).ok()).unwrap_or(0);
    let pid = u32::try_from((process >> PROCESS_BIT) & PROCESS_MASK).unwrap_or(0);
    sink.about(About { pid, started_ns, command: Vec::new() });
    let mut stacks =
        Stacks { calls: &calls, chains: &chains, strings: &strings, known: FxHashMap::default() };
    for event in &events {
        sink.at(u64::try_from(event.start.saturating_sub(start)).unwrap_or(0) / 1000);
        let memory = memory_of(event);
        let thread = event.call.and_then(|call| calls.get(&call)).map_or(0, |call| call.thread);
        if event.is_free {
            sink.free(memory, thread, event.address, event.bytes);
        } else {
            let node = stacks.node(event, sink);
            let site = Site { memory, node, thread, thread_name: None };
            sink.allocate(site, event.address, event.bytes);
        }
    }
    sink.note(
        "Nsight Systems records what CUDA handed out while it was profiling: a framework's own allocator is one user of it, and its blocks are not in the file."
            .to_owned(),
    );
    if chains.is_empty() {
        sink.note(
            "Stacks are unknown, only the CUDA call is recorded: record with `nsys profile --cudabacktrace=memory`."
                .to_owned(),
        );
    }
    if others > 0 {
        sink.note(format!("{others} memory events of other processes in the file are not shown."));
    }
    Ok(())
}

/// A database of another program.
pub(crate) fn other_database(file: &File<'_>) -> ImportError {
    file.nothing(
        "without the tables of Nsight Systems, the only ones that are read; export a report with `nsys export --type sqlite`",
    )
}

fn sqlite_error(file: &File<'_>, error: SqliteError) -> ImportError {
    match error {
        SqliteError::Io(source) => ImportError::Io { path: file.path.to_owned(), source },
        SqliteError::Damaged(what, byte) => file.damaged(what, Position::Byte(byte)),
        SqliteError::Compressed => file.nothing("that is compressed; decompress it first"),
        SqliteError::Unfinished => file.nothing(
            "that is still being written: its newest rows are in the -wal or -journal file beside it; wait for the export, or run `sqlite3 FILE 'PRAGMA wal_checkpoint(TRUNCATE)'`",
        ),
    }
}

/// The events of the process that allocated the most, and the number of those of the others. `None` without a table that has them.
fn read_events(file: &File<'_>, database: &Database) -> Result<Option<(Vec<Event>, usize)>, ImportError> {
    const COLUMNS: [&str; 8] = [
        "start",
        "globalPid",
        "deviceId",
        "address",
        "bytes",
        "memKind",
        "memoryOperationType",
        "correlationId",
    ];
    let Some(table) = database.table(EVENTS) else { return Ok(None) };
    if let Some(missing) = COLUMNS[..7].iter().find(|column| table.column(column).is_none()) {
        return Err(file.nothing(format!(
            "of a release with a table {EVENTS} without column {missing}; export it again with Nsight Systems 2022.1 or newer"
        )));
    }
    let mut events = Vec::new();
    let mut allocated: FxHashMap<i64, u64> = FxHashMap::default();
    let mut kept = Kept::default();
    let mut take = |row: &[Value]| {
        let [start, process, device, address, bytes, kind, operation, call] = row else { return true };
        let (Some(start), Some(process), Some(address), Some(bytes)) =
            (start.int(), process.int(), address.int(), bytes.int())
        else {
            return true;
        };
        let is_free = match operation.int() {
            Some(0) => false,
            Some(1) => true,
            _ => return true,
        };
        let bytes = u64::try_from(bytes).unwrap_or(0);
        if !is_free {
            let sum = allocated.entry(process).or_default();
            *sum = sum.saturating_add(bytes);
        }
        let device = device.int().and_then(|device| u8::try_from(device).ok()).unwrap_or(0);
        // An address is a number of 64 bits that SQLite holds with a sign.
        let address = address as u64;
        let (kind, call) = (kind.int().unwrap_or(-1), call.int());
        events.push(Event { start, process, device, address, bytes, kind, is_free, call });
        kept.add(size_of::<Event>());
        !kept.is_full()
    };
    database.rows(table, &COLUMNS, &mut take).map_err(|error| sqlite_error(file, error))?;
    kept.check(file)?;
    let most =
        allocated.iter().max_by_key(|(process, bytes)| (**bytes, -**process)).map(|(process, _)| *process);
    let all = events.len();
    events.retain(|event| Some(event.process) == most);
    let others = all - events.len();
    Ok(Some((events, others)))
}

/// The calls that the events are of.
fn read_calls(
    database: &Database,
    events: &[Event],
    process: i64,
) -> Result<FxHashMap<i64, Call>, SqliteError> {
    let wanted: FxHashSet<i64> = events.iter().filter_map(|event| event.call).collect();
    let mut calls = FxHashMap::default();
    for table in CALLS.iter().filter_map(|name| database.table(name)) {
        let columns = ["correlationId", "nameId", "callchainId", "globalTid"];
        database.rows(table, &columns, &mut |row| {
            let [id, name, chain, thread] = row else { return true };
            let (Some(id), Some(name), Some(thread)) = (id.int(), name.int(), thread.int()) else {
                return true;
            };
            if wanted.contains(&id) && thread >> PROCESS_BIT == process >> PROCESS_BIT {
                let thread = u64::try_from(thread & PROCESS_MASK).unwrap_or(0);
                calls.insert(id, Call { name, chain: chain.int(), thread });
            }
            true
        })?;
    }
    Ok(calls)
}

/// Frames by stack: depth from the inside, name, module.
type Chains = FxHashMap<i64, Vec<(i64, Option<i64>, Option<i64>)>>;

fn read_chains(database: &Database, calls: &FxHashMap<i64, Call>) -> Result<Chains, SqliteError> {
    let mut chains: Chains = calls.values().filter_map(|call| Some((call.chain?, Vec::new()))).collect();
    let mut count = 0;
    if let Some(table) = database.table(CHAINS).filter(|_| !chains.is_empty()) {
        database.rows(table, &["id", "stackDepth", "symbol", "module"], &mut |row| {
            let [id, depth, symbol, module] = row else { return true };
            let frames = id.int().and_then(|id| chains.get_mut(&id));
            if let Some(frames) = frames.filter(|frames| frames.len() < FRAMES_OF_ONE) {
                frames.push((depth.int().unwrap_or(0), symbol.int(), module.int()));
                count += 1;
            }
            count < MOST_FRAMES
        })?;
    }
    chains.retain(|_, frames| !frames.is_empty());
    // The innermost has depth 0.
    chains.values_mut().for_each(|frames| frames.sort_by_key(|frame| std::cmp::Reverse(frame.0)));
    Ok(chains)
}

fn read_strings(
    database: &Database,
    calls: &FxHashMap<i64, Call>,
    chains: &Chains,
) -> Result<FxHashMap<i64, String>, SqliteError> {
    let of_frames = chains.values().flatten().flat_map(|(_, symbol, module)| [*symbol, *module]).flatten();
    let wanted: FxHashSet<i64> = calls.values().map(|call| call.name).chain(of_frames).collect();
    let mut strings = FxHashMap::default();
    if let Some(table) = database.table(STRINGS) {
        database.rows(table, &["id", "value"], &mut |row| {
            if let [id, Value::Text(text)] = row
                && let Some(id) = id.int().filter(|id| wanted.contains(id))
            {
                strings.insert(id, text.clone());
            }
            true
        })?;
    }
    Ok(strings)
}

/// When the profiler began, nanoseconds since 1970.
fn began_ns(database: &Database) -> Result<Option<i64>, SqliteError> {
    let mut began = None;
    if let Some(table) = database.table("TARGET_INFO_SESSION_START_TIME") {
        database.rows(table, &["utcEpochNs"], &mut |row| {
            began = row.first().and_then(Value::int);
            false
        })?;
    }
    Ok(began)
}

/// Kinds of CUPTI: pageable and pinned memory is the host's.
fn memory_of(event: &Event) -> Memory {
    match event.kind {
        0 | 1 => Memory::Host,
        _ => Memory::Device(Device { kind: 1, index: event.device, source: Source::Driver }),
    }
}

/// What a block is, where it is not plain device memory.
fn kind_word(kind: i64) -> Option<&'static str> {
    match kind {
        1 => Some("pinned memory"),
        3 => Some("array"),
        4 => Some("managed memory"),
        5 => Some("static device memory"),
        6 => Some("static managed memory"),
        _ => None,
    }
}

struct Stacks<'a> {
    calls: &'a FxHashMap<i64, Call>,
    chains: &'a Chains,
    strings: &'a FxHashMap<i64, String>,
    /// By stack, call and kind.
    known: FxHashMap<(Option<i64>, Option<i64>, i64), Node>,
}

impl Stacks<'_> {
    fn node(&mut self, event: &Event, sink: &mut dyn Sink) -> Node {
        let call = event.call.and_then(|call| self.calls.get(&call));
        let key = (call.and_then(|call| call.chain), call.map(|call| call.name), event.kind);
        if let Some(node) = self.known.get(&key) {
            return *node;
        }
        let text = |id: &Option<i64>| id.and_then(|id| self.strings.get(&id)).map_or("", String::as_str);
        let mut node = ROOT;
        let mut add = |function: &str, file: &str| {
            let step = Step::Code { kind: crate::frame::kind_of(function, file), function, file, line: 0 };
            node = sink.node(node, step);
        };
        for (_, symbol, module) in key.0.and_then(|chain| self.chains.get(&chain)).into_iter().flatten() {
            add(text(symbol), text(module));
        }
        if let Some(call) = call {
            add(without_version(text(&Some(call.name))), "");
        }
        if let Some(word) = kind_word(event.kind) {
            let step = Step::Code { kind: FrameKind::Native, function: word, file: "", line: 0 };
            node = sink.node(node, step);
        }
        self.known.insert(key, node);
        node
    }
}

/// `cudaMalloc_v3020` is `cudaMalloc` to its caller.
fn without_version(name: &str) -> &str {
    let versioned = name.rsplit_once("_v");
    versioned
        .filter(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit()))
        .map_or(name, |(name, _)| name)
}
