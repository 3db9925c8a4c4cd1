//! Where events go beside memory: a sink, and a recording that survives the program.
//!
//! A failing sink is closed and given up with one warning; a recording counts its own losses. Neither may fail the
//! tracker.

use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use stormlog_model::{Event, SCHEMA_LATEST, SessionStatus, SessionSummary};
use stormlog_store::json::event_text::{EventText, Layout};
use stormlog_store::recording::Recorder;
use stormlog_store::sink::{Diagnostics, Sink, SinkError};

/// The files a tracker writes. Several trackers of one session may share them: the first opens the session, the last
/// one that closes ends it.
pub struct Outlets {
    files: Arc<Mutex<Files>>,
    pid: u32,
}

struct Files {
    sink: Option<Sink>,
    recorder: Option<Recorder>,
    text: EventText,
    line: Vec<u8>,
    diagnostics: Option<Diagnostics>,
    warnings: Vec<String>,
    users: usize,
    is_started: bool,
}

impl Default for Outlets {
    fn default() -> Self {
        Outlets::new(None, None)
    }
}

impl Outlets {
    /// Writes to these.
    pub fn new(sink: Option<Sink>, recorder: Option<Recorder>) -> Self {
        let files = Files {
            sink,
            recorder,
            text: EventText::new(Layout::SortedLine, SCHEMA_LATEST),
            line: Vec::new(),
            diagnostics: None,
            warnings: Vec::new(),
            users: 1,
            is_started: false,
        };
        Outlets { files: Arc::new(Mutex::new(files)), pid: process::id() }
    }

    /// The same files for one tracker more.
    pub(crate) fn share(&self) -> Self {
        if let Some(mut files) = self.files() {
            files.users += 1;
        }
        Outlets { files: Arc::clone(&self.files), pid: self.pid }
    }

    /// Opens the session in the sink.
    pub(crate) fn start(&mut self, session: &SessionSummary) -> Result<(), SinkError> {
        let Some(mut files) = self.files() else { return Ok(()) };
        if std::mem::replace(&mut files.is_started, true) {
            return Ok(());
        }
        match &files.sink {
            Some(sink) => sink.start_session(Some(session.clone())).map(drop),
            None => Ok(()),
        }
    }

    /// Keeps one event. `false` when the sink was given up just now.
    pub(crate) fn append(&mut self, event: &Event) -> bool {
        self.files().is_none_or(|mut files| files.append(event))
    }

    /// Ends the session everywhere, once the last tracker does. `false` when the sink could not.
    pub(crate) fn close(&mut self, status: SessionStatus, ended_at_ns: u64) -> bool {
        let Some(mut files) = self.files() else { return true };
        files.users = files.users.saturating_sub(1);
        files.users > 0 || files.close(status, ended_at_ns)
    }

    /// Rollover and retention of the sink, as last known.
    pub(crate) fn diagnostics(&self) -> Option<Diagnostics> {
        self.files().and_then(|files| files.sink.as_ref().map(Sink::diagnostics).or(files.diagnostics))
    }

    pub(crate) fn take_warnings(&mut self) -> Vec<String> {
        self.files().map(|mut files| std::mem::take(&mut files.warnings)).unwrap_or_default()
    }

    /// In a forked child a lock that is held is held for ever: there, nothing is written rather than waited for.
    fn files(&self) -> Option<MutexGuard<'_, Files>> {
        if self.pid == process::id() {
            return Some(self.files.lock().unwrap_or_else(PoisonError::into_inner));
        }
        match self.files.try_lock() {
            Ok(files) => Some(files),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Files {
    fn append(&mut self, event: &Event) -> bool {
        if let Some(recorder) = &mut self.recorder {
            // What is lost is counted in the file.
            recorder.append(event);
        }
        let Some(sink) = &self.sink else { return true };
        self.line.clear();
        // Schema 4 expresses every event; if one were not expressible it would be left out of the file.
        if self.text.append(&mut self.line, event).is_err() {
            return true;
        }
        let Ok(line) = std::str::from_utf8(&self.line) else { return true };
        match sink.append(line, Some(&event.head.session_id)) {
            Ok(has_warnings) => {
                if has_warnings {
                    self.warnings.extend(sink.take_warnings());
                }
                true
            }
            Err(error) => {
                self.give_up("append", &error);
                false
            }
        }
    }

    fn close(&mut self, status: SessionStatus, ended_at_ns: u64) -> bool {
        if let Some(recorder) = self.recorder.take()
            && let Err(error) = recorder.close(status, i64::try_from(ended_at_ns).unwrap_or(i64::MAX))
        {
            self.warnings.push(format!("The recording could not be closed: {error}"));
        }
        let Some(sink) = &self.sink else { return true };
        match sink.close(status) {
            Ok(()) => {
                self.diagnostics = Some(sink.diagnostics());
                self.warnings.extend(sink.take_warnings());
                self.sink = None;
                true
            }
            Err(error) => {
                self.give_up("close", &error);
                false
            }
        }
    }

    fn give_up(&mut self, operation: &str, error: &SinkError) {
        self.warnings.push(format!("Disabling telemetry sink after {operation} failure: {error}"));
        if let Some(sink) = self.sink.take() {
            // It may work for what is left; if not, that was said already.
            let _ = sink.close(SessionStatus::Incomplete);
            self.diagnostics = Some(sink.diagnostics());
        }
    }
}
