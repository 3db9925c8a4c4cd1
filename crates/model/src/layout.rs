//! The names of everything in a run directory. Every crate that writes or reads a part of one takes its name from here, through
//! `stormlog-catalog` where it can: the crates below that one (`store`, `heap`, `supervise`'s injected script) need single names too.
//!
//! ```text
//! stormlog-runs/
//!   2026-11-15T10-22-31Z-train-4f2a/     a run, by its run.json
//!     run.json                           what was started, when, and how it ended
//!     output.log                         what the program printed, under `run --live`
//!     .locks/supervisor, .locks/PID-START  held while that process lives
//!     ends.log                           which process sent a signal to which, and which exited in order, while the run lives
//!     exceptions/PID-N.json              what Python processes reported before they ended
//!     retained-PID.json                  what kept the memory of a Python process, by its own look at itself
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
/// The directory of runs that `stormlog run` makes where it is started.
pub const RUNS_DIRECTORY: &str = "stormlog-runs";
/// The variable that names another one.
pub const RUNS_VARIABLE: &str = "STORMLOG_DIR";
/// The variable by which every process of a run knows the run's directory.
pub const RUN_VARIABLE: &str = "STORMLOG_RUN_DIR";
/// Where trackers of a program put their bundles, unless it chooses another place.
pub const DUMPS_DIRECTORY: &str = "oom_dumps";

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
