//! What the kernel said about its OOM kills: `/dev/kmsg`, where it may be read.
//!
//! Never waits for a message, never reads more than asked for, and believes only the kernel: a program may write to the
//! log too, but not under the kernel's own facility.

mod message;

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, SeekFrom, seek};
use rustix::io::Errno;
use serde::Serialize;

use crate::CollectError;
use crate::text::number;

pub use message::{Constraint, OomKill, OomParser};

/// Longest record the kernel hands out, with room to spare; a smaller buffer is refused.
const RECORD_LIMIT: usize = 16 << 10;

/// Most records looked at in one go: several times what the default log holds.
pub const DEFAULT_RECORDS: usize = 1 << 16;

/// Most kills kept of one reading, the latest.
const KILLS_LIMIT: usize = 1024;

/// What a reading of the log brought.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct KernelReport {
    /// Kills in the order of the log.
    pub kills: Vec<OomKill>,
    /// Records looked at.
    pub records: u64,
    /// True when the kernel overwrote records before they were read: kills may be missing.
    pub overwritten: bool,
    /// True when the bound on records ended the reading; reading again continues.
    pub more: bool,
}

/// The kernel's log from one moment on. Opened before a program starts, it gives at the end what happened in between.
#[derive(Debug)]
pub struct KernelLog {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
    parser: OomParser,
}

impl KernelLog {
    /// Opens the log at its end: only what comes later is read.
    pub fn from_now() -> Result<Self, CollectError> {
        Self::open(Path::new("/dev/kmsg"), SeekFrom::End(0))
    }

    /// Opens the log at the oldest record the kernel still has.
    pub fn from_start() -> Result<Self, CollectError> {
        Self::open(Path::new("/dev/kmsg"), SeekFrom::Start(0))
    }

    /// The kernel checks the right to read (`dmesg_restrict`) when the log is opened.
    fn open(path: &Path, from: SeekFrom) -> Result<Self, CollectError> {
        let unavailable = |error: io::Error| CollectError::Unavailable {
            what: "the kernel log",
            reason: format!("{}: {error}", path.display()),
        };
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(path)
            .map_err(unavailable)?;
        seek(&file, from).map_err(|error| unavailable(error.into()))?;
        Ok(KernelLog {
            file,
            path: path.to_path_buf(),
            buffer: vec![0; RECORD_LIMIT],
            parser: OomParser::default(),
        })
    }

    /// Reads what came since the last time, at most `records` of them.
    pub fn read(&mut self, records: usize) -> Result<KernelReport, CollectError> {
        let mut report = KernelReport::default();
        loop {
            if report.records >= records as u64 {
                report.more = true;
                return Ok(report);
            }
            match self.file.read(&mut self.buffer) {
                Ok(0) => return Ok(report),
                Ok(length) => {
                    report.records += 1;
                    feed(&mut self.parser, &self.buffer[..length], &mut report);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(report),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel overtook us and moved us to the oldest record it has.
                Err(error) if error.raw_os_error() == Some(Errno::PIPE.raw_os_error()) => {
                    report.overwritten = true;
                }
                Err(error) => return Err(CollectError::io(&self.path, error)),
            }
        }
    }

    /// All kills the kernel still remembers that happened at `since_us` (microseconds since boot) or later. The log's
    /// clock may be off from the monotonic clock by a few milliseconds, after days by more: leave a margin.
    pub fn kills_since(since_us: u64) -> Result<KernelReport, CollectError> {
        let mut report = Self::from_start()?.read(DEFAULT_RECORDS)?;
        report.kills.retain(|kill| kill.at_us.is_none_or(|at| at >= since_us));
        Ok(report)
    }
}

/// The kills in a log that was kept as a file: what `dmesg`, the journal or `/dev/kmsg` printed, one message a line. The
/// text is taken at its word: the program that kept it could have written anything.
pub fn kills_in(text: &str) -> Vec<OomKill> {
    let mut parser = OomParser::default();
    let messages = text.lines().map(|line| match kernel_text(line.as_bytes()) {
        Some((at_us, message)) => (at_us, message),
        None => message_of(line),
    });
    let mut kills: Vec<OomKill> =
        messages.filter_map(|(at_us, message)| parser.line(at_us, &message)).collect();
    kills.drain(..kills.len().saturating_sub(KILLS_LIMIT));
    kills
}

/// `May 15 23:09:30 host kernel: [  518.05] text`, `[518.05] text` or `[Sun Mar 30 08:24:00 2025] text` → the text, and
/// the time where it is one since boot.
fn message_of(line: &str) -> (Option<u64>, String) {
    let line = line.split_once(" kernel: ").map_or(line, |(_, message)| message).trim_start();
    let Some((stamp, message)) = line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) else {
        return (None, line.to_owned());
    };
    let seconds: Option<f64> = stamp.trim().parse().ok().filter(|seconds: &f64| seconds.is_sign_positive());
    (seconds.map(|seconds| (seconds * 1e6) as u64), message.to_owned())
}

