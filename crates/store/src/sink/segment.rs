//! One segment file: its entry in the manifest, the repair of its last line, and appending to it whole or not at all.
//!
//! Files are read a chunk at a time, never whole; and a link put in a segment's place is never written through.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;

use rustix::fs::{OFlags, fcntl_setfl};
use serde_json::Map;
use stormlog_model::Record;

use super::SinkError;

/// How much of a segment is read at a time.
const CHUNK: usize = 64 << 10;

/// One segment as its manifest describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkSegment {
    /// Its name in the sink's directory.
    pub filename: String,
    /// Records in it.
    pub event_count: u64,
    /// Its size.
    pub size_bytes: u64,
    /// Whether it will not be appended to any more.
    pub closed: bool,
    /// The session its records belong to.
    pub session_id: Option<String>,
}

impl SinkSegment {
    /// The object form, keys in contract order.
    pub fn to_record(&self) -> Record {
        let mut record = Map::new();
        record.insert("filename".into(), self.filename.as_str().into());
        record.insert("event_count".into(), self.event_count.into());
        record.insert("size_bytes".into(), self.size_bytes.into());
        record.insert("closed".into(), self.closed.into());
        record.insert("session_id".into(), self.session_id.as_deref().into());
        record
    }
}

/// A segment nothing else has, opened for appending. `None` when the name is taken.
pub(super) fn create(path: &Path) -> Result<Option<File>, SinkError> {
    match stormlog_files::create_new(path).and_then(appending) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(SinkError::at(path, error)),
    }
}

/// A segment opened to continue.
pub(super) fn reopen(path: &Path) -> Result<File, SinkError> {
    let there = match stormlog_files::open_in_place(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => stormlog_files::create_new(path),
        there => there,
    };
    there.and_then(appending).map_err(|error| SinkError::at(path, error))
}

/// Every write goes to the end, also when other processes write.
fn appending(file: File) -> io::Result<File> {
    fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(file)
}

/// Cuts a torn last line off. Gives the size and the number of records that are left; a missing file has none.
pub(super) fn repair_tail(path: &Path) -> Result<(u64, u64), SinkError> {
    let mut file = match stormlog_files::open_in_place(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((0, 0)),
        Err(error) => return Err(SinkError::at(path, error)),
    };
    let mut repair = || -> io::Result<(u64, u64)> {
        let size = whole_lines(&mut file)?;
        if size < file.metadata()?.len() {
            // In place: rewriting the file would risk the whole lines too.
            file.set_len(size)?;
        }
        file.seek(SeekFrom::Start(0))?;
        Ok((size, count_records(&mut file)?))
    };
    repair().map_err(|error| SinkError::at(path, error))
}

/// Cuts a segment back to a size it had before. False when there is nothing to cut: it is gone, or shorter already,
/// and it must not be lengthened with zeros.
pub(super) fn cut_back(path: &Path, size: u64) -> Result<bool, SinkError> {
    let cut = || -> io::Result<bool> {
        let file = stormlog_files::open_in_place(path)?;
        let long_enough = file.metadata()?.len() >= size;
        if long_enough {
            file.set_len(size)?;
        }
        Ok(long_enough)
    };
    match cut() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        other => other.map_err(|error| SinkError::at(path, error)),
    }
}

/// How many records a segment has and how long it is, torn last line included.
pub(super) fn measure(path: &Path) -> Result<(u64, u64), SinkError> {
    let measure = || -> io::Result<(u64, u64)> {
        let mut file = stormlog_files::open_regular(path)?;
        let size = file.metadata()?.len();
        Ok((size, count_records(&mut file)?))
    };
    measure().map_err(|error| SinkError::at(path, error))
}

/// A failed append, and the size to cut the segment back to when that failed as well.
pub(super) struct FailedAppend {
    pub(super) error: io::Error,
    pub(super) cut_to: Option<u64>,
}

/// Appends every byte and waits for the disk, or leaves the file as it was: a part of a line left behind would
/// spoil the next record, and whole lines left behind would be written twice.
pub(super) fn append(file: &mut File, bytes: &[u8]) -> Result<(), FailedAppend> {
    let before = file.metadata().map_err(|error| FailedAppend { error, cut_to: None })?.len();
    let written = file.write_all(bytes).and_then(|()| file.sync_data());
    written.map_err(|error| FailedAppend { error, cut_to: file.set_len(before).is_err().then_some(before) })
}

/// How long a file is up to its last newline, read backwards.
fn whole_lines(file: &mut File) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK];
    let mut end = file.metadata()?.len();
    while end > 0 {
        let start = end.saturating_sub(CHUNK as u64);
        let part = &mut chunk[..(end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(part)?;
        if let Some(at) = memchr::memrchr(b'\n', part) {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Lines with something in them, to the end of the input.
fn count_records(input: &mut impl Read) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK];
    let (mut records, mut in_record) = (0, false);
    loop {
        let length = match input.read(&mut chunk) {
            Ok(0) => return Ok(records),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let mut rest = &chunk[..length];
        while let Some((byte, tail)) = rest.split_first() {
            if in_record {
                // Inside a record only its end matters.
                let Some(end) = memchr::memchr2(b'\n', b'\r', rest) else { break };
                in_record = false;
                rest = &rest[end + 1..];
            } else {
                in_record = !byte.is_ascii_whitespace();
                records += u64::from(in_record);
                rest = tail;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn blank_lines_are_skipped() {
        let count = |text: &str| count_records(&mut text.as_bytes()).unwrap();
        assert_eq!([count(""), count("\n \n\t\r\n"), count("{}\n\n{}\r\n{}")], [0, 0, 3]);
        let long = format!("{}\n{{}}", "x".repeat(3 * CHUNK));
        assert_eq!(count(&long), 2);
    }

    #[test]
    fn torn_tails_are_cut_however_long() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        for torn in ["", "{\"a\"", &"x".repeat(CHUNK * 2 + 5)] {
            fs::write(&path, format!("{{}}\n{{}}\n{torn}")).unwrap();
            assert_eq!(repair_tail(&path).unwrap(), (6, 2));
            assert_eq!(fs::read(&path).unwrap(), b"{}\n{}\n");
        }
        fs::write(&path, "no newline").unwrap();
        assert_eq!(repair_tail(&path).unwrap(), (0, 0));
        assert_eq!(repair_tail(&directory.path().join("missing")).unwrap(), (0, 0));
    }

    #[test]
    fn links_are_not_written_through() {
        let directory = tempfile::tempdir().unwrap();
        let (victim, link) = (directory.path().join("victim"), directory.path().join("link"));
        fs::write(&victim, "precious, without newline").unwrap();
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        assert!(repair_tail(&link).is_err());
        assert!(reopen(&link).is_err());
        assert!(cut_back(&link, 0).is_err());
        assert!(create(&link).unwrap().is_none());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious, without newline");
    }

    #[test]
    fn nothing_is_lengthened() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        fs::write(&path, "abc").unwrap();
        assert!(!cut_back(&path, 10).unwrap());
        assert!(cut_back(&path, 2).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"ab");
        assert!(!cut_back(&directory.path().join("missing"), 0).unwrap());
    }
}
