//! The bounded ring: one file that always holds the newest records, for the flight recorder.
//!
//! Must never make a writer wait for another, and never grow.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stormlog_liveness::Life;

use crate::error::{AppendError, Error};
use crate::file::{IfExists, StoreFile, clear_unfinished};
use crate::frames::{Cursor, Frame, Frames, Step};
use crate::handle::Handle;
use crate::header::{Identity, Kind, MAX_FILE, MIN_SLOTS, Shape};
use crate::keeper::{Keeper, Maker};
use crate::layout::{HEADER_WORDS, MAX_PAYLOAD, WORD};
use crate::record::{Definition, Loss, LossReason};
use crate::slots::Slots;

/// Words of a slot: 256 bytes, of which a small record wastes little and a telemetry event takes one or two.
const SLOT_WORDS: u64 = 32;

/// How a ring is made.
#[derive(Debug, Clone)]
pub struct RingConfig {
    /// How many slots of 256 bytes; at least 16, 16384 (4 MiB) unless changed. A record takes one for its first 240 bytes
    /// and one for each further 248, and at most a quarter of them all.
    pub slots: u64,
    /// Bytes set aside for definitions, which are never overwritten; 256 KiB unless changed.
    pub definition_bytes: u64,
    /// Whether a file under the same name may be replaced.
    pub replace: bool,
    /// Sixteen bytes of the caller's choice, to be found in the file.
    pub label: [u8; 16],
}

impl Default for RingConfig {
    fn default() -> Self {
        RingConfig { slots: 16 << 10, definition_bytes: 256 << 10, replace: false, label: [0; 16] }
    }
}

/// A ring open for writing. Dropping it and all its writers closes this process's share of it; the last process to do so
/// leaves it marked as closed.
#[derive(Clone)]
pub struct Ring {
    keeper: Arc<Keeper<RingFile>>,
}

/// One thread's access to a ring. Works on in a forked child.
pub struct RingWriter {
    handle: Handle<RingFile>,
    // How far this writer has read the definitions that others wrote, in which file.
    read: (u64, Cursor),
    scratch: Vec<u8>,
}

impl Ring {
    /// Makes a ring at `path`.
    pub fn create(path: impl AsRef<Path>, config: RingConfig) -> Result<Self, Error> {
        let RingConfig { slots, definition_bytes, replace, label } = config;
        let header = (HEADER_WORDS * WORD) as u64;
        let most = (MAX_FILE - header) / (SLOT_WORDS * WORD as u64);
        if !(MIN_SLOTS..=most).contains(&slots) {
            return Err(Error::Config { name: "slots", value: slots, least: MIN_SLOTS, most });
        }
        let most = MAX_FILE - header - slots * SLOT_WORDS * WORD as u64;
        if definition_bytes > most {
            return Err(Error::Config { name: "definition_bytes", value: definition_bytes, least: 0, most });
        }
        let path = std::path::absolute(&path)
            .map_err(|source| Error::Io { path: path.as_ref().to_owned(), source })?;
        if let Some(dir) = path.parent() {
            clear_unfinished(dir);
        }
        let frame_words = definition_bytes / WORD as u64;
        let shape = Shape { kind: Kind::Ring, count: slots, frame_words, slot_words: SLOT_WORDS };
        let maker = RingFile { path, shape, identity: Identity::new(label) };
        match maker.make(if replace { IfExists::Replace } else { IfExists::Keep })? {
            Some(file) => Ok(Ring { keeper: Keeper::new(maker, Arc::new(file)) }),
            None => Err(Error::Exists { path: maker.path }),
        }
    }

    /// A writer, for one thread.
    pub fn writer(&self) -> Result<RingWriter, Error> {
        Ok(RingWriter::new(Handle::new(self.keeper.home(None)?)))
    }
}

impl RingWriter {
    fn new(handle: Handle<RingFile>) -> Self {
        RingWriter { handle, read: (0, Cursor::start(0)), scratch: Vec::new() }
    }

