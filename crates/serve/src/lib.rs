//! Serves what was recorded: the metrics, runs and pages of a node ([`NodeServer`]), or one page for one browser ([`PageServer`]).
//!
//! [`node`] reads run directories and makes metrics of them, `http` speaks with clients. Must never touch a program, and never show a user of the machine
//! what another one recorded but in metrics.

#![forbid(unsafe_code)]

mod http;
pub mod node;
mod otlp;
mod page;
mod pushing;
mod pyroscope;
mod server;
mod textfile;
mod token;

pub use http::{Listen, Tls, TlsError, TlsFiles};
pub use otlp::Otlp;
pub use page::PageServer;
pub use pyroscope::{LiveCapture, Pyroscope};
pub use server::{NodeServer, PageMaker, ServeError, ServeOptions};
pub use textfile::Textfile;
pub use token::{Token, TokenError};
