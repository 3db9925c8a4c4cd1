//! A client, by TCP or by a Unix socket.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// One connection.
#[derive(Debug)]
pub(crate) enum Connection {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Connection {
    /// Gives up a read after so long.
    pub(crate) fn set_read_timeout(&self, patience: Duration) -> io::Result<()> {
        match self {
            Connection::Tcp(stream) => stream.set_read_timeout(Some(patience)),
            Connection::Unix(stream) => stream.set_read_timeout(Some(patience)),
        }
    }

    /// Blocks in reads and writes, each write at most so long.
    pub(crate) fn prepare(&self, patience: Duration) -> io::Result<()> {
        match self {
            Connection::Tcp(stream) => {
                stream.set_nonblocking(false)?;
                stream.set_write_timeout(Some(patience))
            }
            Connection::Unix(stream) => {
                stream.set_nonblocking(false)?;
                stream.set_write_timeout(Some(patience))
            }
        }
    }
}

impl Read for Connection {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Connection::Tcp(stream) => stream.read(bytes),
            Connection::Unix(stream) => stream.read(bytes),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Connection::Tcp(stream) => stream.write(bytes),
            Connection::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Connection::Tcp(stream) => stream.flush(),
            Connection::Unix(stream) => stream.flush(),
        }
    }
}
