//! Serves one page on loopback, for the user who asked for it and for no other: a page that is too large to keep in a file.
//!
//! Every local user can connect to loopback, and every web page can make the browser send requests there. So the printed address has a token that is good
//! for one request; that request gets a cookie, and everything else is refused. The Host header is checked against DNS rebinding. A request is bounded in
//! size, in time and in number. Must never read a file, and never listen on another address.

#![forbid(unsafe_code)]

mod request;

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use request::{Refusal, Request};

/// Requests that are answered at the same time; more wait for nothing and are closed.
const MOST_AT_ONCE: usize = 16;
/// A request or an answer that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks for a connection, so that the caller can end the service.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// A page on loopback.
#[derive(Debug)]
pub struct PageServer {
    listener: TcpListener,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    page: Vec<u8>,
    port: u16,
    token: String,
    is_token_spent: AtomicBool,
    cookie: String,
    busy: AtomicUsize,
}

impl PageServer {
    /// Listens on a free port of 127.0.0.1.
    pub fn bind(page: String) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let shared = Shared {
            page: page.into_bytes(),
            port,
            token: secret(),
            is_token_spent: AtomicBool::new(false),
            cookie: secret(),
            busy: AtomicUsize::new(0),
        };
        Ok(PageServer { listener, shared: Arc::new(shared) })
    }

    /// The address to open, once.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/?token={}", self.shared.port, self.shared.token)
    }

    /// Answers until `goes_on` returns false.
    pub fn run(&self, goes_on: &dyn Fn() -> bool) -> io::Result<()> {
        while goes_on() {
            match self.listener.accept() {
                Ok((stream, _)) => self.take(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(BETWEEN_LOOKS),
                // The client has gone, or there are too many descriptors for a moment.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take(&self, stream: TcpStream) {
        let shared = Arc::clone(&self.shared);
        if shared.busy.fetch_add(1, Ordering::Relaxed) >= MOST_AT_ONCE {
            shared.busy.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let answering = Arc::clone(&shared);
        let started = thread::Builder::new().name("report-page".to_owned()).spawn(move || {
            // A client that goes away has no answer to get.
            let _ = answering.answer(stream);
            answering.busy.fetch_sub(1, Ordering::Relaxed);
        });
        if started.is_err() {
            shared.busy.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Shared {
    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let reply = match Request::read(&mut stream, PATIENCE) {
            Ok(request) => self.reply(&request),
            Err(refusal) => Reply::refused(refusal),
        };
        reply.send(&mut stream)
    }

    fn reply(&self, request: &Request) -> Reply<'_> {
        if !self.is_own_host(&request.host) {
            return Reply::refused(Refusal::WrongHost);
        }
        if request.method != "GET" && request.method != "HEAD" {
            return Reply::refused(Refusal::WrongMethod);
        }
        if request.path != "/" {
            return Reply::refused(Refusal::NotFound);
        }
        let is_head = request.method == "HEAD";
        if let Some(token) = &request.token {
            let is_right = is_equal(token, &self.token);
            if is_right && !self.is_token_spent.swap(true, Ordering::SeqCst) {
                return Reply {
                    status: "303 See Other",
                    cookie: Some(self.cookie_line()),
                    is_redirect: true,
                    ..Reply::default()
                };
            }
        }
        let name = self.cookie_name();
        let known = request.cookies.iter().find(|(key, _)| *key == name);
        match known.is_some_and(|(_, value)| is_equal(value, &self.cookie)) {
            true => Reply { status: "200 OK", body: &self.page, is_head, ..Reply::default() },
            false => Reply::refused(Refusal::NoToken),
        }
    }

    fn is_own_host(&self, host: &str) -> bool {
        let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
        ["127.0.0.1", "localhost"].contains(&name) && port == self.port.to_string()
    }

    /// Cookies are shared by all ports of an address: the name has the port.
    fn cookie_name(&self) -> String {
        format!("stormlog-{}", self.port)
    }

    fn cookie_line(&self) -> String {
        format!("{}={}; Path=/; HttpOnly; SameSite=Strict", self.cookie_name(), self.cookie)
    }
}

/// 244 random bits.
fn secret() -> String {
    format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple())
}

/// Takes as long for a wrong letter at the beginning as at the end.
fn is_equal(given: &str, wanted: &str) -> bool {
    let pairs = given.bytes().zip(wanted.bytes());
    given.len() == wanted.len() && pairs.fold(0, |found, (a, b)| found | (a ^ b)) == 0
}

/// What is sent back.
#[derive(Debug, Default)]
struct Reply<'a> {
    status: &'static str,
    body: &'a [u8],
    is_head: bool,
    cookie: Option<String>,
    is_redirect: bool,
}

impl Reply<'_> {
    fn refused(refusal: Refusal) -> Reply<'static> {
        let (status, body) = refusal.words();
        Reply { status, body: body.as_bytes(), ..Reply::default() }
    }

    fn send(&self, stream: &mut TcpStream) -> io::Result<()> {
        let kind = if self.status == "200 OK" { "text/html" } else { "text/plain" };
        let mut head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\n",
            self.status,
            self.body.len()
        );
        if let Some(cookie) = &self.cookie {
            head.push_str(&format!("Set-Cookie: {cookie}\r\n"));
        }
        if self.is_redirect {
            head.push_str("Location: /\r\n");
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes())?;
        if !self.is_head {
            stream.write_all(self.body)?;
        }
        stream.flush()
    }
}
