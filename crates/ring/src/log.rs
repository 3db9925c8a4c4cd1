//! The growing log: a directory of numbered segments, appended to by many threads and processes.
//!
//! The writer that finds the current segment full ends it and makes the next. Definitions are written once per writer and segment, before the
//! first record there that needs them, so every segment can be read alone.
//!
//! Must never wait for the disk's consent: where the next segment cannot be made, records are counted and dropped until it can.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stormlog_files::create_directory;

use crate::error::{AppendError, Error};
use crate::file::{IfExists, StoreFile, clear_unfinished, with_header};
use crate::frames::{Frame, Frames, Full};
use crate::handle::Handle;
use crate::header::{Identity, Kind, MAX_FILE, Shape};
use crate::keeper::{Keeper, Maker};
use crate::layout::{HEADER_WORDS, MAX_PAYLOAD, WORD};
use crate::record::{Definition, Loss, LossReason};

const EXTENSION: &str = "slog";
const LEAST_SEGMENT: u64 = 8 << 10;
/// Segments tried for one record. More than one is used up only when others fill each before we get to it.
const ATTEMPTS: usize = 16;

/// How a log is made.
#[derive(Debug, Clone)]
pub struct LogConfig {
    /// Bytes of one segment, from 8 KiB to 4 GiB; 16 MiB unless changed. Rounded up to whole words.
    pub segment_bytes: u64,
    /// Bytes of the first segment, where it is to be smaller; each next one is twice as large until it has `segment_bytes`.
    pub first_segment_bytes: Option<u64>,
    /// How many segments to keep; the oldest is deleted when one more is made. `None` keeps all.
    pub max_segments: Option<u64>,
    /// Sixteen bytes of the caller's choice, to be found in every segment.
    pub label: [u8; 16],
}

impl Default for LogConfig {
    fn default() -> Self {
        LogConfig { segment_bytes: 16 << 20, first_segment_bytes: None, max_segments: None, label: [0; 16] }
    }
}

/// A log open for writing. Dropping it and all its writers closes this process's share of it; the last process to do so
/// leaves it marked as closed.
#[derive(Clone)]
pub struct Log {
    keeper: Arc<Keeper<Segments>>,
}

/// One thread's access to a log. Works on in a forked child.
pub struct LogWriter {
    handle: Handle<Segments>,
}

impl Log {
    /// Makes a log in `dir`, which is created if need be and must not hold one yet.
    pub fn create(dir: impl AsRef<Path>, config: LogConfig) -> Result<Self, Error> {
        let LogConfig { segment_bytes, first_segment_bytes, max_segments, label } = config;
        if !(LEAST_SEGMENT..=MAX_FILE).contains(&segment_bytes) {
            let name = "segment_bytes";
            return Err(Error::Config { name, value: segment_bytes, least: LEAST_SEGMENT, most: MAX_FILE });
        }
        let failed = |source| Error::Io { path: dir.as_ref().to_owned(), source };
        create_directory(dir.as_ref()).map_err(failed)?;
        // The process may change its working directory.
        let dir = std::path::absolute(&dir).map_err(failed)?;
        clear_unfinished(&dir);
        let words = |bytes: u64| bytes.div_ceil(WORD as u64) - HEADER_WORDS as u64;
        let frame_words = words(segment_bytes);
        let first = first_segment_bytes.unwrap_or(segment_bytes).clamp(LEAST_SEGMENT, segment_bytes);
        let first_words = words(first);
        let maker = Segments { dir, frame_words, first_words, max_segments, identity: Identity::new(label) };
        match maker.make(1)? {
            Some(first) if segments(&maker.dir)?.len() == 1 => {
                Ok(Log { keeper: Keeper::new(maker, Arc::new(first)) })
            }
            made => {
                if made.is_some() {
                    let _ = fs::remove_file(maker.path(1));
                }
                Err(Error::Exists { path: maker.dir })
            }
        }
    }

    pub(crate) fn segments(&self) -> &Segments {
        self.keeper.maker()
    }

    /// A writer, for one thread.
    pub fn writer(&self) -> Result<LogWriter, Error> {
        Ok(LogWriter { handle: Handle::new(self.keeper.home(None)?) })
    }
}

impl LogWriter {
    /// Appends a record. Once this returns `Ok`, the record survives the death of the process, and so does every
    /// definition in `definitions`, in the same segment and before it.
    pub fn append(
        &mut self,
        kind: u8,
        payload: &[u8],
        definitions: &[&Definition],
    ) -> Result<(), AppendError> {
        self.fits(payload, definitions)
            .inspect_err(|_| self.handle.lose(payload.len(), LossReason::TooLarge))?;
        self.place(kind, payload, definitions).map_err(|reason| {
            self.handle.lose(payload.len(), reason);
            AppendError::Lost(reason)
        })
    }

    /// What this writer has lost so far.
    pub fn loss(&self) -> Loss {
        self.handle.lost()
    }

    /// The number of the segment that was written to last.
    pub fn segment(&self) -> u64 {
        self.handle.file().shape().count
    }

