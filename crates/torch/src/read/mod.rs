//! From a file to a [`Snapshot`], whatever wrapped or wrote it. Nothing in a file is ever executed.

mod build;
mod finish;
mod input;
mod json;
mod keys;
mod limits;
mod pickle;
mod quick;
mod shapes;
mod value;

use std::io::{Cursor, Read};
use std::path::Path;

use crate::error::SnapshotError;
use crate::snapshot::Snapshot;

use build::Builder;
use input::Input;
use limits::{Tally, Unpacked};

/// How often compression may be wrapped in compression.
const MAX_LAYERS: u32 = 2;

/// Reads the snapshot in a file: pickle or JSON, plain, gzip or zstd.
pub fn load(path: &Path) -> Result<Snapshot, SnapshotError> {
    let file = stormlog_files::open_regular(path);
    read(file.map_err(|source| SnapshotError::Open { path: path.to_owned(), source })?)
}

/// Whether a file looks like a snapshot, by its first bytes: a pickle, or JSON that opens as snapshots do. A compressed file
/// is looked into. Cheap enough to ask of any file; reading it may still fail.
pub fn is_snapshot(path: &Path) -> bool {
    stormlog_files::open_regular(path).is_ok_and(|file| looks_like(Box::new(file), MAX_LAYERS))
}

fn looks_like(source: Box<dyn Read + '_>, layers: u32) -> bool {
    let mut first = Vec::with_capacity(4096);
    let mut source = std::io::BufReader::new(source);
    let read = source.by_ref().take(4096).read_to_end(&mut first);
    // A file that ends early is still known by how it begins.
    if read.is_err() && first.is_empty() {
        return false;
    }
    let whole = Cursor::new(first.clone()).chain(source);
    match (first.as_slice(), layers.checked_sub(1)) {
        ([0x1f, 0x8b, ..], Some(left)) => {
            looks_like(Box::new(flate2::read::MultiGzDecoder::new(whole)), left)
        }
        ([0x28, 0xb5, 0x2f, 0xfd, ..], Some(left)) => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(whole);
            decoder.is_ok_and(|decoder| looks_like(Box::new(decoder), left))
        }
        ([0x80, 2..=5, ..], _) => true,
        ([b'{' | b'[', ..], _) => {
            let text = String::from_utf8_lossy(&first);
            ["\"device_traces\"", "\"total_size\""].iter().any(|key| text.contains(key))
        }
        _ => false,
    }
}

/// Reads a snapshot from any stream of bytes.
pub fn read(source: impl Read) -> Result<Snapshot, SnapshotError> {
    let (source, tally) = Tally::of(source);
    read_layer(Box::new(source), &tally, MAX_LAYERS)
}

/// Whatever the bytes are, the answer is a snapshot or an error: the entry for fuzzing.
pub fn fuzz(bytes: &[u8]) {
    if let Ok(snapshot) = read(bytes) {
        crate::touch(&snapshot);
    }
}

/// `tally` counts the bytes of the file itself: what they may unpack to is measured against them, however often they are wrapped.
fn read_layer(mut source: Box<dyn Read + '_>, tally: &Tally, layers: u32) -> Result<Snapshot, SnapshotError> {
    let mut first = Vec::with_capacity(4);
    source.by_ref().take(4).read_to_end(&mut first).map_err(|source| limits::read_error(0, source))?;
    let kind = first.clone();
    let whole: Box<dyn Read + '_> = Box::new(Cursor::new(first).chain(source));
    match (kind.as_slice(), layers.checked_sub(1)) {
        ([0x1f, 0x8b, ..], Some(left)) => {
            let decoder = flate2::read::MultiGzDecoder::new(std::io::BufReader::new(whole));
            read_layer(Box::new(Unpacked::new(decoder, tally)), tally, left)
        }
        ([0x28, 0xb5, 0x2f, 0xfd], Some(left)) => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(std::io::BufReader::new(whole))
                .map_err(|error| SnapshotError::Read { at: 0, source: std::io::Error::other(error) })?;
            read_layer(Box::new(Unpacked::new(decoder, tally)), tally, left)
        }
        ([0x80, ..], _) => {
            let mut builder = Builder::new();
            let mut input = Input::new(whole);
            let root = pickle::read(&mut input, &mut builder)?;
            input.drain()?;
            builder.finish(root, input.position())
        }
        ([b'{' | b'[' | b' ' | b'\t' | b'\r' | b'\n', ..], _) => {
            let mut builder = Builder::new();
            let (root, bytes) = json::read(whole, &mut builder)?;
            builder.finish(root, bytes)
        }
        ([], _) => Err(SnapshotError::Truncated { at: 0 }),
        (first, _) => Err(SnapshotError::NotASnapshot { first: first.to_vec() }),
    }
}
