//! The file of `--token-file`: only its owner may be able to read it, or the token protects nothing. Must never print the token.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Fewer characters can be guessed.
const LEAST: usize = 16;
const MOST: u64 = 4096;

/// Why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It cannot be read.
    #[error("{}: {source}; make one with `install -m 600 /dev/null FILE && openssl rand -hex 32 > FILE`", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system reported.
        source: std::io::Error,
    },
    /// Others can read it.
    #[error("{}: must belong to you and be closed to others; run `chmod 600` on it", .0.display())]
    Open(PathBuf),
    /// It has no token.
    #[error("{}: needs one line of at least {LEAST} printable characters without spaces", .0.display())]
    Weak(PathBuf),
}

/// A secret that a client must send.
#[derive(Clone)]
pub struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Reads the file.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let io = |source| TokenError::Io { path: path.to_owned(), source };
        let file = stormlog_files::open_regular(path).map_err(io)?;
        let found = file.metadata().map_err(io)?;
        if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o077 != 0 {
            return Err(TokenError::Open(path.to_owned()));
        }
        let mut text = String::new();
        file.take(MOST).read_to_string(&mut text).map_err(io)?;
        let token = text.trim();
        let is_plain = token.bytes().all(|byte| byte.is_ascii_graphic());
        if token.len() < LEAST || !is_plain {
            return Err(TokenError::Weak(path.to_owned()));
        }
        Ok(Token(token.to_owned()))
    }

    /// Whether this is it.
    pub(crate) fn is(&self, given: &str) -> bool {
        crate::http::is_equal(given, &self.0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn token_that_others_can_read_or_guess_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let write = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Token::read(&path)
        };
        let good = "0123456789abcdef0123";
        assert!(write(&format!("{good}\n"), 0o600).unwrap().is(good));
        assert!(!write(good, 0o400).unwrap().is("0123456789abcdef0124"));
        assert!(matches!(write(good, 0o640), Err(TokenError::Open(_))));
        assert!(matches!(write(good, 0o604), Err(TokenError::Open(_))));
        for weak in ["", "short", "0123456789 abcdef0123", "0123456789\nabcdef0123"] {
            assert!(matches!(write(weak, 0o600), Err(TokenError::Weak(_))), "{weak}");
        }
        assert!(matches!(Token::read(directory.path()), Err(TokenError::Io { .. })));
        assert_eq!(format!("{:?}", write(good, 0o600).unwrap()), "Token");
    }
}
