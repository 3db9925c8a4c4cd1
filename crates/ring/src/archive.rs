//! The archive of a log: one segment that takes the place of the oldest ones, with what its caller keeps of them.
//!
//! It is made under a name that is not a segment's, and given the number of the last segment it stands for when it is whole; what it replaces
//! is deleted only then. A crash in between leaves the old segments as they were, or some of them beside the archive until the next one.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

use crate::error::{AppendError, Error};
use crate::file::{IfExists, StoreFile};
use crate::frames::{Frame, Frames};
use crate::header::{Kind, Shape};
use crate::layout::{HEADER_WORDS, MAX_PAYLOAD, WORD};
use crate::log::{Log, segments};
use crate::process;
use crate::record::{Definition, Loss};

/// Not a number, so no reader takes it for a segment.
const DRAFT: &str = "archive.slog";

/// An archive being written.
pub struct Archive {
    file: StoreFile,
    dir: PathBuf,
    number: u64,
    path: PathBuf,
    known: HashSet<u64>,
}

impl Log {
    /// Begins an archive of the segments up to `number`, of at most `bytes`. Only the process that writes the log may, and only of segments
    /// that are no longer written.
    pub fn archive(&self, number: u64, bytes: u64) -> Result<Archive, Error> {
        let maker = self.segments();
        let frame_words = bytes.div_ceil(WORD as u64).saturating_sub(HEADER_WORDS as u64);
        let shape = Shape { kind: Kind::Segment, count: number, frame_words, slot_words: 0 };
        let draft = maker.dir.join(DRAFT);
        let made = StoreFile::create(&draft, shape, maker.identity, IfExists::Replace)?;
        let file = made.ok_or(Error::Exists { path: draft })?;
        Ok(Archive { file, dir: maker.dir.clone(), number, path: maker.path(number), known: HashSet::new() })
    }
}

impl Archive {
    /// Appends a record; an error when there is no room for it.
    pub fn append(
        &mut self,
        kind: u8,
        payload: &[u8],
        definitions: &[&Definition],
    ) -> Result<(), AppendError> {
        let pid = process::pid();
        let parts = || definitions.iter().map(|definition| definition.framed().len()).chain([payload.len()]);
        let bytes = parts().map(Frames::cost).sum::<usize>() * WORD;
        let full = AppendError::TooLarge { bytes, limit: MAX_PAYLOAD };
        if parts().any(|bytes| bytes > MAX_PAYLOAD) {
            return Err(full);
        }
        for definition in definitions {
            if !self.known.contains(&definition.id().0) {
                let frame = Frame { kind: 0, definition: true, pid };
                let Ok(()) = self.file.frames().append(frame, definition.framed()) else { return Err(full) };
                self.known.insert(definition.id().0);
            }
        }
        let frame = Frame { kind, definition: false, pid };
        self.file.frames().append(frame, payload).map_err(|_| full)
    }

    /// Puts the archive in place of the segments it stands for. What these lost stays known.
    pub fn publish(self) -> Result<(), Error> {
        let Archive { file, dir, number, path, .. } = self;
        let old: Vec<_> = segments(&dir)?.into_iter().filter(|(found, _)| *found <= number).collect();
        let lost =
            |path: &PathBuf| StoreFile::open(path, Kind::Segment, false).map(|old| old.header().loss());
        let losses = old.iter().filter_map(|(_, path)| lost(path).ok());
        let mut loss = Loss::default();
        losses.for_each(|one| loss.add(one));
        file.header().lose(loss);
        file.close(process::pid());
        drop(file);
        let failed = |source| Error::Io { path: path.clone(), source };
        fs::rename(dir.join(DRAFT), &path).map_err(failed)?;
        for (_, replaced) in old.iter().filter(|(found, _)| *found < number) {
            // One that stays is read before the archive: its records are there twice, and replaced by the next archive.
            let _ = fs::remove_file(replaced);
        }
        Ok(())
    }
}
