//! What is sent to others: HTTP requests over plain sockets, and alerts and deaths to a command or a webhook.
//!
//! A receiver may be slow, gone or hostile: every delivery has a deadline, answers are read to a bound, redirects are not followed. A failure is a value
//! and never more. This crate must never log a token or a URL's query, and never deliver from a thread that the recording waits for.
#![forbid(unsafe_code)]

mod courier;
mod deliver;
mod error;
mod hook_command;
mod http;
mod notice;
mod secure;
mod token;
mod url;

pub use courier::{Answer, Courier, Deliveries, Destination};
pub use deliver::deliver;
pub use error::PushError;
pub use hook_command::split_words;
pub use http::{Client, Method, Request};
pub use notice::{Event, Notice};
pub use token::read_token;
pub use url::Url;
