//! Takes connections and answers each in a thread of its own, a bounded number at a time.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;

use super::{Connection, Reply, Request, Tls};

/// Requests that are answered at the same time; further ones are closed at once.
const MOST_AT_ONCE: usize = 16;
/// A request or an answer that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait for a connection before the caller is asked whether to continue; a signal ends the wait at once.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
/// Between two looks at what cannot be waited for.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A socket that only its owner can open.
    Unix(PathBuf),
}

/// What answers a request.
pub(crate) type Handler = dyn Fn(&Request) -> Reply + Send + Sync;

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// A socket that is listened at.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Socket,
    tls: Option<Tls>,
    busy: Arc<AtomicUsize>,
}

impl Listener {
    pub(crate) fn bind(listen: &Listen, tls: Option<Tls>) -> io::Result<Self> {
        let socket = match listen {
            Listen::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Socket::Tcp(listener)
            }
            Listen::Unix(path) => {
                remove_stale(path)?;
                // From the first moment on it is its owner's alone.
                let before = rustix::process::umask(Mode::from_raw_mode(0o177));
                let bound = UnixListener::bind(path);
                rustix::process::umask(before);
                let listener = bound?;
                fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
                listener.set_nonblocking(true)?;
                Socket::Unix(listener, path.clone())
            }
        };
        Ok(Listener { socket, tls, busy: Arc::default() })
    }

    /// The address of a TCP socket.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok(),
            Socket::Unix(..) => None,
        }
    }

    /// Answers until `keep_serving` returns false; requests that were taken by then are answered.
    pub(crate) fn run(&self, keep_serving: &dyn Fn() -> bool, handler: &Arc<Handler>) -> io::Result<()> {
        while keep_serving() {
            let accepted = match &self.socket {
                Socket::Tcp(listener) => listener.accept().map(|(stream, _)| Connection::Tcp(stream)),
                Socket::Unix(listener, _) => listener.accept().map(|(stream, _)| Connection::Unix(stream)),
            };
            match accepted {
                Ok(connection) => self.take(connection, handler),
                Err(error) => match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
                    Some(rustix::io::Errno::AGAIN) => self.wait(),
                    // The client has gone.
                    Some(rustix::io::Errno::CONNABORTED | rustix::io::Errno::INTR) => {}
                    // Too many descriptors or too little memory for a moment.
                    Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE | rustix::io::Errno::NOMEM) => {
                        thread::sleep(BETWEEN_LOOKS);
                    }
                    _ => return Err(error),
                },
            }
        }
        let mut looks = PATIENCE.as_millis() / BETWEEN_LOOKS.as_millis();
        while self.busy.load(Ordering::Acquire) > 0 && looks > 0 {
            thread::sleep(BETWEEN_LOOKS);
            looks -= 1;
        }
        Ok(())
    }

    /// Until there is a connection, or the time is over. An error of the wait itself is a look too early.
    fn wait(&self) {
        let descriptor = match &self.socket {
            Socket::Tcp(listener) => listener.as_fd(),
            Socket::Unix(listener, _) => listener.as_fd(),
        };
        let _ = poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&WAIT));
    }

    fn take(&self, connection: Connection, handler: &Arc<Handler>) {
        let busy = Arc::clone(&self.busy);
        if busy.fetch_add(1, Ordering::AcqRel) >= MOST_AT_ONCE {
            busy.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        let handler = Arc::clone(handler);
        let tls = self.tls.clone();
        let answering = Arc::clone(&busy);
        let started = thread::Builder::new().name("serve".to_owned()).spawn(move || {
            // A client that goes away has no answer to get.
            let _ = encrypted(connection, tls.as_ref())
                .and_then(|connection| answer(connection, handler.as_ref()));
            answering.fetch_sub(1, Ordering::AcqRel);
        });
        if started.is_err() {
            busy.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Socket::Unix(_, path) = &self.socket {
            // Left behind, the next service removes it.
            let _ = fs::remove_file(path);
        }
    }
}

/// The same connection, where it is to be encrypted.
fn encrypted(connection: Connection, tls: Option<&Tls>) -> io::Result<Connection> {
    match (connection, tls) {
        #[cfg(feature = "tls")]
        (Connection::Tcp(stream), Some(tls)) => tls.accept(stream, 2 * PATIENCE).map(Connection::Tls),
        (connection, _) => Ok(connection),
    }
}

fn answer(mut connection: Connection, handler: &Handler) -> io::Result<()> {
    connection.prepare(PATIENCE)?;
    let (reply, is_head) = match Request::read(&mut connection, PATIENCE) {
        Ok(request) => (handler(&request), request.method == "HEAD"),
        Err(refusal) => (Reply::refused(refusal), false),
    };
    reply.send(&mut connection, is_head)
}

/// Removes a socket that no process listens at any more. Another file of that name stays.
fn remove_stale(path: &Path) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    let is_stale = found.file_type().is_socket() && UnixStream::connect(path).is_err();
    if is_stale { fs::remove_file(path) } else { Ok(()) }
}
