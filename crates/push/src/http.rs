//! One HTTP/1.1 request over a plain socket: a deadline for all of it, a bounded answer, no redirects. https goes through [`Client::secure`].

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::PushError;
use crate::secure;
use crate::url::Url;

/// Bytes of an answer to a POST that are read.
const MOST_ANSWER: usize = 64 << 10;
/// What the head and the lengths of a body's parts may add to it.
const MOST_HEAD: usize = 64 << 10;

/// Sends requests.
#[derive(Debug, Clone)]
pub struct Client {
    /// Time for one delivery, name resolution included.
    pub timeout: Duration,
    /// The command that posts over TLS; empty where there is none.
    pub secure: Vec<OsString>,
}

/// What is asked of the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Take this.
    Post,
    /// Store this under the URL.
    Put,
    /// Give what is stored under the URL.
    Get,
    /// Remove what is stored under the URL.
    Delete,
}

impl Method {
    /// As HTTP has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Get => "GET",
            Method::Delete => "DELETE",
        }
    }
}

/// What is sent.
#[derive(Debug)]
pub struct Request<'a> {
    /// The receiver.
    pub url: &'a Url,
    /// Type of the body; empty without one.
    pub content_type: &'a str,
    /// Further headers.
    pub headers: &'a [(String, String)],
    /// The body.
    pub body: &'a [u8],
}

impl Client {
    /// Whether the receiver can be reached from here at all.
    pub fn check(&self, url: &Url) -> Result<(), PushError> {
        match url.is_secure && self.secure.is_empty() {
            true => Err(PushError::NoTls { host: url.to_string() }),
            false => Ok(()),
        }
    }

    /// Posts, and waits for a status of 200 to 299. Gives the answer's body, or its beginning.
    pub fn post(&self, request: &Request<'_>) -> Result<Vec<u8>, PushError> {
        match self.send(Method::Post, request, MOST_ANSWER)? {
            (200..=299, body) => Ok(body),
            (status, _) => Err(PushError::Status { host: request.url.to_string(), status }),
        }
    }

    /// Sends, and gives the status and the body of the answer, of which `most` bytes are read.
    pub fn send(
        &self,
        method: Method,
        request: &Request<'_>,
        most: usize,
    ) -> Result<(u16, Vec<u8>), PushError> {
        self.check(request.url)?;
        check_headers(request)?;
        match request.url.is_secure {
            true => secure::send(&self.secure, method, request, self.timeout, most),
            false => plain(method, request, Instant::now() + self.timeout, most),
        }
    }
}

fn check_headers(request: &Request<'_>) -> Result<(), PushError> {
    let own = [("Content-Type".to_owned(), request.content_type.to_owned())];
    for (name, value) in request.headers.iter().chain(&own) {
        let is_name =
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        let is_value = value.bytes().all(|b| (b' '..=b'~').contains(&b));
        if !is_name || !is_value {
            let name = if is_name { name.clone() } else { "its name is not valid".to_owned() };
            return Err(PushError::Header { name });
        }
    }
    Ok(())
}

fn plain(
    method: Method,
    request: &Request<'_>,
    deadline: Instant,
    most: usize,
) -> Result<(u16, Vec<u8>), PushError> {
    let host = request.url.to_string();
    let mut stream =
        connect(request.url, deadline).map_err(|source| PushError::Connect { host: host.clone(), source })?;
    let exchange = |stream: &mut TcpStream| -> io::Result<(u16, Vec<u8>)> {
        let mut head = format!(
            "{} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: stormlog/{}\r\nContent-Length: {}\r\nConnection: close\r\n",
            method.as_str(),
            request.url.path,
            request.url.authority(),
            env!("CARGO_PKG_VERSION"),
            request.body.len(),
        );
        if !request.content_type.is_empty() {
            head.push_str(&format!("Content-Type: {}\r\n", request.content_type));
        }
        for (name, value) in request.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        // A receiver may answer and close before it has read everything: its answer counts.
        let written =
            write(stream, head.as_bytes(), deadline).and_then(|()| write(stream, request.body, deadline));
        let answer = read(stream, deadline, most)?;
        match status_of(&answer) {
            Some(status) => Ok((status, body_of(&answer))),
            None => Err(written.err().unwrap_or_else(|| io::Error::other("its answer is not HTTP"))),
        }
    };
    exchange(&mut stream).map_err(|source| PushError::Answer { host, source })
}

