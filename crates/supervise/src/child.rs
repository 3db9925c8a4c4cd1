//! The program itself: started as this process was started — streams unless chosen otherwise, terminal, process group, signals, limits —
//! and waited for. Where no process can be started, this one becomes the program.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread;

use rustix::io::Errno;
use rustix::process::Pid;
use stormlog_pidfd::start::Start;

use crate::error::RunError;
use crate::lineage::Delivered;
use crate::outcome::Ended;
use crate::signals::{Intake, Relay, Terminal, Witness, has_ended};
use crate::supervise::Streams;

/// Python writes what it prints at once.
const UNBUFFERED: &str = "PYTHONUNBUFFERED";

/// What is started.
pub(crate) struct Launch<'a> {
    /// The program and its arguments.
    pub(crate) command: &'a [OsString],
    /// Its limit of address space.
    pub(crate) limit_as: Option<u64>,
    /// Whether it is killed when the supervisor is.
    pub(crate) die_with_supervisor: bool,
}

impl Launch<'_> {
    fn prepare(&self, intake: &Intake) -> Result<Command, RunError> {
        let (program, arguments) = self.command.split_first().ok_or(RunError::NoCommand)?;
        let mut starting = Command::new(program);
        starting.args(arguments);
        let start = Start {
            mask: intake.mask(),
            closed_streams: true,
            die_with_parent: self.die_with_supervisor,
            address_space: self.limit_as,
            ..Start::default()
        };
        start.apply(&mut starting);
        Ok(starting)
    }

    fn failed(&self, source: io::Error) -> RunError {
        RunError::Start { program: self.command.first().cloned().unwrap_or_default(), source }
    }

    /// Turns this process into the program, with nothing of ours. Returns only what hindered it.
    pub(crate) fn replace_us(&self, intake: &Intake) -> RunError {
        match self.prepare(intake) {
            Ok(mut becoming) => {
                intake.keep_for_program();
                self.failed(becoming.exec())
            }
            Err(error) => error,
        }
    }
}

/// The started program.
pub(crate) struct Program {
    child: Child,
    pid: Pid,
    relaying: Relaying,
}

/// Who passes signals on to the program.
enum Relaying {
    /// The thread that waits for its end.
    WhileWaiting(Box<Relay>),
    /// A thread of its own: the one that waits draws a screen meanwhile.
    Thread(io::Result<thread::JoinHandle<Option<Delivered>>>),
}

impl Program {
    /// Starts the program with some variables changed.
    pub(crate) fn start(
        launch: &Launch<'_>,
        env: &[(OsString, OsString)],
        streams: Streams,
        (intake, terminal): (&Intake, Terminal),
        witness: Option<Witness>,
    ) -> Result<Self, RunError> {
        let mut starting = launch.prepare(intake)?;
        starting.envs(env.iter().map(|(name, value)| (name, value)));
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
        let child = starting.spawn().map_err(|source| launch.failed(source))?;
        let pid = Pid::from_child(&child);
        let mut relay = Relay::new(intake, pid, witness);
        let relaying = match terminal {
            Terminal::Programs => Relaying::WhileWaiting(Box::new(relay)),
            Terminal::Shared => {
                let thread = thread::Builder::new().name("stormlog-signals".into());
                Relaying::Thread(thread.spawn(move || relay.until_end()))
            }
        };
        Ok(Program { child, pid, relaying })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended; it is still to be waited for.
    pub(crate) fn has_ended(&self) -> bool {
        has_ended(self.pid)
    }

    /// Waits for the end of the program; signals reach it until then. How it ended, and the most it had resident: see
    /// [`stormlog_pidfd::peak_of_ended_child`].
    /// The last one that reached it through us is the third value.
    pub(crate) fn wait(mut self) -> (Ended, Option<u64>, Option<Delivered>) {
        let delivered = match self.relaying {
            Relaying::WhileWaiting(mut relay) => relay.until_end(),
            Relaying::Thread(Ok(thread)) => thread.join().ok().flatten(),
            Relaying::Thread(Err(_)) => None,
        };
        let peak_rss = stormlog_pidfd::peak_of_ended_child(self.child.id()).ok();
        (self.child.wait().map_or(Ended::Unknown, Ended::from), peak_rss, delivered)
    }
}

/// Whether a program could not be started because there is no room for another process, and not because of the program: processes,
/// memory, descriptors, or too long an environment together with ours.
pub(crate) fn is_out_of_room(error: &io::Error) -> bool {
    let room = [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::NFILE, Errno::TOOBIG];
    Errno::from_io_error(error).is_some_and(|error| room.contains(&error))
}
