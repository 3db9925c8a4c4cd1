//! The ways a program can end, under the words scripts match; and the names of signals.
//!
//! Must never grow a word without a note to the readers of `oom show --json`.

use std::fmt;

/// What ended the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// An exception that says a device or an allocator ran out of memory.
    OomException,
    /// Python's `MemoryError`.
    MemoryError,
    /// The kernel killed it because its cgroup reached its limit.
    CgroupOomKill,
    /// The kernel killed it because the machine ran out of memory.
    GlobalOomKill,
    /// SIGKILL from a process, not from the OOM killer.
    SigKill,
    /// Another signal.
    Signal,
    /// It ended by itself.
    Exit,
    /// It is gone, and nothing shows how it ended.
    Unknown,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Cause; 8] = [
        Cause::OomException,
        Cause::MemoryError,
        Cause::CgroupOomKill,
        Cause::GlobalOomKill,
        Cause::SigKill,
        Cause::Signal,
        Cause::Exit,
        Cause::Unknown,
    ];

    /// The word written to files.
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::OomException => "oom_exception",
            Cause::MemoryError => "memory_error",
            Cause::CgroupOomKill => "cgroup_oom_kill",
            Cause::GlobalOomKill => "global_oom_kill",
            Cause::SigKill => "sigkill",
            Cause::Signal => "signal",
            Cause::Exit => "exit",
            Cause::Unknown => "unknown",
        }
    }

    /// The cause of that word.
    pub fn of_word(word: &str) -> Option<Self> {
        Cause::ALL.into_iter().find(|cause| cause.as_str() == word)
    }

    /// Whether memory is what ended it.
    pub fn is_memory(self) -> bool {
        matches!(self, Cause::OomException | Cause::MemoryError | Cause::CgroupOomKill | Cause::GlobalOomKill)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Linux's names, from 1; the numbers are those of x86 and ARM.
const SIGNALS: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// `SIGTERM` for 15; `signal 40` for what has no name.
pub fn signal_name(number: i32) -> String {
    let index = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    match index.and_then(|index| SIGNALS.get(index)) {
        Some(name) => (*name).to_owned(),
        None => format!("signal {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        for cause in Cause::ALL {
            assert_eq!(Cause::of_word(cause.as_str()), Some(cause));
        }
        assert_eq!(Cause::of_word("killed"), None);
    }

    #[test]
    fn signals_have_their_names() {
        assert_eq!(signal_name(9), "SIGKILL");
        assert_eq!(signal_name(7), "SIGBUS");
        assert_eq!(signal_name(31), "SIGSYS");
        for odd in [0, -1, 40, i32::MAX, i32::MIN] {
            assert_eq!(signal_name(odd), format!("signal {odd}"));
        }
    }
}
