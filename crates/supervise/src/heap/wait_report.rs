//! Work after the program's end that may take long: done in a thread, so that the waiting caller can report it, and may stop waiting.
//!
//! Must never print, and never lose what the work has written: a thread that is left alone ends with the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::SigId;
use signal_hook::consts::SIGINT;

/// A wait is not reported before this time has passed, plus this share of the program's run time: a user does not wonder about a shorter one.
const GRACE: Duration = Duration::from_millis(100);
const SHARE: f64 = 0.02;
/// Between two reports.
const EVERY: Duration = Duration::from_millis(100);

/// What is being waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitPhase {
    /// The heap captures are being read; the time that took up to now.
    Reading(Duration),
    /// They are being compressed; the time that took up to now.
    Compressing(Duration),
    /// It is over.
    Done,
}

/// How long a wait stays unreported, and the function that reports it afterwards.
pub(crate) struct WaitReporter {
    since: Instant,
    grace: Duration,
    report: Option<fn(WaitPhase)>,
    interrupted: Arc<AtomicBool>,
    handler: Option<SigId>,
}

impl WaitReporter {
    /// After a program that ran for `ran`.
    pub(crate) fn after(ran: Duration, report: Option<fn(WaitPhase)>) -> Self {
        let grace = GRACE + ran.mul_f64(SHARE);
        WaitReporter { since: Instant::now(), grace, report, interrupted: Arc::default(), handler: None }
    }

    /// Does the work; `None` when it was not waited for. From the first report on, Ctrl-C ends the waiting.
    pub(crate) fn wait<T: Send + 'static>(
        &mut self,
        waiting: fn(Duration) -> WaitPhase,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if self.interrupted.load(Ordering::Acquire) {
            return None;
        }
        let (done, result) = channel();
        let started = thread::Builder::new().name("stormlog-end".into()).spawn(move || {
            // Fails where the receiver has stopped waiting.
            let _ = done.send(work());
        });
        started.ok()?;
        let mut pause = self.grace.saturating_sub(self.since.elapsed());
        loop {
            match result.recv_timeout(pause) {
                Ok(result) => return Some(result),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if self.interrupted.load(Ordering::Acquire) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.handler.is_none() {
                self.handler = signal_hook::flag::register(SIGINT, Arc::clone(&self.interrupted)).ok();
            }
            if let Some(report) = self.report {
                report(waiting(self.since.elapsed()));
            }
            pause = EVERY;
        }
    }
}

impl Drop for WaitReporter {
    fn drop(&mut self) {
        if let Some(handler) = self.handler.take() {
            signal_hook::low_level::unregister(handler);
            if let Some(report) = self.report {
                report(WaitPhase::Done);
            }
        }
    }
}
