//! The sessions of one process read on while they are written: each look reads only what is new, and gives the lanes of the report page.
//!
//! The axis counts milliseconds since 1970, because the first moment of a process that is followed is not known at its first look. Must never judge, and
//! never ask the process for anything.

use std::path::{Path, PathBuf};

use stormlog_analyze::Recording;
use stormlog_analyze::rules::Rules;
use stormlog_analyze::timeline::{Timeline, timelines};
use stormlog_catalog::run::layout::is_session;
use stormlog_model::Event;
use stormlog_model::layout::{LOG_DIRECTORY, RING_FILE};
use stormlog_store::recording::RecordedEvents;
use stormlog_store::{ReadOptions, Source};

use crate::lanes::{Clock, ProcessLanes};

/// The axis of followed processes.
pub(crate) const AXIS: Clock = Clock { start_ns: 0 };

/// What was recorded of a process so far.
pub struct FollowedSessions {
    recording: Recording,
    sessions: Vec<FollowedSession>,
    lanes: ProcessLanes,
    /// Events when the lanes were made last.
    drawn: u64,
}

struct FollowedSession {
    path: PathBuf,
    log: Option<RecordedEvents>,
    /// The newest event that came from a ring: a ring is read whole each time, and a log may follow it.
    ring_ns: u64,
    /// A file of another tool or version, which is read once.
    is_read: bool,
}

impl Default for FollowedSessions {
    fn default() -> Self {
        FollowedSessions {
            recording: Recording::judged_by(Rules::none()),
            sessions: Vec::new(),
            lanes: ProcessLanes::default(),
            drawn: 0,
        }
    }
}

impl FollowedSessions {
    /// Takes in what is new in these sessions of one process. `each` sees every new event, with the place of its session in `paths`.
    pub fn look(&mut self, paths: &[PathBuf], each: &mut dyn FnMut(usize, &Event)) {
        for (place, path) in paths.iter().enumerate() {
            let at = self.sessions.iter().position(|known| known.path == *path).unwrap_or_else(|| {
                self.sessions.push(FollowedSession {
                    path: path.clone(),
                    log: None,
                    ring_ns: 0,
                    is_read: false,
                });
                self.sessions.len() - 1
            });
            let recording = &mut self.recording;
            self.sessions[at].look(&mut |event| {
                recording.observe(event);
                each(place, event);
            });
        }
    }

    /// Memory over time so far, of the process with this number or of all that were recorded together.
    pub fn lanes(&mut self, pid: Option<u32>) -> &ProcessLanes {
        if self.drawn != self.recording.event_count {
            self.drawn = self.recording.event_count;
            let all = timelines(&self.recording);
            let is_its = |stream: &&Timeline| pid.is_none_or(|pid| stream.pid == i64::from(pid));
            let own: Vec<&Timeline> = all.iter().filter(is_its).collect();
            self.lanes = ProcessLanes::of(0, &own, AXIS);
        }
        &self.lanes
    }

    /// Number and rank of the processes that were recorded, the one with the highest memory first.
    #[must_use]
    pub fn processes(&self) -> Vec<(u32, Option<u32>)> {
        let mut found: Vec<(u32, Option<u32>)> = Vec::new();
        for stream in timelines(&self.recording) {
            let rank = u32::try_from(stream.rank).ok().filter(|_| stream.world_size > 1);
            let process = (u32::try_from(stream.pid).unwrap_or(0), rank);
            if !found.contains(&process) {
                found.push(process);
            }
        }
        found
    }
}

impl FollowedSession {
    fn look(&mut self, take: &mut dyn FnMut(&Event)) {
        if self.path.is_file() || !is_session(&self.path) {
            return self.read_file(take);
        }
        if self.log.is_none() {
            self.log = RecordedEvents::log(&self.path.join(LOG_DIRECTORY)).ok();
        }
        let ring_ns = self.ring_ns;
        let is_new = |event: &Event| event.timestamp_ns > ring_ns;
        if let Some(log) = &mut self.log {
            log.flatten().filter(is_new).for_each(|event| take(&event));
        } else if let Ok(ring) = RecordedEvents::ring(&self.path.join(RING_FILE)) {
            for event in ring.flatten().filter(is_new) {
                self.ring_ns = self.ring_ns.max(event.timestamp_ns);
                take(&event);
            }
        }
    }

    fn read_file(&mut self, take: &mut dyn FnMut(&Event)) {
        if !std::mem::replace(&mut self.is_read, true) {
            of_file(&self.path, take);
        }
    }
}

/// The events of a telemetry file, in any form that is known.
fn of_file(path: &Path, take: &mut dyn FnMut(&Event)) {
    let found = Source::find_known(path).map(|known| known.found).unwrap_or_default();
    for source in found {
        if let Ok(events) = source.events(&ReadOptions::default()) {
            events.flatten().for_each(|event| take(&event));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;
    use crate::report::timelines as whole;
    use stormlog_catalog::recording::{Reader, load};

    fn corpus(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/recordings").join(name)
    }

    #[test]
    fn followed_sessions_have_the_lanes_of_the_report_page() {
        let session = corpus("leak_thread/rank0-pid3549");
        let mut followed = FollowedSessions::default();
        let mut seen = 0;
        followed.look(std::slice::from_ref(&session), &mut |_, _| seen += 1);
        let lanes = followed.lanes(None).clone();
        let mut reader = Reader { captures: &|_| Vec::new(), keep_reading: &mut || true };
        let loaded = load(std::slice::from_ref(&session), &mut reader).unwrap();
        let page = whole(&loaded.recording);
        assert_eq!(lanes, ProcessLanes::of(0, &page.iter().collect::<Vec<_>>(), AXIS));
        let rss = lanes.lanes.iter().find(|lane| lane.memory == "host").unwrap();
        assert!(rss.lines[0].name == "RSS" && rss.lines[0].time.len() > 5, "{rss:?}");
        assert_eq!(followed.processes(), [(3549, None)]);
        let before = seen;
        followed.look(&[session], &mut |_, _| seen += 1);
        assert_eq!(seen, before, "a second look takes in nothing twice");
    }

    #[test]
    fn curve_is_added_to_its_memory_and_never_replaces_a_sampled_counter() {
        let mut lanes = ProcessLanes::default();
        lanes.add_curve("host", "RSS", vec![(1_000_000, 5)]);
        lanes.add_curve("host", "RSS", vec![(9_000_000, 9)]);
        lanes.add_curve("host", "heap", vec![(2_000_000, 3)]);
        lanes.add_curve("cuda:0", "allocated", Vec::new());
        let [host] = lanes.lanes.as_slice() else { panic!("{lanes:?}") };
        assert_eq!(host.lines.iter().map(|line| line.time[0]).collect::<Vec<_>>(), [1, 2]);
    }
}