/// Names are resolved in a thread of their own: the system's resolver knows no deadline of ours.
fn connect(url: &Url, deadline: Instant) -> io::Result<TcpStream> {
    let (sender, receiver) = mpsc::channel();
    let target = (url.host.clone(), url.port);
    thread::Builder::new().name("stormlog-resolve".into()).spawn(move || {
        let found = target.to_socket_addrs().map(Iterator::collect::<Vec<SocketAddr>>);
        // The caller may have reached its deadline.
        let _ = sender.send(found);
    })?;
    let found =
        receiver.recv_timeout(left(deadline)?).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let mut last = io::Error::other("its name does not resolve");
    for address in found {
        match TcpStream::connect_timeout(&address, left(deadline)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The time left; an error when there is none, because a time-out of 0 means none to a socket.
fn left(deadline: Instant) -> io::Result<Duration> {
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

/// Before each call, because a receiver that takes a byte a second would otherwise begin the time again with each.
fn write(stream: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => bytes = &bytes[count..],
        }
    }
    Ok(())
}

fn read(stream: &mut TcpStream, deadline: Instant, most: usize) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut buffer = [0; 16 << 10];
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(answer),
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
            // The status is known by then; what follows it matters less.
            Err(_) if status_of(&answer).is_some() => return Ok(answer),
            Err(error) => return Err(error),
        }
        if answer.len() > MOST_HEAD + most || is_whole(&answer) {
            return Ok(answer);
        }
    }
}

fn head_end(answer: &[u8]) -> Option<usize> {
    answer.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

fn body_of(answer: &[u8]) -> Vec<u8> {
    let Some(end) = head_end(answer) else { return Vec::new() };
    let body = answer.get(end..).unwrap_or_default();
    if is_in_parts(&answer[..end]) { join_parts(body).0 } else { body.to_vec() }
}

/// Whether the body is as long as the head says, or its last part is there. One of another kind ends with the connection.
fn is_whole(answer: &[u8]) -> bool {
    let Some(end) = head_end(answer) else { return false };
    // The end of the last part is looked for only where it can be.
    if is_in_parts(&answer[..end]) {
        return answer.ends_with(b"0\r\n\r\n") && join_parts(&answer[end..]).1;
    }
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    length.is_some_and(|length| answer.len() - end >= length) || status_of(answer) == Some(204)
}

/// HTTP/1.1's chunked transfer.
fn is_in_parts(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    head.lines().any(|line| line.strip_prefix("transfer-encoding:").is_some_and(|it| it.contains("chunked")))
}

/// The parts that are there, joined, and whether the last one is among them.
fn join_parts(mut body: &[u8]) -> (Vec<u8>, bool) {
    let mut joined = Vec::new();
    while let Some(end) = body.iter().position(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(&body[..end]);
        let length = line.trim().split(';').next().and_then(|text| usize::from_str_radix(text, 16).ok());
        let Some(length) = length else { break };
        if length == 0 {
            return (joined, true);
        }
        let start = end + 1;
        let stop = start.saturating_add(length).min(body.len());
        joined.extend_from_slice(&body[start..stop]);
        body = body.get(stop.saturating_add(2)..).unwrap_or_default();
    }
    (joined, false)
}

fn status_of(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|byte| *byte == b'\n').next().filter(|line| line.len() < answer.len())?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_ascii_whitespace();
    words.next().filter(|word| word.starts_with("HTTP/1."))?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_in_parts_is_joined_and_its_end_is_seen() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let whole = format!("{head}4\r\nab\r\n\r\n3;x=y\r\ncde\r\n0\r\n\r\n");
        assert!(is_whole(whole.as_bytes()));
        assert_eq!(body_of(whole.as_bytes()), b"ab\r\ncde");
        for length in 0..whole.len() {
            assert!(!is_whole(&whole.as_bytes()[..length]), "{length}");
            // Whatever is there is taken without trouble.
            let _ = body_of(&whole.as_bytes()[..length]);
        }
        let hostile = format!("{head}ffffffffffffffff\r\nx");
        assert_eq!(body_of(hostile.as_bytes()), b"x");
    }
}
