//! The names of everything in a run directory. Every crate that writes or reads a part of one takes its name from here, through
//! `stormlog-catalog` where it can: the crates below that one (`store`, `heap`, `supervise`'s injected script) need single names too.
//!
//! ```text
//! stormlog-runs/
//!   2026-11-15T10-22-31Z-train-4f2a/     a run, by its run.json
//!     run.json                           what was started, when, and how it ended
//!     output.log                         what the program printed, under `run --live`
//!     .locks/supervisor, .locks/PID-START  held while that process lives
//!     .shipping.json, .shipping.lock     how far it is shipped elsewhere, and by which process
//!     .shipment.json                     in a copy that was shipped here: what of it is there
//!     ends.log                           which process sent a signal to which, and which exited in order, while the run lives
//!     exceptions/PID-N.json              what Python processes reported before they ended
//!     retained-PID.json                  what kept the memory of a Python process, by its own look at itself
//!     requests/PID-ID.json               what a process is asked to do, until it takes it; PID-ID.answer.json what came of it
//!     requests/PID.listener.json         that a process takes requests itself
//!     snapshots/pid77-ID/snapshot.json   the memory of a process at a moment that was requested
//!     heap/PID.bin[.N]                   captures of processes that have not ended
//!     rank0-pid77/                       a process, seen from outside
//!       session.json, events.ring, log/    its session and its samples
//!       heap.bin, heap-2.bin               its captures, the last program it became first
//!       memory_map.json                    the last look at its memory, until it has ended
//!       oom_dump_…/                        the evidence of its death
//!     rank0-pid77-cuda0/                 the same process, seen from inside, one directory a device
//! ```
//!
//! Pure text: must never look at a file system.

/// The file that makes a directory a run.
pub const RUN_FILE: &str = "run.json";
/// The file that makes a directory a session: whose recording it is, and in which state.
pub const SESSION_FILE: &str = "session.json";
/// The last events of a session.
pub const RING_FILE: &str = "events.ring";
/// The directory of a session's whole history.
pub const LOG_DIRECTORY: &str = "log";
/// The capture of the last program that a process was, in its directory.
pub const CAPTURE_FILE: &str = "heap.bin";
/// Where processes write captures; a process does not know its session directory.
pub const CAPTURES_DIRECTORY: &str = "heap";
/// Exceptions that processes reported before they ended.
pub const EXCEPTIONS_DIRECTORY: &str = "exceptions";
/// How processes ended, as far as only they know it: a line for each signal that one sent to end another, for each Python process that exited in
/// order, and for requests that got no memory. It is there while the run lives; how each process ended is in [`RUN_FILE`] then.
pub const ENDS_FILE: &str = "ends.log";
/// The first word of a line about a signal: sender, receiver (negative for a group, 0 for the sender's own), signal, nanoseconds since 1970.
pub const ENDS_OF_A_SIGNAL: &str = "signal";
/// The first word of a line about an exit without an uncaught exception: process, nanoseconds since 1970.
pub const ENDS_OF_AN_EXIT: &str = "exit";
/// The first word of a line about a request that got no memory, at most one a second of a process: process, memory (0 for the host, 1 for a device),
/// bytes, nanoseconds since 1970.
pub const ENDS_OF_A_FAILED_REQUEST: &str = "failed";
/// Lines are written up to this size; those about failed requests up to half of it.
pub const ENDS_MAX_BYTES: u64 = 1 << 20;
/// Locks that show which processes are alive.
pub const LOCKS_DIRECTORY: &str = ".locks";
/// The supervisor's lock.
pub const SUPERVISOR_LOCK: &str = "supervisor";
/// What the program printed, where its screen was not its own.
pub const OUTPUT_FILE: &str = "output.log";
/// The last look at what a process's memory is made of, for the bundle of a run whose supervisor was killed.
pub const MEMORY_MAP_FILE: &str = "memory_map.json";
/// PyTorch's allocator with its history, in the bundle of a CUDA out-of-memory error.
pub const SNAPSHOT_FILE: &str = "cuda_allocator_snapshot.pickle";
/// Where processes of a run are asked for something, and answer.
pub const REQUESTS_DIRECTORY: &str = "requests";
/// Where processes put the snapshots that they were requested, one directory each.
pub const SNAPSHOTS_DIRECTORY: &str = "snapshots";
/// The memory of a process at one moment: what holds it, by component and by line.
pub const MEMORY_SNAPSHOT_FILE: &str = "snapshot.json";
/// In the directory of a JAX program's first device: its devices and its compiled programs.
pub const JAX_FILE: &str = "jax.json";
/// Beside it: the memory profile by line at the highest use, and at the end.
pub const JAX_PEAK_PROFILE: &str = "jax-memory-peak.pb.gz";
/// See [`JAX_PEAK_PROFILE`].
pub const JAX_END_PROFILE: &str = "jax-memory-end.pb.gz";
/// The directory of runs that `stormlog run` makes where it is started.
pub const RUNS_DIRECTORY: &str = "stormlog-runs";
/// The variable that names another one.
pub const RUNS_VARIABLE: &str = "STORMLOG_DIR";
/// The variable by which every process of a run knows the run's directory.
pub const RUN_VARIABLE: &str = "STORMLOG_RUN_DIR";
/// Where trackers of a program put their bundles, unless it chooses another place.
pub const DUMPS_DIRECTORY: &str = "oom_dumps";

