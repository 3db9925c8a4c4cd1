//! Why something was not delivered. A URL is named by its host alone: its path and query may be a secret.

use std::io;
use std::path::PathBuf;

/// Why something was not delivered, or cannot be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// Not a URL that can be posted to.
    #[error("{reason}; expected a URL such as http://127.0.0.1:9093/path")]
    Url {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// TLS is Python's here, and there is none.
    #[error(
        "https to {host} needs the TLS of the Python package: use the command that `pip install stormlog` installs, name an interpreter \
         with STORMLOG_PYTHON, or send to a collector on this machine over http"
    )]
    NoTls {
        /// The receiver.
        host: String,
    },
    /// The receiver cannot be reached.
    #[error("{host} cannot be reached: {source}")]
    Connect {
        /// The receiver.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// No whole answer came.
    #[error("{host} did not answer: {source}")]
    Answer {
        /// The receiver.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// It was refused.
    #[error("{host} answered with status {status}{}", hint(*status))]
    Status {
        /// The receiver.
        host: String,
        /// The status of its answer.
        status: u16,
    },
    /// A header that would end the request's head.
    #[error("the value of header {name} has a character that HTTP forbids")]
    Header {
        /// Its name.
        name: String,
    },
    /// The command failed.
    #[error("{program} {reason}")]
    Command {
        /// Its first word.
        program: String,
        /// How.
        reason: String,
    },
    /// The words of a command line.
    #[error(transparent)]
    Words(#[from] stormlog_model::text::WordsError),
    /// No command.
    #[error("the command is empty")]
    NoCommand,
    /// A token's file.
    #[error("{}: {reason}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

fn hint(status: u16) -> &'static str {
    match status {
        300..=399 => "; redirects are not followed, give the final address",
        401 | 403 => "; check the token",
        413 => "; it does not accept bodies of this size",
        _ => "",
    }
}
