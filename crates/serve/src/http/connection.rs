//! A client, by TCP, by TLS or by a Unix socket.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// One connection.
#[derive(Debug)]
pub(crate) enum Connection {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// Keeps its own time.
    #[cfg(feature = "tls")]
    Tls(super::tls::TlsStream),
}

impl Connection {
    /// Gives up a read after `timeout`.
    pub(crate) fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Connection::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
            Connection::Unix(stream) => stream.set_read_timeout(Some(timeout)),
            #[cfg(feature = "tls")]
            Connection::Tls(_) => Ok(()),
        }
    }

    /// Makes reads and writes block, each write for at most `timeout`.
    pub(crate) fn prepare(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Connection::Tcp(stream) => {
                stream.set_nonblocking(false)?;
                stream.set_write_timeout(Some(timeout))
            }
            Connection::Unix(stream) => {
                stream.set_nonblocking(false)?;
                stream.set_write_timeout(Some(timeout))
            }
            #[cfg(feature = "tls")]
            Connection::Tls(_) => Ok(()),
        }
    }
}

impl Read for Connection {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Connection::Tcp(stream) => stream.read(bytes),
            Connection::Unix(stream) => stream.read(bytes),
            #[cfg(feature = "tls")]
            Connection::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Connection::Tcp(stream) => stream.write(bytes),
            Connection::Unix(stream) => stream.write(bytes),
            #[cfg(feature = "tls")]
            Connection::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Connection::Tcp(stream) => stream.flush(),
            Connection::Unix(stream) => stream.flush(),
            #[cfg(feature = "tls")]
            Connection::Tls(stream) => stream.flush(),
        }
    }
}
