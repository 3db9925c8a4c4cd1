//! Asks the largest process of a run what keeps its memory when a limit is forecast to be met. Must stay rare and never wait: the answer stops the program for a
//! moment, and comes into the run's directory by itself, or not at all.

use std::path::Path;
use std::time::{Duration, Instant};

use stormlog_capture::live::Live;
use stormlog_catalog::run::layout::growing_capture_name;

/// Pause between two requests to a run.
const PAUSE: Duration = Duration::from_secs(3600);

/// Requests for a retention report, and when the last one was made.
#[derive(Debug, Default)]
pub(crate) struct RetentionRequests {
    /// Reports are switched off.
    pub(crate) is_off: bool,
    last: Option<Instant>,
}

impl RetentionRequests {
    /// Asks the process `pid`, whose capture grows in `captures`, unless it is too early. True when it was asked: a process without a live capture is not.
    pub(crate) fn ask(&mut self, now: Instant, captures: &Path, pid: u32) -> bool {
        if self.is_off || self.last.is_some_and(|last| now.saturating_duration_since(last) < PAUSE) {
            return false;
        }
        let live = Live::path_of(&captures.join(growing_capture_name(&pid.to_string())));
        let is_asked = Live::open_to_compact(&live).and_then(|live| live.ask_what_is_kept()).is_ok();
        if is_asked {
            self.last = Some(now);
        }
        is_asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_asked_once_an_hour_and_not_without_a_capture() {
        let folder = tempfile::tempdir().unwrap();
        let (mut retention_requests, now) = (RetentionRequests::default(), Instant::now());
        assert!(!retention_requests.ask(now, folder.path(), 7), "no capture");
        let mut header = vec![0; stormlog_capture::layout::SLOTS];
        header[..8].copy_from_slice(&stormlog_capture::layout::LIVE_MAGIC);
        header[8] = 1;
        header[12..16].copy_from_slice(&(stormlog_capture::layout::SLOT_SIZE as u32).to_le_bytes());
        let live = folder.path().join("7.bin.live");
        std::fs::write(&live, header).unwrap();
        let asked = || std::fs::read(&live).unwrap()[stormlog_capture::layout::header::QUESTIONS];
        assert!(retention_requests.ask(now, folder.path(), 7));
        assert!(!retention_requests.ask(now + PAUSE / 2, folder.path(), 7), "too early");
        assert_eq!(asked(), 1);
        assert!(retention_requests.ask(now + PAUSE, folder.path(), 7));
        assert_eq!(asked(), 2);
        assert!(!RetentionRequests { is_off: true, last: None }.ask(now, folder.path(), 7));
    }
}
