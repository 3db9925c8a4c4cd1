//! The tracker itself: a lock around what it knows, a thread that keeps its pace, and forks.
//!
//! The source has a lock of its own and is asked with the history's free; listeners are called with none held. In a
//! forked child the thread does not exist and its locks may be held for ever: there, nothing waits.

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use stormlog_alert::alerts::ThresholdError;
use stormlog_model::{Counters, Event, Problem, Record, SessionStatus, SessionSummary};
use stormlog_store::sink::{Diagnostics, SinkError};
use stormlog_store::wall_ns;

use crate::state::{NewEvent, State};
use crate::timeline::{self, TooManyPoints};
use crate::{Config, DeviceSample, Health, Outlets, Sampled, Source, Statistics};

/// The thread's name, within the 15 characters the kernel keeps.
const THREAD_NAME: &str = "stormlog-track";

/// Called with alerts and errors, on the thread that found them.
pub trait Listener: Send + Sync {
    /// One warning, critical or error event.
    fn alert(&self, event: &Event);
}

/// Why tracking did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The sink did not take the session.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// There are no threads to be had.
    #[error("the tracking thread could not be started: {0}")]
    Thread(#[source] std::io::Error),
}

/// Samples memory in the background.
pub struct Tracker {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    pid: u32,
    interval: Duration,
    state: Mutex<State>,
    source: Mutex<Box<dyn Source>>,
    listener: Option<Box<dyn Listener>>,
    control: Mutex<Control>,
    wake: Condvar,
    running: AtomicBool,
}

#[derive(Default)]
struct Control {
    stop: bool,
    finished: bool,
}

impl Tracker {
    /// A tracker that does nothing yet.
    pub fn new(
        config: Config,
        source: Box<dyn Source>,
        outlets: Outlets,
        listener: Option<Box<dyn Listener>>,
    ) -> Result<Self, Problem> {
        let shared = Shared {
            pid: process::id(),
            interval: config.interval.max(Duration::from_micros(1)),
            state: Mutex::new(State::new(config, outlets)?),
            source: Mutex::new(source),
            listener,
            control: Mutex::default(),
            wake: Condvar::new(),
            running: AtomicBool::new(false),
        };
        Ok(Tracker { shared: Arc::new(shared), thread: Mutex::new(None) })
    }

    /// Takes the first sample and starts the thread. A tracker starts once.
    pub fn start(&self) -> Result<(), StartError> {
        let shared = &self.shared;
        if shared.running.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let begun = shared.begin().and_then(|()| {
            let own = Arc::clone(shared);
            thread::Builder::new()
                .name(THREAD_NAME.into())
                .spawn(move || own.run())
                .map_err(StartError::Thread)
        });
        match begun {
            Ok(handle) => {
                *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
                Ok(())
            }
            Err(error) => {
                shared.running.store(false, Ordering::Release);
                Err(error)
            }
        }
    }

    /// Stops the thread and completes the session. `false` when the thread did not stop in time; it may be tried again.
    pub fn stop(&self, longest: Duration) -> bool {
        self.stop_as(SessionStatus::Completed, longest)
    }

    /// The same with another end than a completed one.
    pub fn stop_as(&self, status: SessionStatus, longest: Duration) -> bool {
        let shared = &self.shared;
        if !self.is_running() {
            return true;
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let is_own = thread.as_ref().is_some_and(|it| it.thread().id() == thread::current().id());
        // A listener may stop the tracker; its thread cannot wait for itself.
        if !shared.stop_thread(if is_own { Duration::ZERO } else { longest }) && !is_own {
            *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = thread;
            return false;
        }
        if shared.running.swap(false, Ordering::AcqRel)
            && let Some(mut state) = shared.state()
        {
            state.end(status, wall_ns());
        }
        true
    }

    /// Whether the thread runs, in this process.
    pub fn is_running(&self) -> bool {
        self.shared.running.load(Ordering::Acquire) && self.shared.pid == process::id()
    }

    /// Adds an event, and notifies the listener if it is an alert.
    pub fn add(&self, new: NewEvent<'_>) {
        let alert = self.shared.state().and_then(|mut state| state.add(new, wall_ns()));
        if let Some(event) = alert {
            self.shared.notify(&event);
        }
    }

    /// One sample now, recorded like those of the thread: for callers that keep a rhythm of their own.
    pub fn tick(&self) {
        self.shared.tick();
    }

    /// One reading now, outside the rhythm; it enters no statistics.
    pub fn sample_now(&self) -> Sampled {
        self.shared.sample().unwrap_or_default()
    }

    /// The events kept, oldest first, as far as `wanted` says.
    pub fn events(&self, wanted: impl Fn(&Event) -> bool, last: Option<usize>) -> Vec<Event> {
        let Some(state) = self.shared.state() else { return Vec::new() };
        let mut found: Vec<Event> = state
            .history
            .iter()
            .rev()
            .filter(|event| wanted(event))
            .take(last.unwrap_or(usize::MAX))
            .cloned()
            .collect();
        found.reverse();
        found
    }

    /// How many of the events kept are wanted, without a copy of any.
    pub fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.shared.state().map_or(0, |state| state.history.iter().filter(|event| wanted(event)).count())
    }

    /// Memory in intervals of this many seconds, as [`TooManyPoints`] allows.
    pub fn timeline(&self, interval_s: f64) -> Result<Vec<(f64, Counters)>, TooManyPoints> {
        let Some(state) = self.shared.state() else { return Ok(Vec::new()) };
        timeline::filled(state.history.iter().map(|event| (event.timestamp_ns, event.counters)), interval_s)
    }

