//! The texts of `/proc/PID/stat` and `/proc/PID/status`.
//!
//! The name in `stat` is chosen by the process and may hold blanks and parentheses: fields are counted from its last one.

use serde::Serialize;

use crate::text::{key_size, lines, number, words};

/// What a process is doing, as the kernel's letter says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// R
    Running,
    /// S: waits and can be interrupted.
    Sleeping,
    /// D: waits for the disk or a driver.
    DiskSleep,
    /// T or t: stopped by a signal or a debugger.
    Stopped,
    /// Z: ended, not yet reaped.
    Zombie,
    /// X: being taken apart.
    Dead,
    /// I: an idle kernel thread.
    Idle,
    /// A letter this version does not know.
    Other(char),
}

impl State {
    fn of(letter: u8) -> Self {
        match letter {
            b'R' => State::Running,
            b'S' => State::Sleeping,
            b'D' => State::DiskSleep,
            b'T' | b't' => State::Stopped,
            b'Z' => State::Zombie,
            b'X' | b'x' => State::Dead,
            b'I' => State::Idle,
            other => State::Other(char::from(other)),
        }
    }
}

/// `PF_FORKNOEXEC` of the kernel's task flags.
const FORKED_AND_NOT_EXECUTED: u64 = 0x40;

/// What `/proc/PID/stat` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProcessStat {
    /// The name of the main thread, at most 15 bytes, chosen by the process.
    pub comm: String,
    /// What it is doing.
    pub state: State,
    /// Its parent; 0 for one outside the pid namespace.
    pub ppid: u32,
    /// Its process group; 0 for one outside the pid namespace.
    #[serde(skip)]
    pub process_group: u32,
    /// Forked and not yet become a program of its own: its command line and environment are its parent's.
    #[serde(skip)]
    pub is_copy: bool,
    /// Page faults served from memory.
    pub minor_faults: u64,
    /// Page faults that had to read a disk.
    pub major_faults: u64,
    /// Clock ticks (1/100 s) spent in the program.
    pub user_ticks: u64,
    /// Clock ticks spent in the kernel for it.
    pub system_ticks: u64,
    /// Threads.
    pub threads: u64,
    /// Clock ticks between boot and its start.
    pub start_time: u64,
    /// The wait status of one that [has exited](ProcessStat::has_exited), as its parent will see it. The kernel shows 0
    /// to a reader without permission.
    pub exit_code: Option<i32>,
}

impl ProcessStat {
    /// Whether the process ended. A main thread that ended before the others is a zombie in a living process.
    pub fn has_exited(&self) -> bool {
        matches!(self.state, State::Zombie | State::Dead) && self.threads <= 1
    }
}

/// Reads the text of `stat`.
pub(crate) fn parse_stat(text: &[u8]) -> Option<ProcessStat> {
    let open = text.iter().position(|byte| *byte == b'(')?;
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let comm = String::from_utf8_lossy(text.get(open + 1..close)?).into_owned();
    // `after[n]` is field n + 3 of proc(5).
    let mut after = words(text.get(close + 1..)?);
    let state = State::of(*after.next()?.first()?);
    let ppid = u32::try_from(number(after.next()?)?).ok()?; // 4
    let process_group = number(after.next()?).and_then(|group| u32::try_from(group).ok()).unwrap_or(0); // 5
    let is_copy = number(after.nth(3)?)? & FORKED_AND_NOT_EXECUTED != 0; // 9
    let minor_faults = number(after.next()?)?; // 10
    let major_faults = number(after.nth(1)?)?; // 12
    let user_ticks = number(after.nth(1)?)?; // 14
    let system_ticks = number(after.next()?)?; // 15
    let threads = number(after.nth(4)?)?; // 20
    let start_time = number(after.nth(1)?)?; // 22
    let exit_code = after.nth(29).and_then(number).and_then(|code| i32::try_from(code).ok()); // 52
    Some(ProcessStat {
        comm,
        state,
        ppid,
        process_group,
        is_copy,
        minor_faults,
        major_faults,
        user_ticks,
        system_ticks,
        threads,
        start_time,
        exit_code,
    })
}

