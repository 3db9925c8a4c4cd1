//! The sink other threads and processes meet: a lock around the state, a thread that flushes in time, and forks.
//!
//! A forked child has none of its parent's threads but a copy of its locks, in whatever state they were. So a child
//! never waits on one: it makes a state of its own on first use, and the parent's copy is left alone. Nothing here
//! may call back into the host language, so the thread can neither deadlock with it nor outlive it harmfully.

use std::process;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use stormlog_model::{SessionStatus, SessionSummary};

use super::open;
use super::state::State;
use super::{Diagnostics, FailureDiagnostics, SinkConfig, SinkError, rollup_sink, write_rollups};

/// The flush thread's name: what 0.4.3's would be called, in the 15 characters the kernel keeps.
const THREAD_NAME: &str = "stormlog-flush";
/// How much longer than one interval closing waits for the flush thread.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// Appends telemetry records to a directory of segments. Share it between threads behind an `Arc`.
#[derive(Debug)]
pub struct Sink {
    config: Arc<SinkConfig>,
    host: String,
    first: Generation,
}

/// The sink as one process has it. A forked process adds the next one.
#[derive(Debug)]
struct Generation {
    pid: u32,
    shared: Arc<Shared>,
    next: OnceLock<Box<Generation>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Wakes the flush thread to stop.
    wake: Condvar,
    /// Says the flush thread has stopped.
    gone: Condvar,
}

impl Sink {
    /// Opens the sink in `config.root_dir`, taking up what is there. `host` names this machine in sessions that were not
    /// describes.
    pub fn open(config: SinkConfig, host: impl Into<String>) -> Result<Self, SinkError> {
        config.check()?;
        let (config, host) = (Arc::new(config), host.into());
        let state = open::open(Arc::clone(&config), host.clone())?;
        Ok(Sink { config, host, first: Generation::new(state) })
    }

    /// The policy.
    pub fn config(&self) -> &SinkConfig {
        &self.config
    }

    /// Makes a session the active one; if one is active already, that one stays and is returned.
    pub fn start_session(&self, session: Option<SessionSummary>) -> Result<SessionSummary, SinkError> {
        self.shared().lock().start_session(session)
    }

    /// The active session.
    pub fn current_session(&self) -> Option<SessionSummary> {
        self.shared().lock().active_session().cloned()
    }

    /// Appends one record: the text of a JSON object, without its newline. `session_id` is the one the record
    /// names; the first record opens a session if none is active. True when warnings wait to be taken.
    pub fn append(&self, line: &str, session_id: Option<&str>) -> Result<bool, SinkError> {
        let shared = self.shared();
        let mut state = shared.lock();
        shared.ensure_thread(&mut state);
        state.append(line, session_id)?;
        Ok(state.failures.has_warnings())
    }

    /// Writes what waits; without `force` only when the policy says it is time.
    pub fn flush(&self, force: bool) -> Result<(), SinkError> {
        self.shared().lock().flush(force)
    }

    /// Flushes, ends the session and writes the rollups. The sink may be used again afterwards.
    ///
    /// Rollups can be made again from the records, so their failure is a warning, not an error.
    pub fn close(&self, status: SessionStatus) -> Result<(), SinkError> {
        let shared = self.shared();
        let closed = {
            let mut state = shared.lock();
            state.close(status).map(|()| state.coverage())
        };
        let outcome = closed.map(|coverage| {
            if !self.config.write_rollups {
                return;
            }
            let root = &self.config.root_dir;
            let written = rollup_sink(root, self.config.rollup_window_ns(), Some(coverage))
                .and_then(|rollups| write_rollups(root, &rollups));
            if let Err(error) = written {
                shared.lock().failures.warn(format!("telemetry rollup write failed: {error}"));
            }
        });
        shared.stop_thread(self.config.flush_interval().saturating_add(STOP_GRACE));
        outcome
    }

    /// Counters of rollover and retention.
    pub fn diagnostics(&self) -> Diagnostics {
        self.shared().lock().diagnostics()
    }

    /// Counters of the buffer and of failures.
    pub fn failure_diagnostics(&self) -> FailureDiagnostics {
        self.shared().lock().failure_diagnostics()
    }

    /// The warnings since the last time, for the caller to log.
    pub fn take_warnings(&self) -> Vec<String> {
        self.shared().lock().failures.take_warnings()
    }

    /// The last generation; in a process that was just forked, a new one.
    fn shared(&self) -> &Arc<Shared> {
        let last = self.last();
        if last.pid == process::id() {
            return &last.shared;
        }
        // Of several threads here at once, one is first and the others use its state. They wait for no more than the
        // move of a pointer, and for no lock of the parent's.
        let _ = last.next.set(Box::new(last.after_fork(&self.config, &self.host)));
        last.next.get().map_or(&last.shared, |next| &next.shared)
    }

    fn last(&self) -> &Generation {
        let mut last = &self.first;
        while let Some(next) = last.next.get() {
            last = next;
        }
        last
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let last = self.last();
        if last.pid != process::id() {
            return;
        }
        // Left open on purpose or by mistake: the records are kept, the session stays running for the next opener
        // to find. A failure cannot be reported any more.
        let mut state = last.shared.lock();
        let _ = state.flush(true);
        state.thread_stop = true;
        last.shared.wake.notify_all();
    }
}

impl Generation {
    fn new(state: State) -> Self {
        let shared = Shared { state: Mutex::new(state), wake: Condvar::new(), gone: Condvar::new() };
        Generation { pid: process::id(), shared: Arc::new(shared), next: OnceLock::new() }
    }

    fn after_fork(&self, config: &Arc<SinkConfig>, host: &str) -> Self {
        Generation::new(match self.shared.state.try_lock() {
            Ok(state) => open::inherit(&state),
            Err(TryLockError::Poisoned(poisoned)) => open::inherit(&poisoned.into_inner()),
            // Held at the moment of the fork by a thread that does not exist here.
            Err(TryLockError::WouldBlock) => open::inherit_from_disk(Arc::clone(config), host.to_owned()),
        })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock leaves counters off at worst, never a torn file.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the flush thread unless it runs. Without threads to be had, appending alone flushes.
    fn ensure_thread(self: &Arc<Self>, state: &mut State) {
        state.thread_stop = false;
        if state.thread_alive {
            return;
        }
        let shared = Arc::clone(self);
        // The handle is dropped at once: in a forked child there would be no thread behind it.
        let started = thread::Builder::new().name(THREAD_NAME.into()).spawn(move || shared.flush_in_time());
        state.thread_alive = started.is_ok();
    }

    fn flush_in_time(&self) {
        let mut state = self.lock();
        let interval = state.config.flush_interval();
        loop {
            let waited = self.wake.wait_timeout_while(state, interval, |state| !state.thread_stop);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.thread_stop {
                break;
            }
            // Counted; and raised by the next append, which still has the records to write.
            let _ = state.flush(false);
        }
        state.thread_alive = false;
        self.gone.notify_all();
    }

    fn stop_thread(&self, longest: Duration) {
        let mut state = self.lock();
        if !state.thread_alive {
            return;
        }
        state.thread_stop = true;
        self.wake.notify_all();
        // Another append may have taken the thread over meanwhile; then it stays.
        drop(self.gone.wait_timeout_while(state, longest, |state| state.thread_alive && state.thread_stop));
    }
}
