//! As much of HTTP as pages and metrics need: a bounded head, a whole answer, one request a connection. Must never read a body, and never wait longer
//! for a client than it is given.

mod connection;
mod listener;
mod reply;
mod request;
mod tls;

pub(crate) use connection::Connection;
pub use listener::Listen;
pub(crate) use listener::Listener;
pub(crate) use reply::Reply;
pub(crate) use request::{Refusal, Request};
pub use tls::{Tls, TlsError, TlsFiles};

/// 244 random bits.
pub(crate) fn secret() -> String {
    format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple())
}

/// Takes as long for a wrong letter at the beginning as at the end.
pub(crate) fn is_equal(given: &str, wanted: &str) -> bool {
    let pairs = given.bytes().zip(wanted.bytes());
    given.len() == wanted.len() && pairs.fold(0, |found, (a, b)| found | (a ^ b)) == 0
}
