//! A first look at a JSON file that starts with an object: which keys it has at the top, and where their values are.
//!
//! Needed because the list of events may follow other keys, and because a file of several objects is JSONL
//! whatever its name. Values are skipped, not held.

use std::fs::File;
use std::path::Path;

use serde_json::Value;

use super::extent::Extent;
use super::window::{Filled, Window};
use super::{MAX_RECORD, parse_value};
use crate::{SourcePosition, StoreError, file};

/// Keys whose small values are kept because the reader needs them.
const KEPT: [&str; 1] = ["session_summary"];

/// One key of the top object.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) key: String,
    pub(crate) first_byte: u8,
    pub(crate) line: u64,
    pub(crate) offset: u64,
    /// The value, for the keys that are kept.
    pub(crate) value: Option<Value>,
}

/// What a file that starts with `{` holds.
#[derive(Debug)]
pub(crate) enum Survey {
    /// One object.
    Object(Vec<Member>),
    /// Several values, one after the other.
    Lines,
}

/// Looks at the file at `path`, whose first token is `{`.
pub(crate) fn survey(path: &Path) -> Result<Survey, StoreError> {
    let mut window = Window::new(file::open_regular(path)?, MAX_RECORD);
    window.skip_mark().map_err(|error| StoreError::io(path, error))?;
    let mut scan = Scan { path, window };
    let mut members = Vec::new();
    scan.token()?;
    scan.window.consume(1);
    if scan.token()? == b'}' {
        scan.window.consume(1);
    } else {
        loop {
            members.push(scan.member()?);
            let token = scan.token()?;
            scan.window.consume(1);
            match token {
                b',' => {}
                b'}' => break,
                other => return Err(scan.unexpected(other, "',' or '}'")),
            }
        }
    }
    match scan.window.next_token().map_err(|error| StoreError::io(path, error))? {
        None => Ok(Survey::Object(members)),
        Some(b'{') => Ok(Survey::Lines),
        Some(other) => Err(scan.unexpected(other, "the end of the file")),
    }
}

struct Scan<'a> {
    path: &'a Path,
    window: Window<File>,
}

impl Scan<'_> {
    fn member(&mut self) -> Result<Member, StoreError> {
        let token = self.token()?;
        if token != b'"' {
            return Err(self.unexpected(token, "a key in quotes"));
        }
        let line = self.window.line();
        let Some(key) = self.value(MAX_RECORD)? else { return Err(self.too_large()) };
        let Value::String(key) = parse_value(self.path, line, &key)? else {
            return Err(self.unexpected(token, "a key in quotes"));
        };
        let colon = self.token()?;
        if colon != b':' {
            return Err(self.unexpected(colon, "':'"));
        }
        self.window.consume(1);
        let first_byte = self.token()?;
        let (line, offset) = (self.window.line(), self.window.offset());
        let kept = if KEPT.contains(&key.as_str()) { MAX_RECORD } else { 0 };
        let value = match self.value(kept)? {
            Some(text) => Some(parse_value(self.path, line, &text)?),
            None => None,
        };
        Ok(Member { key, first_byte, line, offset, value })
    }

    /// Moves past the value at the cursor; its text when it is no longer than `keep`.
    fn value(&mut self, keep: usize) -> Result<Option<Vec<u8>>, StoreError> {
        let mut extent = Extent::default();
        let mut text = Vec::new();
        let mut length = 0;
        let mut in_string = 0;
        loop {
            let end = extent.advance(self.window.bytes());
            let step = end.unwrap_or_else(|| extent.position());
            length += step;
            if length <= keep {
                text.extend_from_slice(&self.window.bytes()[..step]);
            }
            self.window.consume(step);
            extent.discard(step);
            // A list of events may be as long as it likes; a string may not.
            in_string = if extent.in_string() { in_string + step } else { 0 };
            if in_string > MAX_RECORD {
                return Err(self.too_large());
            }
            if end.is_some() {
                return Ok((length <= keep).then_some(text));
            }
            match self.window.fill().map_err(|error| StoreError::io(self.path, error))? {
                Filled::More => {}
                Filled::Eof => return Err(self.truncated()),
                Filled::Full => return Err(self.too_large()),
            }
        }
    }

    fn token(&mut self) -> Result<u8, StoreError> {
        let token = self.window.next_token().map_err(|error| StoreError::io(self.path, error))?;
        token.ok_or_else(|| self.truncated())
    }

    fn here(&self) -> SourcePosition {
        SourcePosition::line(self.path, self.window.line())
    }

    fn truncated(&self) -> StoreError {
        StoreError::malformed(self.here(), "the file ends in the middle of a value; it is truncated")
    }

    fn too_large(&self) -> StoreError {
        StoreError::TooLarge { position: self.here(), limit: MAX_RECORD }
    }

    fn unexpected(&self, found: u8, expected: &str) -> StoreError {
        let found = (found as char).escape_default();
        StoreError::malformed(self.here(), format!("not JSON: expected {expected}, found '{found}'"))
    }
}
