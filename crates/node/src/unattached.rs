//! Recordings without a run: sessions that a tracker inside a program, or `stormlog track`, wrote into a directory of their own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use stormlog_catalog::run::layout::{SessionName, Viewpoint};
use stormlog_catalog::run::{SessionDirectory, session_life};
use stormlog_liveness::Life;
use stormlog_model::SessionStatus;

use crate::rank::{FreeMemory, Rank};
use crate::session::Session;

/// Sessions that are read; the newest by name.
const MOST: usize = 1024;
/// The sampling interval that is assumed where a session does not record it.
const INTERVAL_MS: u64 = 100;

/// A recorded process that no run has.
#[derive(Debug, Clone)]
pub struct SessionRow {
    /// Its directory.
    pub path: Arc<Path>,
    /// The process.
    pub pid: u32,
    /// Its program, where a sample names it; else what recorded it.
    pub program: String,
    /// Its machine.
    pub host: String,
    /// Whether it is being recorded.
    pub is_living: bool,
    /// How its recording ended.
    pub status: SessionStatus,
    /// Nanoseconds since 1970.
    pub started_at_ns: i64,
    /// Nanoseconds since 1970.
    pub ended_at_ns: Option<i64>,
    /// Bytes resident.
    pub resident: Option<u64>,
    /// Bytes on devices.
    pub device: Option<u64>,
    /// Highest resident of what was read.
    pub peak: Option<u64>,
    /// Growth of what is resident, in bytes a second.
    pub growth: Option<f64>,
    /// Seconds until the host's limit is reached.
    pub time_to_limit: Option<f64>,
}

struct Followed {
    session: Session,
    rank: Rank,
    /// Nothing more will be written.
    is_over: bool,
    is_dead: bool,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Unattached {
    followed: BTreeMap<PathBuf, Followed>,
}

impl Unattached {
    /// Reads what is new in these directories; false where the deadline came first.
    pub(crate) fn look(&mut self, found: &[PathBuf], deadline: Instant) -> bool {
        self.followed.retain(|path, _| found.binary_search(path).is_ok());
        let mut is_whole = true;
        for path in found.iter().rev().take(MOST) {
            if Instant::now() >= deadline {
                return false;
            }
            if !self.followed.contains_key(path) {
                let Some(followed) = Followed::open(path) else { continue };
                self.followed.insert(path.clone(), followed);
            }
            if let Some(followed) = self.followed.get_mut(path) {
                is_whole &= followed.look(deadline);
            }
        }
        is_whole
    }

    pub(crate) fn rows(&self) -> Vec<SessionRow> {
        self.followed.iter().map(|(path, followed)| followed.row(path)).collect()
    }
}

impl Followed {
    fn open(path: &Path) -> Option<Self> {
        let name = path.file_name().and_then(|name| name.to_str()).and_then(SessionName::parse);
        // The number is in the manifest.
        let name =
            name.unwrap_or(SessionName { rank: 0, pid: 0, start_ticks: None, viewpoint: Viewpoint::Outside });
        let mut session = Session::open(&SessionDirectory { name, path: path.to_owned() })?;
        session.name.pid = u32::try_from(session.summary.pid).unwrap_or(name.pid);
        Some(Followed { session, rank: Rank::new(INTERVAL_MS), is_over: false, is_dead: false })
    }

    fn look(&mut self, deadline: Instant) -> bool {
        if self.is_over {
            return true;
        }
        let mut samples = Vec::new();
        let is_whole = self.session.look(deadline, 0, &mut samples);
        let room = FreeMemory { host: self.session.host.left, ..FreeMemory::default() };
        self.rank.take(&samples, &room);
        let of = &self.session.summary;
        self.is_dead = self.session.is_running()
            && session_life(self.session.directory(), of.pid, &of.host, of.started_at_ns) == Life::Dead;
        self.is_over = is_whole && (self.is_dead || !self.session.is_running());
        is_whole
    }

    fn row(&self, path: &Path) -> SessionRow {
        let (session, summary) = (&self.session, &self.session.summary);
        let is_living = session.is_running() && !self.is_dead;
        let devices = session.devices.values().filter_map(crate::DeviceNow::held);
        let facts = &session.facts;
        let named = [&facts.program, &facts.comm].into_iter().find(|name| !name.is_empty());
        let growth = &self.rank.resident_growth;
        let status = if self.is_dead { SessionStatus::Interrupted } else { summary.status };
        SessionRow {
            path: Arc::from(path),
            pid: session.name.pid,
            program: named.unwrap_or(&summary.source).clone(),
            host: summary.host.clone(),
            is_living,
            status,
            started_at_ns: summary.started_at_ns,
            ended_at_ns: summary.ended_at_ns,
            resident: session.host.rss.filter(|_| is_living),
            device: devices.reduce(u64::saturating_add).filter(|_| is_living),
            peak: self.rank.resident_history.peak(),
            growth: growth.rate().filter(|_| is_living),
            time_to_limit: growth.forecast().filter(|_| is_living).map(|found| found.seconds_left),
        }
    }
}