    fn fits(&self, payload: &[u8], definitions: &[&Definition]) -> Result<(), AppendError> {
        let now = self.handle.file();
        // A later segment may be larger. One word stays free for the end mark.
        let later = (self.handle.maker().frame_words as usize).saturating_sub(1);
        let capacity = now.frames().capacity().max(later);
        let parts = || definitions.iter().map(|definition| definition.framed().len()).chain([payload.len()]);
        let cost = parts().fold(0, |cost: usize, bytes| cost.saturating_add(Frames::cost(bytes)));
        if cost <= capacity && parts().all(|bytes| bytes <= MAX_PAYLOAD) {
            return Ok(());
        }
        Err(AppendError::TooLarge { bytes: cost * WORD, limit: MAX_PAYLOAD.min(capacity * WORD) })
    }

    fn place(&mut self, kind: u8, payload: &[u8], definitions: &[&Definition]) -> Result<(), LossReason> {
        self.handle.ready()?;
        for _ in 0..ATTEMPTS {
            match self.write(kind, payload, definitions) {
                Ok(()) => return self.handle.appended(payload.len()),
                Err(Full) => self.handle.leave()?,
            }
        }
        Err(LossReason::Contended)
    }

    fn write(&mut self, kind: u8, payload: &[u8], definitions: &[&Definition]) -> Result<(), Full> {
        let pid = self.handle.pid();
        for definition in definitions {
            if !self.handle.knows(definition) {
                let frame = Frame { kind: 0, definition: true, pid };
                self.handle.file().frames().append(frame, definition.framed())?;
                self.handle.learn(definition.id().0);
            }
        }
        self.handle.file().frames().append(Frame { kind, definition: false, pid }, payload)
    }
}

impl Clone for LogWriter {
    /// Another writer of the same log, for another thread. Its losses start at none.
    fn clone(&self) -> Self {
        LogWriter { handle: self.handle.another() }
    }
}

/// The numbered files of one log.
#[derive(Clone)]
pub(crate) struct Segments {
    pub(crate) dir: PathBuf,
    frame_words: u64,
    first_words: u64,
    max_segments: Option<u64>,
    pub(crate) identity: Identity,
}

impl Segments {
    pub(crate) fn path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{number:06}.{EXTENSION}"))
    }

    fn make(&self, number: u64) -> Result<Option<StoreFile>, Error> {
        let doublings = u32::try_from(number.saturating_sub(1)).unwrap_or(u32::MAX).min(32);
        let frame_words = self.first_words.saturating_mul(1 << doublings).min(self.frame_words);
        let shape = Shape { kind: Kind::Segment, count: number, frame_words, slot_words: 0 };
        StoreFile::create(&self.path(number), shape, self.identity, IfExists::Keep)
    }

    /// Deletes what is older than the newest `max_segments`. What the deleted ones lost stays known.
    fn retire(&self, newest: &StoreFile, numbers: &[(u64, PathBuf)]) {
        let Some(keep) = self.max_segments else { return };
        let oldest = newest.shape().count.saturating_sub(keep.max(1) - 1);
        for (_, path) in numbers.iter().filter(|(number, _)| *number < oldest) {
            let loss = stormlog_files::open_regular(path)
                .map_err(|source| Error::Io { path: path.clone(), source })
                .and_then(|file| with_header(&file, path, |header| header.loss()));
            if fs::remove_file(path).is_ok()
                && let Ok(loss) = loss
            {
                newest.header().lose(loss);
            }
        }
    }
}

impl Maker for Segments {
    fn retires(&self) -> bool {
        self.max_segments.is_some()
    }

    fn successor(&self, old: Option<&StoreFile>) -> Result<StoreFile, Error> {
        let mut after = old.map_or(0, |old| {
            old.frames().seal(); // first: once a later segment exists, nothing is added to an earlier one
            old.shape().count
        });
        loop {
            let existing = segments(&self.dir)?;
            let newest = existing.last().map_or(0, |(number, _)| *number).max(after);
            if newest > after {
                match StoreFile::open(&self.path(newest), Kind::Segment, true) {
                    Ok(file)
                        if file.identity().family == self.identity.family
                            && file.trouble().is_none()
                            && !file.frames().is_sealed() =>
                    {
                        return Ok(file);
                    }
                    _ => after = newest, // full, damaged or of another process
                }
            }
            if let Some(made) = self.make(newest + 1)? {
                self.retire(&made, &existing);
                return Ok(made);
            }
        }
    }
}

/// The segments in `dir` by number. Names beyond 32 bits are not ours: we would have written for centuries.
pub(crate) fn segments(dir: &Path) -> Result<Vec<(u64, PathBuf)>, Error> {
    let failed = |source| Error::Io { path: dir.to_owned(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == EXTENSION)
            && let Some(number) =
                path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<u32>().ok())
        {
            found.push((u64::from(number), path));
        }
    }
    found.sort_unstable();
    Ok(found)
}
