//! Where a signal comes from: what another process sent, what a terminal sent, what the kernel raised for the supervisor itself.

use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU, SIGWINCH};
use stormlog_pidfd::signals::{FROM_THE_KERNEL, QUEUED, Received, SENT, TO_A_THREAD};

/// Signals that a terminal sends, to the group in front of it or to the leader of its session.
const OF_A_TERMINAL: [i32; 8] = [SIGHUP, SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT, SIGWINCH];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Another process.
    Process,
    /// The terminal.
    Terminal,
    /// The supervisor: its own limits, timers and children. Never passed on.
    Own,
}

impl Origin {
    pub(super) fn of(received: &Received) -> Origin {
        let own = rustix::process::getpid().as_raw_pid();
        origin(received.signal, received.code(), received.sender(), own)
    }
}

fn origin(signal: i32, code: i32, sender: i32, own: i32) -> Origin {
    match code {
        // The kernel reports a limit that was met (SIGXFSZ) as sent by the process itself.
        SENT | QUEUED | TO_A_THREAD if sender != own => Origin::Process,
        FROM_THE_KERNEL if OF_A_TERMINAL.contains(&signal) => Origin::Terminal,
        _ => Origin::Own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use signal_hook::consts::{SIGALRM, SIGCHLD, SIGTERM, SIGXCPU, SIGXFSZ};

    const OWN: i32 = 700;

    #[test]
    fn signals_of_other_processes_are_distinguished_from_our_own() {
        assert_eq!(origin(SIGTERM, SENT, 12, OWN), Origin::Process);
        assert_eq!(origin(SIGTERM, SENT, 0, OWN), Origin::Process, "from outside of the PID namespace");
        assert_eq!(origin(40, QUEUED, 12, OWN), Origin::Process);
        assert_eq!(origin(SIGXCPU, SENT, 12, OWN), Origin::Process);
        assert_eq!(origin(SIGXCPU, FROM_THE_KERNEL, 0, OWN), Origin::Own);
        assert_eq!(origin(SIGXFSZ, SENT, OWN, OWN), Origin::Own);
        assert_eq!(origin(SIGALRM, FROM_THE_KERNEL, 0, OWN), Origin::Own);
    }

    #[test]
    fn the_terminal_is_not_a_process_and_a_childs_end_is_ours() {
        assert_eq!(origin(SIGINT, FROM_THE_KERNEL, 0, OWN), Origin::Terminal);
        assert_eq!(origin(SIGHUP, FROM_THE_KERNEL, 0, OWN), Origin::Terminal);
        let exited = 1;
        assert_eq!(origin(SIGCHLD, exited, 0, OWN), Origin::Own);
        assert_eq!(origin(SIGCHLD, SENT, 12, OWN), Origin::Process);
    }
}
