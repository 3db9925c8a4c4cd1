//! The secret that a receiver wants, from a file that only its owner can read.

use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::error::PushError;

/// Bytes of a token's file.
const MOST_BYTES: u64 = 16 << 10;

/// The token in a file: its text without the white space around it. The file must be closed to other users.
pub fn read_token(path: &Path) -> Result<String, PushError> {
    let wrong = |reason: String| PushError::Token { path: path.to_owned(), reason };
    let file = std::fs::File::open(path).map_err(|error| wrong(error.to_string()))?;
    let about = file.metadata().map_err(|error| wrong(error.to_string()))?;
    if !about.is_file() {
        return Err(wrong("not a regular file".to_owned()));
    }
    if about.permissions().mode() & 0o077 != 0 || about.uid() != rustix::process::geteuid().as_raw() {
        return Err(wrong("other users can read it; own it and run `chmod 600` on it".to_owned()));
    }
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text).map_err(|error| wrong(error.to_string()))?;
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong("it must hold one token in one line".to_owned()));
    }
    Ok(token.to_owned())
}
