//! The threads that push: each waits its time, sends what is known, and counts what a receiver did not take. Must never hold the reader while it sends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often a receiver did not take what it was sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Failures(Arc<AtomicU64>);

impl Failures {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A thread that pushes until its handle is dropped.
pub(crate) struct Pushing {
    end: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl Pushing {
    /// Calls `send` at each interval, and where `sends_last` once more at the end: the last values are the ones of a death.
    pub(crate) fn start(
        name: &str,
        interval: Duration,
        sends_last: bool,
        send: impl Fn() + Send + 'static,
    ) -> std::io::Result<Pushing> {
        let (end, ended) = mpsc::channel::<()>();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            send();
            while ended.recv_timeout(interval) == Err(mpsc::RecvTimeoutError::Timeout) {
                send();
            }
            if sends_last {
                send();
            }
        })?;
        Ok(Pushing { end, thread })
    }

    /// Ends it after its last push, which has the deadline of every push.
    pub(crate) fn end(self) {
        drop(self.end);
        // A thread that panicked has nothing to hand over.
        let _ = self.thread.join();
    }
}
