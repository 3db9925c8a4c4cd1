//! The file of ends of a run: which process sent which signal to which, and which Python processes exited in order. The processes themselves write it, so
//! every line is hostile: one that does not fit is left out, and no more than the bound of the file is read.

use std::io::Read;
use std::path::Path;

use super::layout::{ENDS_FILE, ENDS_MAX_BYTES, ENDS_OF_A_SIGNAL, ENDS_OF_AN_EXIT};

/// A writer that finds the file just below its bound writes one line more.
const SLACK: u64 = 64 << 10;

/// What the processes of a run recorded about ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ends {
    signals: Vec<SentSignal>,
    exits: Vec<(u32, u64)>,
}

/// A signal that a process of the run sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentSignal {
    /// The process that sent it.
    pub sender: u32,
    /// The process it was sent to; negative for a group.
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
                _ => {}
            }
        }
        ends
    }

    /// The last signal of this number that a process of the run sent to this one, or to the group it leads, since it started.
    #[must_use]
    pub fn signal_to(&self, pid: u32, signal: i32, since_ns: u64) -> Option<SentSignal> {
        let is_it = |sent: &&SentSignal| {
            sent.target.unsigned_abs() == u64::from(pid) && sent.signal == signal && sent.at_ns >= since_ns
        };
        self.signals.iter().rev().find(is_it).copied()
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
        assert_eq!(ends.signal_to(9, 15, 0).map(|sent| sent.sender), Some(8));
        assert_eq!(ends.signal_to(9, 9, 0).map(|sent| sent.target), Some(-9), "to the group it leads");
        assert_eq!(ends.signal_to(9, 15, 201), None, "an earlier process of that number");
        assert_eq!(ends.signal_to(7, 15, 0), None);
        assert!(ends.has_exited_in_order(9, 100) && !ends.has_exited_in_order(9, 300));
        assert!(!ends.has_exited_in_order(1, 0));
    }

    #[test]
    fn missing_file_is_no_evidence() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Ends::read(directory.path()), Ends::default());
    }
}
