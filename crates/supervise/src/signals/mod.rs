//! Signals of a run: each signal for the program reaches it exactly once.
//!
//! The supervisor shares the program's process group, so that terminals and job control work as they would without it. A signal to the
//! group therefore arrives at both by itself, one to the supervisor alone has to be passed on, and the two look the same to the receiver.
//! A [`Witness`] in the group tells them apart. All signals are blocked and taken one by one, with their senders; no handler runs.
//!
//! Must never send what the kernel raised for the supervisor itself, and never wait longer than [`GRACE`] with a signal.

mod origin;
mod witness;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, getpgid, getppid, getsid, waitid};
use signal_hook::consts::{
    SIGBUS, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2, SIGWINCH,
};
use stormlog_pidfd::signals::{self, Received, SignalSet};

use crate::lineage::Delivered;
use origin::Origin;
pub(crate) use witness::Witness;
use witness::now_ns;
pub use witness::{WITNESS, stand_by};

/// How long a signal may take to reach the rest of the group: service managers and schedulers signal processes one by one.
const GRACE: Duration = Duration::from_millis(50);
/// Between two looks at the witness while a signal is undecided.
const LOOK: Duration = Duration::from_millis(1);
/// Longest wait for a signal; the end of the program is one.
const NAP: Duration = Duration::from_millis(500);
/// Without effect once the program has ended: what is left is to write down how.
const HARMLESS_AFTER_THE_END: [i32; 6] = [SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGINT, SIGQUIT];

/// Who handles the signals of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Terminal {
    /// The program alone: the supervisor stops and continues as it does.
    Programs,
    /// A screen of ours too, by its own handlers.
    Shared,
}

/// The signals of this process, blocked from here on, in every thread that is started later too.
pub(crate) struct Intake {
    terminal: Terminal,
    taken: SignalSet,
    /// Unknown where signals cannot be blocked.
    before: Option<SignalSet>,
}

impl Intake {
    pub(crate) fn begin(terminal: Terminal) -> Self {
        // A fault in a mapped file is answered by a handler, which a blocked signal would not reach.
        let mut left_out = vec![SIGBUS];
        if terminal == Terminal::Shared {
            left_out.extend([SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT, SIGWINCH]);
        }
        let taken = SignalSet::all_but(&left_out);
        Intake { terminal, taken, before: taken.block().ok() }
    }

    /// The mask this process was started with.
    pub(crate) fn mask(&self) -> Option<SignalSet> {
        self.before
    }

    /// Signals that came before there was a program, for the process that becomes it: they are pending again, and what the kernel raised
    /// for this process (a file that may not grow) is not.
    pub(crate) fn keep_for_program(&self) {
        let mut meant = Vec::new();
        while let Ok(Some(received)) = self.taken.take(Duration::ZERO) {
            meant.extend(Some(received).filter(|received| Origin::of(received) != Origin::Own));
        }
        let own = rustix::process::getpid().as_raw_pid();
        for received in meant {
            // To this process itself: there is nothing that could refuse it.
            let _ = received.pass_on(own);
        }
    }

    /// Signals act on this process again, but those that usually end a program find nothing to end.
    pub(crate) fn end(self) {
        while let Ok(Some(_)) = self.taken.take(Duration::ZERO) {}
        for signal in HARMLESS_AFTER_THE_END {
            // Where it is refused, the signal ends us, and the next reader finishes the run.
            let _ = signal_hook::flag::register(signal, Arc::<AtomicBool>::default());
        }
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // It was this thread's mask a moment ago.
            let _ = before.install();
        }
    }
}

/// A signal that may still turn out to be the group's.
struct PendingSignal {
    received: Received,
    origin: Origin,
    at_ns: u64,
}

/// Passes signals on to the program.
pub(crate) struct Relay {
    terminal: Terminal,
    taken: SignalSet,
    program: Pid,
    witness: Option<Witness>,
    undecided: Vec<PendingSignal>,
    /// The last signal that reached the program through us or its group.
    delivered: Option<Delivered>,
}

impl Relay {
    pub(crate) fn new(intake: &Intake, program: Pid, witness: Option<Witness>) -> Self {
        let (terminal, taken) = (intake.terminal, intake.taken);
        Relay { terminal, taken, program, witness, undecided: Vec::new(), delivered: None }
    }

    /// Until the program has ended; it is still to be waited for. The last signal that reached it through us or its group.
    pub(crate) fn until_end(&mut self) -> Option<Delivered> {
        loop {
            match look(self.program) {
                State::Ended => return self.last_delivered(),
                // A screen stops with its own handler, after it has put the terminal back.
                State::Stopped(signal) if is_job_control(signal) && self.terminal == Terminal::Programs => {
                    self.stop(signal);
                }
                State::Stopped(_) | State::Alive => {}
            }
            let nap = if self.undecided.is_empty() { NAP } else { LOOK };
            match self.taken.take(nap) {
                Ok(Some(received)) => self.arrived(received),
                Ok(None) => {}
                // Without signals there is still an end to wait for.
                Err(_) => std::thread::sleep(LOOK),
            }
            self.decide();
        }
    }

    /// A signal to the group may have ended the program before it was decided whose it is.
    fn last_delivered(&mut self) -> Option<Delivered> {
        while let Ok(Some(received)) = self.taken.take(Duration::ZERO) {
            self.arrived(received);
        }
        self.undecided.last().and_then(|waiting| self.delivery(waiting)).or(self.delivered)
    }

