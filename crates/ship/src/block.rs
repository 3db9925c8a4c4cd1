//! A block of a file, and the text by which a manifest knows it.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// A block of zeros: it is never sent, because a file begins as a hole.
pub(crate) const ZERO: &str = "0";
/// A block that was not sent yet.
pub(crate) const UNSENT: &str = "-";
/// Bytes of a hash that are kept.
const KEPT: usize = 16;

/// What a manifest has for these bytes.
pub(crate) fn mark(bytes: &[u8]) -> String {
    if bytes.iter().all(|byte| *byte == 0) { ZERO.to_owned() } else { hex(&Sha256::digest(bytes)[..KEPT]) }
}

/// Whether a text can be a block's mark.
pub(crate) fn is_mark(text: &str) -> bool {
    text == ZERO || text == UNSENT || (text.len() == 2 * KEPT && text.bytes().all(|b| b.is_ascii_hexdigit()))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a text does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The number of blocks of a file.
pub(crate) fn count(length: u64, block_bytes: u64) -> u64 {
    length.div_ceil(block_bytes.max(1))
}
