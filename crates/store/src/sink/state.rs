//! What a sink knows and does under its lock: sessions, buffer, flushing, closing. Its files are in `disk.rs`.
//!
//! Single-threaded on purpose; threads and forks are the writer's affair. Every flushed record is on disk before its
//! buffer is freed, and every failure leaves a state from which the same call can be made again.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use std::time::Instant;

use stormlog_model::{SessionStatus, SessionSummary, new_session_id};

use super::failures::{FailureDiagnostics, Failures};
use super::manifest::SinkManifest;
use super::paths::segment_index;
use super::{RollupCoverage, SinkConfig, SinkError, SinkSegment};

/// Memory kept for the next records after a flush; a burst's larger buffer is given back.
const KEPT_BUFFER: usize = 1 << 20;
/// What recorded a session without a description.
const SOURCE: &str = "stormlog.telemetry_sink";

/// Counters of a sink's housekeeping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Diagnostics {
    /// Segments closed because they were full.
    pub rollover_count: u64,
    /// Segments removed to stay within bounds.
    pub pruned_segment_count: u64,
    /// Their bytes.
    pub pruned_bytes: u64,
    /// Segments there are.
    pub final_retained_files: u64,
    /// Their bytes.
    pub final_retained_bytes: u64,
}

/// What is known of a segment's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Has a name, but no file yet.
    Planned,
    /// There is a file to continue.
    Existing,
    /// The process this one was forked from is writing it.
    Foreign,
}

#[derive(Debug, Clone)]
pub(super) struct Tracked {
    pub(super) segment: SinkSegment,
    pub(super) origin: Origin,
}

/// The state of a sink.
#[derive(Debug)]
pub(super) struct State {
    pub(super) config: Arc<SinkConfig>,
    pub(super) host: String,
    pub(super) sessions: BTreeMap<String, SessionSummary>,
    pub(super) active: Option<String>,
    pub(super) segments: Vec<Tracked>,
    pub(super) failures: Failures,
    pub(super) next_index: u64,
    pub(super) buffer: Vec<u8>,
    buffered_records: u64,
    pub(super) file: Option<File>,
    /// A segment that a failed write left longer than it was, and the size to cut it back to.
    pub(super) pending_cut: Option<(String, u64)>,
    last_flush: Instant,
    rollovers: u64,
    pub(super) pruned_segments: u64,
    pub(super) pruned_bytes: u64,
    /// Whether the flush thread is there, and whether it shall go.
    pub(super) thread_alive: bool,
    pub(super) thread_stop: bool,
}

impl State {
    pub(super) fn new(
        config: Arc<SinkConfig>,
        host: String,
        sessions: BTreeMap<String, SessionSummary>,
        segments: Vec<Tracked>,
    ) -> Self {
        let last = segments.iter().filter_map(|tracked| segment_index(&tracked.segment.filename)).max();
        State {
            config,
            host,
            sessions,
            active: None,
            segments,
            failures: Failures::default(),
            next_index: last.unwrap_or(0).saturating_add(1),
            buffer: Vec::new(),
            buffered_records: 0,
            file: None,
            pending_cut: None,
            last_flush: Instant::now(),
            rollovers: 0,
            pruned_segments: 0,
            pruned_bytes: 0,
            thread_alive: false,
            thread_stop: false,
        }
    }

    /// Makes a session the active one, unless one is active already: then that one stays.
    pub(super) fn start_session(
        &mut self,
        given: Option<SessionSummary>,
    ) -> Result<SessionSummary, SinkError> {
        if let Some(active) = self.active_session() {
            return Ok(active.clone());
        }
        let mut session = given.unwrap_or_else(|| self.new_session(None));
        session.status = SessionStatus::Running;
        session.ended_at_ns = None;
        self.activate(session.clone())?;
        Ok(session)
    }

    pub(super) fn active_session(&self) -> Option<&SessionSummary> {
        self.sessions.get(self.active.as_ref()?)
    }

    /// Buffers one record and flushes when it is time.
    pub(super) fn append(&mut self, line: &str, session_id: Option<&str>) -> Result<(), SinkError> {
        if let Some(at) = memchr::memchr(b'\n', line.as_bytes()) {
            return Err(SinkError::LineBreak { at });
        }
        self.ensure_session(session_id)?;
        let length = line.len() as u64 + 1;
        if !self.fits(length) {
            // Make room by flushing now, unless a failing disk is left alone; drop only what still does not fit.
            if self.failures.may_retry() {
                self.flush(true)?;
            }
            if !self.fits(length) {
                self.failures.dropped(1, length);
                return Ok(());
            }
        }
        self.buffer.extend_from_slice(line.as_bytes());
        self.buffer.push(b'\n');
        self.buffered_records += 1;
        self.flush(false)
    }

