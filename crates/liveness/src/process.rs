//! A process by its number: what tells it from others of that number, and whether it is there.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::Life;

/// A process among those of all namespaces and boots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessId {
    /// Its number in `pid_namespace`.
    pub pid: u32,
    /// Clock ticks between boot and its start.
    pub start_ticks: Option<u64>,
    /// The id the kernel chose at boot.
    pub boot_id: Option<String>,
    /// Inode of the PID namespace that its number is of.
    pub pid_namespace: Option<u64>,
}

impl ProcessId {
    /// This process.
    #[must_use]
    pub fn own() -> Self {
        Self::here(std::process::id(), start_ticks(std::process::id()))
    }

    /// A process of this boot and namespace.
    #[must_use]
    pub fn here(pid: u32, start_ticks: Option<u64>) -> Self {
        ProcessId { pid, start_ticks, boot_id: boot_id(), pid_namespace: pid_namespace() }
    }

    /// `None` where one of the two is not known.
    pub(crate) fn is_of_this_boot(&self) -> Option<bool> {
        Some(self.boot_id.as_ref()? == &boot_id()?)
    }

    /// By number and start time, for a process of this boot.
    pub(crate) fn life_by_number(&self) -> Life {
        match self.pid_namespace {
            Some(namespace) if Some(namespace) == pid_namespace() => exists(self.pid, self.start_ticks),
            Some(_) => exists_below(self.pid, self.start_ticks),
            None => Life::Unknown,
        }
    }
}

/// Whether the process of that number and start time, seen from this namespace, is there. A zombie is not.
#[must_use]
pub fn exists(pid: u32, start_ticks: Option<u64>) -> Life {
    if let Some(stat) = Stat::read(pid) {
        let is_other = start_ticks.is_some_and(|ticks| ticks != stat.start_ticks);
        return if stat.has_exited || is_other { Life::Dead } else { Life::Alive };
    }
    // `/proc` may be missing, or hide the processes of other users; the kernel still knows the number.
    match i32::try_from(pid).ok().and_then(Pid::from_raw).map(test_kill_process) {
        Some(Err(Errno::SRCH)) | None => Life::Dead,
        Some(_) => Life::Unknown,
    }
}

/// Whether a process of another namespace lives, seen from the one that sees all: by its number there and its start time.
fn exists_below(pid: u32, start_ticks: Option<u64>) -> Life {
    // `hidepid` keeps the processes of other users from us.
    let sees_all = is_initial_namespace() && fs::read("/proc/1/status").is_ok();
    let Some(start_ticks) = start_ticks.filter(|_| sees_all) else { return Life::Unknown };
    let Ok(processes) = fs::read_dir("/proc") else { return Life::Unknown };
    let number = |name: &std::ffi::OsStr| name.to_str()?.parse::<u32>().ok();
    for seen in processes.flatten().filter_map(|entry| number(&entry.file_name())) {
        let is_it = Stat::read(seen).is_some_and(|stat| stat.start_ticks == start_ticks && !stat.has_exited);
        if is_it && numbers(seen).contains(&pid) {
            return Life::Alive;
        }
    }
    Life::Dead
}

/// The numbers of a process in the namespaces below this one.
fn numbers(pid: u32) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    line.split_ascii_whitespace().skip(1).filter_map(|number| number.parse().ok()).collect()
}

/// Whether the process of a session lives of which only its number, its machine's name and its beginning were kept, as in files of 0.4.3.
/// `source` is where the session was found.
#[must_use]
pub fn of_session(source: &Path, pid: u32, host: &str, started_ns: u64) -> Life {
    if host != host_name() || crate::is_on_network(source) {
        return Life::Unknown;
    }
    match exists(pid, None) {
        // Its number is of another namespace if this one is younger than the session.
        Life::Dead
            if !is_initial_namespace() && namespace_began_ns().is_none_or(|began| started_ns < began) =>
        {
            Life::Unknown
        }
        life => life,
    }
}

/// The namespace that sees every process of the machine has always had this inode (`PROC_PID_INIT_INO`).
pub const INITIAL_NAMESPACE: u64 = 0xEFFF_FFFC;

fn is_initial_namespace() -> bool {
    pid_namespace() == Some(INITIAL_NAMESPACE)
}

/// When the first process of this namespace started, in nanoseconds since 1970.
fn namespace_began_ns() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let boot: u64 = stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    Some(boot * 1_000_000_000 + start_ticks(1)? * (1_000_000_000 / ticks))
}

/// Clock ticks between boot and the start of a process. `None` when it is gone or cannot be seen.
#[must_use]
pub fn start_ticks(pid: u32) -> Option<u64> {
    Stat::read(pid).map(|stat| stat.start_ticks)
}

/// The id the kernel chose at boot.
#[must_use]
pub fn boot_id() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|id| !id.is_empty())
}

/// The inode of this process's PID namespace.
#[must_use]
pub fn pid_namespace() -> Option<u64> {
    // The namespace of the mounted `/proc` and that of the process differ where one was entered without the other.
    fs::metadata("/proc/self/ns/pid").ok().map(|namespace| namespace.ino())
}

/// The machine's name.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

struct Stat {
    has_exited: bool,
    start_ticks: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The fields of `/proc/PID/stat` that matter. The name in parentheses may itself hold spaces and parentheses.
    fn parse(stat: &str) -> Option<Self> {
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = fields.next()?; // field 3
        let threads: u64 = fields.nth(16)?.parse().ok()?; // field 20
        let start_ticks = fields.nth(1)?.parse().ok()?; // field 22
        // A main thread that ended before the others is a zombie in a living process.
        Some(Stat { has_exited: matches!(state, "Z" | "X") && threads <= 1, start_ticks })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_do_not_shift_the_fields() {
        let stat = Stat::parse("12 (a ) b) Z 1 1 1 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0").unwrap();
        assert!(stat.has_exited);
        assert_eq!(stat.start_ticks, 777);
    }

    #[test]
    fn this_process_lives_and_one_of_its_number_before_it_does_not() {
        let own = ProcessId::own();
        assert_eq!((own.is_of_this_boot(), own.life_by_number()), (Some(true), Life::Alive));
        assert_eq!(exists(own.pid, None), Life::Alive);
        assert_eq!(exists(own.pid, own.start_ticks.map(|ticks| ticks + 1)), Life::Dead);
    }

    #[test]
    fn sessions_are_judged_only_on_their_own_machine_and_in_their_namespace() {
        let here = Path::new("/");
        let gone = {
            let mut child = std::process::Command::new("true").spawn().unwrap();
            child.wait().unwrap();
            child.id()
        };
        let now_ns = u64::MAX;
        assert_eq!(of_session(here, std::process::id(), &host_name(), now_ns), Life::Alive);
        assert_eq!(of_session(here, gone, &host_name(), now_ns), Life::Dead);
        assert_eq!(of_session(here, gone, "another machine", now_ns), Life::Unknown);
        let before = if is_initial_namespace() { Life::Dead } else { Life::Unknown };
        assert_eq!(of_session(here, gone, &host_name(), 0), before);
    }

    #[test]
    fn zombies_are_dead() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let zombie = |pid| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") Z ");
        while !zombie(child.id()) {
            std::thread::yield_now();
        }
        assert_eq!(exists(child.id(), None), Life::Dead);
        child.wait().unwrap();
        assert_eq!(exists(child.id(), None), Life::Dead);
    }
}
