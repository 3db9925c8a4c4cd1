//! A process of our own in the program's group that does nothing but notice signals: what reaches it too was sent to the group.
//!
//! It is this executable again, with every signal blocked from its first instruction, and reports each one it takes. It holds none of the
//! caller's descriptors, and is killed when the supervisor is gone. Its command line contains the program's, and not ours: a sender that
//! chooses processes by it (`pkill -f train.py`) chooses the program and the witness together, and `pkill stormlog` the supervisor alone.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::time::{ClockId, clock_gettime};
use stormlog_pidfd::signals::{FROM_THE_KERNEL, Received, SignalSet};
use stormlog_pidfd::start::{Start, is_own_executable};

/// The first word of the command line that [`stand_by`] answers to.
pub const WITNESS: &str = "witness";
const NAME: &str = "signal-witness";
/// Bytes of a report.
const REPORT: usize = 20;
/// Signals from here on queue: each one sent is one received.
const FIRST_QUEUED: i32 = 32;

/// A signal that the witness took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WitnessedSignal {
    signal: i32,
    code: i32,
    sender: i32,
    at_ns: u64,
}

impl WitnessedSignal {
    fn to_bytes(self) -> [u8; REPORT] {
        let mut bytes = [0; REPORT];
        bytes[..4].copy_from_slice(&self.signal.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.code.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.sender.to_ne_bytes());
        bytes[12..].copy_from_slice(&self.at_ns.to_ne_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<WitnessedSignal> {
        let number = |at: usize| Some(i32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let at_ns = u64::from_ne_bytes(bytes.get(12..REPORT)?.try_into().ok()?);
        Some(WitnessedSignal { signal: number(0)?, code: number(4)?, sender: number(8)?, at_ns })
    }
}

/// The witness as the supervisor sees it.
pub(crate) struct Witness {
    process: Child,
    reports: PipeReader,
    seen: Vec<WitnessedSignal>,
}

impl Witness {
    /// Starts one; all signals must be blocked by now. `None` where this is not an executable of ours, or no process can be started:
    /// signals are then judged by their kind.
    pub(crate) fn start(program: &[OsString]) -> Option<Witness> {
        if !is_own_executable() {
            return None;
        }
        let (reports, reporting) = io::pipe().ok()?;
        fcntl_setfl(&reports, OFlags::NONBLOCK).ok()?;
        let mut starting = Command::new("/proc/self/exe");
        starting.arg0(NAME).arg(WITNESS).arg("--").args(program).current_dir("/");
        starting.stdin(Stdio::null()).stdout(reporting).stderr(Stdio::null());
        Start { die_with_parent: true, only_streams: true, ..Start::default() }.apply(&mut starting);
        Some(Witness { process: starting.spawn().ok()?, reports, seen: Vec::new() })
    }

    /// Reads what it has reported, and forgets what is older than `memory`.
    pub(super) fn hear(&mut self, memory: Duration) {
        let mut bytes = [0; REPORT * 64];
        // A report is written whole, and the pipe holds whole ones only.
        while let Ok(count @ 1..) = self.reports.read(&mut bytes) {
            self.seen.extend(bytes[..count].chunks_exact(REPORT).filter_map(WitnessedSignal::from_bytes));
        }
        let oldest = now_ns().saturating_sub(u64::try_from(memory.as_nanos()).unwrap_or(u64::MAX));
        self.seen.retain(|seen| seen.at_ns >= oldest);
    }

    /// Whether a signal that arrived at `at_ns` reached it too, give or take `grace`.
    ///
    /// A sender that signals us and then the group (`timeout` does) means one signal, which the program has: what it sent around the
    /// report of a standard signal, which does not queue, counts as one. A script that signals process after process may be several
    /// senders; their reports count once each.
    pub(super) fn has_seen(&mut self, received: &Received, at_ns: u64, grace: Duration) -> bool {
        let (signal, sender) = (received.signal, received.sender());
        let grace = u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX);
        let is_kernels = |code: i32| code == FROM_THE_KERNEL;
        let is_same = |seen: &WitnessedSignal| {
            seen.signal == signal
                && is_kernels(seen.code) == is_kernels(received.code())
                && seen.at_ns.abs_diff(at_ns) <= grace
        };
        let of_sender = self.seen.iter().position(|seen| is_same(seen) && seen.sender == sender);
        if of_sender.is_some() && signal < FIRST_QUEUED {
            return true;
        }
        let found = of_sender.or_else(|| self.seen.iter().position(is_same));
        found.map(|index| self.seen.swap_remove(index)).is_some()
    }

    /// Whether the signal waits for the witness to be given a processor.
    pub(super) fn is_pending(&self, signal: i32) -> bool {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap_or_default();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
        let mask = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        mask >> (signal - 1) & 1 == 1
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // It may have been killed with the group.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the witness does, from its start to its end by SIGKILL: takes signals and reports them on standard output.
pub fn stand_by() -> io::Result<()> {
    let all = SignalSet::all_but(&[]);
    all.block()?;
    // Where it cannot be named, it is still identified by its command line.
    let _ = rustix::thread::set_name(c"signal-witness");
    // The library's standard output would split a record at a byte that is a line feed.
    let mut reporting = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    loop {
        let Some(received) = all.take(Duration::from_secs(3600))? else { continue };
        let (signal, code, sender) = (received.signal, received.code(), received.sender());
        let seen = WitnessedSignal { signal, code, sender, at_ns: now_ns() };
        reporting.write_all(&seen.to_bytes())?;
    }
}

/// The clock both sides read.
pub(super) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_the_pipe() {
        let seen = WitnessedSignal { signal: 15, code: -1, sender: 4_194_303, at_ns: u64::MAX - 1 };
        assert_eq!(WitnessedSignal::from_bytes(&seen.to_bytes()), Some(seen));
        assert_eq!(WitnessedSignal::from_bytes(&[0; REPORT - 1]), None);
    }
}
