//! Serves what was recorded: the metrics, runs and pages of a node ([`NodeServer`]), or one page for one browser ([`PageServer`]).
//!
//! `stormlog-node` reads run directories, [`exposition`] makes metrics of its picture, `http` answers clients. Must never touch a program, and never show a user of the machine
//! what another one recorded but in metrics.

#![forbid(unsafe_code)]

mod http;
mod otlp;
mod page;
mod pushing;
mod pyroscope;
mod series;
mod server;
mod textfile;
mod token;
mod trigger;

pub use http::{Listen, Tls, TlsError, TlsFiles};
pub use otlp::Otlp;
pub use page::PageServer;
pub use pyroscope::{LiveCapture, Pyroscope};
pub use series::{Exposure, exposition};
pub use server::{NodeServer, PageMaker, ServeError, ServeOptions};
pub use textfile::Textfile;
pub use token::{Token, TokenError};
pub use trigger::Audit;