    /// Writes what waits; without `force` only when enough waits, or for long enough.
    pub(super) fn flush(&mut self, force: bool) -> Result<(), SinkError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let now = Instant::now();
        if !force {
            let waited = now.duration_since(self.last_flush).as_secs_f64();
            let due = self.buffered_records >= self.config.flush_every_events
                || waited >= self.config.flush_every_seconds;
            if !due || (self.config.is_bounded() && !self.failures.may_retry()) {
                return Ok(());
            }
        }
        let at = self.current().unwrap_or_else(|| self.plan_segment());
        if let Err(error) = self.write_buffer(at) {
            return self.failed(error);
        }
        let segment = &mut self.segments[at].segment;
        segment.event_count += self.buffered_records;
        segment.size_bytes += self.buffer.len() as u64;
        let full = segment.event_count >= self.config.rollover_max_events
            || segment.size_bytes >= self.config.rollover_max_bytes;
        self.forget_buffer();
        self.last_flush = now;
        self.failures.consecutive = 0;
        if full {
            self.segments[at].segment.closed = true;
            self.rollovers += 1;
            self.file = None;
        }
        self.prune()?;
        // The records are on disk; a manifest that fails now is written again with the next flush.
        self.write_manifest(false)
    }

    /// Ends the active session: everything is flushed, or in bounded mode given up and counted.
    pub(super) fn close(&mut self, status: SessionStatus) -> Result<(), SinkError> {
        self.flush(true)?;
        if !self.buffer.is_empty() {
            self.failures.dropped(self.buffered_records, self.buffer.len() as u64);
            self.forget_buffer();
        }
        self.file = None;
        if let Some(at) = self.current() {
            self.segments[at].segment.closed = true;
        }
        if let Some(session) = self.active.take().and_then(|id| self.sessions.get_mut(&id)) {
            session.status = status;
            session.ended_at_ns = Some(now_ns());
        }
        self.write_manifest(true)
    }

    pub(super) fn diagnostics(&self) -> Diagnostics {
        Diagnostics {
            rollover_count: self.rollovers,
            pruned_segment_count: self.pruned_segments,
            pruned_bytes: self.pruned_bytes,
            final_retained_files: self.segments.len() as u64,
            final_retained_bytes: self.retained_bytes(),
        }
    }

    pub(super) fn failure_diagnostics(&self) -> FailureDiagnostics {
        FailureDiagnostics {
            buffered_records: self.buffered_records,
            buffered_bytes: self.buffer.len() as u64,
            dropped_records: self.failures.dropped_records,
            dropped_bytes: self.failures.dropped_bytes,
            flush_failures: self.failures.total,
            consecutive_flush_failures: self.failures.consecutive,
            last_flush_error: self.failures.last.clone(),
        }
    }

    /// What rollups made now cover.
    pub(super) fn coverage(&self) -> RollupCoverage {
        let segments = self.segments.iter().map(|tracked| &tracked.segment);
        RollupCoverage::of(segments, Some(self.pruned_segments), Some(self.pruned_bytes))
    }

    pub(super) fn manifest(&self) -> SinkManifest {
        let segments = self.segments.iter().map(|tracked| tracked.segment.clone());
        SinkManifest::new(self.sessions.values().cloned().collect(), segments.collect())
    }

    fn ensure_session(&mut self, given: Option<&str>) -> Result<(), SinkError> {
        if let Some(active) = &self.active {
            return match given {
                Some(given) if given != active => {
                    Err(SinkError::OtherSession { given: given.to_owned(), active: active.clone() })
                }
                _ => Ok(()),
            };
        }
        let running = given.and_then(|id| self.sessions.get(id));
        if let Some(session) = running.filter(|session| session.status == SessionStatus::Running) {
            // Only after a fork is a session running that is not active: the records continue in it.
            self.active = Some(session.session_id.clone());
            return Ok(());
        }
        self.activate(self.new_session(given))
    }

    fn new_session(&self, id: Option<&str>) -> SessionSummary {
        let id = id.filter(|id| !id.is_empty()).map_or_else(new_session_id, str::to_owned);
        SessionSummary {
            session_id: id,
            status: SessionStatus::Running,
            started_at_ns: now_ns(),
            ended_at_ns: None,
            host: self.host.clone(),
            pid: std::process::id().into(),
            job_id: None,
            rank: 0,
            local_rank: 0,
            world_size: 1,
            attempt: None,
            source: SOURCE.to_owned(),
        }
    }

    fn activate(&mut self, session: SessionSummary) -> Result<(), SinkError> {
        self.active = Some(session.session_id.clone());
        self.sessions.insert(session.session_id.clone(), session);
        self.write_manifest(false)
    }

    fn fits(&self, length: u64) -> bool {
        self.config.max_buffer_bytes.is_none_or(|limit| self.buffer.len() as u64 + length <= limit)
    }

    fn forget_buffer(&mut self) {
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_BUFFER);
        self.buffered_records = 0;
    }
}

/// The wall clock.
pub(super) fn now_ns() -> i64 {
    i64::try_from(stormlog_ring::wall_ns()).unwrap_or(i64::MAX)
}