/// What `/proc/PID/status` says about memory. All `None` for a process without any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ProcessStatus {
    /// Resident bytes.
    pub rss: Option<u64>,
    /// Resident bytes that belong to no file.
    pub rss_anonymous: Option<u64>,
    /// Resident bytes of files.
    pub rss_file: Option<u64>,
    /// Resident bytes of shared memory and tmpfs.
    pub rss_shared_memory: Option<u64>,
    /// Bytes swapped out (shared memory not counted).
    pub swap: Option<u64>,
    /// Highest resident bytes since the start or the last reset.
    pub peak_rss: Option<u64>,
    /// Bytes of address space.
    pub vms: Option<u64>,
    /// Largest address space so far.
    pub peak_vms: Option<u64>,
    /// Bytes of page tables.
    pub page_tables: Option<u64>,
    /// Bytes locked in memory.
    pub locked: Option<u64>,
    /// Bytes of huge pages from hugetlbfs, not part of the RSS.
    pub huge_pages: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
}

/// Reads the text of `status`.
pub(crate) fn parse_status(text: &[u8]) -> ProcessStatus {
    let mut status = ProcessStatus::default();
    for line in lines(text) {
        // The first line holds a name of the process's own choosing; it cannot hold a newline.
        let Some((key, value)) = key_size(line) else { continue };
        let slot = match key {
            b"VmRSS" => &mut status.rss,
            b"RssAnon" => &mut status.rss_anonymous,
            b"RssFile" => &mut status.rss_file,
            b"RssShmem" => &mut status.rss_shared_memory,
            b"VmSwap" => &mut status.swap,
            b"VmHWM" => &mut status.peak_rss,
            b"VmSize" => &mut status.vms,
            b"VmPeak" => &mut status.peak_vms,
            b"VmPTE" => &mut status.page_tables,
            b"VmLck" => &mut status.locked,
            b"HugetlbPages" => &mut status.huge_pages,
            b"Threads" => &mut status.threads,
            _ => continue,
        };
        *slot = Some(value);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let text = b"12 (a ) R 1 (b) Z 7 1 1 0 -1 4194560 11 22 33 44 55 66 77 88 20 0 1 0 777 0 0\n";
        let stat = parse_stat(text).unwrap();
        assert_eq!(stat.comm, "a ) R 1 (b");
        assert_eq!((stat.state, stat.ppid), (State::Zombie, 7));
        assert_eq!((stat.minor_faults, stat.major_faults), (11, 33));
        assert_eq!((stat.user_ticks, stat.system_ticks), (55, 66));
        assert_eq!((stat.threads, stat.start_time), (1, 777));
        assert!(stat.has_exited());
        assert_eq!(stat.exit_code, None, "an old kernel's line is shorter");
    }

    #[test]
    fn the_last_field_is_how_it_ended() {
        // Linux 6.18, a `sleep` that was killed.
        let text = b"2112 (sleep) Z 2111 2111 2086 0 -1 4227084 84 0 0 0 0 0 0 0 20 0 1 0 1042 0 0 \
            18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 9\n";
        assert_eq!(parse_stat(text).unwrap().exit_code, Some(9));
    }

    #[test]
    fn a_zombie_has_no_memory_rather_than_none_of_it() {
        let status = parse_status(b"Name:\tVmRSS: 5 kB\nState:\tZ (zombie)\nThreads:\t1\n");
        assert_eq!(status, ProcessStatus { threads: Some(1), ..ProcessStatus::default() });
    }

    proptest! {
        #[test]
        fn no_text_panics(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_stat(&text);
            let _ = parse_status(&text);
        }

        #[test]
        fn no_number_panics(numbers in proptest::collection::vec("-?[0-9]{1,25}", 0..50)) {
            let _ = parse_stat(format!("1 (x) S {}", numbers.join(" ")).as_bytes());
        }
    }
}
