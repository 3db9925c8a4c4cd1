//! What a run can be written to, block by block. One file is written at a time.

use crate::error::ShipError;
use crate::manifest::{FileEntry, Manifest};

/// How a file is begun at a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// A new file takes the place of what is there when it is whole.
    Replace,
    /// A new file that is readable from its first block on.
    Fresh,
    /// Blocks of a file that is there.
    Patch,
}

/// A place for runs.
pub(crate) trait Target {
    /// The size of its blocks.
    fn block_bytes(&self) -> u64;

    /// What of the run of that name is there. Blocks are written below it from now on.
    fn load(&mut self, name: &str) -> Result<Option<Manifest>, ShipError>;

    /// Takes a name for a run and saves its first manifest there; false where the name is taken.
    fn claim(&mut self, name: &str, manifest: &Manifest) -> Result<bool, ShipError>;

    /// An error where what is written would no longer be found at the target; asked before each pass.
    fn check(&self) -> Result<(), ShipError> {
        Ok(())
    }

    /// Whether a file that is begun again needs all its blocks, not only those that changed.
    fn needs_all(&self, how: How) -> bool;

    /// Whether a file of that length is still there, as far as that can be seen without much effort.
    fn is_there(&self, path: &str, length: u64) -> bool;

    /// Begins a file.
    fn begin(&mut self, path: &str, file: &FileEntry, how: How) -> Result<(), ShipError>;

    /// Writes one block of it.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), ShipError>;

    /// Makes one block of it zeros.
    fn zero(&mut self, offset: u64, length: u64) -> Result<(), ShipError>;

    /// Ends it at this length.
    fn end(&mut self, length: u64) -> Result<(), ShipError>;

    /// Moves a file.
    fn rename(&mut self, from: &str, to: &str) -> Result<(), ShipError>;

    /// Removes a file, of which the blocks are known.
    fn remove(&mut self, path: &str, file: &FileEntry, block_bytes: u64) -> Result<(), ShipError>;

    /// Keeps what is there by now.
    fn save(&mut self, manifest: &Manifest) -> Result<(), ShipError>;
}