    /// Shows the events kept for a bundle, oldest first, without copying them.
    pub fn with_flight<T>(&self, look: impl FnOnce(&mut dyn Iterator<Item = &Event>) -> T) -> Option<T> {
        let state = self.shared.state()?;
        Some(look(&mut state.flight.iter()))
    }

    /// The numbers so far.
    pub fn statistics(&self) -> Statistics {
        self.shared.state().map(|state| state.statistics()).unwrap_or_default()
    }

    /// How the source is.
    pub fn health(&self) -> Health {
        self.shared.state().map(|state| state.health.clone()).unwrap_or_default()
    }

    /// The session.
    pub fn session(&self) -> Option<SessionSummary> {
        self.shared.state().map(|state| state.session.clone())
    }

    /// Rollover and retention of the sink; `None` without one.
    pub fn sink_diagnostics(&self) -> Option<Diagnostics> {
        self.shared.state().and_then(|state| state.outlets.diagnostics())
    }

    /// What went wrong with the files since the last time.
    pub fn take_warnings(&self) -> Vec<String> {
        self.shared.state().map(|mut state| state.outlets.take_warnings()).unwrap_or_default()
    }

    /// Sets a threshold by its name.
    pub fn set_threshold(&self, name: &str, value: f64) -> Result<(), ThresholdError> {
        match self.shared.state() {
            Some(mut state) => state.alerts.thresholds.set(name, value),
            None => Ok(()),
        }
    }

    /// Forgets the history and its statistics.
    pub fn clear(&self) {
        if let Some(mut state) = self.shared.state() {
            state.clear();
        }
    }

    /// What every event says of its collector.
    pub fn base_metadata(&self) -> Record {
        self.shared.state().map(|state| state.config.metadata.clone()).unwrap_or_default()
    }

    /// The last sample that succeeded.
    pub fn last_sample(&self) -> Option<DeviceSample> {
        self.statistics().last_sample
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        // Dropped while running: the thread must not outlive what it watches for. The session stays open: the
        // caller did not end it.
        if self.is_running() {
            self.shared.lock_control().stop = true;
            self.shared.wake.notify_all();
        }
    }
}

impl Shared {
    fn begin(&self) -> Result<(), StartError> {
        let sampled = self.sample().unwrap_or_default();
        let mut alerts = Vec::new();
        if let Some(mut state) = self.state() {
            let session = state.session.clone();
            state.outlets.start(&session)?;
            let now = wall_ns();
            state.begin(&sampled, now);
            alerts = state.observe(sampled, now);
        }
        alerts.iter().for_each(|event| self.notify(event));
        Ok(())
    }

    fn run(&self) {
        let _finished = Finished(self);
        let mut next = Instant::now() + self.interval;
        loop {
            let control = self.lock_control();
            let wait = next.saturating_duration_since(Instant::now());
            let waited = self.wake.wait_timeout_while(control, wait, |control| !control.stop);
            if waited.unwrap_or_else(PoisonError::into_inner).0.stop {
                return;
            }
            self.tick();
            next = after(next, self.interval, Instant::now());
        }
    }

    fn tick(&self) {
        if !self.state().is_some_and(|state| state.health.is_due(wall_ns())) {
            return;
        }
        let Some(sampled) = self.sample() else { return };
        let alerts = self.state().map(|mut state| state.observe(sampled, wall_ns())).unwrap_or_default();
        alerts.iter().for_each(|event| self.notify(event));
    }

    fn sample(&self) -> Option<Sampled> {
        self.lock(&self.source).map(|mut source| source.sample())
    }

    fn notify(&self, event: &Event) {
        if let Some(listener) = &self.listener {
            listener.alert(event);
        }
    }

    /// True when the thread is known to have finished.
    fn stop_thread(&self, longest: Duration) -> bool {
        let mut control = self.lock_control();
        control.stop = true;
        self.wake.notify_all();
        let waited = self.wake.wait_timeout_while(control, longest, |control| !control.finished);
        waited.unwrap_or_else(PoisonError::into_inner).0.finished
    }

    fn state(&self) -> Option<MutexGuard<'_, State>> {
        self.lock(&self.state)
    }

    /// A panic under a lock leaves a number off at worst. In a forked child a lock that is held is held for ever.
    fn lock<'a, T>(&self, mutex: &'a Mutex<T>) -> Option<MutexGuard<'a, T>> {
        if self.pid == process::id() {
            return Some(mutex.lock().unwrap_or_else(PoisonError::into_inner));
        }
        match mutex.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn lock_control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says that the thread is gone, however it went.
struct Finished<'a>(&'a Shared);

impl Drop for Finished<'_> {
    fn drop(&mut self) {
        self.0.lock_control().finished = true;
        self.0.wake.notify_all();
    }
}

/// The next moment of the rhythm; moments that were missed are left out, so that a slow disk is not followed by a burst.
fn after(last: Instant, interval: Duration, now: Instant) -> Instant {
    let next = last + interval;
    if next > now {
        return next;
    }
    let missed = (now - next).as_nanos() / interval.as_nanos().max(1) + 1;
    let skip = u32::try_from(missed).ok().and_then(|missed| interval.checked_mul(missed));
    skip.map_or(now + interval, |skip| next + skip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rhythm_is_kept_and_missed_beats_are_left_out() {
        let (start, beat) = (Instant::now(), Duration::from_millis(10));
        assert_eq!(after(start, beat, start), start + beat);
        assert_eq!(after(start, beat, start + beat * 3), start + beat * 4);
        let late = start + beat * 3 + Duration::from_millis(4);
        assert_eq!(after(start, beat, late), start + beat * 4);
    }
}
