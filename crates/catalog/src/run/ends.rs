//! The file of ends of a run: which process sent which signal to which, which Python processes exited in order, and which requests got no memory. The processes themselves write it, so
//! every line is hostile: one that does not fit is left out, and no more than the bound of the file is read.

use std::io::Read;
use std::path::Path;

use super::layout::{ENDS_FILE, ENDS_MAX_BYTES, ENDS_OF_A_FAILED_REQUEST, ENDS_OF_A_SIGNAL, ENDS_OF_AN_EXIT};

/// A writer that finds the file just below its bound writes one line more.
const SLACK: u64 = 64 << 10;

/// What the processes of a run recorded about ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ends {
    signals: Vec<SentSignal>,
    exits: Vec<(u32, u64)>,
    failed: Vec<(u32, FailedRequest)>,
}

/// A request that got no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedRequest {
    /// Of a device's memory; else of the host's.
    pub is_device: bool,
    /// How much was requested.
    pub bytes: u64,
    /// Nanoseconds since 1970.
    pub at_ns: u64,
}

/// A signal that a process of the run sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentSignal {
    /// The process that sent it.
    pub sender: u32,
    /// The process it was sent to; negative for a group, 0 for the group of the sender.
    pub target: i64,
    /// The signal.
    pub signal: i32,
    /// Nanoseconds since 1970.
    pub at_ns: u64,
}

impl Ends {
    /// Of the run in a directory; empty where nothing was recorded.
    #[must_use]
    pub fn read(run: &Path) -> Self {
        let mut text = Vec::new();
        // What can be read of a file that is damaged counts; without one there is no evidence.
        let _ = stormlog_files::open_regular(&run.join(ENDS_FILE))
            .and_then(|file| file.take(ENDS_MAX_BYTES + SLACK).read_to_end(&mut text));
        Ends::parse(&String::from_utf8_lossy(&text))
    }

    fn parse(text: &str) -> Self {
        let mut ends = Ends::default();
        for line in text.lines() {
            let mut words = line.split(' ');
            match words.next() {
                Some(ENDS_OF_A_SIGNAL) => ends.signals.extend(signal(words)),
                Some(ENDS_OF_AN_EXIT) => ends.exits.extend(exit(words)),
                Some(ENDS_OF_A_FAILED_REQUEST) => ends.failed.extend(failed(words)),
                _ => {}
            }
        }
        ends
    }

    /// The last signal of this number that a process of the run sent to this one, or to its group, since it started. `group_of` gives the process group of
    /// a process, where it is known.
    #[must_use]
    pub fn signal_to(
        &self,
        pid: u32,
        signal: i32,
        since_ns: u64,
        group_of: impl Fn(u32) -> Option<u32>,
    ) -> Option<SentSignal> {
        let own = group_of(pid);
        let is_to = |sent: &SentSignal| match sent.target {
            0 => own.is_some() && own == group_of(sent.sender),
            // One that leads a group, too, where its own group is not known.
            group @ ..0 => group.unsigned_abs() == u64::from(own.unwrap_or(pid)),
            target => target.unsigned_abs() == u64::from(pid),
        };
        let is_it = |sent: &&SentSignal| sent.signal == signal && sent.at_ns >= since_ns && is_to(sent);
        self.signals.iter().rev().find(is_it).copied()
    }

    /// The last request of a process that got no memory.
    #[must_use]
    pub fn failed_request(&self, pid: u32, since_ns: u64) -> Option<FailedRequest> {
        let is_it = |(asked, request): &&(u32, FailedRequest)| *asked == pid && request.at_ns >= since_ns;
        self.failed.iter().rev().find(is_it).map(|(_, request)| *request)
    }

    /// Whether the process exited in order, without an exception that it did not catch.
    #[must_use]
    pub fn has_exited_in_order(&self, pid: u32, since_ns: u64) -> bool {
        self.exits.iter().any(|(exited, at_ns)| *exited == pid && *at_ns >= since_ns)
    }
}

fn signal<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<SentSignal> {
    Some(SentSignal {
        sender: words.next()?.parse().ok()?,
        target: words.next()?.parse().ok()?,
        signal: words.next()?.parse().ok()?,
        at_ns: words.next()?.parse().ok()?,
    })
}

fn failed<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<(u32, FailedRequest)> {
    let pid = words.next()?.parse().ok()?;
    let is_device = words.next()? != "0";
    Some((
        pid,
        FailedRequest { is_device, bytes: words.next()?.parse().ok()?, at_ns: words.next()?.parse().ok()? },
    ))
}

fn exit<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<(u32, u64)> {
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_signal_to_a_process_is_found_and_damaged_lines_are_left_out() {
        let text = "signal 7 9 15 100\nsignal 8 9 15 200\nsignal 7 -9 9 300\nsignal 7 x 15 400\nsignal 7\n\0\nother\nexit 9 250\nexit 1";
        let ends = Ends::parse(text);
        let unknown = |_| None;
        assert_eq!(ends.signal_to(9, 15, 0, unknown).map(|sent| sent.sender), Some(8));
        assert_eq!(
            ends.signal_to(9, 9, 0, unknown).map(|sent| sent.target),
            Some(-9),
            "to the group it leads"
        );
        assert_eq!(ends.signal_to(9, 15, 201, unknown), None, "an earlier process of that number");
        assert_eq!(ends.signal_to(7, 15, 0, unknown), None);
        assert!(ends.has_exited_in_order(9, 100) && !ends.has_exited_in_order(9, 300));
        assert!(!ends.has_exited_in_order(1, 0));
    }

    #[test]
    fn signal_to_a_group_is_that_of_every_member() {
        let ends = Ends::parse("signal 7 -20 15 100\nsignal 30 -0 9 200");
        let group_of = |pid: u32| {
            [(20, 20), (21, 20), (22, 22), (30, 40), (31, 40)]
                .into_iter()
                .find(|one| one.0 == pid)
                .map(|one| one.1)
        };
        let sender = |pid, signal| ends.signal_to(pid, signal, 0, group_of).map(|sent| sent.sender);
        assert_eq!([20, 21, 22].map(|pid| sender(pid, 15)), [Some(7), Some(7), None]);
        assert_eq!(
            [30, 31, 20, 5].map(|pid| sender(pid, 9)),
            [Some(30), Some(30), None, None],
            "its own group"
        );
    }

    #[test]
    fn last_failed_request_of_a_process_is_found() {
        let ends = Ends::parse("failed 7 0 1024 100\nfailed 7 1 2048 300\nfailed 8 0 1\nfailed 9 0 x 5");
        let found =
            ends.failed_request(7, 0).map(|request| (request.is_device, request.bytes, request.at_ns));
        assert_eq!(found, Some((true, 2048, 300)));
        assert_eq!(
            (ends.failed_request(7, 301), ends.failed_request(8, 0), ends.failed_request(9, 0)),
            (None, None, None)
        );
    }

    #[test]
    fn missing_file_gives_no_evidence() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Ends::read(directory.path()), Ends::default());
    }
}
