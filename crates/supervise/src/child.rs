//! The program itself: started with everything of ours that is its own — streams unless told otherwise, terminal, process group — and
//! waited for. Signals sent to the supervisor reach it; what the terminal sends reaches both by itself.

use std::ffi::OsString;
use std::process::{Child, Command};
use std::thread;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::iterator::{Handle, SignalsInfo};
use signal_hook::low_level::siginfo::{Cause, Sent};

use crate::error::RunError;
use crate::outcome::Ended;
use crate::supervise::Streams;

/// Signals that are meant for the program. One that is ignored stays so for both: `nohup` and a shell's background jobs mean it.
const FORWARDED: [i32; 6] = [SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGINT, SIGQUIT];

/// Python writes what it prints at once.
const UNBUFFERED: &str = "PYTHONUNBUFFERED";

/// The started program.
pub(crate) struct Program {
    child: Child,
    /// The most it had resident, once it has ended; see [`stormlog_pidfd::peak_of_ended_child`].
    pub(crate) peak_rss: Option<u64>,
    forwarding: Option<(Handle, thread::JoinHandle<()>)>,
}

impl Program {
    /// Starts `command` with some variables changed.
    pub(crate) fn start(
        command: &[OsString],
        env: &[(OsString, OsString)],
        streams: Streams,
    ) -> Result<Self, RunError> {
        let (program, arguments) = command.split_first().ok_or(RunError::NoCommand)?;
        // Before the program exists, so that no signal can end us between its start and our watching.
        let signals = SignalsInfo::<WithOrigin>::new(handled());
        let mut starting = Command::new(program);
        starting.args(arguments).envs(env.iter().map(|(name, value)| (name, value)));
        if let Some(input) = streams.input {
            starting.stdin(input);
        }
        if let Some(error) = streams.error {
            starting.stderr(error);
        }
        if let Some(output) = streams.output {
            starting.stdout(output);
            // On a terminal a line is written when it is complete; in a file it would be lost with a program that is killed.
            if std::env::var_os(UNBUFFERED).is_none() {
                starting.env(UNBUFFERED, "1");
            }
        }
        let started = starting.spawn();
        let child = started.map_err(|source| RunError::Start { program: program.clone(), source })?;
        let pid = child.id();
        let forwarding =
            signals.ok().map(|signals| (signals.handle(), thread::spawn(move || forward(signals, pid))));
        Ok(Program { child, peak_rss: None, forwarding })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended; it is still to be waited for.
    pub(crate) fn has_ended(&self) -> bool {
        let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) else { return true };
        let only_look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // Whoever cannot even look is not to wait for ever.
        !matches!(waitid(WaitId::Pid(pid), only_look), Ok(None))
    }

    /// Waits for the end of the program.
    pub(crate) fn wait(&mut self) -> Ended {
        self.peak_rss = stormlog_pidfd::peak_of_ended_child(self.pid()).ok();
        let status = self.child.wait();
        if let Some((handle, thread)) = self.forwarding.take() {
            handle.close();
            // The thread only forwards signals; there is nothing to learn from how it ended.
            let _ = thread.join();
        }
        status.map_or(Ended::Unknown, Ended::from)
    }
}

/// What is forwarded, and the signal of files that may not grow: ours then lose records, which are counted, and the program has the
/// default action.
fn handled() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let is_ignored = |signal: i32| ignored >> (signal - 1) & 1 == 1;
    FORWARDED.into_iter().chain([SIGXFSZ]).filter(|signal| !is_ignored(*signal)).collect()
}

fn forward(mut signals: SignalsInfo<WithOrigin>, pid: u32) {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    for origin in &mut signals {
        if origin.signal == SIGXFSZ {
            continue;
        }
        // Ctrl-C and Ctrl-\ come from the terminal to the whole group: the program has them already.
        let from_terminal = !matches!(origin.cause, Cause::Sent(Sent::User | Sent::TKill | Sent::Queue));
        let is_key = origin.signal == SIGINT || origin.signal == SIGQUIT;
        if is_key && from_terminal {
            continue;
        }
        if let Some(signal) = Signal::from_named_raw(origin.signal) {
            // It may have ended a moment ago.
            let _ = kill_process(pid, signal);
        }
    }
}
