//! Reading small kernel files again and again without allocating, and taking numbers out of them.
//!
//! Must never trust a length or a number: files are bounded, numbers that do not fit are unknown.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::CollectError;

/// No file read whole is longer than this; `/proc/PID/cgroup`, `mountinfo` and `cmdline` stay far below.
pub(crate) const WHOLE_LIMIT: usize = 1 << 20;

const FIRST_BUFFER: usize = 2048;

/// An open file of one record that the kernel rewrites whenever it is read from the start.
#[derive(Debug)]
pub(crate) struct KeptFile {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
}

impl KeptFile {
    pub(crate) fn new(file: File, path: PathBuf) -> Self {
        KeptFile { file, path, buffer: vec![0; FIRST_BUFFER] }
    }

    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        Ok(KeptFile::new(open(&path)?, path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The text as of now. One system call, because these files come in one piece when the buffer holds them.
    pub(crate) fn read(&mut self) -> io::Result<&[u8]> {
        loop {
            let length = match self.file.read_at(&mut self.buffer, 0) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if length < self.buffer.len() || length >= WHOLE_LIMIT {
                return Ok(&self.buffer[..length]);
            }
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
    }
}

/// Opens without waiting: a pipe put where a kernel file belongs must not stop us.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32).open(path)
}

/// A whole small file, cut at `limit`.
pub(crate) fn read_bounded(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    read_from(open(path)?, limit)
}

pub(crate) fn read_from(file: File, limit: usize) -> io::Result<Vec<u8>> {
    // Room for what these files have, or it is read in many small pieces.
    let mut bytes = Vec::with_capacity(limit.min(FIRST_BUFFER));
    file.take(limit as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A whole small file as an error-carrying reading.
pub(crate) fn read_whole(path: &Path) -> Result<Vec<u8>, CollectError> {
    read_bounded(path, WHOLE_LIMIT).map_err(|error| CollectError::io(path, error))
}

/// The one number in a file; `None` when the file is not there or says something else.
pub(crate) fn read_number(path: &Path) -> Option<u64> {
    number(read_bounded(path, FIRST_BUFFER).ok()?.trim_ascii())
}

/// A file's text without the newline at its end.
pub(crate) fn read_line(path: &Path) -> Option<String> {
    let bytes = read_bounded(path, FIRST_BUFFER).ok()?;
    let text = String::from_utf8_lossy(bytes.trim_ascii()).into_owned();
    (!text.is_empty()).then_some(text)
}

/// Digits and nothing else. `None` when they do not fit.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, digit| {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Fields between blanks.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty())
}

/// Lines without their ends; the last need not have one.
pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

/// `Key:   12 kB` → (`Key`, 12288); `Key:  12` → (`Key`, 12).
pub(crate) fn key_size(line: &[u8]) -> Option<(&[u8], u64)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let mut rest = words(&line[colon + 1..]);
    let value = number(rest.next()?)?;
    let unit = match rest.next() {
        None => 1,
        Some(b"kB" | b"KB" | b"KiB") => 1 << 10,
        Some(b"MB" | b"MiB") => 1 << 20,
        Some(b"GB" | b"GiB") => 1 << 30,
        Some(_) => return None,
    };
    Some((&line[..colon], value.checked_mul(unit)?))
}

/// `key 12` → (`key`, 12), as cgroup files have it.
pub(crate) fn key_number(line: &[u8]) -> Option<(&[u8], u64)> {
    let mut fields = words(line);
    Some((fields.next()?, number(fields.next()?)?))
}

/// The next line into `line`, cut at `limit` bytes. False at the end.
pub(crate) fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>, limit: usize) -> io::Result<bool> {
    line.clear();
    let mut any = false;
    loop {
        let available = match reader.fill_buf() {
            Ok(available) => available,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if available.is_empty() {
            return Ok(any);
        }
        any = true;
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        let room = limit.saturating_sub(line.len()).min(part.len());
        line.extend_from_slice(&part[..room]);
        let used = part.len() + usize::from(end.is_some());
        reader.consume(used);
        if end.is_some() {
            return Ok(true);
        }
    }
}

/// Undoes the `\012` escapes the kernel puts into paths.
pub(crate) fn unescape_octal(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        let octal = |digits: &[u8]| {
            digits.iter().try_fold(0u32, |value, digit| match digit {
                b'0'..=b'7' => Some(value * 8 + u32::from(digit - b'0')),
                _ => None,
            })
        };
        match (first, tail.get(..3).and_then(octal).and_then(|value| u8::try_from(value).ok())) {
            (b'\\', Some(byte)) => {
                plain.push(byte);
                rest = &tail[3..];
            }
            _ => {
                plain.push(*first);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_do_not_fit_are_unknown() {
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        for wrong in ["", "18446744073709551616", "-1", "1 ", "0x1", "max"] {
            assert_eq!(number(wrong.as_bytes()), None, "{wrong:?}");
        }
        assert_eq!(key_size(b"Rss:\t 12 kB"), Some((&b"Rss"[..], 12288)));
        assert_eq!(key_size(b"Rss: 18446744073709551615 kB"), None);
        assert_eq!(key_size(b"Rss: 5 bananas"), None);
    }

    #[test]
    fn a_line_is_cut_not_grown() {
        let mut reader = io::BufReader::with_capacity(4, &b"abcdefgh\n\nxy"[..]);
        let mut line = Vec::new();
        let mut seen = Vec::new();
        while next_line(&mut reader, &mut line, 5).unwrap() {
            seen.push(String::from_utf8(line.clone()).unwrap());
        }
        assert_eq!(seen, ["abcde", "", "xy"]);
    }

    #[test]
    fn escapes_of_paths_are_undone() {
        assert_eq!(unescape_octal(br"/a\040b\134c\99\0"), br"/a b\c\99\0");
        assert_eq!(unescape_octal(br"\777"), br"\777");
    }
}