fn feed(parser: &mut OomParser, record: &[u8], report: &mut KernelReport) {
    let Some((at_us, text)) = kernel_text(record) else { return };
    if let Some(kill) = parser.line(at_us, &text) {
        if report.kills.len() >= KILLS_LIMIT {
            report.kills.remove(0);
        }
        report.kills.push(kill);
    }
}

/// `prio,seq,usec,flags[,…];text\n KEY=value…` → the time and the text, if the kernel itself wrote it.
fn kernel_text(record: &[u8]) -> Option<(Option<u64>, String)> {
    let semicolon = record.iter().position(|byte| *byte == b';')?;
    let mut head = record[..semicolon].split(|byte| *byte == b',');
    let priority = number(head.next()?)?;
    // Above the three bits of the level is the facility; 0 is the kernel, and user space cannot use it.
    if priority >> 3 != 0 {
        return None;
    }
    let at_us = head.nth(1).and_then(number);
    let text = record[semicolon + 1..].split(|byte| *byte == b'\n').next()?;
    Some((at_us, unescape_hex(text)))
}

/// Undoes the `\x20` escapes of bytes the log does not print.
fn unescape_hex(text: &[u8]) -> String {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        let escaped = (*first == b'\\' && tail.first() == Some(&b'x'))
            .then(|| std::str::from_utf8(tail.get(1..3)?).ok())
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let Some(byte) = escaped {
            plain.push(byte);
            rest = &tail[3..];
        } else {
            plain.push(*first);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_forged_message_is_not_the_kernels() {
        let text =
            "Out of memory: Killed process 1 (init) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB";
        assert_eq!(kernel_text(format!("12,5,99,-;{text}\n").as_bytes()), None);
        let real = format!("3,5,99,-,caller=T7;{text}\n SUBSYSTEM=x\n");
        assert_eq!(kernel_text(real.as_bytes()), Some((Some(99), text.to_owned())));
        assert_eq!(unescape_hex(br"a\x20b\x5cc\xzz\x"), r"a b\c\xzz\x");
    }

    #[test]
    fn a_kept_log_is_read_in_any_dress() {
        let text = "Killed process 7 (x) total-vm:8kB, anon-rss:4kB, file-rss:0kB, shmem-rss:0kB";
        let dressed = [
            format!("May 15 23:09:30 host kernel: [  518.5] {text}"),
            format!("[  518.500000] {text}"),
            format!("3,5,518500000,-;{text}"),
        ];
        for line in dressed {
            let kills = kills_in(&line);
            assert_eq!((kills[0].pid, kills[0].at_us), (7, Some(518_500_000)), "{line}");
        }
        assert_eq!(kills_in(&format!("[Sun Mar 30 08:24:00 2025] {text}"))[0].at_us, None);
        assert_eq!(kills_in(&format!("12,5,99,-;{text}")), [], "user space cannot speak for the kernel");
    }

    #[test]
    fn a_missing_log_is_not_available() {
        let error = KernelLog::open(Path::new("/nonexistent/kmsg"), SeekFrom::End(0)).unwrap_err();
        assert!(matches!(error, CollectError::Unavailable { .. }));
    }

    proptest! {
        #[test]
        fn no_record_panics(record in proptest::collection::vec(any::<u8>(), 0..400), text in ".{0,200}") {
            let mut parser = OomParser::default();
            let mut report = KernelReport::default();
            feed(&mut parser, &record, &mut report);
            feed(&mut parser, format!("3,1,1,-;Killed process {text}").as_bytes(), &mut report);
            feed(&mut parser, format!("3,1,1,-;oom-kill:constraint={text}").as_bytes(), &mut report);
        }
    }
}
