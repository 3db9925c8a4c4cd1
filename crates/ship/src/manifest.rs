//! What of a run is at a target: one JSON text beside the files. It is the only memory of a shipment, so that it continues wherever it ended.
//!
//! Others may write it (an object store, a shared directory): [`Manifest::parse`] takes nothing that could lead out of a run's directory or take
//! memory without bound.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stormlog_model::layout::{LOCKS_DIRECTORY, SHIPMENT_FILE};

use crate::block;
use crate::error::ShipError;

const FORMAT: &str = "stormlog.shipment";
const VERSION: u32 = 1;
/// Bounds of what is accepted.
pub(crate) const MOST_BYTES: usize = 64 << 20;
pub(crate) const MOST_FILES: usize = 200_000;
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 4096..=16 << 20;
const MOST_LENGTH: u64 = 1 << 42;
const MOST_DEPTH: usize = 8;
const MOST_NAME: usize = 255;

/// The files of one run at a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    format: String,
    version: u32,
    /// Tells runs of one name apart: a hash of where and when it began.
    pub(crate) origin: String,
    pub(crate) block_bytes: u64,
    pub(crate) updated_at_ns: u64,
    /// The run has ended, and all of it is there.
    pub(crate) is_complete: bool,
    pub(crate) files: BTreeMap<String, FileEntry>,
}

/// One of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileEntry {
    /// The path under which its blocks are stored: the one it had first.
    pub(crate) stored: String,
    /// The file at the source: another number is another file.
    pub(crate) inode: u64,
    pub(crate) length: u64,
    pub(crate) modified_ns: u64,
    /// A mark for each block.
    pub(crate) blocks: Vec<String>,
}

impl FileEntry {
    /// Bytes that were not sent yet.
    pub(crate) fn unsent(&self, block_bytes: u64) -> u64 {
        let unsent = self.blocks.iter().filter(|mark| *mark == block::UNSENT).count() as u64;
        (unsent * block_bytes).min(self.length)
    }
}

impl Manifest {
    pub(crate) fn new(origin: String, block_bytes: u64) -> Self {
        let (format, files) = (FORMAT.to_owned(), BTreeMap::new());
        Manifest {
            format,
            version: VERSION,
            origin,
            block_bytes,
            updated_at_ns: 0,
            is_complete: false,
            files,
        }
    }

    pub(crate) fn to_text(&self) -> Result<Vec<u8>, ShipError> {
        let wrong = |error: serde_json::Error| ShipError::manifest(error.to_string());
        let mut text = serde_json::to_vec(self).map_err(wrong)?;
        text.push(b'\n');
        Ok(text)
    }

    pub(crate) fn parse(text: &[u8]) -> Result<Self, ShipError> {
        let wrong = |reason: &str| Err(ShipError::manifest(reason.to_owned()));
        if text.len() > MOST_BYTES {
            return wrong("it is larger than 64 MiB");
        }
        let read: Manifest =
            serde_json::from_slice(text).map_err(|error| ShipError::manifest(error.to_string()))?;
        if read.format != FORMAT {
            return wrong("it is not a manifest of a shipped run");
        }
        if read.version != VERSION {
            return wrong("it was written by a newer release; update Stormlog");
        }
        if !BLOCK_BYTES.contains(&read.block_bytes) || read.files.len() > MOST_FILES {
            return wrong("it has values out of range");
        }
        for (path, file) in &read.files {
            let is_whole = file.blocks.len() as u64 == block::count(file.length, read.block_bytes)
                && file.blocks.iter().all(|mark| block::is_mark(mark));
            if !is_legal(path) || !is_legal(&file.stored) || file.length > MOST_LENGTH || !is_whole {
                return wrong("it describes a file that a run cannot have");
            }
        }
        Ok(read)
    }
}

/// Whether a path may name a file of a run: relative, no way out of its directory, nothing of the shipment's own.
pub(crate) fn is_legal(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let is_name = |part: &&str| {
        !part.is_empty()
            && part.len() <= MOST_NAME
            && *part != "."
            && *part != ".."
            && !part.chars().any(char::is_control)
    };
    parts.len() <= MOST_DEPTH
        && parts.iter().all(is_name)
        && parts[0] != LOCKS_DIRECTORY
        && parts[0] != SHIPMENT_FILE
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let mut manifest = Manifest::new("origin".to_owned(), 4096);
        let blocks = vec![block::mark(b"x"), block::ZERO.to_owned()];
        let stored = "rank0-pid7/heap.bin".to_owned();
        let file = FileEntry { stored, inode: 7, length: 5000, modified_ns: 1, blocks };
        manifest.files.insert("rank0-pid7/heap.bin".to_owned(), file);
        manifest
    }

    #[test]
    fn manifests_read_back() {
        assert_eq!(Manifest::parse(&manifest().to_text().unwrap()).unwrap(), manifest());
    }

    #[test]
    fn manifest_that_leads_out_of_the_run_is_refused() {
        for path in
            ["../x", "/etc/passwd", "a//b", "", ".", "a/..", ".locks/supervisor", ".shipment.json", "a\n"]
        {
            let mut hostile = manifest();
            let file = hostile.files.pop_first().unwrap().1;
            hostile.files.insert(path.to_owned(), file.clone());
            assert!(Manifest::parse(&hostile.to_text().unwrap()).is_err(), "{path:?}");
            let mut hostile = manifest();
            hostile.files.insert("x".to_owned(), FileEntry { stored: path.to_owned(), ..file });
            assert!(Manifest::parse(&hostile.to_text().unwrap()).is_err(), "{path:?}");
        }
    }

    #[test]
    fn manifest_with_lengths_that_do_not_fit_is_refused() {
        let change: [fn(&mut Manifest); 5] = [
            |it| it.block_bytes = 0,
            |it| it.block_bytes = u64::MAX,
            |it| it.files.values_mut().for_each(|file| file.length = u64::MAX),
            |it| it.files.values_mut().for_each(|file| file.blocks.clear()),
            |it| it.files.values_mut().for_each(|file| file.blocks[0] = "../x".to_owned()),
        ];
        for change in change {
            let mut hostile = manifest();
            change(&mut hostile);
            assert!(Manifest::parse(&hostile.to_text().unwrap()).is_err());
        }
    }
}