/// In a copy of a run: what of it is there. A run directory with this file was recorded elsewhere.
pub const SHIPMENT_FILE: &str = ".shipment.json";
/// In a run that is shipped: how far that is.
pub const SHIPPING_FILE: &str = ".shipping.json";
/// Held by the process that ships a run.
pub const SHIPPING_LOCK: &str = ".shipping.lock";

/// What a session recorded, by the name of its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Viewpoint {
    /// The process, as its supervisor sees it.
    Outside,
    /// The process's own host memory, as it sees it itself.
    Inside,
    /// One of its CUDA devices.
    Cuda(u32),
}

/// The name of a session's directory in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionName {
    /// The rank in its job.
    pub rank: u64,
    /// The process.
    pub pid: u32,
    /// When it started, where its number was used before in the run.
    pub start_ticks: Option<u64>,
    /// Where it was recorded from.
    pub viewpoint: Viewpoint,
}

impl SessionName {
    /// What a directory's name says; `None` for another one. A tracker that records again puts a number behind it (`…-cuda0-2`).
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (rank, rest) = name.strip_prefix("rank")?.split_once("-pid")?;
        let (pid, viewpoint) = rest.split_once('-').map_or((rest, None), |(pid, rest)| (pid, Some(rest)));
        let (pid, start_ticks) = pid.split_once('.').map_or((pid, None), |(pid, start)| (pid, Some(start)));
        let viewpoint = match viewpoint.map(|rest| rest.split('-').next().unwrap_or(rest)) {
            None => Viewpoint::Outside,
            Some("host") => Viewpoint::Inside,
            Some(device) => match device.strip_prefix("cuda") {
                Some(number) => Viewpoint::Cuda(number.parse().ok()?),
                // A second recording from outside.
                None if device.bytes().all(|byte| byte.is_ascii_digit()) => Viewpoint::Outside,
                None => return None,
            },
        };
        let start_ticks = start_ticks.map(str::parse).transpose().ok()?;
        Some(SessionName { rank: rank.parse().ok()?, pid: pid.parse().ok()?, start_ticks, viewpoint })
    }
}

impl std::fmt::Display for SessionName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank{}-pid{}", self.rank, self.pid)?;
        if let Some(start) = self.start_ticks {
            write!(f, ".{start}")?;
        }
        match self.viewpoint {
            Viewpoint::Outside => Ok(()),
            Viewpoint::Inside => f.write_str("-host"),
            Viewpoint::Cuda(device) => write!(f, "-cuda{device}"),
        }
    }
}

/// The name of a process's lock: by number and start time, so that a later process of the same number has another.
#[must_use]
pub fn lock_name(pid: u32, start_ticks: u64) -> String {
    format!("{pid}-{start_ticks}")
}

/// The name of a process's capture in its directory, counted from its last program back.
#[must_use]
pub fn capture_name(index: usize) -> String {
    if index == 0 { CAPTURE_FILE.to_owned() } else { format!("heap-{}.bin", index + 1) }
}

/// The name under which a process begins a capture; the recording library adds a number where one is taken. `pid` may be the library's
/// own placeholder for it.
#[must_use]
pub fn growing_capture_name(pid: &str) -> String {
    format!("{pid}.bin")
}

/// What the name of a process's report of retained memory has before and behind its number.
pub const RETAINED_PREFIX: &str = "retained-";
/// See [`RETAINED_PREFIX`].
pub const RETAINED_SUFFIX: &str = ".json";

/// The name of the file in which a process reports what keeps its memory. The recording library writes it: `pid` may be its placeholder.
#[must_use]
pub fn retained_name(pid: &str) -> String {
    format!("{RETAINED_PREFIX}{pid}{RETAINED_SUFFIX}")
}

/// The process whose report of retained memory has this name; `None` for another file.
#[must_use]
pub fn retained_pid(name: &str) -> Option<u32> {
    name.strip_prefix("retained-")?.strip_suffix(".json")?.parse().ok()
}

/// What the name of an answer has in front of `.json`, and that of a listener.
const ANSWER_SUFFIX: &str = ".answer.json";
const LISTENER_SUFFIX: &str = ".listener.json";

/// The name of a request to a process, in [`REQUESTS_DIRECTORY`].
#[must_use]
pub fn request_name(pid: u32, id: &str) -> String {
    format!("{pid}-{id}.json")
}

/// The process and the number of a request by its name; `None` for another file.
#[must_use]
pub fn request_parts(name: &str) -> Option<(u32, &str)> {
    let (pid, id) = name.strip_suffix(".json")?.split_once('-')?;
    is_request_id(id).then_some((pid.parse().ok()?, id))
}

/// The name of the answer to a request.
#[must_use]
pub fn answer_name(pid: u32, id: &str) -> String {
    format!("{pid}-{id}{ANSWER_SUFFIX}")
}

