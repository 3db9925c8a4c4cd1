//! The bytes of a file, decompressed, with bounds on what is held at once. Only regular files are opened.

use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::Path;

use crate::error::{ImportError, Position};
use crate::recognise::Format;

/// Most bytes of one line, one message or one text.
pub(crate) const MOST_IN_ONE: u64 = 128 << 20;
/// Most bytes that a reader keeps of a file: a small file may decompress into more than there is memory for.
const MOST_KEPT: usize = 256 << 20;
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const BUFFER: usize = 1 << 16;
/// The note on a file that was cut where what is left of it is of use.
pub(crate) const ENDS_EARLY: &str = "The file ends early: what came after its end is missing here.";

/// A file being read, for its errors.
pub(crate) struct File<'a> {
    pub(crate) path: &'a Path,
    pub(crate) format: Format,
}

impl File<'_> {
    pub(crate) fn open(&self) -> Result<Box<dyn BufRead>, ImportError> {
        open(self.path).map_err(|source| self.io(source))
    }

    /// The whole content.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, ImportError> {
        let mut bytes = Vec::new();
        let mut reader = self.open()?.take(MOST_IN_ONE + 1);
        reader.read_to_end(&mut bytes).map_err(|source| self.io(source))?;
        match bytes.len() as u64 > MOST_IN_ONE {
            true => Err(self.too_large()),
            false => Ok(bytes),
        }
    }

    pub(crate) fn lines(&self) -> Result<Lines<'_>, ImportError> {
        Ok(Lines { file: self, reader: self.open()?, bytes: Vec::new(), number: 0, is_cut: false })
    }

    pub(crate) fn io(&self, source: io::Error) -> ImportError {
        match is_cut(&source) {
            true => self.damaged("its compressed data ends early or does not decompress", Position::End),
            false => ImportError::Io { path: self.path.to_owned(), source },
        }
    }

    /// One piece of the file is too large.
    pub(crate) fn too_large(&self) -> ImportError {
        self.takes_more_than(MOST_IN_ONE)
    }

    fn takes_more_than(&self, limit: u64) -> ImportError {
        ImportError::TooLarge { path: self.path.to_owned(), format: self.format, limit }
    }

    pub(crate) fn damaged(&self, what: &'static str, at: Position) -> ImportError {
        ImportError::Damaged { path: self.path.to_owned(), format: self.format, what, at }
    }

    pub(crate) fn nothing(&self, what: impl Into<String>) -> ImportError {
        ImportError::Nothing { path: self.path.to_owned(), format: self.format, what: what.into() }
    }
}

/// The bytes that a reader keeps of a file until it has read all of it.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Kept(usize);

impl Kept {
    pub(crate) fn add(&mut self, bytes: usize) {
        self.0 = self.0.saturating_add(bytes);
    }

    /// Adds a list of `length` values of a type.
    pub(crate) fn add_list<T>(&mut self, length: usize) {
        self.add(length.saturating_mul(size_of::<T>()));
    }

    pub(crate) fn remove(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(bytes);
    }

    pub(crate) fn is_full(self) -> bool {
        self.0 > MOST_KEPT
    }

    /// Fails once more is kept than a reader may keep.
    pub(crate) fn check(self, file: &File<'_>) -> Result<(), ImportError> {
        match self.is_full() {
            true => Err(file.takes_more_than(MOST_KEPT as u64)),
            false => Ok(()),
        }
    }
}

/// The lines of a text, one at a time. Bytes that are not UTF-8 become replacement characters.
pub(crate) struct Lines<'a> {
    file: &'a File<'a>,
    reader: Box<dyn BufRead>,
    bytes: Vec<u8>,
    number: u64,
    is_cut: bool,
}

impl Lines<'_> {
    /// The next line without its end, and whether it has one: a last line without may be cut.
    pub(crate) fn next(&mut self) -> Result<Option<(String, bool)>, ImportError> {
        self.bytes.clear();
        let read = self.reader.by_ref().take(MOST_IN_ONE).read_until(b'\n', &mut self.bytes);
        match read {
            Ok(0) => return Ok(None),
            Ok(length) if length as u64 == MOST_IN_ONE => return Err(self.file.too_large()),
            Ok(_) => {}
            // A compressed file that was cut: what came before is whole.
            Err(error) if is_cut(&error) && self.number > 0 => {
                self.is_cut = true;
                return Ok(None);
            }
            Err(source) => return Err(self.file.io(source)),
        }
        self.number += 1;
        let is_whole = self.bytes.last() == Some(&b'\n');
        self.is_cut |= !is_whole;
        let line = self.bytes.strip_suffix(b"\n").unwrap_or(&self.bytes);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        Ok(Some((String::from_utf8_lossy(line).into_owned(), is_whole)))
    }

    /// Whether the text ended within a line, or within its compressed data.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The number of the last line.
    pub(crate) fn position(&self) -> Position {
        Position::Line(self.number)
    }
}

/// Whether a reader failed because of what is in the file: compressed data without its end.
pub(crate) fn is_cut(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | InvalidInput | InvalidData | Other)
}

/// The decompressed content.
pub(crate) fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    let mut file = stormlog_files::open_regular(path)?;
    let mut start = [0; 4];
    let length = file.by_ref().take(4).read(&mut start)?;
    file.rewind()?;
    let plain = BufReader::with_capacity(BUFFER, file);
    Ok(if length >= 2 && start[..2] == GZIP {
        Box::new(BufReader::with_capacity(BUFFER, flate2::bufread::MultiGzDecoder::new(plain)))
    } else if start == ZSTD {
        let decoder = ruzstd::decoding::StreamingDecoder::new(plain).map_err(io::Error::other)?;
        Box::new(BufReader::with_capacity(BUFFER, decoder))
    } else {
        Box::new(plain)
    })
}
