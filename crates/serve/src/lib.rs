//! Serves what was recorded: the metrics, runs and pages of a node ([`NodeServer`]), or one page for one browser ([`PageServer`]).
//!
//! [`node`] reads run directories and makes metrics of them, `http` speaks with clients. Must never touch a program, and never show a user of the machine
//! what another one recorded but in metrics.

#![forbid(unsafe_code)]

mod http;
pub mod node;
mod page;
mod server;
mod textfile;
mod token;

pub use http::{Listen, Tls, TlsError, TlsFiles};
pub use page::PageServer;
pub use server::{NodeServer, PageMaker, ServeError, ServeOptions};
pub use textfile::Textfile;
pub use token::{Token, TokenError};
