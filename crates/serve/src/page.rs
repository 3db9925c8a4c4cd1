//! One page on loopback, for the user who asked for it and for no other: a page that is too large to keep in a file.
//!
//! Every local user can connect to loopback, and every web page can make the browser send requests there. So the printed address has a token that is good
//! for one request; that request gets a cookie, and everything else is refused. The Host header is checked against DNS rebinding. Must never read a
//! file, and never listen on another address.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::http::{Listen, Listener, Refusal, Reply, Request, is_equal, secret};

/// A page on loopback.
#[derive(Debug)]
pub struct PageServer {
    listener: Listener,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    page: Arc<[u8]>,
    port: u16,
    token: String,
    is_token_spent: AtomicBool,
    cookie: String,
}

impl PageServer {
    /// Listens on a free port of 127.0.0.1.
    pub fn bind(page: String) -> io::Result<Self> {
        let listener = Listener::bind(&Listen::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))), None)?;
        let port = listener.address().map_or(0, |address| address.port());
        let shared = Shared {
            page: page.into_bytes().into(),
            port,
            token: secret(),
            is_token_spent: AtomicBool::new(false),
            cookie: secret(),
        };
        Ok(PageServer { listener, shared: Arc::new(shared) })
    }

    /// The address to open, once.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/?token={}", self.shared.port, self.shared.token)
    }

    /// Answers until `keep_serving` returns false.
    pub fn run(&self, keep_serving: &dyn Fn() -> bool) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let handler: Arc<dyn Fn(&Request) -> Reply + Send + Sync> =
            Arc::new(move |request: &Request| shared.reply(request));
        self.listener.run(keep_serving, &handler)
    }
}

impl Shared {
    fn reply(&self, request: &Request) -> Reply {
        if !self.is_own_host(&request.host) {
            return Reply::refused(Refusal::WrongHost);
        }
        if request.method != "GET" && request.method != "HEAD" {
            return Reply::refused(Refusal::WrongMethod);
        }
        if request.path != "/" {
            return Reply::refused(Refusal::NotFound);
        }
        if let Some(token) = &request.token {
            let is_right = is_equal(token, &self.token);
            if is_right && !self.is_token_spent.swap(true, Ordering::SeqCst) {
                let head = format!("Set-Cookie: {}\r\nLocation: /\r\n", self.cookie_line());
                return Reply { head, ..Reply::text("303 See Other", "") };
            }
        }
        let name = self.cookie_name();
        let known = request.cookies.iter().find(|(key, _)| *key == name);
        match known.is_some_and(|(_, value)| is_equal(value, &self.cookie)) {
            true => Reply::ok("text/html; charset=utf-8", Arc::clone(&self.page)),
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