    /// What the program sends itself, or its parent, is not delivered to it.
    fn delivery(&self, waiting: &PendingSignal) -> Option<Delivered> {
        let sender = waiting.received.sender();
        let from = u32::try_from(sender).ok().filter(|pid| *pid > 0 && waiting.origin == Origin::Process);
        (sender != self.program.as_raw_pid())
            .then_some(Delivered { signal: waiting.received.signal, sender: from })
    }

    fn arrived(&mut self, received: Received) {
        let origin = Origin::of(&received);
        if origin != Origin::Own {
            self.undecided.push(PendingSignal { received, origin, at_ns: now_ns() });
        }
    }

    /// Sends what is known to be meant for the program alone, and forgets what it has already.
    fn decide(&mut self) {
        if let Some(witness) = &mut self.witness {
            witness.hear(GRACE * 2);
        }
        // One moment for all, so that none overtakes an earlier one.
        let now = now_ns();
        for waiting in std::mem::take(&mut self.undecided) {
            let is_late = Duration::from_nanos(now.saturating_sub(waiting.at_ns)) >= GRACE;
            let decided = self.has_reached_group(&waiting, is_late);
            if decided.is_some() {
                self.delivered = self.delivery(&waiting).or(self.delivered);
            }
            match decided {
                Some(true) => self.reached_group(&waiting.received),
                Some(false) => self.pass_on(&waiting.received),
                None => self.undecided.push(waiting),
            }
        }
    }

    /// Whether the rest of the group has the signal too; `None` while it may still get it.
    fn has_reached_group(&mut self, waiting: &PendingSignal, is_late: bool) -> Option<bool> {
        let Some(witness) = &mut self.witness else { return Some(self.is_groups_by_kind(waiting)) };
        if witness.has_seen(&waiting.received, waiting.at_ns, GRACE)
            || (is_late && witness.is_pending(waiting.received.signal))
        {
            return Some(true);
        }
        is_late.then_some(false)
    }

    /// Without a witness: the keys of a terminal reach the whole group, all else is taken for ours alone. A hang-up is the session
    /// leader's.
    fn is_groups_by_kind(&self, waiting: &PendingSignal) -> bool {
        let is_leader = getsid(None).is_ok_and(|leader| leader == rustix::process::getpid());
        let is_hang_up = matches!(waiting.received.signal, SIGHUP | SIGCONT);
        waiting.origin == Origin::Terminal && !(is_leader && is_hang_up)
    }

    /// The program has it by itself, unless it has left a group that it would lead without us.
    fn reached_group(&mut self, received: &Received) {
        let own = rustix::process::getpid();
        let (ours, programs) = (getpgid(None).ok(), getpgid(Some(self.program)).ok());
        if ours == Some(own) && programs.is_some_and(|group| Some(group) != ours) {
            let leads = programs == Some(self.program);
            let target = self.program.as_raw_pid();
            // It may have ended a moment ago.
            let _ = signals::send(if leads { -target } else { target }, received.signal);
        }
        if received.signal == SIGTSTP && is_stopped(self.program) {
            // Whatever stopped it, the shell waits for us to stop.
            self.stop(SIGTSTP);
        }
    }

    /// Stops this process as the program has stopped, until it is continued. What asked for the stop is done with then: the program may
    /// be continued a moment later than we are.
    fn stop(&mut self, signal: i32) {
        look(self.program);
        self.undecided.retain(|waiting| !is_job_control(waiting.received.signal));
        // Where it is refused we wait as before.
        let _ = signals::act_on(signal);
    }

    fn pass_on(&self, received: &Received) {
        let program = self.program.as_raw_pid();
        // What the program sends to its parent is for the process that started us.
        let target =
            if received.sender() == program { getppid().map(Pid::as_raw_pid) } else { Some(program) };
        if let Some(target) = target {
            // It may have ended a moment ago, or belong to another user.
            let _ = received.pass_on(target);
        }
    }
}

enum State {
    Alive,
    Stopped(i32),
    Ended,
}

/// A change of the program's state; a stop is reported once, the end stays to be waited for.
fn look(program: Pid) -> State {
    let stops = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
    if let Ok(Some(status)) = waitid(WaitId::Pid(program), stops) {
        return State::Stopped(status.stopping_signal().unwrap_or(0));
    }
    if has_ended(program) { State::Ended } else { State::Alive }
}

/// Whether a child has ended; it is still to be waited for.
pub(crate) fn has_ended(program: Pid) -> bool {
    let only_look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    // Where it cannot be asked there is nothing to wait for.
    !matches!(waitid(WaitId::Pid(program), only_look), Ok(None))
}

/// Those by which a terminal and a shell stop a job. They are taken back by a SIGCONT to the job or to us; one that is stopped by SIGSTOP
/// may be continued alone.
fn is_job_control(signal: i32) -> bool {
    matches!(signal, SIGTSTP | SIGTTIN | SIGTTOU)
}

fn is_stopped(program: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", program.as_raw_pid())).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
}

/// Ends this process as the program has ended. Returns where that cannot be: as PID 1 of a namespace, which no signal of its own ends.
pub fn die_of(signal: i32) {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    if rustix::process::getpid().as_raw_pid() == 1 {
        return;
    }
    // The program left its core; another one of ours would only hide it.
    if set_dumpable_behavior(DumpableBehavior::NotDumpable).is_ok() {
        let _ = signals::act_on(signal);
    }
}