/// Whether a file is an answer by its name.
#[must_use]
pub fn is_answer(name: &str) -> bool {
    name.strip_suffix(ANSWER_SUFFIX)
        .and_then(|name| name.split_once('-'))
        .is_some_and(|(pid, id)| is_number(pid) && is_request_id(id))
}

/// The name of the file by which a process shows that it takes requests itself.
#[must_use]
pub fn listener_name(pid: u32) -> String {
    format!("{pid}{LISTENER_SUFFIX}")
}

/// The process whose file of that kind has this name; `None` for another file.
#[must_use]
pub fn listener_pid(name: &str) -> Option<u32> {
    name.strip_suffix(LISTENER_SUFFIX)?.parse().ok()
}

/// The name of the directory of a snapshot, in [`SNAPSHOTS_DIRECTORY`].
#[must_use]
pub fn snapshot_name(pid: u32, id: &str) -> String {
    format!("pid{pid}-{id}")
}

/// A number of a request has letters and digits only, so that it can be a part of a file's name.
#[must_use]
pub fn is_request_id(id: &str) -> bool {
    (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Whether a file is a capture by its name alone: `heap.bin` and `heap-2.bin` of a run, `heap-PID.bin` and `stormlog-heap-PID.bin` of the
/// library, each with a number behind it for the programs a process became.
#[must_use]
pub fn is_capture(name: &str) -> bool {
    let name = match name.rsplit_once('.') {
        Some((name, number)) if is_number(number) => name,
        _ => name,
    };
    let name = name.strip_prefix("stormlog-").unwrap_or(name);
    name == CAPTURE_FILE || (name.starts_with("heap-") && name.ends_with(".bin"))
}

/// Whether a file in [`CAPTURES_DIRECTORY`] is a capture: `PID.bin`, and `PID.bin.N`.
#[must_use]
pub fn is_growing_capture(name: &str) -> bool {
    let mut parts = name.splitn(3, '.');
    let is_named = parts.next().is_some_and(is_number) && parts.next() == Some("bin");
    is_named && parts.next().is_none_or(is_number)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    #[test]
    fn session_names_read_back() {
        for (text, rank, start_ticks, viewpoint) in [
            ("rank0-pid77", 0, None, Viewpoint::Outside),
            ("rank0-pid77.1234", 0, Some(1234), Viewpoint::Outside),
            ("rank3-pid77-host", 3, None, Viewpoint::Inside),
            ("rank0-pid77-cuda12", 0, None, Viewpoint::Cuda(12)),
        ] {
            let name = SessionName { rank, pid: 77, start_ticks, viewpoint };
            assert_eq!(SessionName::parse(text), Some(name), "{text}");
            assert_eq!(name.to_string(), text);
        }
        let again = SessionName::parse("rank0-pid77-cuda1-2").unwrap();
        assert_eq!((again.pid, again.viewpoint), (77, Viewpoint::Cuda(1)));
        assert_eq!(SessionName::parse("rank0-pid77-3").unwrap().viewpoint, Viewpoint::Outside);
        for other in
            ["", "rank", "rank0", "rank0-pid", "rank0-pidx", "rankx-pid7", "rank0-pid7-other", "heap"]
        {
            assert_eq!(SessionName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn reports_of_retained_memory_are_known_by_their_names() {
        assert_eq!(retained_pid(&retained_name("77")), Some(77));
        for other in ["retained-.json", "retained-7.json.tmp", "retained-x.json", "run.json"] {
            assert_eq!(retained_pid(other), None, "{other}");
        }
    }

    #[test]
    fn requests_answers_and_listeners_are_distinguished_by_name() {
        let (request, answer, listener) =
            (request_name(77, "ab12"), answer_name(77, "ab12"), listener_name(77));
        assert_eq!(request_parts(&request), Some((77, "ab12")));
        assert!(is_answer(&answer) && !is_answer(&request) && !is_answer(&listener));
        assert_eq!(listener_pid(&listener), Some(77));
        for other in
            [answer.as_str(), &listener, "77-.json", "77-a/b.json", "x-ab.json", ".77-ab12.json.1.2.tmp"]
        {
            assert_eq!(request_parts(other), None, "{other}");
        }
    }

    #[test]
    fn captures_are_known_by_their_names() {
        for name in
            ["heap.bin", "heap-2.bin", "heap-12.bin", "stormlog-heap-12.bin", "heap.bin.1", "heap-12.bin.3"]
        {
            assert!(is_capture(name), "{name}");
        }
        for name in ["heap.bin.old", "heap", "notes.bin", "12.bin", "heap.bin.tmp"] {
            assert!(!is_capture(name), "{name}");
        }
        for (name, is_one) in
            [("12.bin", true), ("12.bin.1", true), ("12.bin.old", false), (".bin", false), ("a.bin", false)]
        {
            assert_eq!(is_growing_capture(name), is_one, "{name}");
        }
        assert_eq!((capture_name(0).as_str(), capture_name(1).as_str()), ("heap.bin", "heap-2.bin"));
        assert!(is_capture(&capture_name(3)) && is_growing_capture(&growing_capture_name("7")));
    }
}
