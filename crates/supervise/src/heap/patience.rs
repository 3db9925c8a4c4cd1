//! Work after the program's end that may take long: done in a thread, so that whoever waits can be told, and may stop waiting.
//!
//! Must never print, and never lose what the work has written: a thread that is left alone ends with the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::SigId;
use signal_hook::consts::SIGINT;

/// Nobody asks what takes so long before this has passed, and this part of the time that the program ran.
const GRACE: Duration = Duration::from_millis(100);
const SHARE: f64 = 0.02;
/// Between two reports.
const EVERY: Duration = Duration::from_millis(100);

/// What is being waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// The heap captures are read, for so long by now.
    Reading(Duration),
    /// They are compressed.
    Compressing(Duration),
    /// It is over.
    Done,
}

/// How long is waited in silence, and who hears of the rest.
pub(crate) struct Patience {
    since: Instant,
    grace: Duration,
    report: Option<fn(Waiting)>,
    interrupted: Arc<AtomicBool>,
    handler: Option<SigId>,
}

impl Patience {
    /// After a program that ran for so long.
    pub(crate) fn after(ran: Duration, report: Option<fn(Waiting)>) -> Self {
        let grace = GRACE + ran.mul_f64(SHARE);
        Patience { since: Instant::now(), grace, report, interrupted: Arc::default(), handler: None }
    }

    /// Does the work; `None` when it was not waited for. From the first report on, Ctrl-C ends the waiting.
    pub(crate) fn wait<T: Send + 'static>(
        &mut self,
        waiting: fn(Duration) -> Waiting,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if self.interrupted.load(Ordering::Acquire) {
            return None;
        }
        let (done, result) = channel();
        let started = thread::Builder::new().name("stormlog-end".into()).spawn(move || {
            // Nobody waits any more where this fails.
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

impl Drop for Patience {
    fn drop(&mut self) {
        if let Some(handler) = self.handler.take() {
            signal_hook::low_level::unregister(handler);
            if let Some(report) = self.report {
                report(Waiting::Done);
            }
        }
    }
}
