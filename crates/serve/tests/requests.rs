//! Real requests to a real socket: what the owner of the token gets, and what everyone else does.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use stormlog_serve::PageServer;

/// A server that runs until it is dropped.
struct Running {
    address: String,
    token: String,
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Running {
    fn new() -> Self {
        let server = PageServer::bind("<p>the page</p>".to_owned()).unwrap();
        let url = server.url();
        let (address, token) = url.strip_prefix("http://").unwrap().split_once("/?token=").unwrap();
        let (address, token) = (address.to_owned(), token.to_owned());
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || server.run(&|| !over.load(Ordering::Relaxed)).unwrap());
        Running { address, token, is_over, thread: Some(thread) }
    }

    fn send(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        // A request that is too large is answered before it is read whole.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    fn get(&self, target: &str, host: &str, more: &str) -> String {
        self.send(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().map(thread::JoinHandle::join);
    }
}

fn cookie_of(answer: &str) -> String {
    let line = answer.lines().find_map(|line| line.strip_prefix("Set-Cookie: ")).unwrap();
    line.split(';').next().unwrap().to_owned()
}

#[test]
fn the_token_is_good_once_and_the_cookie_afterwards() {
    let server = Running::new();
    let target = format!("/?token={}", server.token);
    let first = server.get(&target, &server.address, "");
    assert!(first.starts_with("HTTP/1.1 303 "), "{first}");
    assert!(first.contains("HttpOnly; SameSite=Strict") && !first.contains("the page"), "{first}");
    assert!(server.get(&target, &server.address, "").starts_with("HTTP/1.1 403 "), "a second browser");
    let cookie = format!("Cookie: {}\r\n", cookie_of(&first));
    let page = server.get("/", &server.address, &cookie);
    assert!(page.starts_with("HTTP/1.1 200 ") && page.ends_with("<p>the page</p>"), "{page}");
    let localhost = server.address.replace("127.0.0.1", "localhost");
    assert!(server.get("/", &localhost, &cookie).starts_with("HTTP/1.1 200 "));
    assert!(server.get("/other", &server.address, &cookie).starts_with("HTTP/1.1 404 "));
    // Another name that resolves to this machine.
    assert!(server.get("/", "attacker.example", &cookie).starts_with("HTTP/1.1 421 "));
    let rebound = format!("attacker.example:{}", server.address.rsplit(':').next().unwrap());
    assert!(server.get("/", &rebound, &cookie).starts_with("HTTP/1.1 421 "));
    assert!(server.get("/", "127.0.0.1:1", &cookie).starts_with("HTTP/1.1 421 "));
}

#[test]
fn without_the_token_there_is_nothing() {
    let server = Running::new();
    for target in ["/", "/?token=", "/?token=wrong", "/?other=1"] {
        assert!(server.get(target, &server.address, "").starts_with("HTTP/1.1 403 "), "{target}");
    }
    let wrong = format!("Cookie: stormlog-{}=wrong\r\n", server.address.rsplit(':').next().unwrap());
    assert!(server.get("/", &server.address, &wrong).starts_with("HTTP/1.1 403 "));
    // A wrong token does not spend the right one.
    assert!(
        server.get(&format!("/?token={}", server.token), &server.address, "").starts_with("HTTP/1.1 303 ")
    );
}

#[test]
fn server_rejects_other_methods_and_large_requests() {
    let server = Running::new();
    let post = format!("POST / HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\n\r\n", server.address);
    assert!(server.send(&post).starts_with("HTTP/1.1 405 "));
    assert!(server.send("nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
    let large = format!("GET / HTTP/1.1\r\nHost: {}\r\nX: {}", server.address, "x".repeat(9 << 10));
    assert!(server.send(&large).starts_with("HTTP/1.1 431 "));
}
