//! The head of a request, as far as pages and metrics need it. Must never read more than [`MOST_BYTES`], nor wait longer than it is given.

use std::io::Read;
use std::time::{Duration, Instant};

use super::Connection;

/// A browser's head is below 2 KiB.
const MOST_BYTES: usize = 8 << 10;
/// A client that sends more than a socket takes never reads its answer: it would not know what it has caused.
const MOST_BODY: u64 = 64 << 10;

/// Why a request is not answered with the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Malformed,
    TooLarge,
    LargeBody,
    TooSlow,
    WrongHost,
    WrongMethod,
    NotFound,
    NoToken,
}

impl Refusal {
    /// The status and a sentence.
    pub(crate) fn words(self) -> (&'static str, &'static str) {
        match self {
            Refusal::Malformed => ("400 Bad Request", "The request cannot be read.\n"),
            Refusal::TooLarge => ("431 Request Header Fields Too Large", "The request is too large.\n"),
            Refusal::LargeBody => ("413 Content Too Large", "The request needs no body.\n"),
            Refusal::TooSlow => ("408 Request Timeout", "The request took too long.\n"),
            Refusal::WrongHost => ("421 Misdirected Request", "Open the address that stormlog printed.\n"),
            Refusal::WrongMethod => ("405 Method Not Allowed", "Only GET and HEAD are allowed.\n"),
            Refusal::NotFound => ("404 Not Found", "Not found. The only page is /\n"),
            Refusal::NoToken => (
                "403 Forbidden",
                "The token in the printed address works in one browser only. Start `stormlog report --serve` again for another one.\n",
            ),
        }
    }
}

/// What was requested.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Without its query.
    pub(crate) path: String,
    /// `token` of its query.
    pub(crate) token: Option<String>,
    /// `pid` of its query.
    pub(crate) pid: Option<u32>,
    pub(crate) host: String,
    pub(crate) accept: String,
    /// Whether more follows the head than a client sends by habit. It is never read.
    pub(crate) has_large_body: bool,
    /// Of the scheme `Bearer`; empty for another scheme.
    pub(crate) bearer: Option<String>,
    pub(crate) cookies: Vec<(String, String)>,
}

impl Request {
    /// Reads a head within `timeout`.
    pub(crate) fn read(stream: &mut Connection, timeout: Duration) -> Result<Self, Refusal> {
        let until = Instant::now() + timeout;
        let mut head = Vec::new();
        let mut piece = [0; 1024];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || stream.set_read_timeout(left).is_err() {
                return Err(Refusal::TooSlow);
            }
            match stream.read(&mut piece) {
                Ok(0) => return Err(Refusal::Malformed),
                Ok(read) => head.extend_from_slice(&piece[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Refusal::TooSlow),
            }
            if let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") {
                return Request::parse(&head[..end]);
            }
            if head.len() > MOST_BYTES {
                return Err(Refusal::TooLarge);
            }
        }
    }

    fn parse(head: &[u8]) -> Result<Self, Refusal> {
        let text = std::str::from_utf8(head).map_err(|_| Refusal::Malformed)?;
        let mut lines = text.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(Refusal::Malformed);
        };
        if !version.starts_with("HTTP/1.") {
            return Err(Refusal::Malformed);
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let token = query.split('&').find_map(|pair| pair.strip_prefix("token=")).map(str::to_owned);
        let pid = query.split('&').find_map(|pair| pair.strip_prefix("pid=")?.parse().ok());
        let mut request =
            Request { method: method.to_owned(), path: path.to_owned(), token, pid, ..Request::default() };
        let mut hosts = 0;
        for line in lines {
            let (name, value) = line.split_once(':').ok_or(Refusal::Malformed)?;
            match name.to_ascii_lowercase().as_str() {
                "host" => {
                    hosts += 1;
                    request.host = value.trim().to_ascii_lowercase();
                }
                "accept" => request.accept = value.trim().to_owned(),
                "content-length" => {
                    request.has_large_body |=
                        value.trim().parse::<u64>().is_ok_and(|bytes| bytes > MOST_BODY);
                }
                "transfer-encoding" => request.has_large_body = true,
                "authorization" => {
                    let (scheme, token) = value.trim().split_once(' ').unwrap_or_default();
                    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
                    request.bearer = Some(if is_bearer { token.trim().to_owned() } else { String::new() });
                }
                "cookie" => request.cookies.extend(value.split(';').filter_map(|pair| {
                    let (name, value) = pair.trim().split_once('=')?;
                    Some((name.to_owned(), value.to_owned()))
                })),
                _ => {}
            }
        }
        // Two hosts: which one a proxy looked at is not known.
        if hosts == 1 { Ok(request) } else { Err(Refusal::Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_and_a_malformed_one_refused() {
        let request = Request::parse(
            b"GET /?a=1&token=abc HTTP/1.1\r\nHost: LOCALHOST:80\r\nCookie: x=1; stormlog-80=s\r\nAccept: */*",
        );
        let request = request.unwrap();
        assert_eq!((request.path.as_str(), request.token.as_deref()), ("/", Some("abc")));
        assert_eq!(request.host, "localhost:80");
        assert_eq!(request.cookies[1], ("stormlog-80".to_owned(), "s".to_owned()));
        assert!(!request.has_large_body);
        for line in ["Content-Length: 70000", "content-length:  999999999999", "Transfer-Encoding: chunked"] {
            let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{line}");
            assert!(Request::parse(head.as_bytes()).unwrap().has_large_body, "{line}");
        }
        for bad in [
            &b"GET / HTTP/1.1"[..],
            b"GET /\r\nHost: a",
            b"GET / HTTP/1.1\r\nHost: a\r\nHost: b",
            b"GET / HTTP/2\r\nHost: a",
            b"\xff\xfe / HTTP/1.1\r\nHost: a",
        ] {
            assert_eq!(Request::parse(bad), Err(Refusal::Malformed));
        }
    }
}