    /// Appends a record. Once this returns `Ok`, the record survives the death of the process for as long as it is among
    /// the newest, and every definition in `definitions` as long as the file.
    pub fn append(
        &mut self,
        kind: u8,
        payload: &[u8],
        definitions: &[&Definition],
    ) -> Result<(), AppendError> {
        let shape = self.handle.file().shape();
        let limit = Slots::max_payload(shape.count as usize, shape.slot_words as usize);
        if payload.len() > limit {
            self.handle.lose(payload.len(), LossReason::TooLarge);
            return Err(AppendError::TooLarge { bytes: payload.len(), limit });
        }
        let placed = self.handle.ready();
        if placed.is_ok() {
            for definition in definitions {
                self.define(definition)?;
            }
        }
        placed.and_then(|()| self.place(kind, payload)).map_err(|reason| {
            self.handle.lose(payload.len(), reason);
            AppendError::Lost(reason)
        })
    }

    /// What this writer has lost so far.
    pub fn loss(&self) -> Loss {
        self.handle.lost()
    }

    fn place(&mut self, kind: u8, payload: &[u8]) -> Result<(), LossReason> {
        let file = self.handle.file();
        let is_dead = |pid| file.header().life(pid) == Life::Dead;
        file.slots().append(self.handle.pid(), kind, payload, is_dead).map_err(|_| LossReason::Contended)?;
        self.handle.appended(payload.len())
    }

    /// Sees to it that the file holds a definition.
    fn define(&mut self, definition: &Definition) -> Result<(), AppendError> {
        if self.handle.knows(definition) {
            return Ok(());
        }
        self.read_definitions();
        if self.handle.knows(definition) {
            return Ok(());
        }
        let framed = definition.framed();
        let full = AppendError::DefinitionsFull { bytes: framed.len() };
        if framed.len() > MAX_PAYLOAD || Frames::cost(framed.len()) > self.handle.file().frames().capacity() {
            return Err(full);
        }
        let frame = Frame { kind: 0, definition: true, pid: self.handle.pid() };
        self.handle.file().frames().append(frame, framed).map_err(|_| full)?;
        self.handle.learn(definition.id().0);
        Ok(())
    }

    /// Learns what other writers have defined since this one last looked, so that the area holds it once.
    fn read_definitions(&mut self) {
        if self.read.0 != self.handle.generation() + 1 {
            let words = self.handle.file().shape().frame_words as usize;
            self.read = (self.handle.generation() + 1, Cursor::start(words));
        }
        loop {
            match self.handle.file().frames().step(&mut self.read.1, &mut self.scratch) {
                Step::Frame(_) => {
                    if let Some(id) = self.scratch.first_chunk() {
                        self.handle.learn(u64::from_le_bytes(*id));
                    }
                }
                // Should its owner finish it, ours is a second copy and harmless.
                Step::Reserved { next, .. } => self.read.1.skip_to(next),
                Step::Damaged => {}
                Step::Empty | Step::End => return,
            }
        }
    }
}

impl Clone for RingWriter {
    /// Another writer of the same ring, for another thread. Its losses start at none.
    fn clone(&self) -> Self {
        RingWriter::new(self.handle.another())
    }
}

/// The one file of a ring.
#[derive(Clone)]
struct RingFile {
    path: PathBuf,
    shape: Shape,
    identity: Identity,
}

impl RingFile {
    fn make(&self, taken: IfExists) -> Result<Option<StoreFile>, Error> {
        StoreFile::create(&self.path, self.shape, self.identity, taken)
    }
}

impl Maker for RingFile {
    fn retires(&self) -> bool {
        false
    }

    /// A ring has a successor only where it was deleted or damaged.
    fn successor(&self, old: Option<&StoreFile>) -> Result<StoreFile, Error> {
        loop {
            let taken = match fs::metadata(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => IfExists::Keep,
                Err(source) => return Err(Error::Io { path: self.path.clone(), source }),
                Ok(stat) if old.is_some_and(|old| old.id() == (stat.dev(), stat.ino())) => IfExists::Replace,
                Ok(_) => {
                    let file = StoreFile::open(&self.path, Kind::Ring, true)?;
                    if file.identity().family != self.identity.family {
                        return Err(Error::Exists { path: self.path.clone() });
                    }
                    return Ok(file);
                }
            };
            if let Some(made) = self.make(taken)? {
                return Ok(made);
            }
        }
    }
}
